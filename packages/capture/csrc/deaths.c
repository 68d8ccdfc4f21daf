/* Whether somebody would notice that an object dies: the leaf DIES_UNSEEN of guard programs, and what captures ask of objects that the
 * program lets go of.
 *
 * The object is taken to die, as only the program's own places are known; what it holds dies with it where it has no other holders.
 * References that are met on the way are counted, as the collector counts them, and those of who looks at the object, which go, too: of a
 * run of guards they are known, a capture is taken to have a few. What is noticed: a finalizer (`__del__`, a generator's blocks), and a
 * weak reference with a callback. Python code decides on each, after the walk: it may let others run.
 */
#include "guard_tree.h"

#define FIRST_ROOM 64      /* a power of two */
#define MOST_OBJECTS 20000 /* more are not looked through, and count as noticed */
#define MOST_HOLDERS 16    /* that a capture has, or are looked for in a run of guards, of which that must find no more */

typedef struct {
    PyObject *object;
    Py_ssize_t met;
    bool dies;
} holding;

typedef struct {
    holding *table, few[FIRST_ROOM]; /* open addressing, by address */
    size_t room, count;
    PyObject **open, *first[FIRST_ROOM];
    size_t open_room, open_count;
    PyObject *suspects; /* pairs (object, callback or None); NULL while there are none */
    const tw_run *run; /* NULL: a capture */
    bool failed, too_many, all_die;
} walk;

static holding *find_holding(holding *table, size_t room, PyObject *object)
{
    size_t at = ((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u & (room - 1);
    while (table[at].object != NULL && table[at].object != object) {
        at = (at + 1) & (room - 1);
    }
    return &table[at];
}

static bool grow_table(walk *w)
{
    holding *grown = PyMem_Calloc(2 * w->room, sizeof(holding));
    if (grown == NULL) {
        return false;
    }
    for (size_t i = 0; i < w->room; i++) {
        if (w->table[i].object != NULL) {
            *find_holding(grown, 2 * w->room, w->table[i].object) = w->table[i];
        }
    }
    if (w->table != w->few) {
        PyMem_Free(w->table);
    }
    w->table = grown;
    w->room *= 2;
    return true;
}

static bool push_open(walk *w, PyObject *object)
{
    if (w->open_count == w->open_room) {
        PyObject **grown = PyMem_Malloc(2 * w->open_room * sizeof(PyObject *));
        if (grown == NULL) {
            return false;
        }
        memcpy(grown, w->open, w->open_count * sizeof(PyObject *));
        if (w->open != w->first) {
            PyMem_Free(w->open);
        }
        w->open = grown;
        w->open_room *= 2;
    }
    w->open[w->open_count++] = object;
    return true;
}

static bool suspect(walk *w, PyObject *object, PyObject *callback)
{
    if (w->suspects == NULL && (w->suspects = PyList_New(0)) == NULL) {
        return false;
    }
    PyObject *pair = PyTuple_Pack(2, object, callback);
    bool added = pair != NULL && PyList_Append(w->suspects, pair) == 0;
    Py_XDECREF(pair);
    return added;
}

static bool look_at_references(walk *w, PyObject *object)
{
    Py_ssize_t offset = Py_TYPE(object)->tp_weaklistoffset;
    if (offset == 0) {
        return true;
    }
    PyWeakReference *reference = *(PyWeakReference **)((char *)object + offset);
    for (; reference != NULL; reference = reference->wr_next) {
        if (reference->wr_callback != NULL && !suspect(w, object, reference->wr_callback)) {
            return false;
        }
    }
    return true;
}

/* The object dies: it is looked at, and what it holds is still to be met. */
static bool let_die(walk *w, PyObject *object)
{
    if (Py_TYPE(object)->tp_finalize != NULL && !suspect(w, object, Py_None)) {
        return false;
    }
    return look_at_references(w, object) && (!PyObject_IS_GC(object) || Py_TYPE(object)->tp_traverse == NULL || push_open(w, object));
}

/* Whether objects of the type are never noticed, or live as long as the program does. */
static bool is_of_no_interest(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    return PyType_Check(object) || PyModule_Check(object) || PyCode_Check(object) ||
           (!PyObject_IS_GC(object) && type->tp_weaklistoffset == 0 && type->tp_finalize == NULL);
}

/* Whether nobody holds the object but those that were met and who looks at it. */
static bool is_let_go(const walk *w, const holding *found)
{
    Py_ssize_t others = Py_REFCNT(found->object) - found->met;
    if (others <= 0 || others > MOST_HOLDERS) {
        return others <= 0;
    }
    return w->run == NULL || others <= tw_holders_in_run(w->run, found->object);
}

static int meet(PyObject *object, void *argument)
{
    walk *w = argument;
    if (object == NULL || is_of_no_interest(object)) {
        return 0;
    }
    holding *found = find_holding(w->table, w->room, object);
    if (found->object == NULL) {
        if (w->count >= MOST_OBJECTS) {
            w->too_many = true;
            return 1;
        }
        found->object = object;
        if (4 * ++w->count >= 3 * w->room) {
            if (!grow_table(w)) {
                w->failed = true;
                return 1;
            }
            found = find_holding(w->table, w->room, object);
        }
    }
    found->met++;
    if (!found->dies && (w->all_die || is_let_go(w, found))) {
        found->dies = true;
        w->failed = !let_die(w, object);
    }
    return w->failed;
}

/* What an object holds; a function does not let go of its module's names. */
static void meet_held(walk *w, PyObject *object)
{
    if (!PyFunction_Check(object)) {
        (void)Py_TYPE(object)->tp_traverse(object, meet, w);
        return;
    }
    PyFunctionObject *function = (PyFunctionObject *)object;
    PyObject *held[] = {function->func_closure, function->func_defaults, function->func_kwdefaults, function->func_dict};
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++) {
        if (meet(held[i], w)) {
            return;
        }
    }
}

static int any_acts(PyObject *suspects, PyObject *acts)
{
    for (Py_ssize_t i = 0; suspects != NULL && i < PyList_GET_SIZE(suspects); i++) {
        PyObject *answer = PyObject_Call(acts, PyList_GET_ITEM(suspects, i), NULL);
        int is_true = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        if (is_true != 0) {
            return is_true;
        }
    }
    return 0;
}

static int is_of_interest(PyObject *object, void *unused)
{
    (void)unused;
    return object != NULL && !is_of_no_interest(object);
}

/* Nothing can be noticed: the common case, of tensors above all. */
static bool is_plain(PyObject *object, bool contents)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject **references = type->tp_weaklistoffset == 0 ? NULL : (PyObject **)((char *)object + type->tp_weaklistoffset);
    if (!contents && (type->tp_finalize != NULL || (references != NULL && *references != NULL))) {
        return false;
    }
    return !PyObject_IS_GC(object) || type->tp_traverse == NULL || type->tp_traverse(object, is_of_interest, NULL) == 0;
}

