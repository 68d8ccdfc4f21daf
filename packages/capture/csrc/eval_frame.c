/* The PEP 523 evaluator: run an entry whose guards pass, else ask the thread's callback, else do what was done before.
 *
 * It is installed only while some thread has a callback, because CPython does not inline Python-to-Python calls while any evaluator
 * is installed. Whoever was installed before is called for every frame that is not ours.
 */
#include "continuation.h"
#include "dict_versions.h"

static __thread struct {
    PyObject *callback;  /* strong; NULL is off */
    tw_frame *delegated; /* the frame just handed to the evaluator below, which may have us below itself */
    int compiling;
    int guarding;  /* guards are being checked: Python code that they call runs as it is */
    bool run_only; /* entries that exist are used, none is made */
    PyObject **handover; /* references that the frame which is about to start has taken over */
    Py_ssize_t handover_count;
} thread;

static PyObject *stance;   /* asked what to do with a callback when its function is called; NULL: nothing special */
static PyObject *agreement; /* asked whether an entry is used; NULL: where its guards hold */
/* The stance of another compiler, which is a name in one of its modules: asked for with `follow` where it is not `followed.plain`. */
static struct {
    PyObject *modules, *module, *name; /* sys.modules and two names; NULL: none is followed */
    PyObject *globals;                 /* of the module, once it has been imported */
    PyObject *plain;                   /* the stance that asks for nothing, once it has been seen */
    PyObject *ask;
    tw_watched *quiet; /* the dict that was looked into last, when it asked for nothing, and its version then; NULL: look again */
    uint64_t version;
} followed;
static bool only_differing; /* entries are told apart by their `lean` programs, where they have one */
static _PyFrameEvalFunction below;
static Py_ssize_t active_threads;
static PyObject *skip_marker, *off_marker;

static PyObject *evaluate(PyThreadState *tstate, tw_frame *frame, int throwflag);

static void quiet_as_it_is(PyObject *dict)
{
    tw_watched *before = followed.quiet;
    followed.quiet = tw_watch(dict);
    followed.version = followed.quiet == NULL ? 0 : tw_dict_version(followed.quiet);
    tw_unwatch(before);
}

static PyObject *look_at_followed(void)
{
    if (followed.globals == NULL) {
        PyObject *module = PyDict_GetItemWithError(followed.modules, followed.module);
        if (module == NULL || !PyModule_Check(module)) {
            PyErr_Clear();
            quiet_as_it_is(followed.modules);
            return NULL;
        }
        followed.globals = Py_NewRef(PyModule_GetDict(module));
    }
    PyObject *taken = PyDict_GetItemWithError(followed.globals, followed.name);
    PyErr_Clear();
    if (taken != NULL && taken != followed.plain) {
        return followed.ask;
    }
    quiet_as_it_is(followed.globals);
    return NULL;
}

/* What is asked what to do with a callback, borrowed; NULL: nobody has taken a stance. */
static inline PyObject *asked_for_stance(void)
{
    if (stance != NULL || followed.module == NULL) {
        return stance;
    }
    bool is_quiet = followed.quiet != NULL && tw_dict_version(followed.quiet) == followed.version;
    return is_quiet ? NULL : look_at_followed();
}

/* ---- installing ---- */

static void install(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (current != evaluate) {
        below = current;
        _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
    }
}

static void uninstall(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate) {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, below);
    }
}

PyObject *tw_swap_callback(PyObject *callback)
{
    PyObject *old = thread.callback;
    thread.callback = callback;
    if (callback != NULL && old == NULL && active_threads++ == 0) {
        install();
    }
    else if (callback == NULL && old != NULL && --active_threads == 0) {
        uninstall();
    }
    return old;
}

bool tw_thread_is_compiling(void)
{
    return thread.compiling > 0;
}

/* ---- running frames ---- */

/* The frame of a call holds its arguments by itself once it starts: whoever called it keeps nothing alive from then on. */
static void release_handover(void)
{
    PyObject **slots = thread.handover;
    Py_ssize_t count = thread.handover_count;
    thread.handover = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_CLEAR(slots[i]);
    }
}

