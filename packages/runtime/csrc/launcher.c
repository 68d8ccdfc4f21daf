/* Launching GPU kernels: what does not change from call to call lies ready, a call converts its arguments and asks the driver.
 *
 * Plan: the functions to launch for one combination of sizes, one after another, with the memory that they share.
 * Launcher: a kernel as a callable that takes tensors, or their addresses, and then numbers. It remembers the plan of its last numbers; another, and one for
 * addresses that are not divisible by 16, it asks a Python function for.
 */
#include "parts.h"
#include "result.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

/* tensor.data_ptr as C: the method's own function, which wants a tensor. */
static PyMethodDescrObject *data_ptr;

static int address_of(PyObject *tensor, uint64_t *out)
{
    if (!PyObject_TypeCheck(tensor, PyDescr_TYPE(data_ptr))) {
        PyErr_Format(PyExc_TypeError, "a kernel takes a tensor here, not %R", Py_TYPE(tensor));
        return -1;
    }
    if (quick_address(tensor, out)) {
        return 0;
    }
    PyObject *number = data_ptr->d_method->ml_meth(tensor, NULL);
    if (number == NULL) {
        return -1;
    }
    *out = (uint64_t)(uintptr_t)PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

int read_address(PyObject *value, uint64_t *out)
{
    if (!PyLong_CheckExact(value)) {
        return address_of(value, out);
    }
    *out = PyLong_AsUnsignedLongLong(value);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *set_data_ptr(PyObject *module, PyObject *method)
{
    if (!Py_IS_TYPE(method, &PyMethodDescr_Type) || ((PyMethodDescrObject *)method)->d_method->ml_flags != METH_NOARGS) {
        return PyErr_Format(PyExc_TypeError, "set_data_ptr wants a method descriptor without arguments, not %R", method);
    }
    Py_XSETREF(data_ptr, (PyMethodDescrObject *)Py_NewRef(method));
    Py_RETURN_NONE;
}

/* addresses(tensors): those of their first elements, as bytes. */
static PyObject *addresses(PyObject *module, PyObject *tensors)
{
    PyObject *items = PySequence_Fast(tensors, "a sequence of tensors is wanted");
    if (items == NULL) {
        return NULL;
    }
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    PyObject *found = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint64_t));
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        uint64_t address;
        if (address_of(PySequence_Fast_GET_ITEM(items, i), &address) < 0) {
            Py_CLEAR(found);
            break;
        }
        memcpy(PyBytes_AS_STRING(found) + i * (Py_ssize_t)sizeof(address), &address, sizeof(address));
    }
    Py_DECREF(items);
    return found;
}

/* Plan */

static int plan_traverse(plan_object *self, visitproc visit, void *arg)
{
    Py_VISIT(self->allocate);
    Py_VISIT(self->scratch_bytes);
    return 0;
}

static int plan_clear(plan_object *self)
{
    Py_CLEAR(self->allocate);
    Py_CLEAR(self->scratch_bytes);
    return 0;
}

