/* Replaying a recorded CUDA graph: what is compared, copied and handed out at each call lies ready.
 *
 * Replay: one recording. matches() compares the addresses of inputs that are read in place, free() asks whether nobody holds memory that the
 * graph is about to write, run() copies the other inputs, launches, copies written ones back and hands out the outputs.
 * Front: the recordings that the last call chose among, replayed without Python where the next call is like it.
 * Clock: how many replays there were, and how many steps of the program.
 */
#include "parts.h"

#include <stddef.h>
#include <structmember.h>

/* aoti_torch_get_data_ptr, and where a Python tensor has the tensor of C++ that it takes; 0 where that is not known. */
typedef int (*address_function)(void *tensor, void **address);

static address_function get_address;
static Py_ssize_t tensor_place;

/* How far behind a storage's handle lies, in 32 bits, how many hold it; -1 where that is not known. */
static Py_ssize_t count_place = -1;

/* cuMemcpyAsync */
typedef int (*copy_function)(uint64_t to, uint64_t from, size_t bytes, void *stream);

/* cuLaunchKernel */
typedef int (*kernel_function)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);

/* The parameter of the kernel that makes many copies, device/copies.py. */
#define ROWS 64
#define THREADS 256
#define UNIT 16 /* bytes that a thread copies at once */
#define LARGE ((size_t)1 << 20) /* bytes from which on a copy is the driver's */

typedef struct {
    uint64_t to, from, bytes;
} copy_row;

/* cuGraphLaunch */
typedef int (*graph_function)(void *graph, void *stream);

typedef struct {
    Py_ssize_t input;
    uint64_t address;
} fixed_input;

typedef struct {
    Py_ssize_t input;
    uint64_t memory;
    size_t bytes;
    bool back;
} copied_input;

/* Memory that is handed out, with what holds it while nobody but the recording does. */
typedef struct {
    PyObject *storage, *handle;
    long tensors;
    Py_ssize_t objects;
} slot;

typedef struct {
    PyObject_HEAD
    long long number, now;
} clock_object;

/* How an output is handed out: as a new tensor over the recording's memory, as it is, as the same object as the output `from`, as the input
 * `from`, or as what a function gives for the inputs. */
enum { OVER_MEMORY, AS_IT_IS, AS_OUTPUT, AS_INPUT, BY_FUNCTION };

typedef struct {
    int way;
    Py_ssize_t from;
    PyObject *value;
} output;

typedef struct {
    PyObject_HEAD
    PyMethodDescrObject *data_ptr;
    PyObject *launch;     /* what keeps the graph; () -> None, where there is none for the driver */
    PyObject *references; /* storage's handle -> how many hold it */
    PyObject *data;       /* "data" */
    clock_object *clock;
    long long used, step; /* the clock's times at the last replay */
    Py_ssize_t replays;
    copy_function copy;
    kernel_function launch_kernel;
    void *copies_kernel; /* NULL where there is none */
    graph_function launch_graph;
    void *graph;
    fixed_input *fixed;
    copied_input *copies;
    slot *slots;
    output *outputs;
    Py_ssize_t fixed_count, copy_count, slot_count, output_count;
} replay_object;

static int replay_traverse(replay_object *self, visitproc visit, void *arg)
{
    Py_VISIT(self->data_ptr);
    Py_VISIT(self->launch);
    Py_VISIT(self->references);
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        Py_VISIT(self->outputs[i].value);
    }
    return 0;
}

static int replay_clear(replay_object *self)
{
    Py_CLEAR(self->data_ptr);
    Py_CLEAR(self->launch);
    Py_CLEAR(self->references);
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        self->outputs[i].way = AS_IT_IS;
        Py_XSETREF(self->outputs[i].value, Py_NewRef(Py_None));
    }
    return 0;
}

static void replay_dealloc(replay_object *self)
{
    PyObject_GC_UnTrack(self);
    replay_clear(self);
    for (Py_ssize_t i = 0; i < self->slot_count; i++) {
        Py_XDECREF(self->slots[i].handle);
        Py_XDECREF(self->slots[i].storage);
    }
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        Py_XDECREF(self->outputs[i].value);
    }
    Py_XDECREF(self->data);
    Py_XDECREF(self->clock);
    PyMem_Free(self->fixed);
    PyMem_Free(self->copies);
    PyMem_Free(self->slots);
    PyMem_Free(self->outputs);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int read_fixed(replay_object *self, PyObject *rows)
{
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    self->fixed = PyMem_Calloc((size_t)count + 1, sizeof(fixed_input));
    if (self->fixed == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (self->fixed_count = 0; self->fixed_count < count; self->fixed_count++) {
        unsigned long long address;
        fixed_input *one = &self->fixed[self->fixed_count];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rows, self->fixed_count), "nK", &one->input, &address)) {
            return -1;
        }
        one->address = address;
    }
    return 0;
}

