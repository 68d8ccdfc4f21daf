/* Entries and marks of code objects. The tuple of entries is replaced as a whole, so a walk over it needs no lock beyond the GIL. */
#include "code_cache.h"

static Py_ssize_t extra_index = -1;
static PyObject *name_of_modules; /* "__name__" */

static void release_cache(void *extra)
{
    tw_cache *cache = extra;
    if (cache != NULL) {
        Py_XDECREF(cache->entries);
        PyMem_Free(cache);
    }
}

int tw_cache_setup(void)
{
    if (extra_index < 0) {
        extra_index = tw_request_code_extra(release_cache);
    }
    if (extra_index < 0) {
        PyErr_SetString(PyExc_RuntimeError, "no code extra slot is free: too many frame evaluators in this process");
        return -1;
    }
    if (name_of_modules == NULL && (name_of_modules = PyUnicode_InternFromString("__name__")) == NULL) {
        return -1;
    }
    return PyType_Ready(&tw_entry_type);
}

tw_cache *tw_cache_get(PyCodeObject *code)
{
    void *extra = NULL;
    if (code->co_extra == NULL || tw_code_get_extra((PyObject *)code, extra_index, &extra) < 0) {
        return NULL;
    }
    return extra;
}

tw_cache *tw_cache_ensure(PyCodeObject *code)
{
    tw_cache *cache = tw_cache_get(code);
    if (cache != NULL) {
        return cache;
    }
    cache = PyMem_Calloc(1, sizeof(tw_cache));
    if (cache == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (tw_code_set_extra((PyObject *)code, extra_index, cache) < 0) {
        PyMem_Free(cache);
        return NULL;
    }
    return cache;
}

bool tw_is_continuation(PyCodeObject *code)
{
    tw_cache *cache = tw_cache_get(code);
    return cache != NULL && cache->continuation;
}

static void replace_entries(tw_cache *cache, PyObject *entries)
{
    PyObject *old = cache->entries;
    cache->entries = entries;
    Py_XDECREF(old);
}

int tw_cache_add(PyCodeObject *code, tw_entry *entry)
{
    tw_cache *cache = tw_cache_ensure(code);
    tw_cache *replacement = tw_cache_ensure((PyCodeObject *)entry->code);
    if (cache == NULL || replacement == NULL) {
        return -1;
    }
    replacement->mark = TW_MARK_GENERATED; /* a replacement is never captured again */
    Py_ssize_t count = cache->entries == NULL ? 0 : PyTuple_GET_SIZE(cache->entries);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyTuple_GET_ITEM(cache->entries, i) == (PyObject *)entry) {
            return 0; /* another thread's, which this one waited for */
        }
    }
    PyObject *entries = PyTuple_New(count + 1);
    if (entries == NULL) {
        return -1;
    }
    PyTuple_SET_ITEM(entries, 0, Py_NewRef(entry));
    for (Py_ssize_t i = 0; i < count; i++) {
        tw_entry *other = (tw_entry *)PyTuple_GET_ITEM(cache->entries, i);
        Py_CLEAR(other->lean); /* it did not know of the new entry */
        PyTuple_SET_ITEM(entries, i + 1, Py_NewRef(other));
    }
    replace_entries(cache, entries);
    return 0;
}

void tw_cache_to_front(tw_cache *cache, Py_ssize_t index)
{
    PyObject *old = cache->entries;
    Py_ssize_t count = PyTuple_GET_SIZE(old);
    PyObject *entries = PyTuple_New(count);
    if (entries == NULL) {
        PyErr_Clear();
        return;
    }
    PyTuple_SET_ITEM(entries, 0, Py_NewRef(PyTuple_GET_ITEM(old, index)));
    for (Py_ssize_t i = 0, target = 1; i < count; i++) {
        if (i != index) {
            PyTuple_SET_ITEM(entries, target++, Py_NewRef(PyTuple_GET_ITEM(old, i)));
        }
    }
    replace_entries(cache, entries);
}

static bool has_free_variables(PyObject *code)
{
    return ((PyCodeObject *)code)->co_nfreevars > 0;
}

/* Whether these are the names of a module: others, as exec has them, may hold the function whose code holds the entry, and the collector
 * does not see into code objects. -1: an exception. */
