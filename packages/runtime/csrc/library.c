/* Library calls by torch's C functions, on tensors made over addresses. */
#include "parts.h"

#include <string.h>

enum { MOST_DIMENSIONS = 8, MOST_ARGUMENTS = 32, MOST_REALS = 8, MOST_INTEGERS = 96 };
enum argument_kind { TENSOR, OPTIONAL_TENSOR, NOTHING, INTEGER, INTEGERS, BOOLS, REAL, OPTIONAL_REAL, OPTIONAL_INTEGERS, NO_INTEGERS };

/* Sizes, then strides, each the place of a number of the program. */
typedef struct {
    Py_ssize_t dimensions;
    int *places;
    int dtype;
} shape;

/* A tensor over memory that is not its own, made for an address, sizes and strides. */
typedef struct {
    shape of;
    int64_t lengths[2 * MOST_DIMENSIONS];
    uint64_t address;
    void *tensor; /* NULL where there is none, or a call has it */
} window;

typedef struct {
    int kind, window;
    int *places; /* of integers among the program's numbers */
    Py_ssize_t count;
    double real;
} argument;

typedef struct {
    int into; /* a register; UNREAD, or NUMBER for a result that is no tensor */
    shape of;
} result;
enum { UNREAD = -1, NUMBER = -2 };

struct library_call {
    window windows[MOST_WINDOWS];
    argument arguments[MOST_ARGUMENTS];
    result results[MOST_RESULTS];
    Py_ssize_t window_count, argument_count, result_count;
    int (*function)(void);
    int device_type, device;
    bool differs; /* what the library gives has other sizes or strides than kernels read: another way sees to that */
};

/* torch's C functions (torch/csrc/inductor/aoti_torch/c/shim.h), and Python's. */
static struct {
    int (*make)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, void **);
    int (*end)(void *);
    int (*new_handle)(void *, void **);
    int (*dim)(void *, int64_t *), (*sizes)(void *, int64_t **), (*strides)(void *, int64_t **), (*offset)(void *, int64_t *);
    int (*dtype)(void *, int32_t *), (*device_type)(void *, int32_t *), (*device)(void *, int32_t *), (*data)(void *, void **);
} torch_c;
enum { TORCH_FUNCTIONS = sizeof(torch_c) / sizeof(void *) };
static PyObject *is_watched, *to_python;

PyObject *set_tensor_functions(PyObject *module, PyObject *args)
{
    PyObject *addresses, *watched, *python;
    if (!PyArg_ParseTuple(args, "O!OO", &PyTuple_Type, &addresses, &watched, &python)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(addresses) != TORCH_FUNCTIONS) {
        return PyErr_Format(PyExc_ValueError, "addresses of %d functions are wanted", TORCH_FUNCTIONS);
    }
    for (Py_ssize_t i = 0; i < TORCH_FUNCTIONS; i++) {
        ((void **)&torch_c)[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, i));
    }
    Py_XSETREF(is_watched, Py_NewRef(watched));
    Py_XSETREF(to_python, Py_NewRef(python));
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

int library_watched(void)
{
    PyObject *answer = PyObject_CallNoArgs(is_watched);
    const int found = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return found;
}

/* A tensor of torch that Python does not know. */
typedef struct {
    PyObject_HEAD
    void *handle;
} held_object;

static void held_dealloc(held_object *self)
{
    torch_c.end(self->handle);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject held_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Held",
    .tp_basicsize = sizeof(held_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)held_dealloc,
};

PyObject *tensor_of_held(PyObject *held)
{
    void *handle = NULL;
    if (torch_c.new_handle(((held_object *)held)->handle, &handle) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "a library's result cannot be shown to Python");
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(handle, NULL, NULL);
    PyObject *tensor = capsule == NULL ? NULL : PyObject_CallOneArg(to_python, capsule); /* takes the handle */
    Py_XDECREF(capsule);
    return tensor;
}

static void read_lengths(const shape *of, const int64_t *numbers, int64_t *out)
{
    for (Py_ssize_t i = 0; i < 2 * of->dimensions; i++) {
        out[i] = numbers[of->places[i]];
    }
}