static int read_copies(replay_object *self, PyObject *rows)
{
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    self->copies = PyMem_Calloc((size_t)count + 1, sizeof(copied_input));
    if (self->copies == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (self->copy_count = 0; self->copy_count < count; self->copy_count++) {
        unsigned long long memory;
        Py_ssize_t bytes;
        int back;
        copied_input *one = &self->copies[self->copy_count];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rows, self->copy_count), "nKnp", &one->input, &memory, &bytes, &back)) {
            return -1;
        }
        one->memory = memory;
        one->bytes = (size_t)bytes;
        one->back = back != 0;
    }
    return 0;
}

static int read_slots(replay_object *self, PyObject *rows)
{
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    self->slots = PyMem_Calloc((size_t)count + 1, sizeof(slot));
    if (self->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (self->slot_count = 0; self->slot_count < count; self->slot_count++) {
        PyObject *storage, *handle;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rows, self->slot_count), "OO!", &storage, &PyLong_Type, &handle)) {
            return -1;
        }
        self->slots[self->slot_count].storage = Py_NewRef(storage);
        self->slots[self->slot_count].handle = Py_NewRef(handle);
    }
    return 0;
}

static int read_outputs(replay_object *self, PyObject *rows)
{
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    self->outputs = PyMem_Calloc((size_t)count + 1, sizeof(output));
    if (self->outputs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (self->output_count = 0; self->output_count < count; self->output_count++) {
        output *one = &self->outputs[self->output_count];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rows, self->output_count), "inO", &one->way, &one->from, &one->value)) {
            one->value = NULL;
            return -1;
        }
        Py_INCREF(one->value);
        if (one->way < OVER_MEMORY || one->way > BY_FUNCTION || one->from < 0 || (one->way == AS_OUTPUT && one->from >= self->output_count)) {
            self->output_count++;
            PyErr_SetString(PyExc_ValueError, "an output that is handed out in no way");
            return -1;
        }
    }
    return 0;
}

/* How many tensors hold a storage, -1 with an exception. */
static long count_tensors(const replay_object *self, const slot *one)
{
    if (count_place >= 0) {
        uint64_t handle = PyLong_AsUnsignedLongLong(one->handle);
        return (long)*(volatile uint32_t *)(uintptr_t)(handle + (uint64_t)count_place);
    }
    PyObject *found = PyObject_CallOneArg(self->references, one->handle);
    if (found == NULL) {
        return -1;
    }
    long count = PyLong_AsLong(found);
    Py_DECREF(found);
    return count;
}

static PyTypeObject clock_type;

/* Replay(torch.Tensor.data_ptr, (addresses of cuMemcpyAsync, cuLaunchKernel and the kernel for copies), address of cuGraphLaunch, graph,
 * launch, references, clock, fixed, copies, slots, outputs) */
