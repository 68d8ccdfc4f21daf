/* A number for each dict that is new after every change of it, as far as the guards look.
 *
 * Up to CPython 3.11 the dict itself carries it. From 3.12 on dicts are watched: CPython reports a change of a watched dict just before it
 * happens, and its end, so that "no watched dict has changed" is one comparison, however many there are.
 */
#ifndef TRACEWORK_DICT_VERSIONS_H
#define TRACEWORK_DICT_VERSIONS_H

#include "cpython_compat.h"

#if TW_HAS_DICT_WATCHERS

typedef struct {
    PyObject *dict; /* borrowed; NULL once it is gone */
    uint64_t version;
    Py_ssize_t users;
} tw_watched;

extern uint64_t tw_watch_epoch; /* the version of the latest change */

tw_watched *tw_watch(PyObject *dict); /* to be given back; NULL when it cannot be watched */
void tw_unwatch(tw_watched *watched); /* NULL is fine */

static inline uint64_t tw_dict_version(const tw_watched *watched) /* not 0 */
{
    return watched->version;
}

static inline uint64_t tw_dict_epoch(void)
{
    return tw_watch_epoch;
}

static inline bool tw_no_dict_changed(uint64_t since)
{
    return since == tw_watch_epoch;
}

#else

typedef PyObject tw_watched; /* not kept alive: read it only while its holder is known to be unchanged */

static inline tw_watched *tw_watch(PyObject *dict)
{
    return dict;
}

static inline void tw_unwatch(tw_watched *watched)
{
    (void)watched;
}

static inline uint64_t tw_dict_version(const tw_watched *watched)
{
    return ((const PyDictObject *)watched)->ma_version_tag;
}

static inline uint64_t tw_dict_epoch(void)
{
    return 0;
}

static inline bool tw_no_dict_changed(uint64_t since)
{
    (void)since;
    return false; /* not known */
}

#endif
#endif
