/* The inputs of a recorded CUDA graph: where they are, and their copies into the graph's memory and back. */
#include "replay.h"

/* aoti_torch_get_data_ptr, and where a Python tensor has the tensor of C++ that it takes; 0 where that is not known. */
typedef int (*address_function)(void *tensor, void **address);

static address_function get_address;
static Py_ssize_t tensor_place;

/* The parameter of the kernel that makes many copies, device/copies.py. No bytes: `from` itself is written. */
#define ROWS 64
#define THREADS 256
#define UNIT 16 /* bytes that a thread copies at once */
#define LARGE ((size_t)1 << 20) /* bytes from which on a copy is the driver's */

typedef struct {
    uint64_t to, from, bytes;
} copy_row;

int read_fixed(replay_object *self, PyObject *rows)
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

int read_copies(replay_object *self, PyObject *rows)
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
        int back, is_number;
        copied_input *one = &self->copies[self->copy_count];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rows, self->copy_count), "nKnpp", &one->input, &memory, &bytes, &back, &is_number)) {
            return -1;
        }
        one->memory = memory;
        one->bytes = (size_t)bytes;
        one->back = back != 0;
        one->is_number = is_number != 0;
    }
    return 0;
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

int input_address(replay_object *self, PyObject *inputs, Py_ssize_t place, uint64_t *out)
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
    if (quick_address(tensor, out)) {
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

int input_number(replay_object *self, PyObject *inputs, const copied_input *one, uint64_t *out)
{
    PyObject *given = one->input < PyList_GET_SIZE(inputs) ? PyList_GET_ITEM(inputs, one->input) : NULL;
    if (given != NULL && PyLong_Check(given)) {
        *out = (uint64_t)PyLong_AsLongLong(given);
        return PyErr_Occurred() ? -1 : 0;
    }
    uint64_t address;
    PyObject *is_cpu = NULL;
    if (given != NULL && PyObject_TypeCheck(given, PyDescr_TYPE(self->data_ptr))) {
        is_cpu = PyObject_GetAttrString(given, "is_cpu");
        if (is_cpu == NULL) {
            return -1;
        }
        Py_DECREF(is_cpu); /* True and False live on */
    }
    if (is_cpu != Py_True) {
        PyErr_Format(PyExc_TypeError, "a recording takes a list of inputs, with an int or a number on the CPU at %zd", one->input);
        return -1;
    }
    if (input_address(self, inputs, one->input, &address) < 0) {
        return -1;
    }
    *out = 0;
    memcpy(out, (const void *)(uintptr_t)address, one->bytes);
    return 0;
}

int matches(replay_object *self, PyObject *inputs)
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

/* Launches the kernel for rows of copies: the driver's status. */
static int launch_rows(const replay_object *self, copy_row *rows, unsigned count, size_t longest, void *stream)
{
    void *parameters[] = {rows};
    size_t blocks = (longest + UNIT * THREADS - 1) / (UNIT * THREADS);
    return self->launch_kernel(self->copies_kernel, (unsigned)blocks, count, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

int copy_inputs(const replay_object *self, const uint64_t *addresses, bool back, void *stream)
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
            /* what lies in memory of the host that nobody has pinned is read before the driver returns */
            status = self->copy(to, one->is_number ? (uint64_t)(uintptr_t)&addresses[i] : from, one->bytes, stream);
            continue;
        }
        rows[count++] = (copy_row){to, from, one->is_number ? 0 : one->bytes};
        longest = one->bytes > longest ? one->bytes : longest;
        if (count == ROWS) {
            status = launch_rows(self, rows, count, longest, stream);
            count = 0;
            longest = 0;
        }
    }
    return status || count == 0 ? status : launch_rows(self, rows, count, longest, stream);
}

PyObject *set_get_address(PyObject *module, PyObject *args)
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