static void plan_dealloc(plan_object *self)
{
    PyObject_GC_UnTrack(self);
    plan_clear(self);
    PyMem_Free(self->formats);
    PyMem_Free(self->scratch);
    PyMem_Free(self->stages);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int read_stages(plan_object *self, PyObject *stages)
{
    self->stage_count = PyTuple_GET_SIZE(stages);
    self->stages = PyMem_Calloc((size_t)self->stage_count + 1, sizeof(stage));
    if (self->stages == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->stage_count; i++) {
        stage *one = &self->stages[i];
        unsigned long long function;
        long long own;
        if (!PyArg_ParseTuple(
                PyTuple_GET_ITEM(stages, i), "KIIIIL", &function, &one->blocks, &one->threads, &one->shared, &one->hidden, &own)) {
            return -1;
        }
        if (own >= 0 && one->hidden == 0) {
            PyErr_SetString(PyExc_ValueError, "a stage without a parameter for the memory that it wants for itself");
            return -1;
        }
        one->own = own;
        one->function = (void *)(uintptr_t)function;
        if ((Py_ssize_t)one->hidden > self->hidden) {
            self->hidden = one->hidden;
        }
    }
    return 0;
}

static int read_scratch(plan_object *self, PyObject *places)
{
    self->scratch_count = PyTuple_GET_SIZE(places);
    self->scratch = PyMem_Calloc((size_t)self->scratch_count + 1, sizeof(uint64_t));
    if (self->scratch == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->scratch_count; i++) {
        self->scratch[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(places, i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Plan(address of cuLaunchKernelEx, stages, formats of the numbers, places of scratch arrays, bytes of scratch memory, allocate): a stage is
 * (function, blocks, threads, shared bytes, parameters behind those that the kernel knows, place of what the first of these points to). That
 * one is zero where the place is negative, and the others always are. */
static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned long long launch;
    PyObject *stages, *places, *bytes, *allocate;
    const char *formats;
    if (!PyArg_ParseTuple(args, "KO!sO!OO", &launch, &PyTuple_Type, &stages, &formats, &PyTuple_Type, &places, &bytes, &allocate)) {
        return NULL;
    }
    plan_object *self = (plan_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->launch = (launch_function)(uintptr_t)launch;
    self->allocate = Py_NewRef(allocate);
    self->scratch_bytes = Py_NewRef(bytes);
    size_t length = strlen(formats) + 1;
    self->formats = PyMem_Malloc(length);
    if (self->formats == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    memcpy(self->formats, formats, length);
    const int wants = PyObject_IsTrue(bytes);
    if (wants < 0 || read_stages(self, stages) < 0 || read_scratch(self, places) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->wants_scratch = wants;
    return (PyObject *)self;
}

/* A number as it was given, to a kernel's parameter of that format. Both lie in eight bytes. */
static uint64_t narrowed(uint64_t value, char format)
{
    uint64_t out = 0;
    double real;
    memcpy(&real, &value, sizeof(real));
    switch (format) {
    case 'i': {
        int32_t narrow = (int32_t)(int64_t)value;
        memcpy(&out, &narrow, sizeof(narrow));
        return out;
    }
    case 'f': {
        float narrow = (float)real;
        memcpy(&out, &narrow, sizeof(narrow));
        return out;
    }
    case '?':
        return value != 0;
    default:
        return value;
    }
}

PyObject *allocate_scratch(plan_object *self, PyObject *bytes, uint64_t *out)
{
    PyObject *memory = PyObject_CallOneArg(self->allocate, bytes);
    if (memory != NULL && address_of(memory, out) < 0) {
        Py_CLEAR(memory);
    }
    return memory;
}

/* Launches all stages: the driver's status, or -1 with an exception. scratch: the address of memory for it, 0 where there is none yet. */
static int run_plan(plan_object *self, void *stream, const uint64_t *values, Py_ssize_t tensors, uint64_t scratch)
{
    Py_ssize_t numbers = (Py_ssize_t)strlen(self->formats), known = tensors + numbers + self->scratch_count;
    uint64_t arguments[known + 1];
    void *parameters[known + self->hidden + 1];
    static uint64_t zero = 0;
    memcpy(arguments, values, sizeof(uint64_t) * (size_t)tensors);
    for (Py_ssize_t i = 0; i < numbers; i++) {
        arguments[tensors + i] = narrowed(values[tensors + i], self->formats[i]);
    }
    PyObject *memory = NULL;
    if (self->wants_scratch && scratch == 0 && (memory = allocate_scratch(self, self->scratch_bytes, &scratch)) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->scratch_count; i++) {
        arguments[tensors + numbers + i] = scratch + self->scratch[i];
    }
    for (Py_ssize_t i = 0; i < known + self->hidden; i++) {
        parameters[i] = i < known ? &arguments[i] : &zero;
    }
    int status = 0;
    for (Py_ssize_t i = 0; i < self->stage_count && status == 0; i++) {
        const stage *one = &self->stages[i];
        if (one->blocks == 0) {
            continue;
        }
        uint64_t own = one->own < 0 ? 0 : scratch + (uint64_t)one->own;
        if (one->hidden) {
            parameters[known] = &own;
        }
        launch_config config = {one->blocks, 1, 1, one->threads, 1, 1, one->shared, stream, NULL, 0};
        /* a launch waits where the queue is full */
        Py_BEGIN_ALLOW_THREADS
        status = self->launch(&config, one->function, parameters, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF(memory); /* whoever gets it next on this stream comes after these launches */
    return status;
}

static int read_number(PyObject *value, char format, uint64_t *out)
{
    if (format == 'd') {
        double real = PyFloat_AsDouble(value);
        memcpy(out, &real, sizeof(real));
    }
    else {
        *out = (uint64_t)PyLong_AsLongLong(value);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* run(stream, addresses, numbers): the driver's status. */
static PyObject *plan_run(plan_object *self, PyObject *args)
{
    unsigned long long stream;
    PyObject *addresses, *numbers;
    if (!PyArg_ParseTuple(args, "KO!O!", &stream, &PyTuple_Type, &addresses, &PyTuple_Type, &numbers)) {
        return NULL;
    }
    Py_ssize_t tensors = PyTuple_GET_SIZE(addresses), count = PyTuple_GET_SIZE(numbers);
    if (count != (Py_ssize_t)strlen(self->formats)) {
        return PyErr_Format(PyExc_TypeError, "this plan takes %zu numbers, not %zd", strlen(self->formats), count);
    }
    uint64_t values[tensors + count + 1];
    for (Py_ssize_t i = 0; i < tensors; i++) {
        values[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(addresses, i));
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PyTuple_GET_ITEM(numbers, i);
        if (PyErr_Occurred() || read_number(number, PyFloat_Check(number) ? 'd' : 'q', &values[tensors + i]) < 0) {
            return NULL;
        }
    }
    int status = run_plan(self, (void *)(uintptr_t)stream, values, tensors, 0);
    return status < 0 ? NULL : PyLong_FromLong(status);
}

static PyMethodDef plan_methods[] = {
    {"run", (PyCFunction)plan_run, METH_VARARGS, "run(stream, addresses, numbers): launches all stages; the driver's status."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject plan_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Plan",
    .tp_basicsize = sizeof(plan_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = plan_new,
    .tp_dealloc = (destructor)plan_dealloc,
    .tp_traverse = (traverseproc)plan_traverse,
    .tp_clear = (inquiry)plan_clear,
    .tp_methods = plan_methods,
};

/* Launcher */

static int launcher_traverse(launcher_object *self, visitproc visit, void *arg)
{
    Py_VISIT(self->find);
    Py_VISIT(self->failed);
    Py_VISIT(self->stream);
    Py_VISIT(self->device);
    Py_VISIT(self->plan);
    return 0;
}

static int launcher_clear(launcher_object *self)
{
    Py_CLEAR(self->find);
    Py_CLEAR(self->failed);
    Py_CLEAR(self->stream);
    Py_CLEAR(self->device);
    Py_CLEAR(self->plan);
    return 0;
}

static void launcher_dealloc(launcher_object *self)
{
    PyObject_GC_UnTrack(self);
    launcher_clear(self);
    PyMem_Free(self->last);
    PyMem_Free(self->formats);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Addresses and numbers as two tuples: 0, or -1 with an exception. */
static int as_tuples(launcher_object *self, const uint64_t *values, PyObject **addresses, PyObject **numbers)
{
    *addresses = PyTuple_New(self->tensors);
    *numbers = PyTuple_New(self->numbers);
    for (Py_ssize_t i = 0; *addresses != NULL && *numbers != NULL && i < self->tensors + self->numbers; i++) {
        PyObject *value;
        if (i < self->tensors) {
            value = PyLong_FromUnsignedLongLong(values[i]);
        }
        else if (self->formats[i - self->tensors] == 'd') {
            double real;
            memcpy(&real, &values[i], sizeof(real));
            value = PyFloat_FromDouble(real);
        }
        else {
            value = PyLong_FromLongLong((int64_t)values[i]);
        }
        if (value == NULL) {
            Py_CLEAR(*addresses);
            break;
        }
        PyTuple_SET_ITEM(i < self->tensors ? *addresses : *numbers, i < self->tensors ? i : i - self->tensors, value);
    }
    if (*addresses != NULL && *numbers != NULL) {
        return 0;
    }
    Py_CLEAR(*addresses);
    Py_CLEAR(*numbers);
    return -1;
}

plan_object *find_plan(launcher_object *self, const uint64_t *values, bool aligned, bool *stays)
{
    PyObject *addresses, *numbers, *plan;
    if (as_tuples(self, values, &addresses, &numbers) < 0) {
        return NULL;
    }
    PyObject *found = PyObject_CallFunctionObjArgs(self->find, addresses, numbers, aligned ? Py_True : Py_False, NULL);
    Py_DECREF(addresses);
    Py_DECREF(numbers);
    int kept = 0;
    if (found == NULL || !PyArg_ParseTuple(found, "O!p", &plan_type, &plan, &kept)) {
        Py_XDECREF(found);
        return NULL;
    }
    Py_INCREF(plan);
    Py_DECREF(found);
    if (strlen(((plan_object *)plan)->formats) != (size_t)self->numbers) {
        PyErr_SetString(PyExc_ValueError, "a plan for another count of numbers");
        Py_DECREF(plan);
        return NULL;
    }
    *stays = aligned && kept;
    return (plan_object *)plan;
}

int current_stream(launcher_object *self, void **out)
{
    PyObject *handle = PyObject_CallOneArg(self->stream, self->device);
    if (handle == NULL) {
        return -1;
    }
    *out = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    return PyErr_Occurred() ? -1 : 0;
}

int launch_plan(launcher_object *self, plan_object *plan, void *stream, const uint64_t *values, uint64_t scratch)
{
    int status = run_plan(plan, stream, values, self->tensors, scratch);
    PyObject *addresses, *numbers;
    if (status <= 0) {
        return status;
    }
    if (as_tuples(self, values, &addresses, &numbers) < 0) {
        return -1;
    }
    PyObject *done = PyObject_CallFunction(self->failed, "iOOO", status, plan, addresses, numbers);
    Py_DECREF(addresses);
    Py_DECREF(numbers);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *launcher_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    launcher_object *self = (launcher_object *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (names != NULL && PyTuple_GET_SIZE(names)) {
        PyErr_SetString(PyExc_TypeError, "a kernel takes no keyword arguments");
        return NULL;
    }
    if (count != self->tensors + self->numbers) {
        return PyErr_Format(PyExc_TypeError, "a kernel of %zd tensors and %zd numbers got %zd arguments", self->tensors, self->numbers,
                            count);
    }
    uint64_t values[count + 1], together = 0;
    for (Py_ssize_t i = 0; i < self->tensors; i++) {
        if (read_address(args[i], &values[i]) < 0) {
            return NULL;
        }
        together |= values[i];
    }
    for (Py_ssize_t i = 0; i < self->numbers; i++) {
        if (read_number(args[self->tensors + i], self->formats[i], &values[self->tensors + i]) < 0) {
            return NULL;
        }
    }
    const bool aligned = (together & 15) == 0;
    const size_t bytes = sizeof(uint64_t) * (size_t)self->numbers;
    plan_object *plan = (plan_object *)self->plan;
    if (aligned && plan != NULL && memcmp(self->last, values + self->tensors, bytes) == 0) {
        Py_INCREF(plan);
    }
    else {
        bool stays;
        plan = find_plan(self, values, aligned, &stays);
        if (plan == NULL) {
            return NULL;
        }
        if (stays) {
            memcpy(self->last, values + self->tensors, bytes);
            Py_XSETREF(self->plan, Py_NewRef(plan));
        }
    }
    void *stream;
    const bool launched = current_stream(self, &stream) == 0 && launch_plan(self, plan, stream, values, 0) == 0;
    Py_DECREF(plan);
    return launched ? Py_NewRef(Py_None) : NULL;
}

/* Launcher(number of tensors, formats of the numbers, find, failed, stream, device) */
static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t tensors;
    const char *formats;
    PyObject *find, *failed, *stream, *device;
    if (!PyArg_ParseTuple(args, "nsOOOO", &tensors, &formats, &find, &failed, &stream, &device)) {
        return NULL;
    }
    if (data_ptr == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "set_data_ptr comes first");
        return NULL;
    }
    launcher_object *self = (launcher_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = launcher_call;
    self->tensors = tensors;
    self->numbers = (Py_ssize_t)strlen(formats);
    self->find = Py_NewRef(find);
    self->failed = Py_NewRef(failed);
    self->stream = Py_NewRef(stream);
    self->device = Py_NewRef(device);
    self->last = PyMem_Calloc((size_t)self->numbers + 1, sizeof(uint64_t));
    self->formats = PyMem_Malloc((size_t)self->numbers + 1);
    if (self->last == NULL || self->formats == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    memcpy(self->formats, formats, (size_t)self->numbers + 1);
    return (PyObject *)self;
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(launcher_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject launcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_runtime._C.Launcher",
    .tp_basicsize = sizeof(launcher_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = launcher_new,
    .tp_dealloc = (destructor)launcher_dealloc,
    .tp_traverse = (traverseproc)launcher_traverse,
    .tp_clear = (inquiry)launcher_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(launcher_object, vectorcall),
    .tp_members = launcher_members,
};

/* The module */

static PyMethodDef functions[] = {
    {"set_data_ptr", set_data_ptr, METH_O, "set_data_ptr(method): how a tensor's address is read: torch.Tensor.data_ptr."},
    {"set_keeping", tw_set_keeping, METH_VARARGS,
     "set_keeping(function, copy): host programs call in this thread function(make, *given) for make(*given) where that makes memory that "
     "they return, and function(copy, value) for a result of a call that makes much more; None ends it."},
    {"addresses", addresses, METH_O, "addresses(tensors): those of their first elements, as bytes; RuntimeError where one has none."},
    {"set_tensor_functions", set_tensor_functions, METH_VARARGS, "set_tensor_functions(addresses, watched, to_python): torch's C functions on tensors, as host/library.py lists them."},
    {"set_tensor_api", tw_set_tensor_api, METH_VARARGS,
     "set_tensor_api(DLPack's exchange capsule or None, torch.Tensor, its descriptors dtype, storage_offset, is_conj, is_neg)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tracework_runtime._C",
    .m_doc = "Host programs, launching GPU kernels, and looking at results of library calls.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__C(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddType(module, &plan_type) < 0 || PyModule_AddType(module, &launcher_type) < 0 ||
        PyModule_AddType(module, &program_type) < 0 || PyType_Ready(&held_type) < 0 || PyModule_AddType(module, &tw_expected_type) < 0 || add_replay(module) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
