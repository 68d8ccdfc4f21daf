/* Guard programs as Python objects: built from rows, checked, so that running one needs no checks of its own, and freed. */
#include "guard_tree.h"

static void link_nodes(tw_program *program)
{
    program->first_root = -1;
    for (Py_ssize_t i = program->node_count - 1; i >= 0; i--) { /* backwards, so that siblings keep their order */
        tw_node *node = &program->nodes[i];
        int32_t *head = node->parent < 0 ? &program->first_root : &program->nodes[node->parent].first_child;
        node->next_sibling = *head;
        *head = (int32_t)i;
    }
}

static int check_node(tw_program *program, Py_ssize_t i, const char **problem)
{
    tw_node *node = &program->nodes[i];
    *problem = node->parent >= (int32_t)i ? "a parent must come before its children"
        : node->get >= TW_ACCESSOR_COUNT ? "unknown accessor"
        : (node->parent < 0) != (node->get <= TW_GET_CALL) ? "only a root has no parent"
        : node->input >= program->input_count ? "input number out of range"
        : node->reg >= program->reg_count ? "register number out of range"
        : node->slot >= program->slot_count ? "slot number out of range"
        : NULL;
    return *problem == NULL ? 0 : -1;
}

static int read_node(tw_program *program, Py_ssize_t i, PyObject *row)
{
    tw_node *node = &program->nodes[i];
    int get;
    PyObject *key;
    const char *problem;
    node->first_child = -1;
    if (!PyArg_ParseTuple(row, "iiOniiii", &get, &node->parent, &key, &node->index, &node->input, &node->reg, &node->slot,
                          &node->guard)) {
        return -1;
    }
    node->get = (uint8_t)get;
    node->key = Py_NewRef(key);
    if (get == TW_GET_DICT_ITEM || get == TW_GET_KWDEFAULT) {
        node->hash = PyObject_Hash(key);
        if (node->hash == -1) {
            return -1;
        }
    }
    if (check_node(program, i, &problem) < 0) {
        PyErr_Format(PyExc_ValueError, "guard program, node %zd: %s", i, problem);
        return -1;
    }
    return 0;
}

static int read_payload(tw_leaf *leaf)
{
    PyObject *payload = leaf->payload;
    switch (leaf->kind) {
    case TW_LEAF_TENSOR:
        leaf->tensor = tw_tensor_new(payload);
        return leaf->tensor == NULL ? -1 : 0;
    case TW_LEAF_TYPE:
    case TW_LEAF_IDENTITY:
    case TW_LEAF_NOT_IDENTITY:
    case TW_LEAF_FUNCTION_CODE:
        leaf->number = (Py_ssize_t)(uintptr_t)tw_address(payload);
        return 0;
    case TW_LEAF_LENGTH:
    case TW_LEAF_TRUTH:
        leaf->number = PyLong_AsSsize_t(payload);
        return leaf->number == -1 && PyErr_Occurred() ? -1 : 0;
    case TW_LEAF_HAS_KEY:
    case TW_LEAF_LACKS_KEY:
        leaf->hash = PyObject_Hash(payload);
        return leaf->hash == -1 ? -1 : 0;
    case TW_LEAF_DICT_KEYS:
        if (!PyTuple_CheckExact(payload)) {
            PyErr_SetString(PyExc_TypeError, "DICT_KEYS wants a tuple of keys");
            return -1;
        }
        return 0;
    case TW_LEAF_DATA:
        if (!PyTuple_CheckExact(payload) || PyTuple_GET_SIZE(payload) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(payload, 0))) {
            PyErr_SetString(PyExc_TypeError, "DATA wants (bytes, function)");
            return -1;
        }
        return 0;
    case TW_LEAF_DIES_UNSEEN:
        if (!PyTuple_CheckExact(payload) || PyTuple_GET_SIZE(payload) != 2) {
            PyErr_SetString(PyExc_TypeError, "DIES_UNSEEN wants (place, function)");
            return -1;
        }
        return 0;
    default:
        return 0;
    }
}

/* Leaves come sorted by node. */
static int read_leaf(tw_program *program, Py_ssize_t i, PyObject *row)
{
    int number, kind;
    PyObject *payload;
    tw_leaf *leaf = &program->leaves[i];
    if (!PyArg_ParseTuple(row, "iiOi", &number, &kind, &payload, &leaf->guard)) {
        return -1;
    }
    if (number < 0 || number >= program->node_count || kind < 0 || kind >= TW_LEAF_COUNT) {
        PyErr_Format(PyExc_ValueError, "guard program, leaf %zd: unknown node or kind", i);
        return -1;
    }
    tw_node *node = &program->nodes[number];
    if (node->leaf_count == 0) {
        node->first_leaf = (int32_t)i;
    }
    else if (node->first_leaf + node->leaf_count != i) {
        PyErr_SetString(PyExc_ValueError, "guard program: leaves must be sorted by node");
        return -1;
    }
    node->leaf_count++;
    leaf->kind = (uint8_t)kind;
    leaf->payload = Py_NewRef(payload);
    return read_payload(leaf);
}

