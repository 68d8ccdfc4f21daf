/* The outputs of a recorded CUDA graph: memory that the graph writes and somebody may hold, and how each is handed out. */
#include "replay.h"

/* How far behind a storage's handle lies, in 32 bits, how many hold it; -1 where that is not known. */
static Py_ssize_t count_place = -1;

int read_slots(replay_object *self, PyObject *rows)
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

int read_outputs(replay_object *self, PyObject *rows)
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

int settle(replay_object *self)
{
    for (Py_ssize_t i = 0; i < self->slot_count; i++) {
        slot *one = &self->slots[i];
        one->objects = Py_REFCNT(one->storage);
        one->tensors = count_tensors(self, one);
        if (one->tensors < 0) {
            return -1;
        }
    }
    return 0;
}

int is_held(const replay_object *self, const slot *one)
{
    if (Py_REFCNT(one->storage) > one->objects) {
        return 1;
    }
    long count = count_tensors(self, one);
    return count < 0 ? -1 : count > one->tensors;
}

int is_free(const replay_object *self)
{
    for (Py_ssize_t i = 0; i < self->slot_count; i++) {
        int held = is_held(self, &self->slots[i]);
        if (held) {
            return held < 0 ? -1 : 0;
        }
    }
    return 1;
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

PyObject *hand_out(const replay_object *self, PyObject *inputs)
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

PyObject *set_count_place(PyObject *module, PyObject *place)
{
    count_place = PyLong_AsSsize_t(place);
    if (count_place == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}