PyObject *tw_call_handing_over(PyObject *function, PyObject **arguments, Py_ssize_t count)
{
    PyObject **outer = thread.handover;
    Py_ssize_t outer_count = thread.handover_count;
    thread.handover = arguments;
    thread.handover_count = count;
    PyObject *result = PyObject_Vectorcall(function, arguments, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    thread.handover = outer;
    thread.handover_count = outer_count;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(arguments[i]);
    }
    return result;
}

static PyObject *run_below(PyThreadState *tstate, tw_frame *frame, int throwflag)
{
    if (below == _PyEval_EvalFrameDefault || below == NULL) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    tw_frame *outer = thread.delegated;
    thread.delegated = frame;
    PyObject *result = below(tstate, frame, throwflag);
    thread.delegated = outer;
    return result;
}

static PyObject *run_below_disabled(PyThreadState *tstate, tw_frame *frame, int throwflag)
{
    PyObject *callback = tw_swap_callback(NULL);
    PyObject *result = run_below(tstate, frame, throwflag);
    Py_XDECREF(tw_swap_callback(callback));
    return result;
}

static int argument_slots(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) + ((code->co_flags & CO_VARKEYWORDS) != 0);
}

/* Calls the entry's code with (inputs, *argument slots), which it takes from the frame, and ends the frame. Takes the references to inputs
 * and to the entry, which may die while its code runs.
 * Continuations are called when the frame before has ended, by the run_entry of the frame that the program called: breaks do not nest. It
 * holds the frame's code, with which its continuations live. */
static PyObject *run_entry(PyThreadState *tstate, tw_frame *frame, tw_entry *entry, PyObject *inputs)
{
    PyObject *small[20];
    PyCodeObject *code = (PyCodeObject *)Py_NewRef(tw_frame_code(frame));
    int count = argument_slots(code);
    PyObject **arguments = count + 2 <= 20 ? small : PyMem_Malloc(sizeof(PyObject *) * (size_t)(count + 2));
    PyObject *result = NULL, *function = NULL;
    if (arguments == NULL) {
        PyErr_NoMemory();
    }
    else {
        function = tw_entry_function(entry, tw_frame_function(frame));
    }
    Py_DECREF(entry);
    if (function == NULL) {
        Py_DECREF(inputs);
    }
    else {
        arguments[1] = inputs; /* slot 0 is the callee's to use */
        memcpy(arguments + 2, frame->localsplus, sizeof(PyObject *) * (size_t)count);
        memset(frame->localsplus, 0, sizeof(PyObject *) * (size_t)count);
        result = tw_call_handing_over(function, arguments + 1, count + 1);
        Py_DECREF(function);
    }
    if (arguments != small) {
        PyMem_Free(arguments);
    }
    bool goes_on = result != NULL && Py_IS_TYPE(result, &tw_onward_type) && !tw_is_continuation(code);
    tw_frame_discard(tstate, frame);
    while (goes_on) {
        result = tw_continue_frame((tw_onward *)result);
        goes_on = result != NULL && Py_IS_TYPE(result, &tw_onward_type);
    }
    Py_DECREF(code);
    return result;
}

static PyObject *fail_frame(PyThreadState *tstate, tw_frame *frame)
{
    tw_frame_discard(tstate, frame);
    return NULL;
}

static tw_scope frame_scope(tw_frame *frame)
{
    PyCodeObject *code = tw_frame_code(frame);
    tw_scope scope = {frame->localsplus, argument_slots(code), frame->f_globals, tw_frame_function(frame)->func_closure};
    return scope;
}

/* Guards may call Python (a check, an __eq__, a property). Were such a frame replaced, its own guards could call it again, endlessly. */
static PyObject *run_guards(tw_entry *entry, const tw_scope *scope, int32_t *failed)
{
    tw_program *program = only_differing && entry->lean != NULL ? (tw_program *)entry->lean : entry->program;
    thread.guarding++;
    Py_INCREF(program); /* a check may replace it */
    PyObject *inputs = tw_program_run(program, scope, failed);
    Py_DECREF(program);
    thread.guarding--;
    return inputs;
}

