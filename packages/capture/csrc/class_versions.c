/* ClassVersions: "what was looked up on these classes is still there", as one comparison of version tags a class. When a tag differs
 * a Python check decides; if it holds, the new tags are taken over. */
#include "class_versions.h"
#include "guard_tree.h"

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *classes; /* tuple of types, or WeakKeys of them */
    PyObject *recheck; /* callable() -> bool */
    unsigned int *tags;
} ClassVersions;

/* A lookup gives a class a tag, unless the interpreter has stopped giving tags to it: then it stays 0, which never matches. */
static void take_tags(ClassVersions *self)
{
    static PyObject *name = NULL;
    if (name == NULL) {
        name = PyUnicode_InternFromString("__tracework_tag__");
    }
    for (Py_ssize_t i = 0; name != NULL && i < PyTuple_GET_SIZE(self->classes); i++) {
        PyTypeObject *type = (PyTypeObject *)tw_address(PyTuple_GET_ITEM(self->classes, i)); /* alive: recheck has found it */
        if (type != NULL) {
            (void)_PyType_Lookup(type, name);
            self->tags[i] = type->tp_version_tag;
        }
    }
    PyErr_Clear();
}

static PyObject *versions_call(PyObject *object, PyObject *const *args, size_t count, PyObject *names)
{
    (void)args, (void)count, (void)names;
    ClassVersions *self = (ClassVersions *)object;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->classes); i++) {
        PyTypeObject *type = (PyTypeObject *)tw_address(PyTuple_GET_ITEM(self->classes, i));
        unsigned int now = type == NULL ? 0 : type->tp_version_tag;
        if (now == self->tags[i] && now != 0) {
            continue;
        }
        PyObject *holds = PyObject_CallNoArgs(self->recheck);
        if (holds == Py_True) {
            take_tags(self);
        }
        return holds;
    }
    Py_RETURN_TRUE;
}

static PyObject *versions_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *classes, *recheck;
    static char *keywords[] = {"classes", "recheck", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:ClassVersions", keywords, &PyTuple_Type, &classes, &recheck)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); i++) {
        PyObject *type = tw_address(PyTuple_GET_ITEM(classes, i));
        if (type == NULL || !PyType_Check(type)) {
            PyErr_SetString(PyExc_TypeError, "ClassVersions wants a tuple of classes that are alive");
            return NULL;
        }
    }
    ClassVersions *self = (ClassVersions *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = versions_call;
    self->classes = Py_NewRef(classes);
    self->recheck = Py_NewRef(recheck);
    self->tags = PyMem_Calloc((size_t)PyTuple_GET_SIZE(classes) + 1, sizeof(unsigned int));
    if (self->tags == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self; /* the tags are 0: the first call checks, and takes them */
}

static int versions_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((ClassVersions *)object)->classes);
    Py_VISIT(((ClassVersions *)object)->recheck);
    return 0;
}

static int versions_clear(PyObject *object)
{
    Py_CLEAR(((ClassVersions *)object)->recheck);
    return 0;
}

static void versions_dealloc(PyObject *object)
{
    ClassVersions *self = (ClassVersions *)object;
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->classes);
    Py_CLEAR(self->recheck);
    PyMem_Free(self->tags);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject tw_class_versions_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_capture._C.ClassVersions",
    .tp_basicsize = sizeof(ClassVersions),
    .tp_doc = "ClassVersions(classes, recheck): called with anything, whether the classes are unchanged or recheck() says so.",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = versions_new,
    .tp_dealloc = versions_dealloc,
    .tp_traverse = versions_traverse,
    .tp_clear = versions_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(ClassVersions, vectorcall),
};