/* What a call uses while others may run the same one. */
typedef struct {
    int64_t lengths[MOST_WINDOWS][2 * MOST_DIMENSIONS], integers[MOST_INTEGERS], numbers[MOST_RESULTS];
    int32_t bools[MOST_INTEGERS];
    double reals[MOST_ARGUMENTS];
    int64_t *lists[MOST_ARGUMENTS];
    void *tensors[MOST_WINDOWS], *given[MOST_RESULTS];
} working;

static bool take_windows(library_call *work, const uint64_t *addresses, const int64_t *numbers, working *now)
{
    for (Py_ssize_t i = 0; i < work->window_count; i++) {
        window *at = &work->windows[i];
        const size_t bytes = 2 * sizeof(int64_t) * (size_t)at->of.dimensions;
        read_lengths(&at->of, numbers, now->lengths[i]);
        if (at->tensor != NULL && at->address == addresses[i] && memcmp(at->lengths, now->lengths[i], bytes) == 0) {
            now->tensors[i] = at->tensor; /* nobody else uses it meanwhile */
            at->tensor = NULL;
        }
        else if (torch_c.make((void *)(uintptr_t)addresses[i], at->of.dimensions, now->lengths[i], now->lengths[i] + at->of.dimensions, 0,
                              at->of.dtype, work->device_type, work->device, &now->tensors[i]) != 0) {
            return false;
        }
    }
    return true;
}

static void give_windows(library_call *work, const uint64_t *addresses, working *now, bool keep)
{
    for (Py_ssize_t i = 0; i < work->window_count; i++) {
        window *at = &work->windows[i];
        void *old = now->tensors[i];
        if (keep && old != NULL) {
            void *made = old;
            old = at->tensor;
            at->tensor = made;
            at->address = addresses[i];
            memcpy(at->lengths, now->lengths[i], 2 * sizeof(int64_t) * (size_t)at->of.dimensions);
        }
        if (old != NULL) {
            torch_c.end(old);
        }
    }
}

/* Integers and addresses go in their own registers and then on the stack, up to eight reals in theirs, and whoever calls takes them away: more
 * than a function takes are not seen (System V, x86-64). */
typedef uint64_t u;
typedef int (*any_function)(u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, u, double, double,
                            double, double, double, double, double, double);
enum { MOST_WORDS = 32 };
#define W8(w) (w)[0], (w)[1], (w)[2], (w)[3], (w)[4], (w)[5], (w)[6], (w)[7]

