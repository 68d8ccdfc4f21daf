/* Runs a guard program: fetch, test leaves, keep inputs, go down; then identities and conditions. The first failure wins.
 *
 * Fetching may run Python code (generic attributes), so every value is held by a strong reference while it is used unless its holder
 * cannot let go of it meanwhile; programs are immutable after construction except for `memory`, which is reference counted.
 */
#include "guard_tree.h"

#define SMALL 48
#define TABLE 128 /* a power of two */
#define FEW 8

PyTypeObject *tw_weak_key_type;

/* A new reference to a key, which may be held weakly: NULL without an exception when it is dead. */
static PyObject *tw_held(PyObject *key)
{
    return Py_TYPE(key) == tw_weak_key_type ? tw_weak_target(key) : Py_NewRef(key);
}

PyObject *tw_address(PyObject *held)
{
    PyObject *object = tw_held(held);
    Py_XDECREF(object);
    return object;
}

/* ---- fetching ---- */

static PyObject *sequence_item(PyObject *value, Py_ssize_t index, bool *owned)
{
    if (PyTuple_Check(value) || PyList_Check(value)) {
        Py_ssize_t length = Py_SIZE(value);
        index = index < 0 ? index + length : index;
        if (index < 0 || index >= length) {
            return NULL;
        }
        PyObject *item = PyTuple_Check(value) ? PyTuple_GET_ITEM(value, index) : PyList_GET_ITEM(value, index);
        *owned = true;
        return Py_NewRef(item);
    }
    *owned = true;
    return PySequence_GetItem(value, index);
}

static PyObject *dict_key_at(PyObject *value, Py_ssize_t index, bool *owned)
{
    if (!PyDict_Check(value)) {
        return NULL;
    }
    PyObject *key = NULL;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; i <= index; i++) {
        if (!PyDict_Next(value, &position, &key, NULL)) {
            return NULL;
        }
    }
    *owned = true;
    return Py_NewRef(key);
}

static PyObject *tuple_item(PyObject *tuple, Py_ssize_t index)
{
    if (tuple == NULL || !PyTuple_Check(tuple) || index >= PyTuple_GET_SIZE(tuple)) {
        return NULL;
    }
    return PyTuple_GET_ITEM(tuple, index);
}

static PyObject *cell_contents(PyObject *closure, Py_ssize_t index, bool *owned)
{
    PyObject *cell = tuple_item(closure, index);
    if (cell == NULL || !PyCell_Check(cell)) {
        return NULL;
    }
    *owned = true;
    return Py_XNewRef(PyCell_GET(cell));
}

static PyObject *call_without_arguments(PyObject *callable)
{
    if (PyCFunction_CheckExact(callable) && (PyCFunction_GET_FLAGS(callable) & METH_NOARGS)) {
        return PyCFunction_GET_FUNCTION(callable)(PyCFunction_GET_SELF(callable), NULL);
    }
    return PyObject_CallNoArgs(callable);
}

static PyObject *dict_item(PyObject *value, const tw_node *node, bool *owned)
{
    PyObject *key = tw_held(node->key), *item;
    *owned = true;
    if (key == NULL) {
        return NULL;
    }
    if (PyDict_Check(value)) {
        item = Py_XNewRef(_PyDict_GetItem_KnownHash(value, key, node->hash));
    }
    else {
        item = PyObject_GetItem(value, key);
    }
    Py_DECREF(key);
    return item;
}