static int are_of_a_module(PyObject *globals)
{
    PyObject *name = PyDict_GetItemWithError(globals, name_of_modules);
    if (name == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (!PyUnicode_CheckExact(name)) {
        return 0;
    }
    PyObject *module = PyImport_GetModule(name);
    if (module == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int same = PyModule_Check(module) && PyModule_GetDict(module) == globals;
    Py_DECREF(module);
    return same;
}

PyObject *tw_entry_function(tw_entry *entry, PyFunctionObject *original)
{
    PyFunctionObject *known = (PyFunctionObject *)entry->function;
    if (known != NULL && known->func_globals == original->func_globals && known->func_builtins == original->func_builtins) {
        return Py_NewRef(known);
    }
    PyObject *function = PyFunction_New(entry->code, original->func_globals);
    if (function == NULL) {
        return NULL;
    }
    Py_SETREF(((PyFunctionObject *)function)->func_builtins, Py_NewRef(original->func_builtins));
    if (has_free_variables(entry->code)) {
        if (original->func_closure == NULL || PyFunction_SetClosure(function, original->func_closure) < 0) {
            Py_DECREF(function);
            PyErr_Format(PyExc_SystemError, "replacement of %U has free variables, the function has none", original->func_qualname);
            return NULL;
        }
        return function; /* closures differ from call to call */
    }
    int lasts = are_of_a_module(original->func_globals);
    if (lasts < 0) {
        Py_DECREF(function);
        return NULL;
    }
    if (lasts) {
        Py_XSETREF(entry->function, Py_NewRef(function));
    }
    return function;
}

/* ---- Entry ---- */

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"program", "code", "owner", "info", NULL};
    PyObject *program, *code, *owner, *info = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O|O", names, &tw_program_type, &program, &PyCode_Type, &code, &owner, &info)) {
        return NULL;
    }
    tw_entry *entry = (tw_entry *)type->tp_alloc(type, 0);
    if (entry == NULL) {
        return NULL;
    }
    entry->program = (tw_program *)Py_NewRef(program);
    entry->code = Py_NewRef(code);
    entry->owner = Py_NewRef(owner);
    entry->info = Py_NewRef(info);
    return (PyObject *)entry;
}

static int entry_traverse(tw_entry *entry, visitproc visit, void *arg)
{
    Py_VISIT(entry->program);
    Py_VISIT(entry->lean);
    Py_VISIT(entry->code);
    Py_VISIT(entry->function);
    Py_VISIT(entry->owner);
    Py_VISIT(entry->info);
    return 0;
}

static int entry_clear(tw_entry *entry)
{
    entry->dead = true;
    Py_CLEAR(entry->lean);
    Py_CLEAR(entry->function);
    Py_CLEAR(entry->owner);
    Py_CLEAR(entry->info);
    return 0;
}

static void entry_dealloc(tw_entry *entry)
{
    PyObject_GC_UnTrack(entry);
    entry_clear(entry);
    Py_CLEAR(entry->program);
    Py_CLEAR(entry->code);
    Py_TYPE(entry)->tp_free(entry);
}

static PyObject *entry_get_lean(tw_entry *entry, void *unused)
{
    return Py_NewRef(entry->lean == NULL ? Py_None : entry->lean);
}

static int entry_set_lean(tw_entry *entry, PyObject *program, void *unused)
{
    if (program != NULL && program != Py_None && !Py_IS_TYPE(program, &tw_program_type)) {
        PyErr_SetString(PyExc_TypeError, "an entry's lean program is a GuardProgram or None");
        return -1;
    }
    Py_XSETREF(entry->lean, program == NULL || program == Py_None ? NULL : Py_NewRef(program));
    return 0;
}

