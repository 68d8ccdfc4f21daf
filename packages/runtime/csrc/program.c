/* The interpreter of host programs: what tracework_runtime.host.program made of an artifact's lines, run without Python in between.
 *
 * A program has registers: tensors, numbers and what else a call holds until it is freed. Sizes are settled once for each set of values that
 * the symbols have: all numbers of the program, the shapes that it allocates, and the plan of each launch.
 */
#include "parts.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

enum { CALL, ALLOCATE, LAUNCH, NATIVE, SHARE, FREE, RETURN, LIBRARY, TABLE, KINDS };
enum { NO_RESULT, INT32_RESULT, INT64_RESULT, RESULTS };
enum { ALL_KEPT = -1, MOST_KEPT_APART = 31 };
enum { MOST_SETTLED = 8, MOST_OPERANDS = 64, MOST_SHARED_SCRATCH = 1 << 20 };

/* An instruction's operands and results are registers, but
 * ALLOCATE: shapes (sizes, strides);
 * LAUNCH, NATIVE, TABLE: pairs (register or -1, number): an address plus a number, or a number alone;
 * LIBRARY: such pairs, and as results the registers that the function takes. */
typedef struct {
    int kind;
    PyObject *function; /* NATIVE: what is called with a result that is not 0, or None; LIBRARY: what does the same */
    PyObject *extra;    /* ALLOCATE: the dtype */
    uint64_t address;   /* NATIVE, LIBRARY, TABLE: of the kernel */
    library_call *library;
    int result;         /* NATIVE; CALL, ALLOCATE: ALL_KEPT where what it makes is returned, else bits of the results that are */
    int *operands, *results;
    Py_ssize_t operand_count, result_count, launch;
} instruction;

/* What depends on the symbols' values alone. */
typedef struct {
    Py_ssize_t holders; /* the program, and calls that run with it */
    int64_t *symbols, *numbers;
    PyObject *shapes;      /* a tuple of tuples */
    plan_object **plans;   /* of each launch; NULL where it is to be asked for */
    uint64_t scratch;      /* the most bytes that a launch was seen to share */
} settled;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    instruction *code;
    Py_ssize_t code_count, inputs, registers, launches, number_count, shape_count, symbol_count;
    int *symbols; /* registers */
    Py_ssize_t settle_after; /* instructions that come before sizes are known */
    PyObject *settle;  /* symbols -> (numbers, shapes) */
    settled *known[MOST_SETTLED];
    int next;
} program_object;

/* A call that is running. */
typedef struct {
    program_object *program;
    settled *sizes;
    PyObject **registers;
    uint64_t *addresses; /* 0 where it is not known yet */
    PyObject *device;    /* whose stream is known */
    void *stream;
    int watched;         /* whether somebody is to see each library call; -1 where it is not known yet */
    PyObject *scratch;   /* memory of `device` that launches have one after the other, as their stream has them */
    uint64_t scratch_address, scratch_bytes;
} frame;

/* Settled sizes */

static void drop_settled(program_object *self, settled *one)
{
    if (one == NULL || --one->holders > 0) {
        return;
    }
    for (Py_ssize_t i = 0; one->plans != NULL && i < self->launches; i++) {
        Py_XDECREF(one->plans[i]);
    }
    Py_XDECREF(one->shapes);
    PyMem_Free(one->symbols);
    PyMem_Free(one->numbers);
    PyMem_Free(one->plans);
    PyMem_Free(one);
}

