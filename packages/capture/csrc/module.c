/* The module tracework_capture._C: types, functions and numbers; nothing else lives here. */
#include "class_versions.h"
#include "eval_frame.h"
#include "guard_tree.h"

static PyObject *instance_dict(PyObject *module, PyObject *object)
{
    (void)module;
    if (PyType_Check(object)) {
        return PyErr_Format(PyExc_TypeError, "instance_dict() wants an instance, not a class");
    }
    return PyObject_GenericGetDict(object, NULL);
}

static PyObject *type_name(PyObject *module, PyObject *object)
{
    (void)module;
    if (!PyType_Check(object)) {
        return PyErr_Format(PyExc_TypeError, "type_name() wants a class");
    }
    return PyUnicode_FromString(((PyTypeObject *)object)->tp_name);
}

static PyObject *ended_frame(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *code, *globals;
    int offset;
    if (!PyArg_ParseTuple(args, "O!O!i", &PyCode_Type, &code, &PyDict_Type, &globals, &offset)) {
        return NULL;
    }
    if (offset < 0 || offset / (int)sizeof(_Py_CODEUNIT) >= Py_SIZE(code)) {
        return PyErr_Format(PyExc_ValueError, "ended_frame(): no instruction at %d", offset);
    }
    return tw_ended_frame((PyCodeObject *)code, globals, offset / (int)sizeof(_Py_CODEUNIT));
}

vectorcallfunc tw_function_vectorcall;

static int find_function_vectorcall(void)
{
    PyCodeObject *code = PyCode_NewEmpty("<tracework>", "empty", 1);
    PyObject *globals = PyDict_New();
    PyObject *function = code == NULL || globals == NULL ? NULL : PyFunction_New((PyObject *)code, globals);
    if (function != NULL) {
        tw_function_vectorcall = ((PyFunctionObject *)function)->vectorcall;
    }
    Py_XDECREF(code);
    Py_XDECREF(globals);
    Py_XDECREF(function);
    return function == NULL ? -1 : 0;
}

static int make_weak_key_type(PyObject *module)
{
    PyObject *type = PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){s()ss}", "WeakKey", &_PyWeakref_RefType, "__slots__", "__module__",
                                           "tracework_capture._C");
    tw_weak_key_type = (PyTypeObject *)type;
    return type == NULL ? -1 : PyModule_AddObjectRef(module, "WeakKey", type);
}

/* Of a slot wrapper such as object.__getattribute__: whether the function in C behind it is Python's own lookup. */
static PyObject *is_generic(PyObject *module, PyObject *wrapper)
{
    if (!Py_IS_TYPE(wrapper, &PyWrapperDescr_Type)) {
        return PyErr_Format(PyExc_TypeError, "a slot wrapper is wanted, not %R", wrapper);
    }
    void *function = ((PyWrapperDescrObject *)wrapper)->d_wrapped;
    return PyBool_FromLong(function == (void *)PyObject_GenericGetAttr || function == (void *)PyObject_GenericSetAttr);
}

static PyObject *runs_its_code(PyObject *module, PyObject *function)
{
    if (!PyFunction_Check(function)) {
        return PyErr_Format(PyExc_TypeError, "a Python function is wanted, not %R", function);
    }
    return PyBool_FromLong(tw_function_runs_its_code(function));
}

static PyObject *is_interned(PyObject *module, PyObject *object)
{
    (void)module;
    return PyBool_FromLong(PyUnicode_CheckExact(object) && PyUnicode_CHECK_INTERNED(object));
}