static int check_condition(const int64_t *code, int32_t count, Py_ssize_t slots)
{
    int depth = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t op = code[i];
        if (op < 0 || op >= OP_COUNT) {
            return -1;
        }
        if (op == OP_CONST || op == OP_SLOT) {
            if (++i >= count || ++depth > TW_STACK_LIMIT || (op == OP_SLOT && (code[i] < 0 || code[i] >= slots))) {
                return -1;
            }
        }
        else if (op != OP_NEG ? --depth < 1 : depth < 1) {
            return -1;
        }
    }
    return depth == 1 ? 0 : -1;
}

static int check_registers(const int64_t *code, int32_t count, Py_ssize_t regs)
{
    for (int32_t i = 0; i < count; i++) {
        if (code[i] < 0 || code[i] >= regs) {
            return -1;
        }
    }
    return 0;
}

static int read_check(tw_program *program, Py_ssize_t i, PyObject *row, Py_ssize_t start)
{
    int kind;
    PyObject *code, *holds;
    tw_check *check = &program->checks[i];
    if (!PyArg_ParseTuple(row, "iO!iO", &kind, &PyTuple_Type, &code, &check->guard, &holds)) {
        return -1;
    }
    check->holds = Py_NewRef(holds);
    check->kind = (uint8_t)kind;
    check->start = (int32_t)start;
    check->count = (int32_t)PyTuple_GET_SIZE(code);
    for (int32_t j = 0; j < check->count; j++) {
        program->code[start + j] = PyLong_AsLongLong(PyTuple_GET_ITEM(code, j));
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    const int64_t *numbers = program->code + start;
    int bad = kind == CHECK_CONDITION ? check_condition(numbers, check->count, program->slot_count)
        : kind > CHECK_RELATION || kind < 0 || (kind == CHECK_SAME && check->count != 2) ? -1
        : kind == CHECK_RELATION && (check->count > TW_RELATION_LIMIT || !PyCallable_Check(holds)) ? -1
        : check_registers(numbers, check->count, program->reg_count);
    if (bad) {
        PyErr_Format(PyExc_ValueError, "guard program, check %zd is malformed", i);
    }
    return bad;
}

static int read_checks(tw_program *program, PyObject *rows)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 4 || !PyTuple_Check(PyTuple_GET_ITEM(row, 1))) {
            PyErr_SetString(PyExc_TypeError, "a check is (kind, numbers, guard, callable or None)");
            return -1;
        }
        total += PyTuple_GET_SIZE(PyTuple_GET_ITEM(row, 1));
    }
    program->code = PyMem_Calloc((size_t)total + 1, sizeof(int64_t));
    if (program->code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0, start = 0; i < PyTuple_GET_SIZE(rows); i++) {
        if (read_check(program, i, PyTuple_GET_ITEM(rows, i), start) < 0) {
            return -1;
        }
        start += program->checks[i].count;
    }
    return 0;
}