static int fill_numbers(program_object *self, settled *one, PyObject *found)
{
    PyObject *numbers;
    if (!PyArg_ParseTuple(found, "O!O!", &PyTuple_Type, &numbers, &PyTuple_Type, &one->shapes)) {
        one->shapes = NULL;
        return -1;
    }
    Py_INCREF(one->shapes);
    if (PyTuple_GET_SIZE(numbers) != self->number_count || PyTuple_GET_SIZE(one->shapes) != self->shape_count) {
        PyErr_SetString(PyExc_ValueError, "a host program whose sizes are not as many as it reads");
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->number_count; i++) {
        one->numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
        if (one->numbers[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

/* The numbers and shapes for these symbols, held once more; NULL with an exception. */
static settled *settle(program_object *self, PyObject *const *registers)
{
    int64_t values[self->symbol_count + 1];
    PyObject *symbols[self->symbol_count + 1];
    for (Py_ssize_t i = 0; i < self->symbol_count; i++) {
        symbols[i] = registers[self->symbols[i]];
        values[i] = PyLong_AsLongLong(symbols[i]);
        if (values[i] == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    const size_t bytes = sizeof(int64_t) * (size_t)self->symbol_count;
    for (int i = 0; i < MOST_SETTLED && self->known[i] != NULL; i++) {
        if (memcmp(self->known[i]->symbols, values, bytes) == 0) {
            self->known[i]->holders++;
            return self->known[i];
        }
    }
    settled *one = PyMem_Calloc(1, sizeof(settled));
    if (one == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    one->holders = 1;
    one->symbols = PyMem_Malloc(bytes + 1);
    one->numbers = PyMem_Calloc((size_t)self->number_count + 1, sizeof(int64_t));
    one->plans = PyMem_Calloc((size_t)self->launches + 1, sizeof(plan_object *));
    PyObject *found = NULL;
    if (one->symbols == NULL || one->numbers == NULL || one->plans == NULL) {
        PyErr_NoMemory();
    }
    else {
        memcpy(one->symbols, values, bytes);
        found = PyObject_Vectorcall(self->settle, symbols, (size_t)self->symbol_count, NULL);
    }
    if (found == NULL || fill_numbers(self, one, found) < 0) {
        Py_XDECREF(found);
        drop_settled(self, one);
        return NULL;
    }
    Py_DECREF(found);
    settled *old = self->known[self->next];
    one->holders++;
    self->known[self->next] = one;
    self->next = (self->next + 1) % MOST_SETTLED;
    drop_settled(self, old);
    return one;
}

/* Instructions: each gives 0, or -1 with an exception. */

static PyObject *held(frame *f, int number)
{
    PyObject *found = f->registers[number];
    if (found == NULL) {
        PyErr_Format(PyExc_RuntimeError, "a host program reads register %d, which holds nothing", number);
    }
    return found;
}

/* The same as Python is to see it. */
static PyObject *shown(frame *f, int number)
{
    PyObject *found = held(f, number);
    if (found == NULL || !Py_IS_TYPE(found, &held_type)) {
        return found;
    }
    PyObject *tensor = tensor_of_held(found);
    if (tensor != NULL) {
        f->registers[number] = tensor;
        Py_DECREF(found);
    }
    return tensor;
}

static void set_register(frame *f, int number, PyObject *value, uint64_t address)
{
    PyObject *old = f->registers[number];
    f->registers[number] = value;
    f->addresses[number] = address;
    Py_XDECREF(old);
}

/* What makes memory that a call returns is called by `keeping` in `keeping_thread`, copies by `copying` among it; NULL where nobody asks. */
static PyObject *keeping, *copying;
static unsigned long keeping_thread;

PyObject *tw_set_keeping(PyObject *module, PyObject *args)
{
    PyObject *function, *copy;
    if (!PyArg_ParseTuple(args, "OO", &function, &copy)) {
        return NULL;
    }
    Py_XSETREF(keeping, function == Py_None ? NULL : Py_NewRef(function));
    Py_XSETREF(copying, Py_NewRef(copy));
    keeping_thread = PyThread_get_thread_ident();
    Py_RETURN_NONE;
}

static bool is_asked(const instruction *one)
{
    return one->result && keeping != NULL && keeping_thread == PyThread_get_thread_ident();
}

/* What an instruction's function gives for given[1] to given[count]; given[0] is free. */
static PyObject *call_function(const instruction *one, PyObject **given, Py_ssize_t count)
{
    if ((one->kind == CALL || one->kind == ALLOCATE) && one->result == ALL_KEPT && is_asked(one)) {
        given[0] = one->function;
        return PyObject_Vectorcall(keeping, given, (size_t)count + 1, NULL);
    }
    return PyObject_Vectorcall(one->function, given + 1, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* The same for what registers hold. */
static PyObject *call_with(frame *f, const instruction *one, const int *operands, Py_ssize_t count)
{
    PyObject *given[count + 1];
    for (Py_ssize_t i = 0; i < count; i++) {
        given[i + 1] = shown(f, operands[i]);
        if (given[i + 1] == NULL) {
            return NULL;
        }
    }
    return call_function(one, given, count);
}

/* What a line of Python gave to the registers that it writes; takes the reference. */
static int set_results(frame *f, const instruction *one, PyObject *result, const int *registers, Py_ssize_t count)
{
    if (count == 1) {
        set_register(f, registers[0], result, 0);
        return 0;
    }
    if (count && (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != count)) {
        PyErr_Format(PyExc_RuntimeError, "a line of a host program gave %R, not %zd values", result, count);
        Py_DECREF(result);
        return -1;
    }
    const bool apart = one->kind == CALL && one->result > 0 && is_asked(one);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyTuple_GET_ITEM(result, i);
        const bool copied = apart && value != Py_None && i < MOST_KEPT_APART && (one->result >> i & 1);
        value = copied ? PyObject_CallFunctionObjArgs(keeping, copying, value, NULL) : Py_NewRef(value);
        if (value == NULL) {
            Py_DECREF(result);
            return -1;
        }
        set_register(f, registers[i], value, 0);
    }
    Py_DECREF(result);
    return 0;
}

static int run_call(frame *f, const instruction *one)
{
    PyObject *result = call_with(f, one, one->operands, one->operand_count);
    return result == NULL ? -1 : set_results(f, one, result, one->results, one->result_count);
}

static int run_allocate(frame *f, const instruction *one)
{
    PyObject *sizes = PyTuple_GET_ITEM(f->sizes->shapes, one->operands[0]);
    PyObject *given[] = {NULL, sizes, PyTuple_GET_ITEM(f->sizes->shapes, one->operands[1]), one->extra};
    PyObject *made = call_function(one, given, 3);
    if (made == NULL) {
        return -1;
    }
    set_register(f, one->results[0], made, 0);
    return 0;
}

/* Addresses and numbers of a kernel; together: what bits the addresses have. */
static int read_operands(frame *f, const instruction *one, uint64_t *values, uint64_t *together)
{
    for (Py_ssize_t i = 0; i < one->operand_count / 2; i++) {
        const int from = one->operands[2 * i];
        const uint64_t number = (uint64_t)f->sizes->numbers[one->operands[2 * i + 1]];
        if (from < 0) {
            values[i] = number;
            continue;
        }
        if (f->addresses[from] == 0) {
            PyObject *tensor = held(f, from);
            if (tensor == NULL || read_address(tensor, &f->addresses[from]) < 0) {
                return -1;
            }
        }
        values[i] = f->addresses[from] + number;
        *together |= values[i];
    }
    return 0;
}

/* The address of memory that a plan's launch can have for itself alone: 0 where it allocates its own, since it wants much; -1 with an
 * exception. */
static int find_scratch(frame *f, plan_object *plan, uint64_t *out)
{
    *out = 0;
    if (!plan->wants_scratch) {
        return 0;
    }
    const uint64_t wanted = PyLong_AsUnsignedLongLong(plan->scratch_bytes);
    if (wanted == (uint64_t)-1 && PyErr_Occurred()) {
        return -1;
    }
    if (wanted > MOST_SHARED_SCRATCH) {
        return 0;
    }
    if (f->scratch == NULL || wanted > f->scratch_bytes) {
        f->sizes->scratch = wanted > f->sizes->scratch ? wanted : f->sizes->scratch;
        PyObject *bytes = PyLong_FromUnsignedLongLong(f->sizes->scratch);
        PyObject *memory = bytes == NULL ? NULL : allocate_scratch(plan, bytes, &f->scratch_address);
        Py_XDECREF(bytes);
        if (memory == NULL) {
            return -1;
        }
        Py_XSETREF(f->scratch, memory);
        f->scratch_bytes = f->sizes->scratch;
    }
    *out = f->scratch_address;
    return 0;
}

static int run_launch(frame *f, const instruction *one)
{
    launcher_object *launcher = (launcher_object *)one->function;
    uint64_t values[one->operand_count / 2 + 1], together = 0;
    if (read_operands(f, one, values, &together) < 0) {
        return -1;
    }
    if (f->device != launcher->device) {
        if (current_stream(launcher, &f->stream) < 0) {
            return -1;
        }
        f->device = launcher->device;
        Py_CLEAR(f->scratch);
    }
    const bool aligned = (together & 15) == 0;
    plan_object **kept = &f->sizes->plans[one->launch], *plan = *kept;
    if (aligned && plan != NULL) {
        Py_INCREF(plan);
    }
    else {
        bool stays;
        plan = find_plan(launcher, values, aligned, &stays);
        if (plan == NULL) {
            return -1;
        }
        if (stays) {
            Py_XSETREF(*kept, (plan_object *)Py_NewRef(plan));
        }
    }
    uint64_t scratch;
    const int done = find_scratch(f, plan, &scratch) < 0 ? -1 : launch_plan(launcher, plan, f->stream, values, scratch);
    Py_DECREF(plan);
    return done;
}

/* Addresses and integers alone go the same way as eight-byte integers, and whoever calls takes them away: more than a function takes are not
 * seen (System V, x86-64). */
#define V8(v) v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
#define T8 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
static int64_t call_native(uint64_t address, const uint64_t *v, Py_ssize_t count)
{
    void *function = (void *)(uintptr_t)address;
    if (count <= 8) {
        return ((int64_t(*)(T8))function)(V8(v));
    }
    if (count <= 24) {
        return ((int64_t(*)(T8, T8, T8))function)(V8(v), V8((v + 8)), V8((v + 16)));
    }
    return ((int64_t(*)(T8, T8, T8, T8, T8, T8, T8, T8))function)(
        V8(v), V8((v + 8)), V8((v + 16)), V8((v + 24)), V8((v + 32)), V8((v + 40)), V8((v + 48)), V8((v + 56)));
}

static int run_native(frame *f, const instruction *one)
{
    uint64_t values[MOST_OPERANDS], together = 0;
    if (read_operands(f, one, values, &together) < 0) {
        return -1;
    }
    const Py_ssize_t count = one->operand_count / 2, room = count <= 8 ? 8 : count <= 24 ? 24 : MOST_OPERANDS;
    memset(values + count, 0, sizeof(uint64_t) * (size_t)(room - count));
    int64_t failed;
    Py_BEGIN_ALLOW_THREADS
    failed = call_native(one->address, values, count);
    Py_END_ALLOW_THREADS
    failed = one->result == NO_RESULT ? 0 : one->result == INT32_RESULT ? (int32_t)failed : failed;
    if (failed == 0) {
        return 0;
    }
    PyObject *done = PyObject_CallFunction(one->function, "L", (long long)failed);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* A kernel that takes all of its operands in memory. */
static int run_table(frame *f, const instruction *one)
{
    uint64_t *values = PyMem_Malloc(sizeof(uint64_t) * (size_t)(one->operand_count / 2 + 1)), together = 0;
    if (values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    const int done = read_operands(f, one, values, &together);
    if (done == 0) {
        Py_BEGIN_ALLOW_THREADS
        ((void (*)(const uint64_t *))(uintptr_t)one->address)(values);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(values);
    return done;
}

/* The library's function, or else what says why it failed, and tells those who look. */
static int run_library(frame *f, const instruction *one)
{
    uint64_t values[MOST_WINDOWS], places[MOST_RESULTS], together = 0;
    PyObject *results[MOST_RESULTS];
    if ((f->watched < 0 && (f->watched = library_watched()) < 0) || read_operands(f, one, values, &together) < 0) {
        return -1;
    }
    const int done = f->watched ? 0 : call_library(one->library, values, f->sizes->numbers, results, places);
    if (done < 0) {
        return -1;
    }
    int registers[MOST_RESULTS];
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < library_results(one->library); i++) {
        const int into = library_result(one->library, i);
        if (into >= 0 && done) {
            set_register(f, into, results[i], places[i]);
        }
        else if (into >= 0) {
            registers[count++] = into;
        }
    }
    if (done) {
        return 0;
    }
    PyObject *result = call_with(f, one, one->results, one->result_count);
    return result == NULL ? -1 : set_results(f, one, result, registers, count);
}

static int run_instruction(frame *f, const instruction *one)
{
    switch (one->kind) {
    case CALL:
        return run_call(f, one);
    case ALLOCATE:
        return run_allocate(f, one);
    case LAUNCH:
        return run_launch(f, one);
    case NATIVE:
        return run_native(f, one);
    case LIBRARY:
        return run_library(f, one);
    case TABLE:
        return run_table(f, one);
    case SHARE: {
        PyObject *old = held(f, one->operands[0]);
        if (old == NULL) {
            return -1;
        }
        set_register(f, one->results[0], Py_NewRef(old), f->addresses[one->operands[0]]);
        return 0;
    }
    default:
        for (Py_ssize_t i = 0; i < one->operand_count; i++) {
            set_register(f, one->operands[i], NULL, 0);
        }
        return 0;
    }
}

static PyObject *returned(frame *f, const instruction *one)
{
    PyObject *result = PyTuple_New(one->operand_count);
    for (Py_ssize_t i = 0; result != NULL && i < one->operand_count; i++) {
        PyObject *value = shown(f, one->operands[i]);
        if (value == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, Py_NewRef(value));
    }
    return result;
}

static PyObject *run_program(frame *f)
{
    program_object *self = f->program;
    for (Py_ssize_t i = 0; i < self->code_count; i++) {
        const instruction *one = &self->code[i];
        if (i == self->settle_after && (f->sizes = settle(self, f->registers)) == NULL) {
            return NULL;
        }
        if (one->kind == RETURN) {
            return returned(f, one);
        }
        if (run_instruction(f, one) < 0) {
            return NULL;
        }
    }
    PyErr_SetString(PyExc_RuntimeError, "a host program that does not return");
    return NULL;
}

/* call(args): a list, which is emptied */
static PyObject *program_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    program_object *self = (program_object *)callable;
    if (PyVectorcall_NARGS(flags) != 1 || (names != NULL && PyTuple_GET_SIZE(names)) || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a host program takes one list");
        return NULL;
    }
    if (self->inputs && PyList_GET_SIZE(args[0]) != self->inputs) {
        return PyErr_Format(PyExc_ValueError, "a host program takes %zd inputs, not %zd", self->inputs, PyList_GET_SIZE(args[0]));
    }
    PyObject *registers[self->registers + 1];
    uint64_t addresses[self->registers + 1];
    memset(registers, 0, sizeof(registers));
    memset(addresses, 0, sizeof(addresses));
    for (Py_ssize_t i = 0; i < self->inputs; i++) {
        registers[i] = Py_NewRef(PyList_GET_ITEM(args[0], i));
    }
    frame f = {self, NULL, registers, addresses, NULL, NULL, -1, NULL, 0, 0};
    PyObject *result = NULL;
    Py_INCREF(self);
    if (self->inputs == 0 || PyList_SetSlice(args[0], 0, self->inputs, NULL) == 0) {
        result = run_program(&f);
    }
    drop_settled(self, f.sizes);
    Py_XDECREF(f.scratch); /* whoever gets it next on this stream comes after these launches */
    for (Py_ssize_t i = 0; i < self->registers; i++) {
        Py_XDECREF(registers[i]);
    }
    Py_DECREF(self);
    return result;
}

/* Making a program */

Py_ssize_t read_integers(PyObject *tuple, int least, Py_ssize_t limit, int **out)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of numbers expected");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    *out = PyMem_Calloc((size_t)count + 1, sizeof(int));
    if (*out == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        long value = PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
        if (value == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (value < least || value >= limit) {
            PyErr_Format(PyExc_ValueError, "a host program names %ld, which is not below %zd", value, limit);
            return -1;
        }
        (*out)[i] = (int)value;
    }
    return count;
}

static int check_kernel(program_object *self, instruction *one)
{
    Py_ssize_t tensors = 0, pairs = one->operand_count / 2;
    if (one->operand_count % 2) {
        PyErr_SetString(PyExc_ValueError, "a kernel's operands are pairs");
        return -1;
    }
    bool ordered = true;
    for (Py_ssize_t i = 0; i < pairs; i++) {
        const int number = one->operands[2 * i + 1];
        if (one->operands[2 * i] >= self->registers || number < 0 || number >= self->number_count) {
            PyErr_SetString(PyExc_ValueError, "a kernel's operand that the program does not have");
            return -1;
        }
        ordered = ordered && (one->operands[2 * i] < 0 || tensors == i);
        tensors += one->operands[2 * i] >= 0;
    }
    if (one->kind == TABLE && one->address == 0) {
        PyErr_SetString(PyExc_ValueError, "a kernel without an address");
        return -1;
    }
    if (one->kind == NATIVE && (pairs > MOST_OPERANDS || one->address == 0 || one->result < 0 || one->result >= RESULTS)) {
        PyErr_SetString(PyExc_ValueError, "a kernel that cannot be called so");
        return -1;
    }
    if (one->kind == LAUNCH) {
        if (!PyObject_TypeCheck(one->function, &launcher_type)) {
            PyErr_SetString(PyExc_TypeError, "a Launcher expected");
            return -1;
        }
        launcher_object *launcher = (launcher_object *)one->function;
        if (!ordered || launcher->tensors != tensors || launcher->numbers != pairs - tensors || strchr(launcher->formats, 'd') != NULL) {
            PyErr_SetString(PyExc_ValueError, "a kernel that takes other operands");
            return -1;
        }
        one->launch = self->launches++;
    }
    return 0;
}

static int add_library_call(program_object *self, instruction *one)
{
    one->library = read_library_call(one->extra, one->address, one->operand_count / 2, self->number_count, self->registers);
    return one->library == NULL ? -1 : 0;
}

/* (kind, function, extra, operands, results, address, result) */
static int read_instruction(program_object *self, instruction *one, PyObject *tuple)
{
    PyObject *operands, *results;
    unsigned long long address;
    if (!PyArg_ParseTuple(tuple, "iOOOOKi", &one->kind, &one->function, &one->extra, &operands, &results, &address, &one->result)) {
        one->function = one->extra = NULL;
        return -1;
    }
    Py_INCREF(one->function);
    Py_INCREF(one->extra);
    one->address = address;
    if (one->kind < 0 || one->kind >= KINDS) {
        PyErr_Format(PyExc_ValueError, "a host program has no instruction %d", one->kind);
        return -1;
    }
    const bool kernel = one->kind == LAUNCH || one->kind == NATIVE || one->kind == LIBRARY || one->kind == TABLE;
    const Py_ssize_t limit = kernel ? INT32_MAX : one->kind == ALLOCATE ? self->shape_count : self->registers;
    one->operand_count = read_integers(operands, kernel ? -1 : 0, limit, &one->operands);
    one->result_count = one->operand_count < 0 ? -1 : read_integers(results, 0, self->registers, &one->results);
    if (one->result_count < 0 || (kernel && check_kernel(self, one) < 0) || (one->kind == LIBRARY && add_library_call(self, one) < 0)) {
        return -1;
    }
    const bool counts = one->kind == ALLOCATE ? one->operand_count == 2 && one->result_count == 1
                        : one->kind == SHARE  ? one->operand_count == 1 && one->result_count == 1
                                              : true;
    if (!counts) {
        PyErr_SetString(PyExc_ValueError, "an instruction with another count of operands");
        return -1;
    }
    return 0;
}

static int program_traverse(program_object *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; self->code != NULL && i < self->code_count; i++) {
        Py_VISIT(self->code[i].function);
        Py_VISIT(self->code[i].extra);
    }
    for (int i = 0; i < MOST_SETTLED && self->known[i] != NULL; i++) {
        Py_VISIT(self->known[i]->shapes);
        for (Py_ssize_t k = 0; k < self->launches; k++) {
            Py_VISIT(self->known[i]->plans[k]);
        }
    }
    Py_VISIT(self->settle);
    return 0;
}

static int program_clear(program_object *self)
{
    for (int i = 0; i < MOST_SETTLED; i++) {
        settled *one = self->known[i];
        self->known[i] = NULL;
        drop_settled(self, one);
    }
    for (Py_ssize_t i = 0; self->code != NULL && i < self->code_count; i++) {
        Py_CLEAR(self->code[i].function);
        Py_CLEAR(self->code[i].extra);
    }
    Py_CLEAR(self->settle);
    return 0;
}

static void program_dealloc(program_object *self)
{
    PyObject_GC_UnTrack(self);
    program_clear(self);
    for (Py_ssize_t i = 0; self->code != NULL && i < self->code_count; i++) {
        PyMem_Free(self->code[i].operands);
        PyMem_Free(self->code[i].results);
        drop_library_call(self->code[i].library);
    }
    PyMem_Free(self->code);
    PyMem_Free(self->symbols);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Program(inputs, registers, numbers, shapes, symbols, settle_after, settle, instructions) */
static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t inputs, registers, numbers, shapes, settle_after;
    PyObject *symbols, *settle, *code;
    if (!PyArg_ParseTuple(args, "nnnnOnOO!", &inputs, &registers, &numbers, &shapes, &symbols, &settle_after, &settle, &PyTuple_Type,
                          &code)) {
        return NULL;
    }
    if (inputs < 0 || inputs > registers || settle_after < 0) {
        PyErr_SetString(PyExc_ValueError, "a host program with more inputs than registers");
        return NULL;
    }
    program_object *self = (program_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = program_call;
    self->inputs = inputs;
    self->registers = registers;
    self->number_count = numbers;
    self->shape_count = shapes;
    self->settle_after = settle_after;
    self->settle = Py_NewRef(settle);
    self->symbol_count = read_integers(symbols, 0, registers, &self->symbols);
    self->code = self->symbol_count < 0 ? NULL : PyMem_Calloc((size_t)PyTuple_GET_SIZE(code) + 1, sizeof(instruction));
    if (self->code == NULL) {
        self->symbol_count < 0 ? NULL : PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    self->code_count = PyTuple_GET_SIZE(code);
    for (Py_ssize_t i = 0; i < self->code_count; i++) {
        const int kind = read_instruction(self, &self->code[i], PyTuple_GET_ITEM(code, i)) < 0 ? -1 : self->code[i].kind;
        if (kind < 0 || (i < settle_after && kind != CALL)) {
            if (kind >= 0) {
                PyErr_SetString(PyExc_ValueError, "a host program that reads sizes before they are settled");
            }
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static PyMemberDef program_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(program_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject program_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Program",
    .tp_basicsize = sizeof(program_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(program_object, vectorcall),
    .tp_members = program_members,
};