/* The value of one node, NULL when there is none (with or without an exception). */
PyObject *tw_fetch(const tw_scope *scope, const tw_node *node, PyObject *value, bool *owned)
{
    switch (node->get) {
    case TW_GET_LOCAL:
        return node->index < scope->local_count ? scope->locals[node->index] : NULL;
    case TW_GET_GLOBALS:
        return scope->globals;
    case TW_GET_CLOSURE:
        return cell_contents(scope->closure, node->index, owned);
    case TW_GET_CLOSURE_CELL:
        return tuple_item(scope->closure, node->index);
    case TW_GET_CONST:
        *owned = true;
        return tw_held(node->key);
    case TW_GET_CALL:
        *owned = true;
        return call_without_arguments(node->key);
    case TW_GET_ATTR:
        *owned = true;
        return PyObject_GetAttr(value, node->key);
    case TW_GET_INSTANCE_DICT: {
        PyObject **slot = _PyObject_GetDictPtr(value);
        *owned = true;
        if (slot != NULL && *slot == NULL) { /* made on first use */
            return PyObject_GenericGetDict(value, NULL);
        }
        return slot == NULL ? NULL : Py_NewRef(*slot);
    }
    case TW_GET_DICT_ITEM:
        return dict_item(value, node, owned);
    case TW_GET_DICT_KEY_AT:
        return dict_key_at(value, node->index, owned);
    case TW_GET_ITEM:
        return sequence_item(value, node->index, owned);
    case TW_GET_TYPE:
        return (PyObject *)Py_TYPE(value);
    case TW_GET_CLASS_ATTR:
        *owned = true;
        return PyType_Check(value) ? Py_XNewRef(_PyType_Lookup((PyTypeObject *)value, node->key)) : NULL;
    case TW_GET_CELL_CONTENTS:
        return PyFunction_Check(value) ? cell_contents(PyFunction_GET_CLOSURE(value), node->index, owned) : NULL;
    case TW_GET_DEFAULT: {
        PyObject *item = PyFunction_Check(value) ? tuple_item(PyFunction_GET_DEFAULTS(value), node->index) : NULL;
        *owned = true;
        return Py_XNewRef(item);
    }
    case TW_GET_KWDEFAULT: {
        PyObject *dict = PyFunction_Check(value) ? PyFunction_GET_KW_DEFAULTS(value) : NULL;
        *owned = true;
        return dict == NULL || !PyDict_Check(dict) ? NULL : Py_XNewRef(_PyDict_GetItem_KnownHash(dict, node->key, node->hash));
    }
    case TW_GET_FUNCTION_GLOBALS:
        return PyFunction_Check(value) ? PyFunction_GET_GLOBALS(value) : NULL;
    case TW_GET_APPLY:
        *owned = true;
        return PyObject_CallOneArg(node->key, value);
    default:
        return NULL;
    }
}

/* ---- leaves ---- */