static int read_input_slots(tw_program *program, PyObject *slots)
{
    for (Py_ssize_t i = 0; i < program->input_count; i++) {
        long slot = PyLong_AsLong(PyTuple_GET_ITEM(slots, i));
        if (slot == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (slot >= program->slot_count) {
            PyErr_SetString(PyExc_ValueError, "guard program: slot number out of range");
            return -1;
        }
        program->input_slots[i] = (int32_t)slot;
    }
    return 0;
}

static int read_program(tw_program *program, PyObject *nodes, PyObject *leaves, PyObject *checks, PyObject *input_slots)
{
    program->nodes = PyMem_Calloc((size_t)PyTuple_GET_SIZE(nodes) + 1, sizeof(tw_node));
    program->leaves = PyMem_Calloc((size_t)PyTuple_GET_SIZE(leaves) + 1, sizeof(tw_leaf));
    program->checks = PyMem_Calloc((size_t)PyTuple_GET_SIZE(checks) + 1, sizeof(tw_check));
    program->input_count = PyTuple_GET_SIZE(input_slots);
    program->input_slots = PyMem_Calloc((size_t)program->input_count + 1, sizeof(int32_t));
    if (program->nodes == NULL || program->leaves == NULL || program->checks == NULL || program->input_slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes); i++) {
        program->node_count = i + 1;
        if (read_node(program, i, PyTuple_GET_ITEM(nodes, i)) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); i++) {
        program->leaf_count = i + 1;
        if (read_leaf(program, i, PyTuple_GET_ITEM(leaves, i)) < 0) {
            return -1;
        }
    }
    program->check_count = PyTuple_GET_SIZE(checks);
    link_nodes(program);
    return read_checks(program, checks) < 0 || read_input_slots(program, input_slots) < 0 ? -1 : 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"nodes", "leaves", "checks", "input_slots", "reg_count", "slot_count", NULL};
    PyObject *nodes, *leaves, *checks, *input_slots;
    Py_ssize_t reg_count, slot_count;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!nn", names, &PyTuple_Type, &nodes, &PyTuple_Type, &leaves, &PyTuple_Type,
                                     &checks, &PyTuple_Type, &input_slots, &reg_count, &slot_count)) {
        return NULL;
    }
    tw_program *program = (tw_program *)type->tp_alloc(type, 0);
    if (program == NULL) {
        return NULL;
    }
    program->reg_count = reg_count;
    program->slot_count = slot_count;
    if (read_program(program, nodes, leaves, checks, input_slots) < 0) {
        Py_DECREF(program);
        return NULL;
    }
    return (PyObject *)program;
}

static int program_traverse(tw_program *program, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < program->node_count; i++) {
        Py_VISIT(program->nodes[i].key);
    }
    for (Py_ssize_t i = 0; i < program->leaf_count; i++) {
        Py_VISIT(program->leaves[i].payload);
        if (program->leaves[i].tensor != NULL) {
            int stop = tw_tensor_visit(program->leaves[i].tensor, visit, arg);
            if (stop) {
                return stop;
            }
        }
    }
    for (Py_ssize_t i = 0; i < program->check_count; i++) {
        Py_VISIT(program->checks[i].holds);
    }
    return 0;
}

static int program_clear(tw_program *program)
{
    Py_ssize_t nodes = program->node_count, leaves = program->leaf_count, checks = program->check_count;
    program->node_count = program->leaf_count = program->check_count = 0;
    program->first_root = -1;
    for (Py_ssize_t i = 0; i < nodes; i++) {
        Py_CLEAR(program->nodes[i].key);
    }
    for (Py_ssize_t i = 0; i < leaves; i++) {
        Py_CLEAR(program->leaves[i].payload);
        tw_tensor_free(program->leaves[i].tensor);
        program->leaves[i].tensor = NULL;
    }
    for (Py_ssize_t i = 0; i < checks; i++) {
        Py_CLEAR(program->checks[i].holds);
    }
    if (program->memory != NULL) {
        tw_memory *memory = program->memory;
        program->memory = NULL;
        tw_memory_release(memory);
    }
    return 0;
}

static void program_dealloc(tw_program *program)
{
    PyObject_GC_UnTrack(program);
    program_clear(program);
    PyMem_Free(program->nodes);
    PyMem_Free(program->leaves);
    PyMem_Free(program->checks);
    PyMem_Free(program->code);
    PyMem_Free(program->input_slots);
    Py_TYPE(program)->tp_free(program);
}

/* run(locals, globals, closure) -> tuple of inputs, or the number of the guard that failed. */
static PyObject *program_run_method(tw_program *program, PyObject *args)
{
    PyObject *locals, *globals, *closure;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &locals, &PyDict_Type, &globals, &closure)) {
        return NULL;
    }
    tw_scope scope = {&PyTuple_GET_ITEM(locals, 0), PyTuple_GET_SIZE(locals), globals, closure == Py_None ? NULL : closure};
    int32_t failed = -1;
    PyObject *inputs = tw_program_run(program, &scope, &failed);
    if (inputs != NULL || PyErr_Occurred()) {
        return inputs;
    }
    return PyLong_FromLong(failed);
}

static PyObject *program_remembers(tw_program *program, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(program->memory != NULL);
}

static PyMethodDef program_methods[] = {
    {"run", (PyCFunction)program_run_method, METH_VARARGS, "run(locals, globals, closure) -> inputs, or the failed guard's number"},
    {"remembers", (PyCFunction)program_remembers, METH_NOARGS, "whether the short check is in place"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject tw_program_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_capture._C.GuardProgram",
    .tp_basicsize = sizeof(tw_program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "A native guard program; built by tracework_capture.guards.program.",
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_methods = program_methods,
};
