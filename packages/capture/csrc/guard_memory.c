/* "Nothing changed": what the last full check of a program saw, so that the next check compares versions instead of walking.
 *
 * A node is frozen when its value follows from things that carry a version: an instance's __dict__ (place, identity, version), items of
 * dicts (version), items of tuples, attributes of classes (the class's version), what a property holds (place, identity). Their facts become steps; a step may look at an object
 * because the steps before it have shown that what holds the object has not changed. Nothing here keeps an object alive.
 * Steps are sorted by their height above the ends of the tree, kind and address: with thousands of them the time goes into waiting for
 * memory, which runs of like steps over neighbouring objects do least.
 *
 * What can change without a version is checked every time: tensors (leaf), generic attributes, lists, cells (walked from the remembered
 * parent). Versions are taken when a node is visited, before its leaves run, so a change during the walk shows at the next check.
 * A dict without a version (dict_versions.h: it cannot be watched) is walked from every time, too.
 */
#include "dict_versions.h"
#include "guard_tree.h"
#include <structmember.h>

/* In the order in which those of one height are looked at: what is found through an anchor or a slot is looked into later. */
enum step_kind { STEP_ANCHOR, STEP_SLOT, STEP_TYPE, STEP_CLASS, STEP_DICT, STEP_TENSOR, STEP_KINDS };

typedef struct {
    int32_t rank; /* kind - height * STEP_KINDS: what is below a node has a greater rank */
    void *object; /* the root's value, the instance's dict, the instance, the class, the tw_watched of a dict, the tensor */
    union {
        int32_t node; /* of an anchor: the root to fetch again */
        PyObject **slot;
        PyTypeObject *type;
        uint64_t version;
        int32_t snapshot; /* its number */
    } at;
} step;

/* Steps of one kind and height, up to this number. */
typedef struct {
    enum step_kind kind;
    int32_t end;
} run_of_steps;

enum action_kind { ACTION_LEAF, ACTION_WALK, ACTION_SLOT };

typedef struct {
    uint8_t kind;
    int32_t node, leaf;
    PyObject *value; /* LEAF, SLOT: the node's; WALK: its parent's */
} action;

/* The value of a frozen node that is an input, or is compared with others after the walk. */
typedef struct {
    int32_t input, reg;
    PyObject *value;
} kept;

struct tw_memory {
    Py_ssize_t references;
    int32_t root_count, step_count, run_count, action_count, kept_count, snapshot_count;
    bool confirmed;
    bool *fixed; /* registers filled from frozen nodes */
    int32_t *roots; /* walked as always, first */
    step *steps;
    run_of_steps *runs;
    action *actions;
    kept *keeps;
    tw_snapshot *snapshots;
    uint64_t dict_epoch; /* in which the dicts were last found to be unchanged */
};

typedef struct {
    PyObject *value; /* strong while recording */
    uint64_t version;
    tw_watched *watched; /* of a dict; the step takes it over */
} seen;

struct tw_recorder {
    tw_program *program;
    tw_memory *memory;
    bool failed;
    seen nodes[];
};

/* ---- recording ---- */

static tw_memory *memory_new(tw_program *program)
{
    size_t nodes = (size_t)program->node_count + 1, leaves = (size_t)program->leaf_count + 1;
    tw_memory *memory = PyMem_Calloc(1, sizeof(tw_memory));
    if (memory == NULL) {
        return NULL;
    }
    memory->references = 1;
    memory->roots = PyMem_Calloc(nodes, sizeof(int32_t));
    memory->steps = PyMem_Calloc(4 * nodes + 2 * leaves, sizeof(step));
    memory->actions = PyMem_Calloc(2 * nodes + leaves, sizeof(action));
    memory->fixed = PyMem_Calloc((size_t)program->reg_count + 1, sizeof(bool));
    memory->keeps = PyMem_Calloc(nodes, sizeof(kept));
    if (memory->keeps == NULL || memory->fixed == NULL || memory->roots == NULL || memory->steps == NULL || memory->actions == NULL) {
        tw_memory_release(memory);
        return NULL;
    }
    return memory;
}