static PyMethodDef object_methods[] = {
    {"ended_frame", ended_frame, METH_VARARGS,
     "ended_frame(code, globals, offset) -> a frame that never runs, for a traceback: it ended at the instruction at that byte"},
    {"dies_unseen", tw_dies_unseen, METH_VARARGS,
     "dies_unseen(object, where, acts) -> whether nobody would notice that it dies (where None; a number: if it has no more holders), all "
     "that it holds (True), what is in that slot of it, or under that key: acts(object, callback or None) decides on finalizers and weak references"},
    {"instance_dict", instance_dict, METH_O,
     "instance_dict(object) -> the dict of its own attributes, whatever its class has under __dict__; AttributeError where it has none"},
    {"is_generic", is_generic, METH_O, "is_generic(slot wrapper) -> whether it looks up, sets or deletes attributes as object does"},
    {"runs_its_code", runs_its_code, METH_O, "runs_its_code(function) -> whether calls run its code, and no extension has put something else there"},
    {"is_interned", is_interned, METH_O, "is_interned(object) -> whether it is the one str of its text that names and constants share"},
    {"own_memory", tw_own_memory, METH_O,
     "own_memory(array) -> the array, which now owns the memory that the tensor holds of which Tensor.numpy() made it: no copy"},
    {"set_base", tw_set_base, METH_VARARGS, "set_base(array, owner) -> the array, which now is a view of that one, or of what that is a view of"},
    {"type_name", type_name, METH_O, "type_name(class) -> its name in CPython's messages: with its module where C made it so"},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef tensor_methods[] = {
    {"set_tensor_api", tw_set_tensor_api, METH_VARARGS,
     "set_tensor_api(dlpack exchange capsule or None, requires_grad descriptor, a tensor with and one without gradient) -> whether tensors are checked natively"},
    {"set_function_modes", tw_set_function_modes, METH_VARARGS,
     "set_function_modes(how many there are, a manager under which they see nothing): guards are checked under it where there are some"},
    {"set_tensor_layout", tw_set_tensor_layout, METH_VARARGS,
     "set_tensor_layout(probe, negated, other dtype, other device) -> whether unchanged tensors are recognised by their fields"},
    {NULL, NULL, 0, NULL},
};

static const char *const accessor_names[] = {
#define ACCESSOR(name) #name,
#include "guard_kinds.def"
};

static const char *const leaf_names[] = {
#define LEAF(name) #name,
#include "guard_kinds.def"
};

static int add_names(PyObject *module, const char *attribute, const char *const *names, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);
        if (name == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, name);
    }
    int failed = tuple == NULL || PyModule_AddObjectRef(module, attribute, tuple) < 0;
    Py_XDECREF(tuple);
    return failed ? -1 : 0;
}

static int fill_module(PyObject *module)
{
    if (find_function_vectorcall() < 0 || make_weak_key_type(module) < 0 || PyType_Ready(&tw_program_type) < 0 || PyType_Ready(&tw_class_versions_type) < 0 || tw_cache_setup() < 0 || tw_eval_setup(module) < 0 ||
        PyModule_AddFunctions(module, object_methods) < 0 || PyModule_AddFunctions(module, tensor_methods) < 0 || PyModule_AddFunctions(module, tw_cache_methods) < 0 ||
        PyModule_AddFunctions(module, tw_eval_methods) < 0) {
        return -1;
    }
    if (PyModule_AddObjectRef(module, "ClassVersions", (PyObject *)&tw_class_versions_type) < 0 ||
        PyModule_AddObjectRef(module, "GuardProgram", (PyObject *)&tw_program_type) < 0 ||
        PyModule_AddObjectRef(module, "Entry", (PyObject *)&tw_entry_type) < 0 ||
        PyModule_AddObjectRef(module, "Scoped", (PyObject *)&tw_scoped_type) < 0 ||
        PyModule_AddIntConstant(module, "MARK_NONE", TW_MARK_NONE) < 0 ||
        PyModule_AddIntConstant(module, "MARK_SKIP", TW_MARK_SKIP) < 0 ||
        PyModule_AddIntConstant(module, "MARK_SKIP_RECURSIVE", TW_MARK_SKIP_RECURSIVE) < 0 ||
        PyModule_AddIntConstant(module, "MARK_RUN_ONLY", TW_MARK_RUN_ONLY) < 0) {
        return -1;
    }
    return add_names(module, "ACCESSORS", accessor_names, TW_ACCESSOR_COUNT) < 0 ||
           add_names(module, "LEAVES", leaf_names, TW_LEAF_COUNT) < 0 ? -1 : 0;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tracework_capture._C",
    .m_doc = "Frame evaluator and native guard programs.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__C(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && fill_module(module) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