/* Exact type and value; floats and complex numbers by their bits; tuples item by item. 1, 0 or -1. */
/* Numbers of NumPy bit by bit, as they give them as buffers: nan equals nan there, and -0.0 differs from 0.0. */
static int same_bytes(PyObject *value, PyObject *wanted)
{
    Py_buffer a, b;
    if (PyObject_GetBuffer(value, &a, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    if (PyObject_GetBuffer(wanted, &b, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&a);
        return -1;
    }
    int same = a.len == b.len && memcmp(a.buf, b.buf, (size_t)a.len) == 0;
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return same;
}

static int same_constant(PyObject *value, PyObject *wanted)
{
    if (value == wanted) {
        return 1;
    }
    if (Py_TYPE(value) != Py_TYPE(wanted)) {
        return 0;
    }
    if (PyFloat_CheckExact(value)) {
        double a = PyFloat_AS_DOUBLE(value), b = PyFloat_AS_DOUBLE(wanted);
        return memcmp(&a, &b, sizeof(double)) == 0;
    }
    if (PyComplex_CheckExact(value)) {
        Py_complex a = ((PyComplexObject *)value)->cval, b = ((PyComplexObject *)wanted)->cval;
        return memcmp(&a, &b, sizeof(Py_complex)) == 0;
    }
    if (PyObject_CheckBuffer(value)) {
        return same_bytes(value, wanted);
    }
    if (PyTuple_CheckExact(value)) {
        Py_ssize_t length = PyTuple_GET_SIZE(value);
        if (PyTuple_GET_SIZE(wanted) != length) {
            return 0;
        }
        for (Py_ssize_t i = 0; i < length; i++) {
            int same = same_constant(PyTuple_GET_ITEM(value, i), PyTuple_GET_ITEM(wanted, i));
            if (same != 1) {
                return same;
            }
        }
        return 1;
    }
    return PyObject_RichCompareBool(value, wanted, Py_EQ);
}

/* As same_constant; keys that are held weakly are compared by identity. */
static int same_key(PyObject *key, PyObject *wanted)
{
    if (Py_TYPE(wanted) != tw_weak_key_type) {
        return same_constant(key, wanted);
    }
    return key == tw_address(wanted);
}

/* An OrderedDict keeps its order beside the table that PyDict_Next reads. */
static int same_ordered_keys(PyObject *value, PyObject *keys)
{
    PyObject *iterator = PyODict_Type.tp_iter(value), *key;
    if (iterator == NULL) {
        return -1;
    }
    int same = 1;
    for (Py_ssize_t i = 0; same == 1 && (key = PyIter_Next(iterator)) != NULL; i++) {
        same = i < PyTuple_GET_SIZE(keys) ? same_key(key, PyTuple_GET_ITEM(keys, i)) : 0;
        Py_DECREF(key);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : same;
}

static int same_keys(PyObject *value, PyObject *keys)
{
    if (!PyDict_Check(value) || PyDict_GET_SIZE(value) != PyTuple_GET_SIZE(keys)) {
        return 0;
    }
    if (PyODict_Check(value) && PyTuple_GET_SIZE(keys) > 1) {
        return same_ordered_keys(value, keys);
    }
    PyObject *key;
    Py_ssize_t position = 0, i = 0;
    while (PyDict_Next(value, &position, &key, NULL)) {
        PyObject *wanted = i < PyTuple_GET_SIZE(keys) ? PyTuple_GET_ITEM(keys, i++) : NULL;
        if (key == wanted) {
            continue;
        }
        if (wanted == NULL) {
            return 0;
        }
        Py_INCREF(key);
        int same = same_key(key, wanted);
        Py_DECREF(key);
        if (same != 1) {
            return same;
        }
    }
    return i == PyTuple_GET_SIZE(keys);
}

/* 1, 0 or -1; a key that is dead is nowhere. */
static int has_key(PyObject *value, const tw_leaf *leaf)
{
    PyObject *key = tw_held(leaf->payload);
    int has;
    if (key == NULL) {
        return 0;
    }
    if (PyDict_Check(value)) {
        has = _PyDict_GetItem_KnownHash(value, key, leaf->hash) != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    else {
        has = PySequence_Contains(value, key);
    }
    Py_DECREF(key);
    return has;
}

static int has_attribute(PyObject *value, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(value, name);
    if (found != NULL) {
        Py_DECREF(found);
        return 1;
    }
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

static int call_check(PyObject *callable, PyObject *value)
{
    PyObject *answer = PyObject_CallOneArg(callable, value);
    if (answer == NULL) {
        return -1;
    }
    int passed = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return passed;
}

static int negate(int answer)
{
    return answer < 0 ? answer : !answer;
}

int tw_check_leaf(tw_run *run, const tw_node *node, const tw_leaf *leaf, PyObject *value)
{
    (void)node;
    switch (leaf->kind) {
    case TW_LEAF_TYPE:
        return (Py_ssize_t)(uintptr_t)Py_TYPE(value) == leaf->number;
    case TW_LEAF_IDENTITY:
        return (Py_ssize_t)(uintptr_t)value == leaf->number;
    case TW_LEAF_NOT_IDENTITY:
        return (Py_ssize_t)(uintptr_t)value != leaf->number;
    case TW_LEAF_CONSTANT:
        return same_constant(value, leaf->payload);
    case TW_LEAF_TENSOR:
        return tw_tensor_check(leaf->tensor, value, run->slots);
    case TW_LEAF_DATA: {
        int same = tw_data_check(PyTuple_GET_ITEM(leaf->payload, 0), value);
        return same >= 0 ? same : call_check(PyTuple_GET_ITEM(leaf->payload, 1), value);
    }
    case TW_LEAF_LENGTH: {
        /* of the container itself, whatever a subclass says */
        Py_ssize_t length = PyTuple_Check(value) || PyList_Check(value) ? Py_SIZE(value) : PyObject_Size(value);
        return length < 0 ? -1 : length == leaf->number;
    }
    case TW_LEAF_DICT_KEYS:
        return same_keys(value, leaf->payload);
    case TW_LEAF_HAS_KEY:
        return has_key(value, leaf);
    case TW_LEAF_LACKS_KEY:
        return negate(has_key(value, leaf));
    case TW_LEAF_TRUTH: {
        int truth = PyObject_IsTrue(value);
        return truth < 0 ? truth : truth == leaf->number;
    }
    case TW_LEAF_HAS_ATTR:
        return has_attribute(value, leaf->payload);
    case TW_LEAF_LACKS_ATTR:
        return negate(has_attribute(value, leaf->payload));
    case TW_LEAF_FUNCTION_CODE:
        return PyFunction_Check(value) && (Py_ssize_t)(uintptr_t)PyFunction_GET_CODE(value) == leaf->number &&
               tw_function_runs_its_code(value);
    case TW_LEAF_DIES_UNSEEN:
        return tw_check_deaths(run, leaf->payload, value);
    case TW_LEAF_PYTHON:
        return call_check(leaf->payload, value);
    default:
        return 0;
    }
}

/* ---- the walk ---- */

/* signals.let_through: raises the exception again when a handler of a signal raised it. */
static int let_through(PyObject *error)
{
    PyObject *signals = PyImport_ImportModule("tracework_capture.signals");
    PyObject *done = signals == NULL ? NULL : PyObject_CallMethod(signals, "let_through", "O", error);
    Py_XDECREF(signals);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* An exception of the program's values means "does not hold"; what is not an Exception (KeyboardInterrupt) goes on, and so does what a
 * handler of a signal raised while Python code ran, which a traceback tells of. Near the recursion limit Python code of a guard may have no
 * room where the program has. */
int tw_swallow(void)
{
    if (!PyErr_Occurred()) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    int answer = 0;
    if (traceback != NULL) {
        PyErr_NormalizeException(&type, &error, &traceback);
        (void)PyException_SetTraceback(error, traceback);
        answer = let_through(error);
        if (answer < 0 && PyErr_ExceptionMatches(PyExc_RecursionError)) {
            PyErr_Clear();
            answer = 0;
        }
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return answer;
}

/* An integer that conditions read; false when it is none or too big. */
int tw_keep_slot(tw_run *run, const tw_node *node, PyObject *value)
{
    if (!PyLong_CheckExact(value)) {
        return 0;
    }
    int overflow;
    run->slots[node->slot] = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

int tw_keep_value(tw_run *run, const tw_node *node, PyObject *value)
{
    if (node->input >= 0) {
        Py_XSETREF(run->inputs[node->input], Py_NewRef(value));
    }
    if (node->reg >= 0) {
        Py_XSETREF(run->regs[node->reg], Py_NewRef(value));
    }
    return node->slot < 0 || tw_keep_slot(run, node, value);
}

static int walk_value(tw_program *program, tw_run *run, const tw_node *node, PyObject *value)
{
    for (int32_t i = node->first_leaf; i < node->first_leaf + node->leaf_count; i++) {
        const tw_leaf *leaf = &program->leaves[i];
        int passed = tw_check_leaf(run, node, leaf, value);
        if (passed != 1) {
            run->failed = leaf->guard;
            return passed < 0 ? tw_swallow() : 0;
        }
    }
    if (!tw_keep_value(run, node, value)) {
        run->failed = node->guard;
        return 0;
    }
    for (int32_t child = node->first_child; child >= 0; child = program->nodes[child].next_sibling) {
        int passed = tw_walk(program, run, child, value);
        if (passed != 1) {
            return passed;
        }
    }
    return 1;
}

int tw_walk(tw_program *program, tw_run *run, int32_t number, PyObject *parent)
{
    const tw_node *node = &program->nodes[number];
    bool owned = false;
    PyObject *value = tw_fetch(run->scope, node, parent, &owned);
    if (value == NULL) {
        run->failed = node->guard;
        return tw_swallow();
    }
    if (run->recorder != NULL) {
        tw_recorder_node(run->recorder, number, value);
    }
    int passed = walk_value(program, run, node, value);
    if (owned) {
        Py_DECREF(value);
    }
    return passed;
}

/* ---- conditions ---- */

static int floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) {
        return 0;
    }
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && ((*rest < 0) != (b < 0))) {
        *quotient -= 1;
        *rest += b;
    }
    return 1;
}

static int binary(int64_t op, int64_t a, int64_t b, int64_t *result)
{
    int64_t other;
    switch (op) {
    case OP_ADD: return !__builtin_add_overflow(a, b, result);
    case OP_SUB: return !__builtin_sub_overflow(a, b, result);
    case OP_MUL: return !__builtin_mul_overflow(a, b, result);
    case OP_FLOORDIV: return floor_divide(a, b, result, &other);
    case OP_MOD: return floor_divide(a, b, &other, result);
    case OP_MAX: *result = a > b ? a : b; return 1;
    case OP_MIN: *result = a < b ? a : b; return 1;
    case OP_EQ: *result = a == b; return 1;
    case OP_NE: *result = a != b; return 1;
    case OP_LT: *result = a < b; return 1;
    case OP_LE: *result = a <= b; return 1;
    case OP_GT: *result = a > b; return 1;
    case OP_GE: *result = a >= b; return 1;
    default: return 0;
    }
}

/* 1 when the condition holds; overflow and division by zero count as "does not". The builder has checked the stack depth. */
static int condition_holds(const int64_t *code, int32_t count, const int64_t *slots)
{
    int64_t stack[TW_STACK_LIMIT];
    int depth = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t op = code[i];
        if (op == OP_CONST) {
            stack[depth++] = code[++i];
        }
        else if (op == OP_SLOT) {
            stack[depth++] = slots[code[++i]];
        }
        else if (op == OP_NEG) {
            if (__builtin_sub_overflow((int64_t)0, stack[depth - 1], &stack[depth - 1])) {
                return 0;
            }
        }
        else {
            depth--;
            if (!binary(op, stack[depth - 1], stack[depth], &stack[depth - 1])) {
                return 0;
            }
        }
    }
    return stack[0] != 0;
}

/* Whether no two registers hold the same object, by a hash table of open addresses: a guard over all tensors of a model has thousands. */
static int all_distinct(const int64_t *numbers, int32_t count, PyObject **regs)
{
    size_t room = TABLE;
    while (room < 2 * (size_t)count) {
        room *= 2;
    }
    PyObject *small[TABLE];
    PyObject **table = room == TABLE ? memset(small, 0, sizeof(small)) : PyMem_Calloc(room, sizeof(PyObject *));
    if (table == NULL) {
        return 0;
    }
    int distinct = 1;
    for (int32_t i = 0; i < count && distinct; i++) {
        PyObject *value = regs[numbers[i]];
        size_t at = (((uintptr_t)value >> 4) * 0x9E3779B97F4A7C15u >> 20) & (room - 1);
        while (table[at] != NULL && table[at] != value) {
            at = (at + 1) & (room - 1);
        }
        distinct = table[at] == NULL;
        table[at] = value;
    }
    if (table != small) {
        PyMem_Free(table);
    }
    return distinct;
}

/* The same when those registers that are `fixed` are known to be distinct: a few others are compared with all of them. */
static int others_distinct(const int64_t *numbers, int32_t count, PyObject **regs, const bool *fixed)
{
    int32_t others = 0;
    for (int32_t i = 0; i < count; i++) {
        others += !fixed[numbers[i]];
    }
    if (others > FEW) {
        return all_distinct(numbers, count, regs);
    }
    for (int32_t i = 0; others && i < count; i++) {
        if (fixed[numbers[i]]) {
            continue;
        }
        for (int32_t j = 0; j < count; j++) {
            if (j != i && regs[numbers[j]] == regs[numbers[i]]) {
                return 0;
            }
        }
    }
    return 1;
}

/* 1 holds, 0 does not, -1 exception. */
static int relation_holds(const tw_check *check, const int64_t *numbers, PyObject **regs)
{
    PyObject *values[TW_RELATION_LIMIT];
    for (int32_t i = 0; i < check->count; i++) {
        values[i] = regs[numbers[i]];
    }
    PyObject *answer = PyObject_Vectorcall(check->holds, values, (size_t)check->count, NULL);
    int holds = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return holds < 0 ? tw_swallow() : holds;
}

/* 1 all hold, 0 one does not, -1 exception. fixed: registers that hold what they held when all checks passed, or NULL. */
static int run_checks(tw_program *program, tw_run *run, const bool *fixed)
{
    for (Py_ssize_t i = 0; i < program->check_count; i++) {
        const tw_check *check = &program->checks[i];
        const int64_t *code = program->code + check->start;
        int holds;
        if (check->kind == CHECK_CONDITION) {
            holds = condition_holds(code, check->count, run->slots);
        }
        else if (check->kind == CHECK_SAME) {
            holds = run->regs[code[0]] == run->regs[code[1]];
        }
        else if (check->kind == CHECK_RELATION) {
            holds = relation_holds(check, code, run->regs);
        }
        else {
            holds = fixed != NULL ? others_distinct(code, check->count, run->regs, fixed) : all_distinct(code, check->count, run->regs);
        }
        if (holds != 1) {
            run->failed = check->guard;
            return holds;
        }
    }
    return 1;
}

static int fill_size_inputs(tw_program *program, tw_run *run)
{
    for (Py_ssize_t i = 0; i < program->input_count; i++) {
        if (program->input_slots[i] >= 0) {
            PyObject *number = PyLong_FromLongLong(run->slots[program->input_slots[i]]);
            if (number == NULL) {
                return -1;
            }
            Py_XSETREF(run->inputs[i], number);
        }
        if (run->inputs[i] == NULL) {
            PyErr_Format(PyExc_SystemError, "guard program left input %zd empty", i);
            return -1;
        }
    }
    return 1;
}

static int walk_roots(tw_program *program, tw_run *run)
{
    for (int32_t root = program->first_root; root >= 0; root = program->nodes[root].next_sibling) {
        int passed = tw_walk(program, run, root, NULL);
        if (passed != 1) {
            return passed;
        }
    }
    return 1;
}

/* The full walk; once it has passed a few times in a row what it saw is remembered, so that the next check can be short. */
static int full_walk(tw_program *program, tw_run *run)
{
    if (program->misses < INT32_MAX) {
        program->misses++;
    }
    bool record = program->misses >= 2 && (program->misses & (program->misses - 1)) == 0;
    run->recorder = record ? tw_recorder_new(program) : NULL;
    int passed = walk_roots(program, run);
    struct tw_recorder *recorder = run->recorder;
    run->recorder = NULL;
    if (recorder != NULL) {
        tw_memory *memory = tw_recorder_finish(recorder, passed == 1);
        if (memory != NULL) {
            tw_memory *old = program->memory;
            program->memory = memory;
            if (old != NULL) {
                tw_memory_release(old);
            }
        }
    }
    return passed;
}

static void clear_inputs(tw_program *program, tw_run *run)
{
    for (Py_ssize_t i = 0; i < program->input_count; i++) {
        Py_CLEAR(run->inputs[i]);
    }
}

/* The short check. 1 passed, 0 failed or not applicable, -1 exception. Another thread may replace program->memory meanwhile. */
static int run_short(tw_program *program, tw_run *run, tw_memory *memory)
{
    int passed = tw_memory_check(program, memory, run);
    if (passed == 1 && (passed = run_checks(program, run, tw_memory_fixed(memory))) == 1) {
        tw_memory_confirm(memory);
        program->misses = 0;
    }
    tw_memory_unkeep(memory, run);
    return passed;
}

static int run_program(tw_program *program, tw_run *run)
{
    tw_memory *memory = program->memory;
    if (memory != NULL) {
        tw_memory_hold(memory);
        int passed = run_short(program, run, memory);
        tw_memory_release(memory);
        if (passed != 0) {
            return passed == 1 ? fill_size_inputs(program, run) : passed;
        }
        clear_inputs(program, run);
    }
    int passed = full_walk(program, run);
    if (passed == 1 && (passed = run_checks(program, run, NULL)) == 1) {
        passed = fill_size_inputs(program, run);
    }
    return passed;
}

/* ---- the program's function modes ---- */

static PyObject *count_function_modes, *functions_off;

PyObject *tw_set_function_modes(PyObject *module, PyObject *args)
{
    PyObject *count, *off;
    if (!PyArg_ParseTuple(args, "OO", &count, &off)) {
        return NULL;
    }
    Py_XSETREF(count_function_modes, Py_NewRef(count));
    Py_XSETREF(functions_off, Py_NewRef(off));
    Py_RETURN_NONE;
}

/* Modes see nothing of what guards read of tensors: a new reference to what end_quiet ends, or None where there is no mode. */
static PyObject *begin_quiet(void)
{
    PyObject *count = count_function_modes == NULL ? PyLong_FromLong(0) : call_without_arguments(count_function_modes);
    int modes = count == NULL ? -1 : PyObject_IsTrue(count);
    Py_XDECREF(count);
    if (modes <= 0) {
        return modes < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *manager = PyObject_CallNoArgs(functions_off);
    PyObject *entered = manager == NULL ? NULL : PyObject_CallMethod(manager, "__enter__", NULL);
    if (entered == NULL) {
        Py_CLEAR(manager);
    }
    Py_XDECREF(entered);
    return manager;
}

/* -1 with an exception, which may be one of before. */
static int end_quiet(PyObject *manager)
{
    PyObject *type = NULL, *error = NULL, *traceback = NULL, *left = Py_None;
    if (manager != Py_None) {
        PyErr_Fetch(&type, &error, &traceback);
        left = PyObject_CallMethod(manager, "__exit__", "OOO", Py_None, Py_None, Py_None);
        Py_XDECREF(left);
        if (left != NULL) {
            PyErr_Restore(type, error, traceback);
        }
        else {
            Py_XDECREF(type), Py_XDECREF(error), Py_XDECREF(traceback);
        }
    }
    Py_DECREF(manager);
    return left == NULL ? -1 : 0;
}

static int run_quietly(tw_program *program, tw_run *run)
{
    PyObject *manager = begin_quiet();
    if (manager == NULL) {
        return -1;
    }
    int passed = run_program(program, run);
    return end_quiet(manager) < 0 ? -1 : passed;
}

PyObject *tw_program_run(tw_program *program, const tw_scope *scope, int32_t *failed)
{
    PyObject *inputs = PyTuple_New(program->input_count);
    if (inputs == NULL) {
        return NULL;
    }
    int64_t small_slots[SMALL];
    PyObject *small_regs[SMALL];
    size_t slot_bytes = sizeof(int64_t) * (size_t)program->slot_count, reg_bytes = sizeof(PyObject *) * (size_t)program->reg_count;
    tw_run run = {program, scope, &PyTuple_GET_ITEM(inputs, 0), small_regs, small_slots, -1, NULL, NULL};
    if (program->slot_count > SMALL && (run.slots = PyMem_Malloc(slot_bytes)) == NULL) {
        Py_DECREF(inputs);
        return PyErr_NoMemory();
    }
    if (program->reg_count > SMALL && (run.regs = PyMem_Malloc(reg_bytes)) == NULL) {
        Py_DECREF(inputs);
        if (run.slots != small_slots) {
            PyMem_Free(run.slots);
        }
        return PyErr_NoMemory();
    }
    memset(run.regs, 0, reg_bytes);
    Py_INCREF(program);
    int passed = run_quietly(program, &run);
    for (Py_ssize_t i = 0; i < program->reg_count; i++) {
        Py_XDECREF(run.regs[i]);
    }
    if (run.slots != small_slots) {
        PyMem_Free(run.slots);
    }
    if (run.regs != small_regs) {
        PyMem_Free(run.regs);
    }
    Py_DECREF(program);
    if (passed == 1) {
        return inputs;
    }
    Py_DECREF(inputs);
    *failed = run.failed;
    return NULL;
}