struct tw_recorder *tw_recorder_new(tw_program *program)
{
    if (program->node_count == 0) {
        return NULL;
    }
    struct tw_recorder *recorder = PyMem_Calloc(1, sizeof(struct tw_recorder) + sizeof(seen) * (size_t)program->node_count);
    if (recorder == NULL) {
        return NULL;
    }
    recorder->program = program;
    return recorder;
}

static Py_ssize_t count_of(PyObject *const *values, Py_ssize_t size, const PyObject *object)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        found += values[i] == object;
    }
    return found;
}

Py_ssize_t tw_holders_in_run(const tw_run *run, PyObject *object)
{
    const tw_program *program = run->program;
    const tw_memory *memory = run->acting;
    Py_ssize_t found = count_of(run->scope->locals, run->scope->local_count, object);
    found += count_of(run->inputs, program->input_count, object);
    for (Py_ssize_t i = 0; i < program->reg_count; i++) { /* fixed ones are borrowed */
        found += run->regs[i] == object && (memory == NULL || !memory->fixed[i]);
    }
    for (Py_ssize_t i = 0; run->recorder != NULL && i < program->node_count; i++) {
        found += run->recorder->nodes[i].value == object;
    }
    for (int32_t i = 0; memory != NULL && i < memory->action_count; i++) {
        found += memory->actions[i].value == object;
    }
    return found;
}

static bool is_big_namespace(const tw_node *node)
{
    return node->get == TW_GET_GLOBALS || node->get == TW_GET_FUNCTION_GLOBALS;
}

void tw_recorder_node(struct tw_recorder *recorder, int32_t node, PyObject *value)
{
    seen *record = &recorder->nodes[node];
    Py_XSETREF(record->value, Py_NewRef(value));
    if (PyType_Check(value)) {
        record->version = tw_type_version((PyTypeObject *)value);
    }
    else if (PyDict_Check(value) && !is_big_namespace(&recorder->program->nodes[node])) {
        tw_unwatch(record->watched);
        record->watched = tw_watch(value);
        record->version = record->watched == NULL ? 0 : tw_dict_version(record->watched);
    }
}

static step *add_step(tw_memory *memory, enum step_kind kind, int32_t height, void *object)
{
    step *added = &memory->steps[memory->step_count++];
    added->rank = (int32_t)kind - height * STEP_KINDS;
    added->object = object;
    return added;
}

static enum step_kind kind_of(const step *each)
{
    return (enum step_kind)((each->rank % STEP_KINDS + STEP_KINDS) % STEP_KINDS); /* ranks are negative, too */
}

static int compare_steps(const void *a, const void *b)
{
    const step *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : (x->object > y->object) - (x->object < y->object);
}

static bool sort_steps(tw_memory *memory)
{
    qsort(memory->steps, (size_t)memory->step_count, sizeof(step), compare_steps);
    memory->runs = PyMem_Calloc((size_t)memory->step_count + 1, sizeof(run_of_steps));
    for (int32_t i = 0; memory->runs != NULL && i < memory->step_count; i++) {
        int32_t rank = memory->steps[i].rank;
        if (i == 0 || memory->steps[i - 1].rank != rank) {
            memory->runs[memory->run_count++].kind = kind_of(&memory->steps[i]);
        }
        memory->runs[memory->run_count - 1].end = i + 1;
    }
    return memory->runs != NULL;
}

static void add_action(tw_memory *memory, enum action_kind kind, int32_t node, int32_t leaf, PyObject *value)
{
    action *added = &memory->actions[memory->action_count++];
    added->kind = kind;
    added->node = node;
    added->leaf = leaf;
    added->value = value;
}

/* The number of this snapshot, which many tensors share; -1 when memory is short. */
static int32_t snapshot_number(tw_memory *memory, const tw_snapshot *snapshot)
{
    for (int32_t i = memory->snapshot_count - 1; i >= 0 && i >= memory->snapshot_count - 64; i--) {
        if (memcmp(&memory->snapshots[i], snapshot, sizeof(tw_snapshot)) == 0) {
            return i;
        }
    }
    int32_t count = memory->snapshot_count;
    if ((count & (count - 1)) == 0) { /* grows at powers of two */
        tw_snapshot *grown = PyMem_Realloc(memory->snapshots, sizeof(tw_snapshot) * (size_t)(count == 0 ? 1 : 2 * count));
        if (grown == NULL) {
            return -1;
        }
        memory->snapshots = grown;
    }
    memory->snapshots[count] = *snapshot;
    return memory->snapshot_count++;
}