static bool call_function(library_call *work, const int64_t *numbers, working *now)
{
    u words[MOST_WORDS] = {0};
    double reals[MOST_REALS] = {0};
    Py_ssize_t word = 0, real = 0, integer = 0;
    for (Py_ssize_t i = 0; i < work->argument_count; i++) {
        const argument *one = &work->arguments[i];
        switch (one->kind) {
        case TENSOR:
            words[word++] = (u)(uintptr_t)now->tensors[one->window];
            break;
        case OPTIONAL_TENSOR:
            words[word++] = (u)(uintptr_t)&now->tensors[one->window];
            break;
        case NOTHING:
            words[word++] = 0;
            break;
        case INTEGER:
            words[word++] = (u)numbers[one->places[0]];
            break;
        case NO_INTEGERS:
            words[word++] = 0;
            words[word++] = 0;
            break;
        case INTEGERS:
        case BOOLS:
        case OPTIONAL_INTEGERS:
            now->lists[i] = &now->integers[integer];
            words[word++] = (u)(uintptr_t)(one->kind == INTEGERS ? (void *)now->lists[i]
                                           : one->kind == BOOLS  ? (void *)&now->bools[integer]
                                                                 : (void *)&now->lists[i]);
            words[word++] = (u)one->count;
            for (Py_ssize_t k = 0; k < one->count; k++, integer++) {
                now->integers[integer] = numbers[one->places[k]];
                now->bools[integer] = numbers[one->places[k]] != 0;
            }
            break;
        case REAL:
            reals[real++] = one->real;
            break;
        default:
            now->reals[i] = one->real;
            words[word++] = (u)(uintptr_t)&now->reals[i];
        }
    }
    for (Py_ssize_t i = 0; i < work->result_count; i++) {
        words[word++] = work->results[i].into == NUMBER ? (u)(uintptr_t)&now->numbers[i] : (u)(uintptr_t)&now->given[i];
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = ((any_function)work->function)(W8(words), W8(words + 8), W8(words + 16), W8(words + 24), W8(reals));
    Py_END_ALLOW_THREADS
    return failed == 0;
}

/* Whether a result is what kernels read it as, and where it lies. Strides of dimensions of size one are looked at, too: programs see them. */
static bool is_as_expected(const library_call *work, const result *one, void *tensor, const int64_t *numbers, uint64_t *address)
{
    int64_t dim, offset, *sizes, *strides, wanted[2 * MOST_DIMENSIONS];
    int32_t dtype, device_type, device;
    void *data;
    if (tensor == NULL || torch_c.dim(tensor, &dim) || torch_c.sizes(tensor, &sizes) || torch_c.strides(tensor, &strides) ||
        torch_c.offset(tensor, &offset) || torch_c.dtype(tensor, &dtype) || torch_c.device_type(tensor, &device_type) ||
        torch_c.device(tensor, &device) || torch_c.data(tensor, &data)) {
        return false;
    }
    const bool there = device_type == work->device_type && (device == work->device || device < 0);
    if (dim != one->of.dimensions || offset != 0 || dtype != one->of.dtype || !there || data == NULL) {
        return false;
    }
    const size_t bytes = sizeof(int64_t) * (size_t)dim;
    read_lengths(&one->of, numbers, wanted);
    *address = (uint64_t)(uintptr_t)data;
    return memcmp(sizes, wanted, bytes) == 0 && memcmp(strides, wanted + dim, bytes) == 0;
}

/* 1 where the library has done it, and `results` and `places` say what and where; 0 where another way must; -1 with an exception. */
int call_library(library_call *work, const uint64_t *addresses, const int64_t *numbers, PyObject **results, uint64_t *places)
{
    if (work->differs) {
        return 0;
    }
    working now;
    memset(now.tensors, 0, sizeof(now.tensors));
    memset(now.given, 0, sizeof(now.given));
    bool done = take_windows(work, addresses, numbers, &now) && call_function(work, numbers, &now);
    give_windows(work, addresses, &now, done);
    for (Py_ssize_t i = 0; done && i < work->result_count; i++) {
        if (work->results[i].into >= 0 && !is_as_expected(work, &work->results[i], now.given[i], numbers, &places[i])) {
            work->differs = true;
            done = false;
        }
    }
    int status = done;
    for (Py_ssize_t i = 0; i < work->result_count; i++) {
        results[i] = NULL;
        if (done && status > 0 && work->results[i].into >= 0) {
            results[i] = held_type.tp_alloc(&held_type, 0);
            if (results[i] != NULL) {
                ((held_object *)results[i])->handle = now.given[i];
                continue;
            }
            status = -1;
        }
        if (now.given[i] != NULL) {
            torch_c.end(now.given[i]);
        }
    }
    for (Py_ssize_t i = 0; status < 0 && i < work->result_count; i++) {
        Py_CLEAR(results[i]);
    }
    return status;
}

int library_result(const library_call *work, Py_ssize_t number)
{
    return work->results[number].into;
}

Py_ssize_t library_results(const library_call *work)
{
    return work->result_count;
}

/* Making one */

void drop_library_call(library_call *work)
{
    if (work == NULL) {
        return;
    }
    for (Py_ssize_t i = 0; i < MOST_WINDOWS; i++) {
        if (work->windows[i].tensor != NULL) {
            torch_c.end(work->windows[i].tensor);
        }
        PyMem_Free(work->windows[i].of.places);
    }
    for (Py_ssize_t i = 0; i < MOST_ARGUMENTS; i++) {
        PyMem_Free(work->arguments[i].places);
    }
    for (Py_ssize_t i = 0; i < MOST_RESULTS; i++) {
        PyMem_Free(work->results[i].of.places);
    }
    PyMem_Free(work);
}

static int refuse(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

static int read_shape(shape *of, PyObject *places, Py_ssize_t number_count)
{
    const Py_ssize_t count = read_integers(places, 0, number_count, &of->places);
    of->dimensions = count / 2;
    return count < 0 ? -1 : count % 2 || of->dimensions > MOST_DIMENSIONS ? refuse("a tensor of other dimensions") : 0;
}

static int read_argument(library_call *work, argument *one, PyObject *tuple, Py_ssize_t number_count)
{
    PyObject *value;
    if (!PyArg_ParseTuple(tuple, "iO", &one->kind, &value)) {
        return -1;
    }
    switch (one->kind) {
    case TENSOR:
    case OPTIONAL_TENSOR:
        one->window = (int)PyLong_AsLong(value);
        return PyErr_Occurred() ? -1 : one->window < 0 || one->window >= work->window_count ? refuse("no such window") : 0;
    case INTEGER:
    case INTEGERS:
    case BOOLS:
    case OPTIONAL_INTEGERS:
        one->count = read_integers(value, 0, number_count, &one->places);
        return one->count < 0 ? -1 : one->kind == INTEGER && one->count != 1 ? refuse("one number expected") : 0;
    case REAL:
    case OPTIONAL_REAL:
        one->real = PyFloat_AsDouble(value);
        return PyErr_Occurred() ? -1 : 0;
    default:
        return one->kind == NOTHING || one->kind == NO_INTEGERS ? 0 : refuse("no such kind of argument");
    }
}

/* Whether there is room for all arguments. */
static bool fits(const library_call *work)
{
    Py_ssize_t words = work->result_count, reals = 0, integers = 0;
    for (Py_ssize_t i = 0; i < work->argument_count; i++) {
        const argument *one = &work->arguments[i];
        const bool list = one->kind == INTEGERS || one->kind == BOOLS || one->kind == OPTIONAL_INTEGERS;
        reals += one->kind == REAL;
        words += one->kind == REAL ? 0 : list || one->kind == NO_INTEGERS ? 2 : 1;
        integers += list ? one->count : 0;
    }
    return words <= MOST_WORDS && reals <= MOST_REALS && integers <= MOST_INTEGERS;
}

static int read_parts(library_call *work, PyObject *windows, PyObject *arguments, PyObject *results, Py_ssize_t numbers, Py_ssize_t registers)
{
    for (Py_ssize_t i = 0; i < work->window_count; i++) {
        PyObject *places;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(windows, i), "Oi", &places, &work->windows[i].of.dtype) ||
            read_shape(&work->windows[i].of, places, numbers) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < work->argument_count; i++) {
        if (read_argument(work, &work->arguments[i], PyTuple_GET_ITEM(arguments, i), numbers) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < work->result_count; i++) {
        PyObject *places;
        result *one = &work->results[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(results, i), "iOi", &one->into, &places, &one->of.dtype) ||
            read_shape(&one->of, places, numbers) < 0) {
            return -1;
        }
        if (one->into < NUMBER || one->into >= registers) {
            return refuse("a result for a register that the program does not have");
        }
    }
    return fits(work) ? 0 : refuse("too many arguments for a library call");
}

library_call *read_library_call(PyObject *facts, uint64_t function, Py_ssize_t operands, Py_ssize_t numbers, Py_ssize_t registers)
{
    PyObject *windows, *arguments, *results;
    library_call *work = PyMem_Calloc(1, sizeof(library_call));
    if (work == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    bool read = PyArg_ParseTuple(facts, "O!O!O!ii", &PyTuple_Type, &windows, &PyTuple_Type, &arguments, &PyTuple_Type, &results,
                                 &work->device_type, &work->device);
    if (read) {
        work->window_count = PyTuple_GET_SIZE(windows);
        work->argument_count = PyTuple_GET_SIZE(arguments);
        work->result_count = PyTuple_GET_SIZE(results);
    }
    if (read && (torch_c.make == NULL || function == 0 || work->window_count > MOST_WINDOWS || work->window_count != operands ||
                 work->argument_count > MOST_ARGUMENTS || work->result_count > MOST_RESULTS)) {
        read = refuse("a library call that torch cannot be asked for") == 0;
    }
    work->function = (int (*)(void))(uintptr_t)function;
    if (!read || read_parts(work, windows, arguments, results, numbers, registers) < 0) {
        drop_library_call(work);
        return NULL;
    }
    return work;
}
