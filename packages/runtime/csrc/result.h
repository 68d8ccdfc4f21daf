/* Results of library calls, looked at before kernels read their memory. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject tw_expected_type;

PyObject *tw_set_tensor_api(PyObject *module, PyObject *args);