/* Whether the leaf's tensor got a step that recognises it as unchanged. */
static bool freeze_tensor(tw_memory *memory, const tw_leaf *leaf, int32_t height, PyObject *value)
{
    tw_snapshot snapshot;
    if (leaf->kind != TW_LEAF_TENSOR || !tw_take_snapshot(leaf->tensor, value, &snapshot)) {
        return false;
    }
    int32_t number = snapshot_number(memory, &snapshot);
    if (number >= 0) {
        add_step(memory, STEP_TENSOR, height, value)->at.snapshot = number;
    }
    return number >= 0;
}

static bool is_immutable_constant(PyObject *value)
{
    if (PyTuple_CheckExact(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            if (!is_immutable_constant(PyTuple_GET_ITEM(value, i))) {
                return false;
            }
        }
        return true;
    }
    return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) ||
           PyFloat_CheckExact(value) || PyBytes_CheckExact(value) || PyComplex_CheckExact(value);
}

/* Whether the leaf's answer about this value cannot change while the steps hold; *needs_version when that rests on the dict's version. */
static bool leaf_is_frozen(const tw_leaf *leaf, PyObject *value, uint64_t version, bool *needs_version)
{
    bool dict = PyDict_Check(value) && version != 0;
    bool ordered = dict && (PyDict_CheckExact(value) || PyDict_GET_SIZE(value) <= 1);
    switch (leaf->kind) {
    case TW_LEAF_TYPE: /* a step of its own */
    case TW_LEAF_IDENTITY:
    case TW_LEAF_NOT_IDENTITY:
        return true;
    case TW_LEAF_CONSTANT:
        return value == leaf->payload || is_immutable_constant(value);
    case TW_LEAF_LENGTH:
        *needs_version |= dict;
        return PyTuple_CheckExact(value) || (dict && PyDict_CheckExact(value));
    case TW_LEAF_DICT_KEYS:
        *needs_version |= ordered;
        return ordered;
    case TW_LEAF_HAS_KEY:
    case TW_LEAF_LACKS_KEY:
        *needs_version |= dict && PyUnicode_CheckExact(leaf->payload);
        return dict && PyUnicode_CheckExact(leaf->payload);
    default:
        return false;
    }
}

/* Where an object of a class that nobody can change keeps the attribute: what a property or a bound method holds. NULL for others. */
static PyObject **member_slot(PyObject *object, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject *found = type->tp_flags & Py_TPFLAGS_HEAPTYPE ? NULL : _PyType_Lookup(type, name);
    if (found == NULL || !Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        return NULL;
    }
    PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
    return member->type == T_OBJECT || member->type == T_OBJECT_EX ? (PyObject **)((char *)object + member->offset) : NULL;
}

/* Whether the value of `node` follows from its frozen parent's value; *needs_version when that rests on the parent's version. */
static bool child_is_frozen(const tw_node *node, PyObject *parent, PyObject *value, uint64_t version, bool *needs_version)
{
    switch (node->get) {
    case TW_GET_INSTANCE_DICT: {
        PyObject **slot = _PyObject_GetDictPtr(parent);
        return slot != NULL && *slot == value;
    }
    case TW_GET_DICT_ITEM:
        if (!PyDict_Check(parent) || !PyUnicode_CheckExact(node->key) || version == 0) {
            return false;
        }
        *needs_version = true;
        return true;
    case TW_GET_ITEM:
        return PyTuple_CheckExact(parent);
    case TW_GET_TYPE:
        return true;
    case TW_GET_ATTR:
        if (!PyType_Check(parent)) {
            PyObject **slot = member_slot(parent, node->key);
            return slot != NULL && *slot == value;
        }
        if ( !Py_IS_TYPE(parent, &PyType_Type) || _PyType_Lookup((PyTypeObject *)parent, node->key) != value) {
            return false;
        }
        *needs_version |= version != 0;
        return version != 0;
    case TW_GET_CLASS_ATTR:
        *needs_version |= version != 0;
        return version != 0;
    default:
        return false;
    }
}

