/* The tensor leaf: exact type, dtype, device, sizes, strides through DLPack's C exchange table; requires_grad through libc10 where that
 * is to be had, else through its getset.
 *
 * Tensors that DLPack refuses (sparse, meta, conjugated, wrapped by a transform) go to a Python function given with the payload; it
 * compares everything, the dispatch keys too, and returns the sizes, or None.
 * Payload: (type, dtype code, dtype bits, device type, device index, requires_grad, sizes, strides, slots, slow). A size or stride
 * below 0 is open; strides may be None; slots is None or has for each dim the number of an integer slot or -1. A dtype code below 0
 * sends every tensor the slow way.
 */
#include "guard_tree.h"

#include <dlfcn.h>

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

#define TW_DATA_DIMS 8 /* of a tensor whose elements are compared */

struct tw_tensor {
    PyTypeObject *type; /* compared only */
    PyObject *type_held; /* it, or a WeakKey of it */
    PyObject *slow;
    PyObject *requires_grad; /* Py_True or Py_False */
    int32_t ndim, code, bits, device_type, device_id;
    bool has_strides, has_slots;
    int64_t dims[]; /* sizes, strides, slots */
};

static int (*describe)(void *, dl_tensor *);
static getter requires_grad_get;
static void *requires_grad_closure;
static PyTypeObject *plain_type;

/* libc10's TensorImpl::requires_grad, which costs a tenth of the descriptor; used only where a trial on two tensors (one with, one
 * without gradient) shows that the symbol is there and where a tensor object keeps its implementation. */
static bool (*impl_requires_grad)(const void *impl);
static size_t impl_offset;

static void *impl_of(PyObject *tensor)
{
    return *(void **)((char *)tensor + impl_offset);
}

static void *read_impl(PyObject *tensor)
{
    PyObject *number = PyObject_GetAttrString(tensor, "_cdata");
    void *impl = number == NULL ? NULL : PyLong_AsVoidPtr(number);
    Py_XDECREF(number);
    PyErr_Clear();
    return impl;
}

static void find_requires_grad(PyObject *with, PyObject *without)
{
    impl_requires_grad = NULL;
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library == NULL ? NULL : dlsym(library, "_ZNK3c1010TensorImpl13requires_gradEv");
    void *one = read_impl(with), *other = read_impl(without);
    if (symbol == NULL || one == NULL || other == NULL) {
        return;
    }
    for (impl_offset = sizeof(PyObject); impl_offset <= sizeof(PyObject) + sizeof(void *); impl_offset += sizeof(void *)) {
        if (impl_of(with) == one && impl_of(without) == other) {
            bool (*function)(const void *);
            memcpy(&function, &symbol, sizeof(function));
            if (function(one) && !function(other)) {
                impl_requires_grad = function;
            }
            return;
        }
    }
}

/* Py_True or Py_False (borrowed: they live on), NULL with an exception. */
static PyObject *read_requires_grad(PyObject *value)
{
    if (impl_requires_grad != NULL) {
        return impl_requires_grad(impl_of(value)) ? Py_True : Py_False;
    }
    PyObject *grad = requires_grad_get(value, requires_grad_closure);
    Py_XDECREF(grad);
    return grad;
}

PyObject *tw_set_tensor_api(PyObject *module, PyObject *args)
{
    PyObject *capsule, *descriptor, *with, *without;
    if (!PyArg_ParseTuple(args, "OOOO", &capsule, &descriptor, &with, &without)) {
        return NULL;
    }
    if (capsule != Py_None) {
        dl_exchange *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (api == NULL) {
            return NULL;
        }
        describe = api->major == 1 ? api->describe : NULL;
    }
    else {
        describe = NULL;
    }
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        requires_grad_get = ((PyGetSetDescrObject *)descriptor)->d_getset->get;
        requires_grad_closure = ((PyGetSetDescrObject *)descriptor)->d_getset->closure;
    }
    else {
        requires_grad_get = NULL;
    }
    find_requires_grad(with, without);
    Py_XSETREF(plain_type, (PyTypeObject *)Py_NewRef(Py_TYPE(without)));
    tw_learn_layout(impl_offset, impl_requires_grad, (PyTypeObject *const[]){Py_TYPE(with), Py_TYPE(without)});
    return PyBool_FromLong(describe != NULL && requires_grad_get != NULL);
}

