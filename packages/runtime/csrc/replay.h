/* What the files of a replay have of each other: replay.c, replay_inputs.c, replay_outputs.c, front.c. */
#ifndef TRACEWORK_REPLAY_H
#define TRACEWORK_REPLAY_H

#include "parts.h"

#include <stddef.h>
#include <structmember.h>

/* cuMemcpyAsync */
typedef int (*copy_function)(uint64_t to, uint64_t from, size_t bytes, void *stream);

/* cuLaunchKernel */
typedef int (*kernel_function)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);

/* cuGraphLaunch */
typedef int (*graph_function)(void *graph, void *stream);

typedef struct {
    Py_ssize_t input;
    uint64_t address;
} fixed_input;

/* is_number: the input is an int, and the memory an int64, or a tensor of one number on the CPU. The memory has eight bytes. */
typedef struct {
    Py_ssize_t input;
    uint64_t memory;
    size_t bytes;
    bool back, is_number;
} copied_input;

/* Memory that is handed out, with what holds it while nobody but the recording does. */
typedef struct {
    PyObject *storage, *handle;
    long tensors;
    Py_ssize_t objects;
} slot;

typedef struct {
    PyObject_HEAD
    long long number, now;
} clock_object;

/* How an output is handed out: as a new tensor over the recording's memory, as it is, as the same object as the output `from`, as the input
 * `from`, or as what a function gives for the inputs. */
enum { OVER_MEMORY, AS_IT_IS, AS_OUTPUT, AS_INPUT, BY_FUNCTION };

typedef struct {
    int way;
    Py_ssize_t from;
    PyObject *value;
} output;

typedef struct {
    PyObject_HEAD
    PyMethodDescrObject *data_ptr;
    PyObject *launch;     /* what keeps the graph; () -> None, where there is none for the driver */
    PyObject *references; /* storage's handle -> how many hold it */
    PyObject *data;       /* "data" */
    clock_object *clock;
    long long used, step; /* the clock's times at the last replay */
    Py_ssize_t replays;
    copy_function copy;
    kernel_function launch_kernel;
    void *copies_kernel; /* NULL where there is none */
    graph_function launch_graph;
    void *graph;
    fixed_input *fixed;
    copied_input *copies;
    slot *slots;
    output *outputs;
    Py_ssize_t fixed_count, copy_count, slot_count, output_count;
} replay_object;

INTERNAL extern PyTypeObject replay_type, front_type, settings_type;

/* Of rows as Python has them: 0, or -1 with an exception. */
INTERNAL int read_fixed(replay_object *self, PyObject *rows);
INTERNAL int read_copies(replay_object *self, PyObject *rows);
INTERNAL int read_slots(replay_object *self, PyObject *rows);
INTERNAL int read_outputs(replay_object *self, PyObject *rows);

/* The address of an input: 0, or -1 with an exception. */
INTERNAL int input_address(replay_object *self, PyObject *inputs, Py_ssize_t place, uint64_t *out);

/* Whether the inputs that are read in place are where they were; -1 with an exception. */
INTERNAL int matches(replay_object *self, PyObject *inputs);

/* The bits of the number that an input is: 0, or -1 with an exception. */
INTERNAL int input_number(replay_object *self, PyObject *inputs, const copied_input *one, uint64_t *out);

/* Copies in both directions: the driver's status. addresses: of the inputs, or the bits of numbers. */
INTERNAL int copy_inputs(const replay_object *self, const uint64_t *addresses, bool back, void *stream);

/* Takes it that nobody but the recording holds the slots now: 0, or -1 with an exception. */
INTERNAL int settle(replay_object *self);

/* Whether the caller holds a slot, through tensors or as a storage; -1 with an exception. */
INTERNAL int is_held(const replay_object *self, const slot *one);

/* Whether nobody holds a slot; -1 with an exception. */
INTERNAL int is_free(const replay_object *self);

/* The outputs as the caller gets them, NULL with an exception. */
INTERNAL PyObject *hand_out(const replay_object *self, PyObject *inputs);

/* A tuple of outputs, or NULL: with an exception, or with the driver's status where that failed. */
INTERNAL PyObject *run(replay_object *self, PyObject *inputs, void *stream, int *status);

/* Of the module, as replay.c lists them. */
INTERNAL PyObject *set_get_address(PyObject *module, PyObject *args);
INTERNAL PyObject *set_count_place(PyObject *module, PyObject *place);

#endif