static int32_t freeze(struct tw_recorder *recorder, int32_t number);

/* The height of the node above the ends of what is frozen below it. */
static int32_t freeze_children(struct tw_recorder *recorder, int32_t number, const bool *frozen_child)
{
    tw_program *program = recorder->program;
    PyObject *value = recorder->nodes[number].value;
    int32_t i = 0, height = 0;
    for (int32_t child = program->nodes[number].first_child; child >= 0; child = program->nodes[child].next_sibling, i++) {
        if (frozen_child[i]) {
            int32_t below = freeze(recorder, child);
            height = height > below ? height : below + 1;
            int get = program->nodes[child].get;
            if (get == TW_GET_INSTANCE_DICT || (get == TW_GET_ATTR && !PyType_Check(value))) {
                PyObject **slot = get == TW_GET_ATTR ? member_slot(value, program->nodes[child].key) : _PyObject_GetDictPtr(value);
                add_step(recorder->memory, STEP_SLOT, below, recorder->nodes[child].value)->at.slot = slot;
            }
        }
        else {
            add_action(recorder->memory, ACTION_WALK, child, -1, value);
        }
    }
    return height;
}

static int32_t count_children(const tw_program *program, int32_t number)
{
    int32_t count = 0;
    for (int32_t child = program->nodes[number].first_child; child >= 0; child = program->nodes[child].next_sibling) {
        count++;
    }
    return count;
}

static void freeze_leaves(struct tw_recorder *recorder, int32_t number, int32_t height, bool *needs_version, bool *needs_type)
{
    const tw_node *node = &recorder->program->nodes[number];
    PyObject *value = recorder->nodes[number].value;
    uint64_t version = recorder->nodes[number].version;
    for (int32_t i = node->first_leaf; i < node->first_leaf + node->leaf_count; i++) {
        const tw_leaf *leaf = &recorder->program->leaves[i];
        *needs_type |= leaf->kind == TW_LEAF_TYPE;
        if (!leaf_is_frozen(leaf, value, version, needs_version) && !freeze_tensor(recorder->memory, leaf, height, value)) {
            add_action(recorder->memory, ACTION_LEAF, number, i, value);
        }
    }
}

static void freeze_keep(tw_memory *memory, const tw_node *node, int32_t number, PyObject *value)
{
    if (node->slot >= 0) {
        add_action(memory, ACTION_SLOT, number, -1, value);
    }
    if (node->input >= 0 || node->reg >= 0) {
        memory->keeps[memory->kept_count++] = (kept){node->input, node->reg, value};
    }
    if (node->reg >= 0) {
        memory->fixed[node->reg] = true;
    }
}

/* Makes steps and actions for a node whose value is known to be frozen. */
static int32_t freeze(struct tw_recorder *recorder, int32_t number)
{
    tw_program *program = recorder->program;
    const tw_node *node = &program->nodes[number];
    PyObject *value = recorder->nodes[number].value;
    uint64_t version = recorder->nodes[number].version;
    bool needs_version = false, needs_type = false;
    bool *frozen_child = PyMem_Calloc((size_t)count_children(program, number) + 1, sizeof(bool));
    if (frozen_child == NULL) {
        recorder->failed = true;
        return 0;
    }
    int32_t i = 0;
    for (int32_t child = node->first_child; child >= 0; child = program->nodes[child].next_sibling, i++) {
        frozen_child[i] = !is_big_namespace(node) &&
            child_is_frozen(&program->nodes[child], value, recorder->nodes[child].value, version, &needs_version);
        needs_type |= frozen_child[i] && program->nodes[child].get == TW_GET_TYPE;
    }
    int32_t height = freeze_children(recorder, number, frozen_child);
    PyMem_Free(frozen_child);
    freeze_leaves(recorder, number, height, &needs_version, &needs_type);
    if (needs_type) {
        add_step(recorder->memory, STEP_TYPE, height, value)->at.type = Py_TYPE(value);
    }
    if (needs_version && PyDict_Check(value)) {
        add_step(recorder->memory, STEP_DICT, height, recorder->nodes[number].watched)->at.version = version;
        recorder->nodes[number].watched = NULL;
    }
    else if (needs_version) {
        add_step(recorder->memory, STEP_CLASS, height, value)->at.version = version;
    }
    freeze_keep(recorder->memory, node, number, value);
    return height;
}

