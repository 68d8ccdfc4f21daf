/* Whose memory an array has: NumPy's functions give arrays that own theirs and views of those, where a graph gives tensors.
 *
 * An array that Tensor.numpy() made is turned into one of these in place, without a copy: the owner holds the tensor through a memory
 * handler of its own (NEP 49), which lets go of it where NumPy would free.
 */
#include "guard_tree.h"

#include <stdlib.h>

/* The parts of NumPy's headers that are used; they are part of its ABI (PyArrayObject_fields, PyDataMem_Handler of version 1). */
typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions, *strides;
    PyObject *base, *descr;
    int flags;
    PyObject *weakrefs;
    void *buffer_info;
    PyObject *mem_handler;
} array_fields;
typedef struct {
    char name[127];
    uint8_t version;
    struct {
        void *ctx;
        void *(*malloc)(void *, size_t);
        void *(*calloc)(void *, size_t, size_t);
        void *(*realloc)(void *, void *, size_t);
        void (*free)(void *, void *, size_t);
    } allocator;
} memory_handler;

#define OWNDATA 0x0004

typedef struct {
    memory_handler handler;
    PyObject *tensor;
    void *data; /* the tensor's */
    size_t last; /* bytes from there to its last item */
} lent_memory;

static void *lent_malloc(void *context, size_t size)
{
    return malloc(size);
}

static void *lent_calloc(void *context, size_t count, size_t size)
{
    return calloc(count, size);
}

static void lent_free(void *context, void *data, size_t size)
{
    if (data != ((lent_memory *)context)->data) {
        free(data);
    }
}

/* Bytes of an item of a tensor or an array; -1 with an exception. */
static Py_ssize_t item_size(PyObject *object)
{
    PyObject *number = PyObject_GetAttrString(object, "itemsize");
    Py_ssize_t size = number == NULL ? -1 : PyLong_AsSsize_t(number);
    Py_XDECREF(number);
    return size;
}

static void *lent_realloc(void *context, void *data, size_t size)
{
    lent_memory *lent = context;
    if (data != lent->data) {
        return realloc(data, size);
    }
    PyGILState_STATE state = PyGILState_Ensure();
    Py_ssize_t item = item_size(lent->tensor);
    PyErr_Clear();
    PyGILState_Release(state);
    void *made = item < 0 ? NULL : malloc(size);
    if (made != NULL) {
        size_t before = lent->last + (size_t)item;
        memcpy(made, data, size < before ? size : before);
    }
    return made;
}

static void end_lent(PyObject *capsule)
{
    lent_memory *lent = PyCapsule_GetPointer(capsule, "mem_handler");
    Py_DECREF(lent->tensor);
    PyMem_Free(lent);
}

static array_fields *fields_of(PyObject *array)
{
    if (strcmp(Py_TYPE(array)->tp_name, "numpy.ndarray") != 0) {
        PyErr_Format(PyExc_TypeError, "an array of NumPy is wanted, not %R", array);
        return NULL;
    }
    return (array_fields *)array;
}

/* The first and the last address at which an item begins; false where there are none. */
static bool span(array_fields *array, char **first, char **last)
{
    *first = *last = array->data;
    for (int dim = 0; dim < array->nd; dim++) {
        if (array->dimensions[dim] == 0) {
            return false;
        }
        Py_ssize_t way = array->strides[dim] * (array->dimensions[dim] - 1);
        *(way < 0 ? first : last) += way;
    }
    return true;
}

PyObject *tw_own_memory(PyObject *module, PyObject *array)
{
    (void)module;
    array_fields *fields = fields_of(array);
    if (fields == NULL) {
        return NULL;
    }
    char *first, *last;
    if (!span(fields, &first, &last) || fields->data == NULL) { /* NumPy lets go of a handler only where there is memory */
        return PyObject_CallMethod(array, "copy", NULL);
    }
    if (fields->flags & OWNDATA || fields->base == NULL) {
        return PyErr_Format(PyExc_ValueError, "own_memory() wants an array over the memory of a tensor");
    }
    lent_memory *lent = PyMem_Malloc(sizeof(lent_memory));
    if (lent == NULL) {
        return PyErr_NoMemory();
    }
    *lent = (lent_memory){
        .handler = {.name = "tensor", .version = 1, .allocator = {lent, lent_malloc, lent_calloc, lent_realloc, lent_free}},
        .tensor = fields->base,
        .data = fields->data,
        .last = (size_t)(last - first),
    };
    PyObject *capsule = PyCapsule_New(lent, "mem_handler", end_lent);
    if (capsule == NULL) {
        PyMem_Free(lent);
        return NULL;
    }
    fields->base = NULL; /* the handler has it */
    fields->mem_handler = capsule;
    fields->flags |= OWNDATA;
    return Py_NewRef(array);
}

/* Whether all of an array lies within what another one spans; -1 with an exception. */
static int is_within(array_fields *array, array_fields *other)
{
    char *first, *last, *from, *to;
    if (!span(array, &first, &last)) {
        return 1;
    }
    if (!span(other, &from, &to) || first < from) {
        return 0;
    }
    if (last <= to) {
        return 1;
    }
    Py_ssize_t size = item_size((PyObject *)array), others = item_size((PyObject *)other);
    return size < 0 || others < 0 ? -1 : last + size <= to + others;
}

PyObject *tw_set_base(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *array, *owner;
    if (!PyArg_ParseTuple(args, "OO", &array, &owner)) {
        return NULL;
    }
    array_fields *fields = fields_of(array), *holder = fields_of(owner);
    if (fields == NULL || holder == NULL) {
        return NULL;
    }
    if (fields->flags & OWNDATA) { /* of a tensor without memory NumPy makes an array that has some */
        array = PyObject_GetItem(array, Py_Ellipsis);
        if (array == NULL) {
            return NULL;
        }
        fields = (array_fields *)array;
    }
    else {
        Py_INCREF(array);
    }
    /* as NumPy does it: a view of a view is one of what holds the memory */
    while (!(holder->flags & OWNDATA) && holder->base != NULL && Py_IS_TYPE(holder->base, Py_TYPE(array))) {
        holder = (array_fields *)holder->base;
    }
    int within = is_within(fields, holder);
    if (within < 0) {
        Py_CLEAR(array);
    }
    else if (within) { /* else a backend put the view elsewhere, and its own base holds that */
        Py_XSETREF(fields->base, Py_NewRef((PyObject *)holder));
    }
    return array;
}