/* ---- asking the callback ---- */

static int add_arguments(PyObject *names, tw_frame *frame, int count)
{
    PyObject *all = tw_frame_code(frame)->co_localsplusnames;
    for (int i = 0; i < count; i++) {
        PyObject *value = frame->localsplus[i];
        if (value != NULL && PyDict_SetItem(names, PyTuple_GET_ITEM(all, i), value) < 0) {
            return -1;
        }
    }
    return 0;
}

static int add_free_variables(PyObject *names, tw_frame *frame)
{
    PyCodeObject *code = tw_frame_code(frame);
    PyObject *closure = tw_frame_function(frame)->func_closure;
    int first = code->co_nlocalsplus - code->co_nfreevars;
    for (int i = 0; closure != NULL && i < code->co_nfreevars; i++) {
        PyObject *value = PyCell_GET(PyTuple_GET_ITEM(closure, i));
        if (value != NULL && PyDict_SetItem(names, PyTuple_GET_ITEM(code->co_localsplusnames, first + i), value) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *ask(PyObject *callback, tw_frame *frame)
{
    PyCodeObject *code = tw_frame_code(frame);
    PyFunctionObject *function = tw_frame_function(frame);
    PyObject *names = PyDict_New();
    if (names == NULL || add_arguments(names, frame, argument_slots(code)) < 0 || add_free_variables(names, frame) < 0) {
        Py_XDECREF(names);
        return NULL;
    }
    PyObject *closure = function->func_closure == NULL ? Py_None : function->func_closure;
    PyObject *arguments[] = {NULL, (PyObject *)code, names, frame->f_globals, frame->f_builtins, closure, (PyObject *)function};
    Py_INCREF(callback);
    Py_INCREF(closure);
    PyObject *own = tw_swap_callback(NULL);
    thread.compiling++;
    PyObject *answer = PyObject_Vectorcall(callback, arguments + 1, 6 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    thread.compiling--;
    Py_XDECREF(tw_swap_callback(own));
    Py_DECREF(closure);
    Py_DECREF(callback);
    Py_DECREF(names);
    return answer;
}

/* Says that the frame runs as plain Python; -1 with an exception. */
static int report_stillborn(tw_frame *frame, int32_t failed)
{
    PyObject *module = PyImport_ImportModule("tracework_capture.uncompiled");
    if (module == NULL) {
        return -1;
    }
    PyObject *done = PyObject_CallMethod(module, "report_stillborn", "Oi", (PyObject *)tw_frame_code(frame), (int)failed);
    Py_DECREF(module);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Takes the reference to the entry. */
static PyObject *run_fresh_entry(PyThreadState *tstate, tw_frame *frame, tw_entry *entry)
{
    tw_scope scope = frame_scope(frame);
    int32_t failed = -1;
    PyObject *inputs = run_guards(entry, &scope, &failed);
    if (inputs != NULL) {
        entry->hits++;
        return run_entry(tstate, frame, entry, inputs);
    }
    if (PyErr_Occurred()) {
        Py_DECREF(entry);
        return fail_frame(tstate, frame);
    }
    entry->dead = true;
    Py_DECREF(entry);
    PyObject *callback = tw_swap_callback(NULL);
    int raised = report_stillborn(frame, failed);
    Py_XDECREF(tw_swap_callback(callback));
    return raised < 0 ? fail_frame(tstate, frame) : run_below(tstate, frame, 0);
}

static PyObject *compile_frame(PyThreadState *tstate, tw_frame *frame)
{
    PyObject *answer = ask(thread.callback, frame);
    if (answer == NULL && PyErr_ExceptionMatches(PyExc_RecursionError) && tw_is_near_limit(tstate)) {
        PyErr_Clear(); /* it is the callback's own: the program may well have room for the frame */
        return run_below(tstate, frame, 0);
    }
    if (answer == NULL) {
        return fail_frame(tstate, frame);
    }
    PyCodeObject *code = tw_frame_code(frame);
    if (Py_IS_TYPE(answer, &tw_entry_type)) {
        if (tw_cache_add(code, (tw_entry *)answer) < 0) {
            Py_DECREF(answer);
            return fail_frame(tstate, frame);
        }
        return run_fresh_entry(tstate, frame, (tw_entry *)answer);
    }
    bool skip = answer == skip_marker, off = answer == off_marker;
    if (!skip && !off && answer != Py_None) {
        PyErr_Format(PyExc_TypeError, "the capture callback returned %R, not None, SKIP, OFF or an Entry", answer);
        Py_DECREF(answer);
        return fail_frame(tstate, frame);
    }
    Py_DECREF(answer);
    tw_cache *cache = skip ? tw_cache_ensure(code) : NULL;
    if (skip && cache == NULL) {
        return fail_frame(tstate, frame);
    }
    if (cache != NULL && cache->mark == TW_MARK_NONE) {
        cache->mark = TW_MARK_SKIP;
    }
    off = off || (cache != NULL && cache->mark == TW_MARK_SKIP_RECURSIVE);
    return off ? run_below_disabled(tstate, frame, 0) : run_below(tstate, frame, 0);
}

/* ---- dispatch ---- */

/* Whether an entry is used, or another one made: what is asked says so, told whether the guards of one hold. -1 with an exception. */
static int asked_to_agree(PyCodeObject *code, bool holds)
{
    PyObject *ask = Py_NewRef(agreement), *owner = Py_NewRef(thread.callback);
    PyObject *old = tw_swap_callback(NULL);
    PyObject *answer = PyObject_CallFunctionObjArgs(ask, (PyObject *)code, owner, holds ? Py_True : Py_False, NULL);
    Py_XDECREF(tw_swap_callback(old));
    Py_DECREF(ask);
    Py_DECREF(owner);
    int agreed = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return agreed;
}

/* Tries the entries. 1: *result is the frame's; 0: none passed; -1: none passed and the callback would make no other. */
static int try_entries(PyThreadState *tstate, tw_frame *frame, tw_cache *cache, PyObject **result)
{
    PyObject *entries = Py_NewRef(cache->entries);
    tw_scope scope = frame_scope(frame);
    bool full = false, any = false;
    int agreed = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
        tw_entry *entry = (tw_entry *)PyTuple_GET_ITEM(entries, i);
        int32_t failed;
        if (entry->owner != thread.callback) {
            continue;
        }
        full |= entry->full;
        if (entry->dead) {
            continue;
        }
        any = true;
        PyObject *inputs = run_guards(entry, &scope, &failed);
        if (inputs != NULL && agreement != NULL) {
            agreed = asked_to_agree(tw_frame_code(frame), true);
            if (agreed <= 0) {
                Py_DECREF(inputs);
                break;
            }
        }
        if (inputs != NULL) {
            entry->hits++;
            if (i > 0 && cache->entries == entries) {
                tw_cache_to_front(cache, i);
            }
            Py_INCREF(entry);
            Py_DECREF(entries);
            *result = run_entry(tstate, frame, entry, inputs);
            return 1;
        }
        if (PyErr_Occurred()) {
            Py_DECREF(entries);
            *result = fail_frame(tstate, frame);
            return 1;
        }
    }
    Py_DECREF(entries);
    if (any && agreement != NULL && agreed == 1) {
        agreed = asked_to_agree(tw_frame_code(frame), false);
    }
    if (agreed < 0) {
        *result = fail_frame(tstate, frame);
        return 1;
    }
    return full && asked_for_stance() == NULL ? -1 : 0;
}

#define PLAIN_FLAGS (CO_OPTIMIZED | CO_NEWLOCALS)
#define OTHER_FLAGS (CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR)

/* A destructor that C code calls may run Python with an exception set, which guards would take for theirs: such frames run plainly. */
static PyObject *evaluate(PyThreadState *tstate, tw_frame *frame, int throwflag)
{
    if (thread.handover != NULL) {
        release_handover();
    }
    if (frame == thread.delegated) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    if (thread.callback != NULL && tw_is_deep(tstate)) {
        return run_below_disabled(tstate, frame, throwflag);
    }
    if (thread.callback == NULL || thread.guarding > 0 || throwflag || !tw_frame_is_fresh_call(frame) || PyErr_Occurred()) {
        return run_below(tstate, frame, throwflag);
    }
    PyCodeObject *code = tw_frame_code(frame);
    tw_cache *cache = tw_cache_get(code);
    int mark = cache == NULL ? TW_MARK_NONE : cache->mark;
    if (mark == TW_MARK_GENERATED) { /* an evaluator below would take it for the user's, but what it calls is seen */
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    if (mark == TW_MARK_SKIP_RECURSIVE) {
        return run_below_disabled(tstate, frame, 0);
    }
    if (mark == TW_MARK_SKIP || (code->co_flags & (PLAIN_FLAGS | OTHER_FLAGS)) != PLAIN_FLAGS || tw_is_traced(tstate, code)) {
        return run_below(tstate, frame, throwflag);
    }
    PyObject *result;
    int tried = cache != NULL && cache->entries != NULL ? try_entries(tstate, frame, cache, &result) : 0;
    if (tried > 0) {
        return result;
    }
    if (tried < 0 || mark == TW_MARK_RUN_ONLY || thread.run_only) {
        return run_below(tstate, frame, throwflag);
    }
    return compile_frame(tstate, frame);
}

/* ---- callables that set the slot ---- */

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *callback; /* NULL: off while the function runs */
    PyObject *dict;
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
    bool run_only;
    Py_ssize_t count;
    PyObject *refuse; /* NULL: any result will do; else it is called with one that is no tuple or list of `count` items or more */
} tw_scoped;

/* The function with this callback (its reference is taken; NULL: off). */
static PyObject *call_with(PyObject *callback, bool run_only, PyObject *function, PyObject *const *arguments, size_t count,
                           PyObject *names)
{
    bool outer = thread.run_only;
    PyObject *old = tw_swap_callback(callback);
    thread.run_only = run_only;
    PyObject *result = PyObject_Vectorcall(function, arguments, count, names);
    thread.run_only = outer;
    Py_XDECREF(tw_swap_callback(old));
    return result;
}

/* ask(callback) gives (the callback to use or None, whether entries are only used). */
static PyObject *call_in_stance(PyObject *ask, tw_scoped *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    Py_INCREF(ask);
    PyObject *old = tw_swap_callback(NULL);
    PyObject *answer = PyObject_CallOneArg(ask, self->callback);
    Py_XDECREF(tw_swap_callback(old));
    Py_DECREF(ask);
    PyObject *callback;
    int run_only;
    if (answer == NULL || !PyArg_ParseTuple(answer, "Op", &callback, &run_only)) {
        Py_XDECREF(answer);
        return NULL;
    }
    callback = callback == Py_None ? NULL : Py_NewRef(callback);
    Py_DECREF(answer);
    return call_with(callback, run_only || self->run_only, self->function, arguments, count, names);
}

static PyObject *checked_result(tw_scoped *self, PyObject *result)
{
    if (result == NULL || self->refuse == NULL) {
        return result;
    }
    if ((PyTuple_Check(result) || PyList_Check(result)) && PySequence_Fast_GET_SIZE(result) >= self->count) {
        return result;
    }
    PyObject *instead = PyObject_CallOneArg(self->refuse, result);
    Py_DECREF(result);
    return instead;
}

static PyObject *scoped_call(tw_scoped *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    PyObject *function = self->function;
    PyObject *ask = self->callback != NULL && thread.compiling == 0 ? asked_for_stance() : NULL;
    if (ask != NULL) {
        return call_in_stance(ask, self, arguments, count, names);
    }
    if ((self->callback == thread.callback && self->run_only == thread.run_only) || (self->callback != NULL && thread.compiling > 0)) {
        return checked_result(self, PyObject_Vectorcall(function, arguments, count, names));
    }
    return checked_result(self, call_with(Py_XNewRef(self->callback), self->run_only, function, arguments, count, names));
}

static PyObject *scoped_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "callback", "run_only", "count", "refuse", NULL};
    PyObject *function, *callback = Py_None, *refuse = Py_None;
    int run_only = 0;
    Py_ssize_t count = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OpnO", names, &function, &callback, &run_only, &count, &refuse)) {
        return NULL;
    }
    bool callable = PyCallable_Check(function) && (refuse == Py_None || PyCallable_Check(refuse));
    if (!callable || (callback != Py_None && !PyCallable_Check(callback))) {
        PyErr_SetString(PyExc_TypeError, "Scoped(function, callback, refuse=...): all must be callable");
        return NULL;
    }
    tw_scoped *self = (tw_scoped *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->function = Py_NewRef(function);
    self->run_only = run_only;
    self->callback = callback == Py_None ? NULL : Py_NewRef(callback);
    self->count = count;
    self->refuse = refuse == Py_None || count == 0 ? NULL : Py_NewRef(refuse);
    self->vectorcall = (vectorcallfunc)scoped_call;
    return (PyObject *)self;
}

static PyObject *scoped_get(PyObject *self, PyObject *instance, PyObject *owner)
{
    (void)owner;
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static PyObject *scoped_getattr(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(((tw_scoped *)self)->function, name);
    }
    return value;
}

static int scoped_traverse(tw_scoped *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->callback);
    Py_VISIT(self->refuse);
    Py_VISIT(self->dict);
    return 0;
}

static int scoped_clear(tw_scoped *self)
{
    Py_CLEAR(self->callback);
    Py_CLEAR(self->refuse);
    Py_CLEAR(self->dict);
    return 0;
}

static void scoped_dealloc(tw_scoped *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    scoped_clear(self);
    Py_CLEAR(self->function);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *scoped_repr(tw_scoped *self)
{
    return PyUnicode_FromFormat("<%s %R>", self->callback == NULL ? "disabled" : "optimized", self->function);
}

static PyMemberDef scoped_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(tw_scoped, function), READONLY, NULL},
    {"callback", T_OBJECT, offsetof(tw_scoped, callback), READONLY, NULL},
    {"run_only", T_BOOL, offsetof(tw_scoped, run_only), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(tw_scoped, dict), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* What stands for a Python function is one to whoever asks with isinstance(), but for capture and guards, which look into functions. */
static PyObject *scoped_class(PyObject *self, void *unused)
{
    tw_scoped *scoped = (tw_scoped *)self;
    bool for_function = scoped->callback != NULL && Py_IS_TYPE(scoped->function, &PyFunction_Type);
    bool shown = for_function && thread.compiling == 0 && thread.guarding == 0;
    return Py_NewRef((PyObject *)(shown ? &PyFunction_Type : Py_TYPE(self)));
}

static PyGetSetDef scoped_getset[] = {
    {"__class__", scoped_class, NULL, NULL, NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject tw_scoped_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tracework_capture._C.Scoped",
    .tp_basicsize = sizeof(tw_scoped),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE,
    .tp_new = scoped_new,
    .tp_dealloc = (destructor)scoped_dealloc,
    .tp_traverse = (traverseproc)scoped_traverse,
    .tp_clear = (inquiry)scoped_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(tw_scoped, vectorcall),
    .tp_dictoffset = offsetof(tw_scoped, dict),
    .tp_weaklistoffset = offsetof(tw_scoped, weakrefs),
    .tp_getattro = scoped_getattr,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_descr_get = scoped_get,
    .tp_repr = (reprfunc)scoped_repr,
    .tp_members = scoped_members,
    .tp_getset = scoped_getset,
};

/* ---- module functions ---- */

static PyObject *set_callback(PyObject *module, PyObject *callback)
{
    if (callback != Py_None && !PyCallable_Check(callback)) {
        return PyErr_Format(PyExc_TypeError, "the callback must be None or callable, not %R", callback);
    }
    PyObject *old = tw_swap_callback(callback == Py_None ? NULL : Py_NewRef(callback));
    return old == NULL ? Py_NewRef(Py_None) : old;
}

static PyObject *get_callback(PyObject *module, PyObject *unused)
{
    return Py_NewRef(thread.callback == NULL ? Py_None : thread.callback);
}

static PyObject *is_compiling(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(thread.compiling > 0);
}

static PyObject *set_stance(PyObject *module, PyObject *args)
{
    PyObject *ask;
    int lean;
    if (!PyArg_ParseTuple(args, "Op", &ask, &lean)) {
        return NULL;
    }
    only_differing = lean;
    Py_XSETREF(stance, ask == Py_None ? NULL : Py_NewRef(ask));
    Py_RETURN_NONE;
}

static PyObject *set_agreement(PyObject *module, PyObject *ask)
{
    Py_XSETREF(agreement, ask == Py_None ? NULL : Py_NewRef(ask));
    Py_RETURN_NONE;
}

static PyObject *follow_stance(PyObject *module, PyObject *args)
{
    PyObject *modules, *name, *attribute, *ask;
    if (!PyArg_ParseTuple(args, "O!UUO", &PyDict_Type, &modules, &name, &attribute, &ask)) {
        return NULL;
    }
    Py_XSETREF(followed.modules, Py_NewRef(modules));
    Py_XSETREF(followed.module, Py_NewRef(name));
    Py_XSETREF(followed.name, Py_NewRef(attribute));
    Py_XSETREF(followed.ask, Py_NewRef(ask));
    Py_CLEAR(followed.globals);
    Py_CLEAR(followed.plain);
    tw_unwatch(followed.quiet);
    followed.quiet = NULL;
    Py_RETURN_NONE;
}

static PyObject *followed_stance_is_plain(PyObject *module, PyObject *taken)
{
    Py_XSETREF(followed.plain, Py_NewRef(taken));
    Py_RETURN_NONE;
}

static PyObject *is_installed(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate);
}

static PyObject *call_disabled(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    if (count < 1) {
        return PyErr_Format(PyExc_TypeError, "call_disabled(function, ...) wants a function");
    }
    PyObject *old = tw_swap_callback(NULL);
    PyObject *result = PyObject_Vectorcall(arguments[0], arguments + 1, (size_t)(count - 1), names);
    Py_XDECREF(tw_swap_callback(old));
    return result;
}

PyMethodDef tw_eval_methods[] = {
    {"set_callback", set_callback, METH_O, "set_callback(callback or None) -> the thread's old one"},
    {"get_callback", get_callback, METH_NOARGS, "the thread's callback, or None"},
    {"is_compiling", is_compiling, METH_NOARGS, "whether this thread is inside the callback"},
    {"is_installed", is_installed, METH_NOARGS, "whether the frame evaluator is installed"},
    {"set_stance", set_stance, METH_VARARGS,
     "set_stance(ask or None, lean): ask(callback) -> (callback or None, run_only) at each call of an optimized function"},
    {"set_agreement", set_agreement, METH_O,
     "set_agreement(ask or None): ask(code, callback, holds) -> whether an entry is used, where a code has entries; holds: whether the guards\n"
     "of one do"},
    {"follow_stance", follow_stance, METH_VARARGS,
     "follow_stance(sys.modules, module, name, ask): while no stance is set and sys.modules[module].name is another object than the plain one,\n"
     "ask is called as that of set_stance"},
    {"followed_stance_is_plain", followed_stance_is_plain, METH_O, "followed_stance_is_plain(taken): this object asks for nothing"},
    {"call_disabled", (PyCFunction)(void (*)(void))call_disabled, METH_FASTCALL | METH_KEYWORDS,
     "call_disabled(function, *args, **kwargs): calls it with the callback off"},
    {"go_on", (PyCFunction)(void (*)(void))tw_go_on, METH_FASTCALL,
     "go_on(function, arguments): what generated code returns so that function(*arguments) is called when its own frame has ended; the list\n"
     "is emptied, and only the function holds what was in it"},
    {NULL, NULL, 0, NULL},
};

int tw_eval_setup(PyObject *module)
{
    if (PyType_Ready(&tw_scoped_type) < 0 || PyType_Ready(&tw_onward_type) < 0) {
        return -1;
    }
    skip_marker = PyUnicode_InternFromString("tracework: skip this code");
    off_marker = PyUnicode_InternFromString("tracework: run this frame with the hook off");
    if (skip_marker == NULL || off_marker == NULL || PyModule_AddObjectRef(module, "SKIP", skip_marker) < 0) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "OFF", off_marker);
}