static int dies_unseen(PyObject *object, bool contents, const tw_run *run, PyObject *acts)
{
    if (object == NULL || is_of_no_interest(object) || is_plain(object, contents)) {
        return 1;
    }
    walk w;
    memset(&w, 0, sizeof(w));
    w.room = w.open_room = FIRST_ROOM;
    w.run = run;
    w.all_die = true;
    w.table = w.few;
    w.open = w.first;
    if (contents) { /* the object lives on, and all that it holds may go */
        if (PyObject_IS_GC(object)) {
            meet_held(&w, object);
        }
    }
    else {
        (void)meet(object, &w);
    }
    w.all_die = false;
    while (w.open_count > 0 && !w.failed && !w.too_many) {
        meet_held(&w, w.open[--w.open_count]);
    }
    if (w.table != w.few) {
        PyMem_Free(w.table);
    }
    if (w.open != w.first) {
        PyMem_Free(w.open);
    }
    int seen = w.failed ? -1 : w.too_many ? 1 : any_acts(w.suspects, acts);
    Py_XDECREF(w.suspects);
    return seen < 0 ? -1 : !seen;
}

/* What a slot of an object holds, as a new reference; NULL without an exception when it is empty. */
static PyObject *in_slot(PyObject *slot, PyObject *value)
{
    PyObject *held = Py_TYPE(slot)->tp_descr_get(slot, value, (PyObject *)Py_TYPE(value));
    if (held == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return held;
}

static int check_place(PyObject *value, PyObject *where, const tw_run *run, PyObject *acts)
{
    if (where == Py_None || where == Py_True) {
        return dies_unseen(value, where == Py_True, run, acts);
    }
    if (PyLong_CheckExact(where)) {
        Py_ssize_t known = PyLong_AsSsize_t(where) + (run != NULL && run->recorder != NULL);
        return Py_REFCNT(value) > known ? 1 : dies_unseen(value, false, run, acts);
    }
    PyObject *held = NULL;
    if (Py_IS_TYPE(where, &PyMemberDescr_Type)) {
        held = in_slot(where, value);
        Py_XDECREF(held); /* the slot has it, and it is no holder */
    }
    else {
        PyObject *dict = PyType_Check(value) ? ((PyTypeObject *)value)->tp_dict : value;
        if (dict == NULL || !PyDict_Check(dict)) {
            return 0;
        }
        held = PyDict_GetItemWithError(dict, where);
    }
    return held == NULL && PyErr_Occurred() ? -1 : dies_unseen(held, false, run, acts);
}

/* The leaf: payload is (where, acts). `where` is None for the value itself, a number for the value where it has no more holders than that
 * beside a recorder, True for all that it holds, a slot, or the key of what a dict, or the dict of a class, has there. */
int tw_check_deaths(const tw_run *run, PyObject *payload, PyObject *value)
{
    return check_place(value, PyTuple_GET_ITEM(payload, 0), run, PyTuple_GET_ITEM(payload, 1));
}

PyObject *tw_dies_unseen(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object, *where, *acts;
    if (!PyArg_ParseTuple(args, "OOO", &object, &where, &acts)) {
        return NULL;
    }
    int unseen = check_place(object, where, NULL, acts);
    return unseen < 0 ? NULL : PyBool_FromLong(unseen);
}