static int fill(int64_t *target, PyObject *tuple, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        target[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (target[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

tw_tensor *tw_tensor_new(PyObject *payload)
{
    PyObject *type_held, *requires_grad, *sizes, *strides, *slots, *slow;
    int code, bits, device_type, device_id;
    if (!PyArg_ParseTuple(payload, "OiiiiO!O!OOO", &type_held, &code, &bits, &device_type, &device_id, &PyBool_Type,
                          &requires_grad, &PyTuple_Type, &sizes, &strides, &slots, &slow)) {
        return NULL;
    }
    int32_t ndim = (int32_t)PyTuple_GET_SIZE(sizes);
    if ((strides != Py_None && (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != ndim)) ||
        (slots != Py_None && (!PyTuple_Check(slots) || PyTuple_GET_SIZE(slots) != ndim))) {
        PyErr_SetString(PyExc_ValueError, "a tensor guard's strides and slots must be None or as long as its sizes");
        return NULL;
    }
    tw_tensor *tensor = PyMem_Calloc(1, sizeof(tw_tensor) + 3 * sizeof(int64_t) * (size_t)ndim);
    if (tensor == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    tensor->type = (PyTypeObject *)tw_address(type_held);
    tensor->type_held = Py_NewRef(type_held);
    tensor->slow = Py_NewRef(slow);
    tensor->requires_grad = requires_grad;
    tensor->ndim = ndim;
    tensor->code = code;
    tensor->bits = bits;
    tensor->device_type = device_type;
    tensor->device_id = device_id;
    tensor->has_strides = strides != Py_None;
    tensor->has_slots = slots != Py_None;
    if (fill(tensor->dims, sizes, ndim) < 0 || (tensor->has_strides && fill(tensor->dims + ndim, strides, ndim) < 0) ||
        (tensor->has_slots && fill(tensor->dims + 2 * ndim, slots, ndim) < 0)) {
        tw_tensor_free(tensor);
        return NULL;
    }
    return tensor;
}

void tw_tensor_free(tw_tensor *tensor)
{
    if (tensor != NULL) {
        Py_DECREF(tensor->type_held);
        Py_XDECREF(tensor->slow);
        PyMem_Free(tensor);
    }
}

int tw_tensor_visit(tw_tensor *tensor, visitproc visit, void *arg)
{
    Py_VISIT(tensor->type_held);
    Py_VISIT(tensor->slow);
    return 0;
}

static int slow_check(const tw_tensor *tensor, PyObject *value, int64_t *slots)
{
    PyObject *sizes = PyObject_CallOneArg(tensor->slow, value);
    if (sizes == NULL) {
        return -1;
    }
    if (!PyTuple_Check(sizes) || PyTuple_GET_SIZE(sizes) != tensor->ndim) {
        Py_DECREF(sizes);
        return 0;
    }
    for (int32_t i = 0; tensor->has_slots && i < tensor->ndim; i++) {
        int64_t slot = tensor->dims[2 * tensor->ndim + i];
        if (slot >= 0) {
            slots[slot] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, i));
        }
    }
    Py_DECREF(sizes);
    return PyErr_Occurred() ? -1 : 1;
}

/* DLPack does not say that values are stored negated; where dispatch keys cannot be read: such a view is made of the imaginary parts of complex numbers, so its strides are
 * even: only then is the tensor asked. Complex tensors (conjugation) always go the slow way. */
static bool may_be_negated(const dl_tensor *seen)
{
    for (int32_t i = 0; i < seen->ndim; i++) {
        if (seen->shape[i] > 1 && (seen->strides == NULL || (seen->strides[i] & 1))) {
            return false;
        }
    }
    return seen->dtype.code == 2;
}

static int is_not_negated(PyObject *value)
{
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("is_neg")) == NULL) {
        return -1;
    }
    PyObject *answer = PyObject_CallMethodNoArgs(value, name);
    if (answer == NULL) {
        return -1;
    }
    Py_DECREF(answer);
    return answer != Py_True;
}

int tw_tensor_check(const tw_tensor *tensor, PyObject *value, int64_t *slots)
{
    if (Py_TYPE(value) != tensor->type) {
        return 0;
    }
    dl_tensor seen;
    if (tensor->code < 0 || describe == NULL || requires_grad_get == NULL) {
        return slow_check(tensor, value, slots);
    }
    if (describe(value, &seen) != 0) {
        PyErr_Clear();
        return slow_check(tensor, value, slots);
    }
    if (seen.data == NULL) { /* an empty tensor, or one of zeros without memory, which its dispatch keys tell */
        return slow_check(tensor, value, slots);
    }
    int32_t ndim = tensor->ndim;
    if (seen.ndim != ndim || seen.dtype.code != tensor->code || seen.dtype.bits != tensor->bits || seen.dtype.lanes != 1 ||
        seen.device.device_type != tensor->device_type || seen.device.device_id != tensor->device_id) {
        return 0;
    }
    const int64_t *sizes = tensor->dims, *strides = sizes + ndim, *targets = strides + ndim;
    for (int32_t i = 0; i < ndim; i++) {
        if (sizes[i] >= 0 && seen.shape[i] != sizes[i]) {
            return 0;
        }
        if (tensor->has_strides && strides[i] >= 0 && seen.strides != NULL && seen.strides[i] != strides[i] && seen.shape[i] > 1) {
            return 0;
        }
        if (tensor->has_slots && targets[i] >= 0) {
            slots[targets[i]] = seen.shape[i];
        }
    }
    PyObject *grad = read_requires_grad(value);
    if (grad == NULL) {
        return -1;
    }
    if (grad != tensor->requires_grad) {
        return 0;
    }
    int negated = tw_is_negated(value);
    return negated >= 0 ? !negated : may_be_negated(&seen) ? is_not_negated(value) : 1;
}

/* Passes natively, on a CPU or GPU, and fetches no sizes: what a snapshot may stand for. */
bool tw_tensor_is_simple(const tw_tensor *tensor, PyObject *value)
{
    dl_tensor seen;
    if (tensor->code < 0 || tensor->has_slots || describe == NULL || (tensor->device_type != 1 && tensor->device_type != 2)) {
        return false;
    }
    bool passed = describe(value, &seen) == 0 && tw_tensor_check(tensor, value, NULL) == 1;
    PyErr_Clear();
    return passed;
}

/* The bytes of the elements, one after another in the order of the dims, of a plain tensor on the CPU. */
int tw_data_check(PyObject *data, PyObject *value)
{
    dl_tensor seen;
    if (Py_TYPE(value) != plain_type || describe == NULL) {
        return -1;
    }
    if (describe(value, &seen) != 0 || seen.data == NULL) {
        PyErr_Clear();
        return -1;
    }
    int64_t width = seen.dtype.bits / 8, count = 1, strides[TW_DATA_DIMS];
    if (seen.device.device_type != 1 || seen.ndim > TW_DATA_DIMS || seen.dtype.bits % 8 != 0 || seen.dtype.lanes != 1) {
        return -1;
    }
    for (int32_t i = seen.ndim - 1; i >= 0; i--) {
        strides[i] = seen.strides == NULL ? count : seen.strides[i];
        count *= seen.shape[i];
    }
    if (count * width != PyBytes_GET_SIZE(data)) {
        return 0;
    }
    const char *wanted = PyBytes_AS_STRING(data), *first = (const char *)seen.data + seen.byte_offset;
    for (int64_t at = 0; at < count; at++) {
        int64_t offset = 0, rest = at;
        for (int32_t i = seen.ndim - 1; i >= 0; i--) {
            offset += rest % seen.shape[i] * strides[i];
            rest /= seen.shape[i];
        }
        if (memcmp(wanted + at * width, first + offset * width, (size_t)width) != 0) {
            return 0;
        }
    }
    return 1;
}
