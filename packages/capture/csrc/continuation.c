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

/* The code of the continuation stays while the frame runs: what is compiled for it serves the next round of a loop that comes back to it,
 * even if the entries that led there are let go of meanwhile. */
int tw_hold_continuation(PyObject **held, tw_onward *onward)
{
    PyObject *code = PyFunction_GET_CODE(onward->function);
    if (*held == NULL && (*held = PyList_New(0)) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = PyList_GET_SIZE(*held); i-- > 0;) {
        if (PyList_GET_ITEM(*held, i) == code) {
            return 0;
        }
    }
    return PyList_Append(*held, code);
}