static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *data_ptr, *launch, *references, *clock, *fixed, *copies, *slots, *outputs;
    unsigned long long copy, launch_kernel, kernel, launch_graph, graph;
    if (!PyArg_ParseTuple(args, "O!(KKK)KKOOO!O!O!O!O!", &PyMethodDescr_Type, &data_ptr, &copy, &launch_kernel, &kernel, &launch_graph, &graph, &launch,
            &references, &clock_type, &clock, &PyTuple_Type, &fixed, &PyTuple_Type, &copies, &PyTuple_Type, &slots, &PyTuple_Type, &outputs)) {
        return NULL;
    }
    if (((PyMethodDescrObject *)data_ptr)->d_method->ml_flags != METH_NOARGS) {
        return PyErr_Format(PyExc_TypeError, "an address is read by a method without arguments, not by %R", data_ptr);
    }
    replay_object *self = (replay_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->data_ptr = (PyMethodDescrObject *)Py_NewRef(data_ptr);
    self->copy = (copy_function)(uintptr_t)copy;
    self->launch_kernel = (kernel_function)(uintptr_t)launch_kernel;
    self->copies_kernel = (void *)(uintptr_t)kernel;
    self->launch_graph = (graph_function)(uintptr_t)launch_graph;
    self->graph = (void *)(uintptr_t)graph;
    self->launch = Py_NewRef(launch);
    self->references = Py_NewRef(references);
    self->clock = (clock_object *)Py_NewRef(clock);
    self->data = PyUnicode_InternFromString("data");
    if (self->data == NULL || read_fixed(self, fixed) < 0 || read_copies(self, copies) < 0 || read_slots(self, slots) < 0 ||
        read_outputs(self, outputs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* The address of an input, -1 with an exception. */
static int input_address(replay_object *self, PyObject *inputs, Py_ssize_t place, uint64_t *out)
{
    if (!PyList_Check(inputs) || place >= PyList_GET_SIZE(inputs)) {
        PyErr_Format(PyExc_TypeError, "a recording takes a list of inputs, with a tensor at %zd", place);
        return -1;
    }
    PyObject *tensor = PyList_GET_ITEM(inputs, place);
    if (!PyObject_TypeCheck(tensor, PyDescr_TYPE(self->data_ptr))) {
        PyErr_Format(PyExc_TypeError, "a recording takes a tensor as input %zd, not %R", place, Py_TYPE(tensor));
        return -1;
    }
    void *found;
    if (tensor_place && get_address((char *)tensor + tensor_place, &found) == 0) {
        *out = (uint64_t)(uintptr_t)found;
        return 0;
    }
    PyObject *number = self->data_ptr->d_method->ml_meth(tensor, NULL);
    if (number == NULL) {
        return -1;
    }
    *out = (uint64_t)PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether the inputs that are read in place are where they were; -1 with an exception. */
static int matches(replay_object *self, PyObject *inputs)
{
    for (Py_ssize_t i = 0; i < self->fixed_count; i++) {
        uint64_t address;
        if (input_address(self, inputs, self->fixed[i].input, &address) < 0) {
            return -1;
        }
        if (address != self->fixed[i].address) {
            return 0;
        }
    }
    return 1;
}

static PyObject *replay_matches(replay_object *self, PyObject *inputs)
{
    int found = matches(self, inputs);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* settle(): nobody but the recording holds the memory now. */
static PyObject *replay_settle(replay_object *self, PyObject *unused)
{
    for (Py_ssize_t i = 0; i < self->slot_count; i++) {
        slot *one = &self->slots[i];
        one->objects = Py_REFCNT(one->storage);
        one->tensors = count_tensors(self, one);
        if (one->tensors < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* Whether the caller holds a slot, through tensors or as a storage; -1 with an exception. */
static int is_held(const replay_object *self, const slot *one)
{
    if (Py_REFCNT(one->storage) > one->objects) {
        return 1;
    }
    long count = count_tensors(self, one);
    return count < 0 ? -1 : count > one->tensors;
}

/* Whether nobody holds a slot; -1 with an exception. */
static int is_free(const replay_object *self)
{
    for (Py_ssize_t i = 0; i < self->slot_count; i++) {
        int held = is_held(self, &self->slots[i]);
        if (held) {
            return held < 0 ? -1 : 0;
        }
    }
    return 1;
}

static PyObject *replay_free(replay_object *self, PyObject *unused)
{
    int found = is_free(self);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *replay_held(replay_object *self, PyObject *unused)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < self->slot_count; i++) {
        int held = is_held(self, &self->slots[i]);
        PyObject *place = held > 0 ? PyLong_FromSsize_t(i) : NULL;
        if (held < 0 || (held && (place == NULL || PyList_Append(found, place) < 0))) {
            Py_CLEAR(found);
        }
        Py_XDECREF(place);
    }
    return found;
}

/* Launches the kernel for rows of copies: the driver's status. */
static int launch_rows(const replay_object *self, copy_row *rows, unsigned count, size_t longest, void *stream)
{
    void *parameters[] = {rows};
    size_t blocks = (longest + UNIT * THREADS - 1) / (UNIT * THREADS);
    return self->launch_kernel(self->copies_kernel, (unsigned)blocks, count, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

/* Copies in both directions: the driver's status. */
static int copy_inputs(const replay_object *self, const uint64_t *addresses, bool back, void *stream)
{
    copy_row rows[ROWS];
    unsigned count = 0;
    size_t longest = 0;
    int status = 0;
    for (Py_ssize_t i = 0; i < self->copy_count && status == 0; i++) {
        const copied_input *one = &self->copies[i];
        if (back && !one->back) {
            continue;
        }
        uint64_t to = back ? addresses[i] : one->memory, from = back ? one->memory : addresses[i];
        if (self->copies_kernel == NULL || one->bytes >= LARGE) {
            status = self->copy(to, from, one->bytes, stream);
            continue;
        }
        rows[count++] = (copy_row){to, from, one->bytes};
        longest = one->bytes > longest ? one->bytes : longest;
        if (count == ROWS) {
            status = launch_rows(self, rows, count, longest, stream);
            count = 0;
            longest = 0;
        }
    }
    return status || count == 0 ? status : launch_rows(self, rows, count, longest, stream);
}

static PyObject *hand_out_one(const replay_object *self, const output *one, PyObject *inputs, PyObject *earlier)
{
    switch (one->way) {
    case OVER_MEMORY:
        return PyObject_GetAttr(one->value, self->data);
    case AS_OUTPUT:
        return Py_NewRef(PyTuple_GET_ITEM(earlier, one->from));
    case AS_INPUT:
        if (one->from >= PyList_GET_SIZE(inputs)) {
            PyErr_SetString(PyExc_IndexError, "an output is an input that is not there");
            return NULL;
        }
        return Py_NewRef(PyList_GET_ITEM(inputs, one->from));
    case BY_FUNCTION:
        return PyObject_CallOneArg(one->value, inputs);
    default:
        return Py_NewRef(one->value);
    }
}

/* The outputs as the caller gets them. */
static PyObject *hand_out(const replay_object *self, PyObject *inputs)
{
    PyObject *found = PyTuple_New(self->output_count);
    for (Py_ssize_t i = 0; found != NULL && i < self->output_count; i++) {
        PyObject *mine = hand_out_one(self, &self->outputs[i], inputs, found);
        if (mine == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyTuple_SET_ITEM(found, i, mine);
    }
    return found;
}

/* A tuple of outputs, or NULL: with an exception, or with the driver's status where that failed. */
static PyObject *run(replay_object *self, PyObject *inputs, void *stream, int *status)
{
    uint64_t addresses[self->copy_count + 1];
    bool back = false;
    *status = 0;
    for (Py_ssize_t i = 0; i < self->copy_count; i++) {
        if (input_address(self, inputs, self->copies[i].input, &addresses[i]) < 0) {
            return NULL;
        }
        back = back || self->copies[i].back;
    }
    if ((*status = copy_inputs(self, addresses, false, stream))) {
        return NULL;
    }
    if (self->graph != NULL) {
        Py_BEGIN_ALLOW_THREADS
        *status = self->launch_graph(self->graph, stream);
        Py_END_ALLOW_THREADS
        if (*status) {
            return NULL;
        }
    }
    else {
        PyObject *done = PyObject_CallNoArgs(self->launch);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    if (back && (*status = copy_inputs(self, addresses, true, stream))) {
        return NULL;
    }
    self->used = ++self->clock->now;
    self->step = self->clock->number;
    self->replays++;
    return hand_out(self, inputs);
}

/* run(inputs, stream): a tuple of outputs; the driver's status where it failed. */
static PyObject *replay_run(replay_object *self, PyObject *args)
{
    PyObject *inputs;
    unsigned long long handle;
    int status;
    if (!PyArg_ParseTuple(args, "O!K", &PyList_Type, &inputs, &handle)) {
        return NULL;
    }
    PyObject *found = run(self, inputs, (void *)(uintptr_t)handle, &status);
    return status ? PyLong_FromLong(status) : found;
}

static PyMemberDef replay_members[] = {
    {"used", T_LONGLONG, offsetof(replay_object, used), READONLY, "the clock's `now` at the last replay"},
    {"step", T_LONGLONG, offsetof(replay_object, step), 0, "the clock's `number` at the last replay"},
    {"replays", T_PYSSIZET, offsetof(replay_object, replays), READONLY, "how many there were"},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef replay_methods[] = {
    {"matches", (PyCFunction)replay_matches, METH_O, "matches(inputs): whether those that are read in place are where they were."},
    {"settle", (PyCFunction)replay_settle, METH_NOARGS, "settle(): takes it that nobody holds the slots now."},
    {"free", (PyCFunction)replay_free, METH_NOARGS, "free(): whether nobody holds memory that was handed out."},
    {"held", (PyCFunction)replay_held, METH_NOARGS, "held(): the places of slots that somebody holds."},
    {"run", (PyCFunction)replay_run, METH_VARARGS, "run(inputs, stream): copies, launches; a tuple of outputs, or the status of what failed."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject replay_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Replay",
    .tp_basicsize = sizeof(replay_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = replay_new,
    .tp_dealloc = (destructor)replay_dealloc,
    .tp_traverse = (traverseproc)replay_traverse,
    .tp_clear = (inquiry)replay_clear,
    .tp_methods = replay_methods,
    .tp_members = replay_members,
};

/* Clock() */

static PyMemberDef clock_members[] = {
    {"number", T_LONGLONG, offsetof(clock_object, number), 0, "how many steps have begun"},
    {"now", T_LONGLONG, offsetof(clock_object, now), READONLY, "how many replays there were"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject clock_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Clock",
    .tp_basicsize = sizeof(clock_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_members = clock_members,
};

/* Front(lock's acquire, lock's release, (capturing, current device, inference mode), stream, device, settings or None, sizes or None): what a
 * call gives by a recording that set() named, or None where it is no call like the one that set() was told of, or no recording is free.
 * Everything that tells calls apart is asked again each time. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *acquire, *release, *capturing, *current_device, *inference, *stream, *device, *settings, *sizes;
    PyObject *is_inference, *last_settings, *last_sizes, *replays; /* of set(); replays is NULL before */
    unsigned long long last_stream;
    Py_ssize_t count;
} front_object;

static int front_clear(front_object *self)
{
    Py_CLEAR(self->acquire);
    Py_CLEAR(self->release);
    Py_CLEAR(self->capturing);
    Py_CLEAR(self->current_device);
    Py_CLEAR(self->inference);
    Py_CLEAR(self->stream);
    Py_CLEAR(self->device);
    Py_CLEAR(self->settings);
    Py_CLEAR(self->sizes);
    Py_CLEAR(self->is_inference);
    Py_CLEAR(self->last_settings);
    Py_CLEAR(self->last_sizes);
    Py_CLEAR(self->replays);
    return 0;
}

static int front_traverse(front_object *self, visitproc visit, void *arg)
{
    Py_VISIT(self->acquire);
    Py_VISIT(self->release);
    Py_VISIT(self->capturing);
    Py_VISIT(self->current_device);
    Py_VISIT(self->inference);
    Py_VISIT(self->stream);
    Py_VISIT(self->settings);
    Py_VISIT(self->sizes);
    Py_VISIT(self->last_settings);
    Py_VISIT(self->last_sizes);
    Py_VISIT(self->replays);
    return 0;
}

static void front_dealloc(front_object *self)
{
    PyObject_GC_UnTrack(self);
    front_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Whether a function gives what is expected: 1 or 0, -1 with an exception. Gives up its reference to what was given. */
static int is_same(PyObject *given, PyObject *expected)
{
    if (given == NULL) {
        return -1;
    }
    int same = given == expected ? 1 : PyObject_RichCompareBool(given, expected, Py_EQ);
    Py_DECREF(given);
    return same;
}

/* Whether the call is one like that of set(). */
static int is_like_last(front_object *self, PyObject *inputs)
{
    int same = is_same(PyObject_CallNoArgs(self->capturing), Py_False);
    if (same > 0) {
        same = is_same(PyObject_CallNoArgs(self->current_device), self->device);
    }
    if (same > 0) {
        PyObject *handle = PyObject_CallOneArg(self->stream, self->device);
        same = handle == NULL ? -1 : PyLong_AsUnsignedLongLong(handle) == self->last_stream;
        Py_XDECREF(handle);
    }
    if (same > 0) {
        same = is_same(PyObject_CallNoArgs(self->inference), self->is_inference);
    }
    if (same > 0 && self->settings != Py_None) {
        same = is_same(PyObject_CallNoArgs(self->settings), self->last_settings);
    }
    if (same > 0 && self->sizes != Py_None) {
        same = is_same(PyObject_CallOneArg(self->sizes, inputs), self->last_sizes);
    }
    return same;
}

/* The outputs by one of the recordings; None where none will do. */
static PyObject *replayed(front_object *self, PyObject *inputs)
{
    int like = self->replays == NULL ? 0 : is_like_last(self, inputs);
    if (like <= 0 || self->replays == NULL) {
        return like < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *replays = Py_NewRef(self->replays), *found = Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(replays); i++) {
        replay_object *one = (replay_object *)PyTuple_GET_ITEM(replays, i);
        int may = matches(one, inputs);
        may = may > 0 ? is_free(one) : may;
        if (may) {
            int status = 0;
            PyObject *outputs = may < 0 ? NULL : run(one, inputs, (void *)(uintptr_t)self->last_stream, &status);
            if (status) { /* for the slower way: another context is wanted, or the error is to be raised */
                break;
            }
            Py_SETREF(found, outputs);
            break;
        }
    }
    Py_DECREF(replays);
    if (found != NULL && found != Py_None) {
        self->count++;
        if (PyList_SetSlice(inputs, 0, PyList_GET_SIZE(inputs), NULL) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

static PyObject *front_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    front_object *self = (front_object *)callable;
    if (PyVectorcall_NARGS(flags) != 1 || (names != NULL && PyTuple_GET_SIZE(names)) || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a recording takes one list");
        return NULL;
    }
    if (self->replays == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *locked = PyObject_CallNoArgs(self->acquire);
    if (locked == NULL) {
        return NULL;
    }
    Py_DECREF(locked);
    PyObject *found = replayed(self, args[0]), *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *unlocked = PyObject_CallNoArgs(self->release);
    if (unlocked == NULL) {
        Py_CLEAR(found);
    }
    Py_XDECREF(unlocked);
    if (type != NULL) {
        PyErr_Restore(type, value, trace);
    }
    return found;
}

static PyObject *front_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *acquire, *release, *capturing, *current, *inference, *stream, *device, *settings, *sizes;
    if (!PyArg_ParseTuple(args, "OO(OOO)OO!OO", &acquire, &release, &capturing, &current, &inference, &stream, &PyLong_Type, &device,
                          &settings, &sizes)) {
        return NULL;
    }
    front_object *self = (front_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = front_call;
    self->acquire = Py_NewRef(acquire);
    self->release = Py_NewRef(release);
    self->capturing = Py_NewRef(capturing);
    self->current_device = Py_NewRef(current);
    self->inference = Py_NewRef(inference);
    self->stream = Py_NewRef(stream);
    self->device = Py_NewRef(device);
    self->settings = Py_NewRef(settings);
    self->sizes = Py_NewRef(sizes);
    return (PyObject *)self;
}

static PyObject *front_set(front_object *self, PyObject *args)
{
    unsigned long long stream;
    PyObject *inference, *settings, *sizes, *replays;
    if (!PyArg_ParseTuple(args, "KOOOO!", &stream, &inference, &settings, &sizes, &PyTuple_Type, &replays)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(replays); i++) {
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(replays, i), &replay_type)) {
            PyErr_SetString(PyExc_TypeError, "a tuple of Replay expected");
            return NULL;
        }
    }
    self->last_stream = stream;
    Py_XSETREF(self->is_inference, Py_NewRef(inference));
    Py_XSETREF(self->last_settings, Py_NewRef(settings));
    Py_XSETREF(self->last_sizes, Py_NewRef(sizes));
    Py_XSETREF(self->replays, Py_NewRef(replays));
    Py_RETURN_NONE;
}

static PyObject *front_forget(front_object *self, PyObject *unused)
{
    Py_CLEAR(self->replays);
    Py_RETURN_NONE;
}

static PyMethodDef front_methods[] = {
    {"set", (PyCFunction)front_set, METH_VARARGS, "set(stream, inference mode, settings, sizes, recordings): what the next call may be like."},
    {"forget", (PyCFunction)front_forget, METH_NOARGS, "forget(): one of the recordings is no longer to be replayed."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef front_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(front_object, vectorcall), READONLY, NULL},
    {"count", T_PYSSIZET, offsetof(front_object, count), READONLY, "how many calls it replayed"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject front_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Front",
    .tp_basicsize = sizeof(front_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = front_new,
    .tp_dealloc = (destructor)front_dealloc,
    .tp_traverse = (traverseproc)front_traverse,
    .tp_clear = (inquiry)front_clear,
    .tp_methods = front_methods,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(front_object, vectorcall),
    .tp_members = front_members,
};

/* Settings(getters, other): a callable that gives what all getters give, as one and the same tuple as long as that are the same objects; what
 * other() gives where one raises RuntimeError. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *getters, *other, *last;
} settings_object;

static int settings_traverse(settings_object *self, visitproc visit, void *arg)
{
    Py_VISIT(self->getters);
    Py_VISIT(self->other);
    Py_VISIT(self->last);
    return 0;
}

static int settings_clear(settings_object *self)
{
    Py_CLEAR(self->getters);
    Py_CLEAR(self->other);
    Py_CLEAR(self->last);
    return 0;
}

static void settings_dealloc(settings_object *self)
{
    PyObject_GC_UnTrack(self);
    settings_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *settings_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    settings_object *self = (settings_object *)callable;
    Py_ssize_t count = PyTuple_GET_SIZE(self->getters);
    PyObject *last = Py_NewRef(self->last), *changed = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyObject_CallNoArgs(PyTuple_GET_ITEM(self->getters, i));
        if (value == NULL) {
            Py_DECREF(last);
            Py_XDECREF(changed);
            if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) {
                return NULL;
            }
            PyErr_Clear();
            return PyObject_CallNoArgs(self->other);
        }
        if (changed == NULL && (PyTuple_GET_SIZE(last) == 0 || PyTuple_GET_ITEM(last, i) != value)) {
            changed = PyTuple_New(count);
            for (Py_ssize_t before = 0; changed != NULL && before < i; before++) {
                PyTuple_SET_ITEM(changed, before, Py_NewRef(PyTuple_GET_ITEM(last, before)));
            }
            if (changed == NULL) {
                Py_DECREF(value);
                Py_DECREF(last);
                return NULL;
            }
        }
        if (changed != NULL) {
            PyTuple_SET_ITEM(changed, i, value);
        }
        else {
            Py_DECREF(value);
        }
    }
    if (changed == NULL) {
        return last;
    }
    Py_DECREF(last);
    Py_XSETREF(self->last, Py_NewRef(changed));
    return changed;
}

static PyObject *settings_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *getters, *other;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &getters, &other)) {
        return NULL;
    }
    settings_object *self = (settings_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = settings_call;
    self->getters = Py_NewRef(getters);
    self->other = Py_NewRef(other);
    self->last = PyTuple_New(0);
    return (PyObject *)self;
}

static PyMemberDef settings_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(settings_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject settings_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Settings",
    .tp_basicsize = sizeof(settings_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = settings_new,
    .tp_dealloc = (destructor)settings_dealloc,
    .tp_traverse = (traverseproc)settings_traverse,
    .tp_clear = (inquiry)settings_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(settings_object, vectorcall),
    .tp_members = settings_members,
};

static PyObject *set_get_address(PyObject *module, PyObject *args)
{
    unsigned long long function;
    Py_ssize_t place;
    if (!PyArg_ParseTuple(args, "Kn", &function, &place)) {
        return NULL;
    }
    get_address = (address_function)(uintptr_t)function;
    tensor_place = function ? place : 0;
    Py_RETURN_NONE;
}

static PyObject *set_count_place(PyObject *module, PyObject *place)
{
    count_place = PyLong_AsSsize_t(place);
    if (count_place == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

bool quick_address(PyObject *tensor, uint64_t *out)
{
    void *found;
    if (tensor_place == 0 || get_address((char *)tensor + tensor_place, &found) != 0) {
        return false;
    }
    *out = (uint64_t)(uintptr_t)found;
    return true;
}

static PyMethodDef functions[] = {
    {"set_count_place", set_count_place, METH_O,
     "set_count_place(place): how far behind a storage's handle lies, in 32 bits, how many hold it; -1 where that is not known."},
    {"set_get_address", set_get_address, METH_VARARGS,
     "set_get_address(function, place): where aoti_torch_get_data_ptr lies, and how far behind a Python tensor's address its argument."},
    {NULL, NULL, 0, NULL},
};

int add_replay(PyObject *module)
{
    if (PyModule_AddType(module, &replay_type) < 0 || PyModule_AddType(module, &front_type) < 0 || PyModule_AddType(module, &clock_type) < 0 ||
        PyModule_AddType(module, &settings_type) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
