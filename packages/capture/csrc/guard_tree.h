/* Native guard programs: a tree of accessors with leaf checks, then conditions over sizes and identities. */
#ifndef TRACEWORK_GUARD_TREE_H
#define TRACEWORK_GUARD_TREE_H

#include "cpython_compat.h"

enum tw_accessor {
#define ACCESSOR(name) TW_GET_##name,
#include "guard_kinds.def"
    TW_ACCESSOR_COUNT
};

enum tw_leaf_kind {
#define LEAF(name) TW_LEAF_##name,
#include "guard_kinds.def"
    TW_LEAF_COUNT
};

typedef struct tw_tensor tw_tensor; /* tensor_leaf.c */

typedef struct {
    uint8_t kind;
    int32_t guard; /* number of the guard this leaf stands for */
    PyObject *payload;
    Py_ssize_t number; /* payload as an integer: LENGTH, TRUTH; its address: what is compared by that */
    Py_hash_t hash;    /* of the payload: HAS_KEY, LACKS_KEY */
    tw_tensor *tensor;
} tw_leaf;

typedef struct {
    uint8_t get;
    int32_t guard; /* the first guard that needs this node */
    int32_t parent, first_child, next_sibling, first_leaf, leaf_count;
    int32_t input, reg, slot; /* where the value goes, -1 for nowhere */
    Py_ssize_t index;
    PyObject *key;
    Py_hash_t hash;
} tw_node;

typedef struct {
    PyObject *const *locals;
    Py_ssize_t local_count;
    PyObject *globals;
    PyObject *closure; /* tuple or NULL */
} tw_scope;

/* What is checked after the walk: a stack program over integer slots, or numbers of registers. */
typedef struct tw_check {
    uint8_t kind; /* CHECK_* */
    int32_t guard;
    int32_t start, count; /* in program->code */
    PyObject *holds;      /* CHECK_RELATION: a callable of the registers' values */
} tw_check;

enum { CHECK_CONDITION, CHECK_SAME, CHECK_DISTINCT, CHECK_RELATION };
#define TW_RELATION_LIMIT 8 /* values that one relation is about */
enum { OP_CONST, OP_SLOT, OP_ADD, OP_SUB, OP_MUL, OP_FLOORDIV, OP_MOD, OP_MAX, OP_MIN, OP_NEG, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT,
       OP_GE, OP_COUNT };
#define TW_STACK_LIMIT 64

typedef struct tw_memory tw_memory; /* what the last full check saw; guard_memory.c */

typedef struct {
    PyObject_HEAD
    Py_ssize_t node_count, leaf_count, check_count, input_count, reg_count, slot_count, code_count;
    int32_t first_root;
    tw_node *nodes;
    tw_leaf *leaves;
    struct tw_check *checks;   /* after the walk: identities and conditions */
    int64_t *code;             /* of the conditions */
    int32_t *input_slots;      /* input number -> slot of an integer, or -1 */
    tw_memory *memory;
    int32_t misses;            /* full checks since the memory was last used */
} tw_program;

typedef struct tw_run {
    const tw_program *program;
    const tw_scope *scope;
    PyObject **inputs;
    PyObject **regs;
    int64_t *slots;
    int32_t failed;
    struct tw_recorder *recorder;
    const tw_memory *acting; /* the memory whose actions hold their values */
} tw_run;

extern PyTypeObject tw_program_type;
extern PyTypeObject *tw_weak_key_type; /* a subclass of weakref.ref: what stands for an object that a program does not keep alive */

/* Runs a program: a new tuple of inputs; NULL without an exception when a guard failed (*failed is its number); NULL with one
 * when something that must not be swallowed was raised (KeyboardInterrupt and the like). */
PyObject *tw_program_run(tw_program *program, const tw_scope *scope, int32_t *failed);
PyObject *tw_set_function_modes(PyObject *module, PyObject *args);

/* One node below `parent`. 1 passed, 0 failed, -1 exception. */
int tw_walk(tw_program *program, tw_run *run, int32_t node, PyObject *parent);
int tw_check_leaf(tw_run *run, const tw_node *node, const tw_leaf *leaf, PyObject *value);

/* tensor_leaf.c */
tw_tensor *tw_tensor_new(PyObject *payload);
void tw_tensor_free(tw_tensor *tensor);
int tw_tensor_visit(tw_tensor *tensor, visitproc visit, void *arg);
int tw_tensor_check(const tw_tensor *tensor, PyObject *value, int64_t *slots);
int tw_data_check(PyObject *data, PyObject *value); /* 1 the same bytes, 0 others, -1: not known here; no exception */
PyObject *tw_set_tensor_api(PyObject *module, PyObject *args);
PyObject *tw_set_tensor_layout(PyObject *module, PyObject *args);

/* tensor_snapshot.c: what a tensor that passed its leaf looked like, so that the same object is recognised as unchanged. */
#define TW_SNAPSHOT_DIMS 11 /* words: number of dims, five sizes, five strides */
#define TW_SNAPSHOT_TAIL 2  /* words: dtype, device, flags; dispatch keys */
typedef struct {
    PyTypeObject *type;
    uint64_t dims[TW_SNAPSHOT_DIMS], tail[TW_SNAPSHOT_TAIL];
    bool requires_grad;
} tw_snapshot;

void tw_learn_layout(size_t impl_offset, bool (*requires_grad)(const void *), PyTypeObject *const types[2]);
bool tw_take_snapshot(const tw_tensor *tensor, PyObject *value, tw_snapshot *snapshot); /* false: not this one */
bool tw_snapshot_holds(const tw_snapshot *snapshot, PyObject *value);
int tw_is_negated(PyObject *tensor); /* -1: not known here */
bool tw_tensor_is_simple(const tw_tensor *tensor, PyObject *value);

/* deaths.c */
int tw_check_deaths(const tw_run *run, PyObject *payload, PyObject *value);
PyObject *tw_dies_unseen(PyObject *module, PyObject *args);

PyObject *tw_address(PyObject *held); /* borrowed, to be compared only: what a WeakKey is of, else the object; NULL when it is dead */
PyObject *tw_fetch(const tw_scope *scope, const tw_node *node, PyObject *value, bool *owned);
int tw_keep_value(tw_run *run, const tw_node *node, PyObject *value);
int tw_keep_slot(tw_run *run, const tw_node *node, PyObject *value);
int tw_swallow(void);

/* array_memory.c */
PyObject *tw_own_memory(PyObject *module, PyObject *array);
PyObject *tw_set_base(PyObject *module, PyObject *args);

/* guard_memory.c */
struct tw_recorder *tw_recorder_new(tw_program *program);
Py_ssize_t tw_holders_in_run(const tw_run *run, PyObject *object); /* how often the frame's variables and the run of guards hold it */
void tw_recorder_node(struct tw_recorder *recorder, int32_t node, PyObject *value);
tw_memory *tw_recorder_finish(struct tw_recorder *recorder, bool keep);
int tw_memory_check(tw_program *program, tw_memory *memory, tw_run *run);
void tw_memory_hold(tw_memory *memory);
void tw_memory_release(tw_memory *memory);
const bool *tw_memory_fixed(const tw_memory *memory); /* per register, NULL until confirmed */
void tw_memory_unkeep(const tw_memory *memory, tw_run *run); /* takes back what it lent to the registers */
void tw_memory_confirm(tw_memory *memory);            /* all checks after the walk passed, too */

#endif