/* Roots that are worth an identity check: an instance whose __dict__ is looked into, and what the program does not keep alive. */
static bool is_anchor(const tw_program *program, int32_t number, PyObject *value)
{
    const tw_node *node = &program->nodes[number];
    if (node->get == TW_GET_CONST) {
        return Py_IS_TYPE(node->key, tw_weak_key_type);
    }
    if (node->get != TW_GET_LOCAL && node->get != TW_GET_CLOSURE) {
        return false;
    }
    for (int32_t i = node->first_leaf; i < node->first_leaf + node->leaf_count; i++) {
        if (program->leaves[i].kind == TW_LEAF_TENSOR) {
            return false;
        }
    }
    for (int32_t child = node->first_child; child >= 0; child = program->nodes[child].next_sibling) {
        if (program->nodes[child].get == TW_GET_INSTANCE_DICT && _PyObject_GetDictPtr(value) != NULL) {
            return true;
        }
    }
    return false;
}

static bool was_visited(struct tw_recorder *recorder)
{
    for (Py_ssize_t i = 0; i < recorder->program->node_count; i++) {
        if (recorder->nodes[i].value == NULL) {
            return false;
        }
    }
    return true;
}

static void freeze_roots(struct tw_recorder *recorder)
{
    tw_program *program = recorder->program;
    tw_memory *memory = recorder->memory;
    for (int32_t root = program->first_root; root >= 0; root = program->nodes[root].next_sibling) {
        PyObject *value = recorder->nodes[root].value;
        if (is_anchor(program, root, value)) {
            add_step(memory, STEP_ANCHOR, freeze(recorder, root), value)->at.node = root;
        }
        else if (program->nodes[root].get == TW_GET_CONST) {
            freeze(recorder, root);
        }
        else {
            memory->roots[memory->root_count++] = root;
        }
    }
}

tw_memory *tw_recorder_finish(struct tw_recorder *recorder, bool keep)
{
    tw_memory *memory = NULL;
    if (keep && was_visited(recorder) && (recorder->memory = memory_new(recorder->program)) != NULL) {
        freeze_roots(recorder);
        memory = recorder->memory;
        if (recorder->failed || memory->step_count == 0 || !sort_steps(memory)) {
            tw_memory_release(memory);
            memory = NULL;
        }
    }
    for (Py_ssize_t i = 0; i < recorder->program->node_count; i++) {
        tw_unwatch(recorder->nodes[i].watched);
        Py_XDECREF(recorder->nodes[i].value);
    }
    PyMem_Free(recorder);
    return memory;
}

void tw_memory_hold(tw_memory *memory)
{
    memory->references++;
}

void tw_memory_release(tw_memory *memory)
{
    if (--memory->references > 0) {
        return;
    }
    for (int32_t i = 0; i < memory->step_count; i++) {
        if (kind_of(&memory->steps[i]) == STEP_DICT) {
            tw_unwatch(memory->steps[i].object);
        }
    }
    PyMem_Free(memory->fixed);
    PyMem_Free(memory->roots);
    PyMem_Free(memory->steps);
    PyMem_Free(memory->runs);
    PyMem_Free(memory->actions);
    PyMem_Free(memory->keeps);
    PyMem_Free(memory->snapshots);
    PyMem_Free(memory);
}

const bool *tw_memory_fixed(const tw_memory *memory)
{
    return memory->confirmed ? memory->fixed : NULL;
}

void tw_memory_confirm(tw_memory *memory)
{
    memory->confirmed = true;
}

/* ---- checking ---- */

static bool anchor_holds(tw_program *program, tw_run *run, const step *anchor)
{
    bool owned = false;
    PyObject *value = tw_fetch(run->scope, &program->nodes[anchor->at.node], NULL, &owned);
    bool same = value == anchor->object;
    if (owned) {
        Py_XDECREF(value); /* an argument or a cell holds it on; what is held weakly lasts until Python code runs */
    }
    return same;
}