static PyGetSetDef entry_getset[] = {
    {"lean", (getter)entry_get_lean, (setter)entry_set_lean, "what runs instead of the program where guards are skipped", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef entry_members[] = {
    {"program", T_OBJECT, offsetof(tw_entry, program), READONLY, NULL},
    {"code", T_OBJECT, offsetof(tw_entry, code), READONLY, NULL},
    {"owner", T_OBJECT, offsetof(tw_entry, owner), READONLY, NULL},
    {"info", T_OBJECT, offsetof(tw_entry, info), 0, NULL},
    {"hits", T_PYSSIZET, offsetof(tw_entry, hits), 0, NULL},
    {"dead", T_BOOL, offsetof(tw_entry, dead), 0, "set to True: never used again"},
    {"full", T_BOOL, offsetof(tw_entry, full), 0, "set to True: where no entry fits, frames run plainly and the owner is not asked"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject tw_entry_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_capture._C.Entry",
    .tp_basicsize = sizeof(tw_entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Entry(program, code, owner, info=None): what runs instead of a frame when the guard program passes.",
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_members = entry_members,
    .tp_getset = entry_getset,
};

/* ---- module functions ---- */

static PyObject *set_mark(PyObject *module, PyObject *args)
{
    PyObject *code;
    int mark;
    if (!PyArg_ParseTuple(args, "O!i", &PyCode_Type, &code, &mark)) {
        return NULL;
    }
    tw_cache *cache = tw_cache_ensure((PyCodeObject *)code);
    if (cache == NULL) {
        return NULL;
    }
    cache->mark = mark;
    Py_RETURN_NONE;
}

static PyObject *mark_continuation(PyObject *module, PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "a code object is wanted, not %R", code);
    }
    tw_cache *cache = tw_cache_ensure((PyCodeObject *)code);
    if (cache == NULL) {
        return NULL;
    }
    cache->continuation = true;
    Py_RETURN_NONE;
}

static PyObject *get_mark(PyObject *module, PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "a code object is wanted, not %R", code);
    }
    tw_cache *cache = tw_cache_get((PyCodeObject *)code);
    return PyLong_FromLong(cache == NULL ? TW_MARK_NONE : cache->mark);
}

static PyObject *get_entries(PyObject *module, PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "a code object is wanted, not %R", code);
    }
    tw_cache *cache = tw_cache_get((PyCodeObject *)code);
    return cache == NULL || cache->entries == NULL ? PyTuple_New(0) : Py_NewRef(cache->entries);
}

static PyObject *set_entries(PyObject *module, PyObject *args)
{
    PyObject *code, *entries;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &PyTuple_Type, &entries)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(entries, i), &tw_entry_type)) {
            return PyErr_Format(PyExc_TypeError, "entries are Entry objects");
        }
    }
    tw_cache *cache = tw_cache_ensure((PyCodeObject *)code);
    if (cache == NULL) {
        return NULL;
    }
    replace_entries(cache, Py_NewRef(entries));
    Py_RETURN_NONE;
}

static PyObject *add_entry(PyObject *module, PyObject *args)
{
    PyObject *code, *entry;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &tw_entry_type, &entry) ||
        tw_cache_add((PyCodeObject *)code, (tw_entry *)entry) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *before_full_collection(PyObject *function, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyUnicode_Check(args[0]) || !PyDict_Check(args[1])) {
        return PyErr_Format(PyExc_TypeError, "a callback of the collector takes a phase and a dict");
    }
    PyObject *generation = PyDict_GetItemString(args[1], "generation");
    if (generation == NULL || PyUnicode_CompareWithASCIIString(args[0], "start") != 0 || PyLong_AsLong(generation) < 2) {
        Py_RETURN_NONE;
    }
    return PyObject_CallNoArgs(function);
}

static PyMethodDef before_full_collection_method = {"before_full_collection", (PyCFunction)(void (*)(void))before_full_collection, METH_FASTCALL, NULL};

/* A Python function would look for signals where it begins: what their handlers raise then, also those of signals that came during the
 * collection, is dropped by the collector, and the program would miss it. */
static PyObject *full_collection_callback(PyObject *module, PyObject *function)
{
    return PyCFunction_New(&before_full_collection_method, function);
}

PyMethodDef tw_cache_methods[] = {
    {"set_mark", set_mark, METH_VARARGS, "set_mark(code, mark): one of the MARK_ numbers"},
    {"mark_continuation", mark_continuation, METH_O, "mark_continuation(code): only what go_on gave calls functions of this code"},
    {"get_mark", get_mark, METH_O, "get_mark(code) -> int"},
    {"get_entries", get_entries, METH_O, "get_entries(code) -> tuple of Entry, in the order they are tried"},
    {"set_entries", set_entries, METH_VARARGS, "set_entries(code, tuple of Entry)"},
    {"add_entry", add_entry, METH_VARARGS, "add_entry(code, entry): tried first from now on"},
    {"full_collection_callback", full_collection_callback, METH_O, "full_collection_callback(function) -> one of gc.callbacks"},
    {NULL, NULL, 0, NULL},
};
