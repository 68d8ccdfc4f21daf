/* What a host program expects of a library call: device, sizes and strides through DLPack's C exchange table; dtype, storage offset and the
 * bits of lazy conjugation and negation through torch.Tensor's own descriptors, called as C.
 *
 * A result that is all of that is given back as it is. Every other one, and what DLPack does not describe, is for a Python function, which
 * raises, or gives a tensor that is.
 */
#include "result.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

/* The parts of DLPack's C header that are used; layouts are fixed by its major version 1. */
typedef struct { int32_t device_type; int32_t device_id; } dl_device;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } dl_data_type;
typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_data_type dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor;
typedef struct {
    uint32_t major, minor;
    void *previous;
    void *allocate, *from_object, *to_object;
    int (*describe)(void *object, dl_tensor *out);
    void *current_stream;
} dl_exchange;

enum { DL_FLOAT = 2, DL_COMPLEX = 5, ANY_DEVICE = 0 /* DLPack counts from 1 */ };

static int (*describe)(void *object, dl_tensor *out);
static PyTypeObject *tensor_type;
static PyGetSetDescrObject *dtype_of;
static PyMethodDescrObject *storage_offset, *is_conj, *is_neg;

static int set_method(PyMethodDescrObject **place, PyObject *method)
{
    if (!Py_IS_TYPE(method, &PyMethodDescr_Type) || ((PyMethodDescrObject *)method)->d_method->ml_flags != METH_NOARGS) {
        PyErr_Format(PyExc_TypeError, "a method descriptor without arguments is wanted, not %R", method);
        return -1;
    }
    Py_XSETREF(*place, (PyMethodDescrObject *)Py_NewRef(method));
    return 0;
}

PyObject *tw_set_tensor_api(PyObject *module, PyObject *args)
{
    PyObject *capsule, *type, *dtype, *offset, *conj, *neg;
    if (!PyArg_ParseTuple(args, "OO!O!OOO", &capsule, &PyType_Type, &type, &PyGetSetDescr_Type, &dtype, &offset, &conj, &neg)) {
        return NULL;
    }
    describe = NULL;
    if (set_method(&storage_offset, offset) < 0 || set_method(&is_conj, conj) < 0 || set_method(&is_neg, neg) < 0) {
        return NULL;
    }
    Py_XSETREF(tensor_type, (PyTypeObject *)Py_NewRef(type));
    Py_XSETREF(dtype_of, (PyGetSetDescrObject *)Py_NewRef(dtype));
    if (capsule != Py_None) {
        dl_exchange *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (api == NULL) {
            return NULL;
        }
        describe = api->major == 1 ? api->describe : NULL;
    }
    Py_RETURN_NONE;
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *dtype;
    PyObject *otherwise; /* (value, sizes, strides) -> the result as it is expected */
    int device_type, device_id;
    int is_own; /* the host program's own memory, of which a library can have changed no more than the size */
} expected_object;

static bool are(PyObject *wanted, const int64_t *given, int32_t count)
{
    if (!PyTuple_CheckExact(wanted) || PyTuple_GET_SIZE(wanted) != count || (given == NULL && count)) {
        return false;
    }
    for (int32_t i = 0; i < count; i++) {
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(wanted, i)) != given[i]) {
            return false;
        }
    }
    return true;
}

/* What a method without arguments of a tensor gives is this object, or this number. */
static bool gives(PyMethodDescrObject *method, PyObject *tensor, PyObject *wanted)
{
    PyObject *given = method->d_method->ml_meth(tensor, NULL);
    bool found = given != NULL && (given == wanted || (PyLong_CheckExact(given) && PyLong_CheckExact(wanted) &&
                                                      PyLong_AsLongLong(given) == PyLong_AsLongLong(wanted)));
    Py_XDECREF(given);
    return found;
}

static bool has_dtype(PyObject *tensor, PyObject *dtype)
{
    PyObject *given = dtype_of->d_getset->get(tensor, dtype_of->d_getset->closure);
    Py_XDECREF(given);
    return given == dtype;
}

/* DLPack does not say that values are stored negated. A view that is so is made of the imaginary parts of complex numbers: its strides are
 * even. */
static bool may_be_negated(const dl_tensor *seen)
{
    for (int32_t i = 0; i < seen->ndim; i++) {
        if (seen->shape[i] > 1 && (seen->strides[i] & 1)) {
            return false;
        }
    }
    return seen->dtype.code == DL_FLOAT || seen->dtype.code == DL_COMPLEX;
}

static bool is_as_expected(const expected_object *self, PyObject *value, PyObject *sizes, PyObject *strides)
{
    static PyObject *zero;
    if (zero == NULL && (zero = PyLong_FromLong(0)) == NULL) {
        return false;
    }
    dl_tensor seen;
    if (describe == NULL || Py_TYPE(value) != tensor_type || describe(value, &seen) != 0) {
        return false;
    }
    /* without data: an empty tensor, or one of zeros without memory */
    if (seen.data == NULL || !are(sizes, seen.shape, seen.ndim) || !are(strides, seen.strides, seen.ndim)) {
        return false;
    }
    bool there = self->device_type == ANY_DEVICE ||
                 (seen.device.device_type == self->device_type && seen.device.device_id == self->device_id);
    return self->is_own || (there && has_dtype(value, self->dtype) && gives(storage_offset, value, zero) &&
           (seen.dtype.code != DL_COMPLEX || gives(is_conj, value, Py_False)) &&
           (!may_be_negated(&seen) || gives(is_neg, value, Py_False)));
}

static PyObject *expected_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    expected_object *self = (expected_object *)callable;
    if (PyVectorcall_NARGS(flags) != 3 || (names != NULL && PyTuple_GET_SIZE(names))) {
        PyErr_SetString(PyExc_TypeError, "a value, its sizes and its strides are wanted");
        return NULL;
    }
    if (is_as_expected(self, args[0], args[1], args[2])) {
        return Py_NewRef(args[0]);
    }
    PyErr_Clear(); /* whatever it was, it is found again */
    return PyObject_Vectorcall(self->otherwise, args, 3, NULL);
}

static int expected_traverse(expected_object *self, visitproc visit, void *arg)
{
    Py_VISIT(self->dtype);
    Py_VISIT(self->otherwise);
    return 0;
}

static int expected_clear(expected_object *self)
{
    Py_CLEAR(self->dtype);
    Py_CLEAR(self->otherwise);
    return 0;
}

static void expected_dealloc(expected_object *self)
{
    PyObject_GC_UnTrack(self);
    expected_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Expected(dtype, the device's type and index as DLPack counts them, 0 for any device, whether the memory is the host program's own, otherwise) */
static PyObject *expected_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int device_type, device_id, is_own;
    PyObject *dtype, *otherwise;
    if (!PyArg_ParseTuple(args, "OiipO", &dtype, &device_type, &device_id, &is_own, &otherwise)) {
        return NULL;
    }
    expected_object *self = (expected_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = expected_call;
    self->otherwise = Py_NewRef(otherwise);
    self->dtype = Py_NewRef(dtype);
    self->device_type = device_type;
    self->device_id = device_id;
    self->is_own = is_own;
    return (PyObject *)self;
}

static PyMemberDef expected_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(expected_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject tw_expected_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Expected",
    .tp_basicsize = sizeof(expected_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = expected_new,
    .tp_dealloc = (destructor)expected_dealloc,
    .tp_traverse = (traverseproc)expected_traverse,
    .tp_clear = (inquiry)expected_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(expected_object, vectorcall),
    .tp_members = expected_members,
};
