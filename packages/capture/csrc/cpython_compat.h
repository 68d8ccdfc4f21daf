/* Every #if on the Python version and every internal CPython header of this extension.
 *
 * Facts used: up to 3.11 the caller of the evaluator clears and pops the frame; from 3.12 on the evaluator does. A frame that never
 * ran is not linked into the thread's frame chain and has no frame object, so discarding it is: drop the locals, the function and the
 * code, give the memory back to the thread's data stack.
 */
#ifndef TRACEWORK_CPYTHON_COMPAT_H
#define TRACEWORK_CPYTHON_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <structmember.h>
#include <stdbool.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "tracework-capture supports CPython 3.11, 3.12 and 3.13"
#endif

#ifdef Py_GIL_DISABLED
#error "tracework-capture needs the GIL: it does not support free-threaded builds of CPython"
#endif

#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030C0000
#undef _PyGC_FINALIZED /* a macro of the public headers, a function of the internal ones */
#include <internal/pycore_interp.h>
#endif
#undef Py_BUILD_CORE

typedef _PyInterpreterFrame tw_frame;

static inline PyCodeObject *tw_frame_code(tw_frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

static inline PyFunctionObject *tw_frame_function(tw_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return (PyFunctionObject *)frame->f_funcobj;
#else
    return frame->f_func;
#endif
}

/* What calls of Python functions go through, unless an extension has put something else there (PyFunction_SetVectorcall). */
extern vectorcallfunc tw_function_vectorcall;

static inline bool tw_function_runs_its_code(PyObject *function)
{
    return ((PyFunctionObject *)function)->vectorcall == tw_function_vectorcall;
}

/* A new reference to what a weak reference refers to, NULL without an exception when that is dead. */
static inline PyObject *tw_weak_target(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *target = NULL;
    (void)PyWeakref_GetRef(reference, &target);
    return target;
#else
    PyObject *target = PyWeakref_GET_OBJECT(reference);
    return target == Py_None ? NULL : Py_NewRef(target);
#endif
}

/* A frame object that never runs, for a traceback: it is where it would be after the instruction at `unit` had raised, and has no locals. */
static inline PyObject *tw_ended_frame(PyCodeObject *code, PyObject *globals, int unit)
{
    PyFrameObject *made = PyFrame_New(PyThreadState_Get(), code, globals, NULL);
    if (made != NULL) {
        tw_frame *frame = made->f_frame;
        frame->stacktop = 0; /* or its cells would be looked for */
#if PY_VERSION_HEX >= 0x030D0000
        frame->instr_ptr = _PyCode_CODE(code) + unit;
#else
        frame->prev_instr = _PyCode_CODE(code) + unit;
#endif
    }
    return (PyObject *)made;
}

/* True for the frame of a call that has not run its first instruction. */
static inline bool tw_frame_is_fresh_call(tw_frame *frame)
{
    if (frame->owner != FRAME_OWNED_BY_THREAD || frame->frame_obj != NULL) {
        return false;
    }
#if PY_VERSION_HEX >= 0x030D0000
    return PyCode_Check(frame->f_executable) && frame->instr_ptr == _PyCode_CODE(tw_frame_code(frame));
#else
    return frame->prev_instr == _PyCode_CODE(tw_frame_code(frame)) - 1;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
static inline void tw_pop_data_stack(PyThreadState *tstate, tw_frame *frame)
{
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if (base != &chunk->data[0]) {
        tstate->datastack_top = base;
        return;
    }
    _PyStackChunk *previous = chunk->previous; /* the first chunk never starts with a frame */
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_chunk = previous;
    tstate->datastack_limit = (PyObject **)((char *)previous + previous->size);
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
}
#elif PY_VERSION_HEX >= 0x030D0000
#define tw_pop_data_stack _PyThreadState_PopFrame
#endif

/* Ends a fresh frame that the default evaluator will never see. */
static inline void tw_frame_discard(PyThreadState *tstate, tw_frame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyCodeObject *code = tw_frame_code(frame);
    int count = frame->stacktop;
    frame->stacktop = 0;
    for (int i = 0; i < count; i++) {
        Py_CLEAR(frame->localsplus[i]);
    }
    Py_CLEAR(frame->f_locals);
    Py_CLEAR(frame->f_funcobj);
    Py_DECREF(code);
    tw_pop_data_stack(tstate, frame);
#else
    (void)tstate;
    (void)frame;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
/* Whether a byte of `tools`, one an event, has the bit of a tool of the user; the last two stand for sys.settrace and sys.setprofile. */
static inline bool tw_is_watched(const uint8_t *tools, int events)
{
    uint64_t first, last; /* they overlap */
    memcpy(&first, tools, 8);
    memcpy(&last, tools + events - 8, 8);
    return ((first | last) & 0x0101010101010101u * ((1 << PY_MONITORING_SYS_PROFILE_ID) - 1)) != 0;
}

/* Whether the user's program has a tool of sys.monitoring at all. */
static inline bool tw_has_tools(PyInterpreterState *interpreter)
{
    uintptr_t any = 0;
    for (int tool = 0; tool < PY_MONITORING_SYS_PROFILE_ID; tool++) {
        any |= (uintptr_t)interpreter->monitoring_tool_names[tool];
    }
    return any != 0;
}
#endif

/* Whether somebody watches the frame run: by sys.settrace or sys.setprofile in this thread, or by a tool of sys.monitoring (3.12). One
 * that is in use may watch functions which this one calls, and whose lines an entry of this one would run; one that was freed goes on
 * with its events. */
static inline bool tw_is_traced(PyThreadState *tstate, PyCodeObject *code)
{
    if (tstate->c_tracefunc != NULL || tstate->c_profilefunc != NULL) {
        return true;
    }
#if PY_VERSION_HEX >= 0x030C0000
    const _PyCoMonitoringData *of_code = code->_co_monitoring;
    return tw_has_tools(tstate->interp) || tw_is_watched(tstate->interp->monitors.tools, _PY_MONITORING_UNGROUPED_EVENTS)
        || (of_code != NULL && tw_is_watched(of_code->local_monitors.tools, _PY_MONITORING_LOCAL_EVENTS));
#else
    (void)code;
    return false;
#endif
}

/* Whether calls lie so deep on the C stack that no more room should be spent: an evaluator takes some for each call of Python code,
 * the default one takes none. 3.11 does not count it apart from what sys.setrecursionlimit limits, and the stack can overflow. */
static inline bool tw_is_deep(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030D0000
    return tstate->c_recursion_remaining < Py_C_RECURSION_LIMIT / 2;
#elif PY_VERSION_HEX >= 0x030C0000
    return tstate->c_recursion_remaining < C_RECURSION_LIMIT / 2;
#else
    return tstate->recursion_limit - tstate->recursion_remaining > 1000;
#endif
}

/* Whether few calls are left up to sys.setrecursionlimit: the capture of a frame, which is Python code, may not find room. */
static inline bool tw_is_near_limit(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030C0000
    return tstate->py_recursion_remaining < 200;
#else
    return tstate->recursion_remaining < 200;
#endif
}

static inline Py_ssize_t tw_request_code_extra(freefunc release)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_Eval_RequestCodeExtraIndex(release);
#else
    return _PyEval_RequestCodeExtraIndex(release);
#endif
}

static inline int tw_code_get_extra(PyObject *code, Py_ssize_t index, void **extra)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_Code_GetExtra(code, index, extra);
#else
    return _PyCode_GetExtra(code, index, extra);
#endif
}

/* As CPython lays out what hangs off a code object (Objects/codeobject.c, the same in all supported versions). */
typedef struct {
    Py_ssize_t size;
    void *extras[];
} tw_code_extras;

/* CPython itself gives the code room for every index that was ever asked for, and calls the release function of each when the code dies,
 * also where nobody has put anything: room for those up to ours keeps our code objects from the functions that came later, which may be
 * written in Python, be gone at Python's end, or not expect to be called with an exception set. */
static inline int tw_code_set_extra(PyObject *code, Py_ssize_t index, void *extra)
{
    PyCodeObject *owner = (PyCodeObject *)code;
    if (owner->co_extra == NULL) {
        tw_code_extras *made = PyMem_Calloc(1, sizeof(tw_code_extras) + sizeof(void *) * (size_t)(index + 1));
        if (made == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        made->size = index + 1;
        owner->co_extra = made;
    }
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_Code_SetExtra(code, index, extra);
#else
    return _PyCode_SetExtra(code, index, extra);
#endif
}

/* Whether dicts are watched; before they carry a version of their own (3.12 has both). */
#define TW_HAS_DICT_WATCHERS (PY_VERSION_HEX >= 0x030C0000)

/* Whether the dict's watcher hears of every change. From 3.13 on an instance's dict may share the values inside of the instance, and stores of
 * attributes go there without a word; taking out the last item, which goes back to its place, gives the dict a table of its own. */
static inline bool tw_dict_tells(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030D0000
    if (((PyDictObject *)dict)->ma_values == NULL) {
        return true;
    }
    PyObject *item = PyDict_CheckExact(dict) ? PyObject_CallMethod(dict, "popitem", NULL) : NULL;
    bool own = item != NULL && PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) == 0;
    Py_XDECREF(item);
    PyErr_Clear(); /* it was empty */
    return own && ((PyDictObject *)dict)->ma_values == NULL;
#else
    (void)dict;
    return true;
#endif
}

/* The type's version, 0 when it has none: it is new after every change of the class or of one of its bases. */
static inline unsigned int tw_type_version(PyTypeObject *type)
{
#if PY_VERSION_HEX < 0x030C0000
    if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) {
        return 0;
    }
#endif
    return type->tp_version_tag;
}

#endif
