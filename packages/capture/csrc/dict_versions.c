/* Watched dicts: a table from dicts to their records, open addressing, at most half full. The GIL is held wherever it is used. */
#include "dict_versions.h"

#if TW_HAS_DICT_WATCHERS

uint64_t tw_watch_epoch = 1; /* 0 is no dict's version */

static tw_watched **table;
static size_t capacity, used; /* capacity is a power of two, or 0 */
static int watcher = -1;

static size_t home_of(const PyObject *dict)
{
    return (size_t)(((uint64_t)(uintptr_t)dict >> 4) * 0x9E3779B97F4A7C15u >> 20) & (capacity - 1);
}

/* Where the dict's record is, or belongs. */
static size_t place_of(const PyObject *dict)
{
    size_t place = home_of(dict);
    while (table[place] != NULL && table[place]->dict != dict) {
        place = (place + 1) & (capacity - 1);
    }
    return place;
}

static bool grow(void)
{
    size_t old_capacity = capacity;
    tw_watched **old = table, **bigger = PyMem_Calloc(capacity == 0 ? 64 : 2 * capacity, sizeof(tw_watched *));
    if (bigger == NULL) {
        return false;
    }
    table = bigger;
    capacity = capacity == 0 ? 64 : 2 * capacity;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i] != NULL) {
            table[place_of(old[i]->dict)] = old[i];
        }
    }
    PyMem_Free(old);
    return true;
}

/* Takes the record out; those behind it that are not at home move up. */
static void take_out(size_t place)
{
    table[place] = NULL;
    used--;
    for (size_t next = (place + 1) & (capacity - 1); table[next] != NULL; next = (next + 1) & (capacity - 1)) {
        tw_watched *moved = table[next];
        table[next] = NULL;
        table[place_of(moved->dict)] = moved;
    }
}

/* CPython calls this just before the change; a check cannot come in between. */
static int on_change(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)key;
    (void)value;
    size_t place = capacity == 0 ? 0 : place_of(dict);
    if (capacity == 0 || table[place] == NULL) {
        return 0;
    }
    tw_watched *watched = table[place];
    watched->version = ++tw_watch_epoch;
    if (event == PyDict_EVENT_DEALLOCATED) {
        take_out(place);
        watched->dict = NULL;
    }
    return 0;
}

/* Eight watchers are all that an interpreter has. */
static bool have_watcher(void)
{
    if (watcher < 0) {
        watcher = PyDict_AddWatcher(on_change);
        PyErr_Clear();
    }
    return watcher >= 0;
}

tw_watched *tw_watch(PyObject *dict)
{
    if (!have_watcher() || (2 * used >= capacity && !grow())) {
        return NULL;
    }
    size_t place = place_of(dict);
    if (table[place] != NULL) {
        table[place]->users++;
        return table[place];
    }
    tw_watched *watched = PyMem_Malloc(sizeof(tw_watched));
    if (watched == NULL) {
        return NULL;
    }
    if (!tw_dict_tells(dict) || PyDict_Watch(watcher, dict) < 0) {
        PyErr_Clear();
        PyMem_Free(watched);
        return NULL;
    }
    *watched = (tw_watched){dict, tw_watch_epoch, 1};
    table[place] = watched;
    used++;
    return watched;
}

void tw_unwatch(tw_watched *watched)
{
    if (watched == NULL || --watched->users > 0) {
        return;
    }
    if (watched->dict != NULL) {
        take_out(place_of(watched->dict));
        if (PyDict_Unwatch(watcher, watched->dict) < 0) {
            PyErr_Clear();
        }
    }
    PyMem_Free(watched);
}

#endif
