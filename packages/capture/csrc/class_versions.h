#ifndef TW_CLASS_VERSIONS_H
#define TW_CLASS_VERSIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject tw_class_versions_type;

#endif
