/* Going on in the middle of a frame: what generated code returns for it, and the call that follows when its own frame has ended. */
#include "continuation.h"

static void onward_dealloc(tw_onward *self)
{
    Py_DECREF(self->function);
    Py_DECREF(self->arguments);
    PyObject_Free(self);
}

PyTypeObject tw_onward_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_capture._C.Onward",
    .tp_basicsize = sizeof(tw_onward),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "What go_on() gives.",
    .tp_dealloc = (destructor)onward_dealloc,
};

PyObject *tw_go_on(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !PyList_CheckExact(given[1])) {
        return PyErr_Format(PyExc_TypeError, "go_on(function, arguments) wants a function and a list");
    }
    tw_onward *onward = PyObject_New(tw_onward, &tw_onward_type);
    if (onward != NULL) {
        onward->function = Py_NewRef(given[0]);
        onward->arguments = Py_NewRef(given[1]);
    }
    return (PyObject *)onward;
}

/* Calls the continuation; takes the reference. */
PyObject *tw_continue_frame(tw_onward *onward)
{
    PyObject *function = Py_NewRef(onward->function);
    PyListObject *list = (PyListObject *)onward->arguments;
    PyObject *small[20];
    Py_ssize_t size = PyList_GET_SIZE(list);
    PyObject **arguments = size < 20 ? small : PyMem_Malloc(sizeof(PyObject *) * (size_t)(size + 1));
    if (arguments == NULL) {
        Py_DECREF(onward);
        Py_DECREF(function);
        return PyErr_NoMemory();
    }
    if (size > 0) {
        memcpy(arguments + 1, list->ob_item, sizeof(PyObject *) * (size_t)size);
    }
    Py_SET_SIZE(list, 0); /* its references are ours */
    Py_DECREF(onward);
    PyObject *result = tw_call_handing_over(function, arguments + 1, size);
    if (arguments != small) {
        PyMem_Free(arguments);
    }
    Py_DECREF(function);
    return result;
}
