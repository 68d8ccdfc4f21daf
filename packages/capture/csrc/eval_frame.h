/* The PEP 523 evaluator, the thread's callback slot, and the callables that set it. */
#ifndef TRACEWORK_EVAL_FRAME_H
#define TRACEWORK_EVAL_FRAME_H

#include "code_cache.h"

extern PyTypeObject tw_scoped_type;
extern PyMethodDef tw_eval_methods[];
int tw_eval_setup(PyObject *module);

/* Makes `callback` (NULL: off) the thread's callback; takes the reference, returns the old one's. */
PyObject *tw_swap_callback(PyObject *callback);
bool tw_thread_is_compiling(void);

/* function(*arguments), where the call takes the references to the arguments. arguments[-1] is the callee's to use. */
PyObject *tw_call_handing_over(PyObject *function, PyObject **arguments, Py_ssize_t count);

#endif
