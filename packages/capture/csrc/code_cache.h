/* Entries hanging off a code object: a guard program and the code to run when it passes. */
#ifndef TRACEWORK_CODE_CACHE_H
#define TRACEWORK_CODE_CACHE_H

#include "guard_tree.h"

enum tw_mark { TW_MARK_NONE, TW_MARK_SKIP, TW_MARK_SKIP_RECURSIVE, TW_MARK_RUN_ONLY, TW_MARK_GENERATED };

typedef struct {
    PyObject_HEAD
    tw_program *program;
    PyObject *lean;     /* a program that only tells the entries of the code apart, or NULL */
    PyObject *code;     /* the replacement */
    PyObject *function; /* made of `code`, when it has no free variables */
    PyObject *owner;    /* the callback this entry was made for */
    PyObject *info;     /* whatever the Python side wants to find again */
    Py_ssize_t hits;
    bool dead;          /* invalidated: never used again */
    bool full;          /* its owner makes no further entry of the code */
} tw_entry;

typedef struct {
    int mark;
    bool continuation; /* goes on in the middle of a frame: only go_on calls it */
    PyObject *entries; /* tuple, most recently useful first; replaced, never changed */
} tw_cache;

extern PyTypeObject tw_entry_type;

int tw_cache_setup(void);
tw_cache *tw_cache_get(PyCodeObject *code);    /* NULL when there is none */
tw_cache *tw_cache_ensure(PyCodeObject *code); /* NULL with an exception */
bool tw_is_continuation(PyCodeObject *code);
int tw_cache_add(PyCodeObject *code, tw_entry *entry);
void tw_cache_to_front(tw_cache *cache, Py_ssize_t index);

/* A new reference to a function of the entry's code with these globals and this closure. */
PyObject *tw_entry_function(tw_entry *entry, PyFunctionObject *original);

extern PyMethodDef tw_cache_methods[];

#endif
