/* Recognising a tensor that has not changed since its leaf passed, by reading the fields of its implementation.
 *
 * The sizes, strides, dtype, device, flags and dispatch keys of a tensor lie in its TensorImpl at places that no header promises; they
 * are found at start-up in tensors whose numbers are known, and used only if every trial shows the expected difference in the expected
 * word. Otherwise there are no snapshots and tensors go through their leaves at each check. Only tensors of five dims or fewer keep
 * sizes and strides inside; only torch.Tensor and Parameter answer with these fields themselves.
 * Left out on purpose: the storage and its offset, which no guard looks at, so that `p.data = q` with a like q is no change.
 */
#include "guard_tree.h"

#include <dlfcn.h>

#define PROBE_DIMS 5
#define WORD sizeof(uint64_t)

static const int64_t probe_sizes[PROBE_DIMS] = {3, 5, 7, 11, 13}, probe_strides[PROBE_DIMS] = {2, 4, 6, 8, 10};
#define PROBE_OFFSET 17

static bool (*impl_requires_grad)(const void *);
static PyTypeObject *plain_types[2];
static size_t impl_place;           /* in the Python object */
static uint64_t negative_bit;       /* among the dispatch keys */
static size_t dims_place, tail_place; /* in the TensorImpl; dims_place is 0 while unknown */

void tw_learn_layout(size_t impl_offset, bool (*requires_grad)(const void *), PyTypeObject *const types[2])
{
    impl_place = impl_offset;
    impl_requires_grad = requires_grad;
    dims_place = 0;
    for (int i = 0; i < 2; i++) {
        Py_XSETREF(plain_types[i], (PyTypeObject *)Py_NewRef(types[i]));
    }
}

static const char *impl_of(PyObject *tensor)
{
    return *(const char **)((const char *)tensor + impl_place);
}

/* Words of a tensor's implementation that may be read; 0 when the allocator does not say. */
static size_t readable_words(PyObject *tensor)
{
    size_t (*usable_size)(void *);
    void *symbol = dlsym(RTLD_DEFAULT, "malloc_usable_size");
    if (symbol == NULL) {
        return 0;
    }
    memcpy(&usable_size, &symbol, sizeof(usable_size));
    return usable_size((void *)impl_of(tensor)) / WORD;
}

/* Number of dims, sizes, strides, offset of the storage, count of elements, two more words: one after another, or it is not known. */
static size_t find_dims(PyObject *probe)
{
    const uint64_t *words = (const uint64_t *)impl_of(probe);
    int64_t count = 1;
    for (int i = 0; i < PROBE_DIMS; i++) {
        count *= probe_sizes[i];
    }
    for (size_t at = 1; at + TW_SNAPSHOT_DIMS + 2 + TW_SNAPSHOT_TAIL <= readable_words(probe); at++) {
        if (words[at] == PROBE_DIMS && memcmp(words + at + 1, probe_sizes, sizeof(probe_sizes)) == 0 &&
            memcmp(words + at + 1 + PROBE_DIMS, probe_strides, sizeof(probe_strides)) == 0 &&
            words[at + TW_SNAPSHOT_DIMS] == PROBE_OFFSET && words[at + TW_SNAPSHOT_DIMS + 1] == (uint64_t)count) {
            return at * WORD;
        }
    }
    return 0;
}

/* Whether this word of the tail differs between the probe and its variant. */
static bool differs(PyObject *probe, PyObject *variant, size_t tail, int word)
{
    if (readable_words(variant) * WORD < tail + TW_SNAPSHOT_TAIL * WORD) {
        return false;
    }
    return memcmp(impl_of(probe) + tail + WORD * (size_t)word, impl_of(variant) + tail + WORD * (size_t)word, WORD) != 0;
}

static uint64_t keys_of(PyObject *tensor)
{
    uint64_t keys;
    memcpy(&keys, impl_of(tensor) + tail_place + WORD, sizeof(keys));
    return keys;
}

int tw_is_negated(PyObject *tensor)
{
    return dims_place == 0 || (negative_bit & (negative_bit - 1)) != 0 ? -1 : (keys_of(tensor) & negative_bit) != 0;
}

/* set_tensor_layout(probe, negated, other dtype, other device): five-dimensional tensors that differ in the one thing. */
PyObject *tw_set_tensor_layout(PyObject *module, PyObject *args)
{
    PyObject *probe, *negated, *dtype, *device;
    if (!PyArg_ParseTuple(args, "OOOO", &probe, &negated, &dtype, &device)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < 4; i++) {
        PyTypeObject *type = Py_TYPE(PyTuple_GET_ITEM(args, i));
        if (type != plain_types[0] && type != plain_types[1]) {
            return PyErr_Format(PyExc_TypeError, "set_tensor_layout wants tensors, not %R", type);
        }
    }
    dims_place = 0;
    if (impl_requires_grad != NULL) {
        size_t dims = find_dims(probe), tail = dims + (TW_SNAPSHOT_DIMS + 2) * WORD;
        if (dims != 0 && differs(probe, dtype, tail, 0) && differs(probe, device, tail, 0) && differs(probe, negated, tail, 1)) {
            dims_place = dims;
            tail_place = tail;
            negative_bit = keys_of(probe) ^ keys_of(negated);
        }
    }
    return PyBool_FromLong(dims_place != 0);
}

bool tw_take_snapshot(const tw_tensor *tensor, PyObject *value, tw_snapshot *snapshot)
{
    PyTypeObject *type = Py_TYPE(value);
    if (dims_place == 0 || (type != plain_types[0] && type != plain_types[1])) {
        return false;
    }
    const char *impl = impl_of(value);
    memset(snapshot, 0, sizeof(*snapshot)); /* snapshots are compared as bytes */
    memcpy(snapshot->dims, impl + dims_place, sizeof(snapshot->dims));
    memcpy(snapshot->tail, impl + tail_place, sizeof(snapshot->tail));
    snapshot->type = type;
    snapshot->requires_grad = impl_requires_grad(impl);
    /* Checked once more, because something may have changed between the walk and now. */
    return snapshot->dims[0] <= PROBE_DIMS && tw_tensor_is_simple(tensor, value);
}

/* memcmp of a few words costs a call here; this runs for each parameter at each check. */
static bool same_words(const uint64_t *seen, const char *now, int count)
{
    uint64_t difference = 0;
    for (int i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, now + WORD * (size_t)i, sizeof(word));
        difference |= word ^ seen[i];
    }
    return difference == 0;
}

bool tw_snapshot_holds(const tw_snapshot *snapshot, PyObject *value)
{
    if (Py_TYPE(value) != snapshot->type) {
        return false;
    }
    const char *impl = impl_of(value);
    return same_words(snapshot->dims, impl + dims_place, TW_SNAPSHOT_DIMS) &&
           same_words(snapshot->tail, impl + tail_place, TW_SNAPSHOT_TAIL) && impl_requires_grad(impl) == snapshot->requires_grad;
}