static bool run_holds(tw_program *program, const tw_memory *memory, tw_run *run, enum step_kind kind, const step *each, const step *end)
{
    bool same = true;
    switch (kind) {
    case STEP_ANCHOR:
        for (; same && each < end; each++) {
            same = anchor_holds(program, run, each);
        }
        break;
    case STEP_SLOT:
        for (; same && each < end; each++) {
            same = *each->at.slot == each->object;
        }
        break;
    case STEP_TYPE:
        for (; same && each < end; each++) {
            same = Py_TYPE((PyObject *)each->object) == each->at.type;
        }
        break;
    case STEP_CLASS:
        for (; same && each < end; each++) {
            same = tw_type_version(each->object) == each->at.version;
        }
        break;
    case STEP_DICT:
        for (; same && each < end; each++) {
            same = tw_dict_version(each->object) == each->at.version;
        }
        break;
    default:
        for (; same && each < end; each++) {
            same = tw_snapshot_holds(&memory->snapshots[each->at.snapshot], each->object);
        }
        break;
    }
    return same;
}

static bool steps_hold(tw_program *program, tw_memory *memory, tw_run *run)
{
    bool dicts_hold = tw_no_dict_changed(memory->dict_epoch);
    const step *each = memory->steps;
    for (const run_of_steps *next = memory->runs, *last = next + memory->run_count; next < last; next++) {
        const step *end = memory->steps + next->end;
        if (!(dicts_hold && next->kind == STEP_DICT) && !run_holds(program, memory, run, next->kind, each, end)) {
            return false;
        }
        each = end;
    }
    memory->dict_epoch = tw_dict_epoch(); /* no Python code has run meanwhile */
    return true;
}

static int act(tw_program *program, tw_run *run, const action *each)
{
    const tw_node *node = &program->nodes[each->node];
    int passed;
    switch (each->kind) {
    case ACTION_LEAF:
        passed = tw_check_leaf(run, node, &program->leaves[each->leaf], each->value);
        return passed < 0 ? tw_swallow() : passed;
    case ACTION_WALK:
        return tw_walk(program, run, each->node, each->value);
    default:
        return tw_keep_slot(run, node, each->value);
    }
}

static int run_actions(tw_program *program, const tw_memory *memory, tw_run *run)
{
    int passed = 1;
    run->acting = memory;
    for (int32_t i = 0; i < memory->action_count; i++) { /* an action may run code that lets go of a later one's value */
        Py_INCREF(memory->actions[i].value);
    }
    for (int32_t i = 0; i < memory->action_count && passed == 1; i++) {
        passed = act(program, run, &memory->actions[i]);
    }
    for (int32_t i = 0; i < memory->action_count; i++) {
        Py_DECREF(memory->actions[i].value);
    }
    run->acting = NULL;
    return passed;
}

/* Inputs get references; registers, which are only compared, borrow the values until tw_memory_unkeep. */
static void keep_values(const tw_memory *memory, tw_run *run)
{
    for (const kept *each = memory->keeps, *end = each + memory->kept_count; each < end; each++) {
        if (each->input >= 0) {
            Py_XSETREF(run->inputs[each->input], Py_NewRef(each->value));
        }
        if (each->reg >= 0) {
            run->regs[each->reg] = each->value;
        }
    }
}

void tw_memory_unkeep(const tw_memory *memory, tw_run *run)
{
    for (const kept *each = memory->keeps, *end = each + memory->kept_count; each < end; each++) {
        if (each->reg >= 0) {
            run->regs[each->reg] = NULL;
        }
    }
}

int tw_memory_check(tw_program *program, tw_memory *memory, tw_run *run)
{
    int passed = 1;
    for (int32_t i = 0; i < memory->root_count && passed == 1; i++) {
        passed = tw_walk(program, run, memory->roots[i], NULL);
    }
    if (passed == 1) {
        if (!steps_hold(program, memory, run)) {
            return 0;
        }
        keep_values(memory, run);
        passed = run_actions(program, memory, run);
    }
    return passed;
}
