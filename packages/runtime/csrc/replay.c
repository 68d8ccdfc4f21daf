/* Replaying a recorded CUDA graph: what is compared, copied and handed out at each call lies ready.
 *
 * Replay: one recording. matches() compares the addresses of inputs that are read in place, free() asks whether nobody holds memory that the
 * graph is about to write, run() copies the other inputs, launches, copies written ones back and hands out the outputs.
 * Clock: how many replays there were, and how many steps of the program.
 */
#include "replay.h"

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

static PyObject *replay_matches(replay_object *self, PyObject *inputs)
{
    int found = matches(self, inputs);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *replay_settle(replay_object *self, PyObject *unused)
{
    if (settle(self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
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

PyObject *run(replay_object *self, PyObject *inputs, void *stream, int *status)
{
    uint64_t addresses[self->copy_count + 1];
    bool back = false;
    *status = 0;
    for (Py_ssize_t i = 0; i < self->copy_count; i++) {
        const copied_input *one = &self->copies[i];
        int failed = one->is_number ? input_number(self, inputs, one, &addresses[i])
                                    : input_address(self, inputs, one->input, &addresses[i]);
        if (failed) {
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

PyTypeObject replay_type = {
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
