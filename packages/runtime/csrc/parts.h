/* What the files of this extension have of each other. */
#ifndef TRACEWORK_PARTS_H
#define TRACEWORK_PARTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Between the files of this extension, and not to be found by others. */
#define INTERNAL __attribute__((visibility("hidden")))

/* CUlaunchConfig of the driver. */
typedef struct {
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream, *attributes;
    unsigned int attribute_count;
} launch_config;

/* cuLaunchKernelEx */
typedef int (*launch_function)(const launch_config *config, void *function, void **parameters, void **extra);

typedef struct {
    void *function;
    unsigned int blocks, threads, shared, hidden;
    int64_t own; /* where the memory that Triton wants for itself begins in the scratch memory; negative where it wants none */
} stage;

typedef struct {
    PyObject_HEAD
    launch_function launch;
    PyObject *allocate;      /* number of bytes -> tensor */
    PyObject *scratch_bytes; /* of all that stages want; 0 where they want none */
    char *formats;           /* of the numbers: q, i, f, d or ? as in struct */
    uint64_t *scratch;       /* where each scratch array begins */
    stage *stages;
    Py_ssize_t scratch_count, stage_count, hidden;
    bool wants_scratch;
} plan_object;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *find;   /* (addresses, numbers, aligned) -> (Plan, whether it stays right for these numbers) */
    PyObject *failed; /* (status, plan, addresses, numbers): what a launch that failed comes to */
    PyObject *stream; /* device -> handle of its current stream */
    PyObject *device;
    PyObject *plan; /* of the last numbers, NULL before there are any */
    uint64_t *last;
    char *formats; /* of the numbers: d for floats, q for others */
    Py_ssize_t tensors, numbers;
} launcher_object;

INTERNAL extern PyTypeObject plan_type, launcher_type, program_type;

/* The address of a tensor's first element, or the number itself: 0, or -1 with an exception. */
INTERNAL int read_address(PyObject *value, uint64_t *out);

/* The address of a tensor's first element without Python; false where torch does not say it so. */
INTERNAL bool quick_address(PyObject *tensor, uint64_t *out);

/* The handle of the launcher's current stream: 0, or -1 with an exception. */
INTERNAL int current_stream(launcher_object *self, void **out);

/* The plan for these addresses and numbers that Python finds, a new reference; NULL with an exception. stays: whether it is right for all
 * aligned addresses and the same numbers. */
INTERNAL plan_object *find_plan(launcher_object *self, const uint64_t *values, bool aligned, bool *stays);

/* Memory for the scratch arrays of a plan's stages, of so many bytes, and its address; NULL with an exception. */
INTERNAL PyObject *allocate_scratch(plan_object *self, PyObject *bytes, uint64_t *out);

/* Launches a plan, once more where the thread lacked a context: 0, or -1 with an exception. scratch: the address of memory for its scratch
 * arrays; 0 where the launch is to have its own. */
INTERNAL int launch_plan(launcher_object *self, plan_object *plan, void *stream, const uint64_t *values, uint64_t scratch);

/* A call of one of torch's C functions, with what is known of it before addresses are. */
typedef struct library_call library_call;
enum { MOST_WINDOWS = 12 };

/* Torch's tensors that Python does not know. */
INTERNAL extern PyTypeObject held_type;

/* One of these as a tensor of Python: a new reference, or NULL with an exception. */
INTERNAL PyObject *tensor_of_held(PyObject *held);

/* set_tensor_functions(addresses of torch's functions on tensors, watched, to_python), in the order of host/library.py */
INTERNAL PyObject *set_tensor_functions(PyObject *module, PyObject *args);

/* From (windows, arguments, results, device type, device) as host/library.py has them, and the function's address; NULL with an exception. */
INTERNAL library_call *read_library_call(PyObject *facts, uint64_t function, Py_ssize_t operands, Py_ssize_t numbers, Py_ssize_t registers);
INTERNAL void drop_library_call(library_call *work);

/* Whether somebody is to see each library call: 1 or 0, or -1 with an exception. */
INTERNAL int library_watched(void);

/* 1 where the library has done it, with each result as a new reference and its address (NULL where nobody reads it); 0 where it is to be done
 * otherwise; -1 with an exception. */
INTERNAL int call_library(library_call *work, const uint64_t *addresses, const int64_t *numbers, PyObject **results, uint64_t *places);

/* How many results there are, and the register that one goes to, negative if none. */
enum { MOST_RESULTS = 9 };
INTERNAL Py_ssize_t library_results(const library_call *work);
INTERNAL int library_result(const library_call *work, Py_ssize_t number);

/* A tuple of integers from `least` up to below `limit`, as an array; their count, or -1 with an exception. */
INTERNAL Py_ssize_t read_integers(PyObject *tuple, int least, Py_ssize_t limit, int **out);

/* set_keeping(function or None, copy): what calls, in this thread, whatever makes memory that a host program returns. */
INTERNAL PyObject *tw_set_keeping(PyObject *module, PyObject *args);

/* Adds what replay.c and front.c have to the module: 0, or -1 with an exception. */
INTERNAL int add_replay(PyObject *module);

#endif
