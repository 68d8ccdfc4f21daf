/* Replaying without Python: a call that is like the last one (Front), and what is asked of torch's settings for that (Settings). */
#include "replay.h"

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

PyTypeObject front_type = {
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

PyTypeObject settings_type = {
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
