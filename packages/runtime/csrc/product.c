/* Matrix products by torch's C functions, on tensors made over addresses. */
#include "parts.h"

enum { MOST_DIMENSIONS = 3 };

/* A tensor over memory that is not its own, made for an address. */
typedef struct {
    int64_t dimensions, sizes[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
    uint64_t address;
    void *tensor; /* NULL where there is none, or a call has it */
} window;

struct product {
    window windows[MOST_WINDOWS];
    Py_ssize_t count;
    int (*function)(void *, void *, void *, void *, double, double);
    int dtype, device_type, device;
    double beta, alpha;
};

/* torch's C functions that make and end a tensor, and the question whether somebody looks. */
static int (*make_tensor)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, void **);
static int (*end_tensor)(void *);
static PyObject *is_watched;

PyObject *set_tensor_functions(PyObject *module, PyObject *args)
{
    unsigned long long make, end;
    PyObject *watched;
    if (!PyArg_ParseTuple(args, "KKO", &make, &end, &watched)) {
        return NULL;
    }
    make_tensor = (void *)(uintptr_t)make;
    end_tensor = (void *)(uintptr_t)end;
    Py_XSETREF(is_watched, Py_NewRef(watched));
    Py_RETURN_NONE;
}

int products_watched(void)
{
    PyObject *answer = PyObject_CallNoArgs(is_watched);
    const int found = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return found;
}

bool multiply(product *work, const uint64_t *addresses)
{
    void *tensors[MOST_WINDOWS] = {NULL, NULL, NULL, NULL};
    int failed = 0;
    for (Py_ssize_t i = 0; i < work->count && !failed; i++) {
        window *at = &work->windows[i];
        if (at->tensor != NULL && at->address == addresses[i]) {
            tensors[i] = at->tensor; /* nobody else uses it meanwhile */
            at->tensor = NULL;
            continue;
        }
        failed = make_tensor((void *)(uintptr_t)addresses[i], at->dimensions, at->sizes, at->strides, 0, work->dtype, work->device_type,
                             work->device, &tensors[i]);
    }
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        /* more arguments than a function takes are not seen (System V, x86-64) */
        failed = work->function(tensors[0], tensors[1], tensors[2], tensors[3], work->beta, work->alpha);
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t i = 0; i < work->count; i++) {
        void *old = work->windows[i].tensor;
        if (!failed && tensors[i] != NULL) {
            work->windows[i].tensor = tensors[i];
            work->windows[i].address = addresses[i];
            tensors[i] = old;
        }
        if (tensors[i] != NULL) {
            end_tensor(tensors[i]);
        }
    }
    return !failed;
}

void drop_product(product *work)
{
    for (Py_ssize_t i = 0; work != NULL && i < work->count; i++) {
        if (work->windows[i].tensor != NULL) {
            end_tensor(work->windows[i].tensor);
        }
    }
    PyMem_Free(work);
}

static int read_lengths(PyObject *tuple, int64_t *out, int64_t dimensions)
{
    for (int64_t i = 0; i < dimensions; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (out[i] < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "a window of negative size");
            }
            return -1;
        }
    }
    return 0;
}

static int read_windows(product *work, PyObject *shapes)
{
    for (Py_ssize_t i = 0; i < work->count; i++) {
        PyObject *sizes, *strides;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(shapes, i), "O!O!", &PyTuple_Type, &sizes, &PyTuple_Type, &strides)) {
            return -1;
        }
        window *at = &work->windows[i];
        at->dimensions = PyTuple_GET_SIZE(sizes);
        if (at->dimensions > MOST_DIMENSIONS || PyTuple_GET_SIZE(strides) != at->dimensions) {
            PyErr_SetString(PyExc_ValueError, "a window of other dimensions");
            return -1;
        }
        if (read_lengths(sizes, at->sizes, at->dimensions) < 0 || read_lengths(strides, at->strides, at->dimensions) < 0) {
            return -1;
        }
    }
    return 0;
}

product *read_product(PyObject *facts, uint64_t function, Py_ssize_t operands)
{
    PyObject *shapes;
    product *work = PyMem_Calloc(1, sizeof(product));
    if (work == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    bool read = PyArg_ParseTuple(facts, "O!iii(dd)", &PyTuple_Type, &shapes, &work->dtype, &work->device_type, &work->device, &work->beta,
                                 &work->alpha);
    if (read && (make_tensor == NULL || end_tensor == NULL || function == 0 || operands > MOST_WINDOWS || PyTuple_GET_SIZE(shapes) != operands)) {
        PyErr_SetString(PyExc_ValueError, "a product that torch cannot be asked for");
        read = false;
    }
    work->function = (void *)(uintptr_t)function;
    work->count = read ? operands : 0;
    if (!read || read_windows(work, shapes) < 0) {
        drop_product(work);
        return NULL;
    }
    return work;
}
