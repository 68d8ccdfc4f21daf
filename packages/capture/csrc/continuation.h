/* What generated code returns to go on in a continuation, and how that one is called. */
#ifndef TRACEWORK_CONTINUATION_H
#define TRACEWORK_CONTINUATION_H

#include "eval_frame.h"

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *arguments; /* a list */
} tw_onward;

extern PyTypeObject tw_onward_type;

PyObject *tw_go_on(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *tw_continue_frame(tw_onward *onward);

#endif
