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
} stage;

typedef struct {
    PyObject_HEAD
    launch_function launch;
    PyObject *allocate;      /* number of bytes -> tensor */
    PyObject *scratch_bytes; /* None where no stage wants scratch memory */
    char *formats;           /* of the numbers: q, i, f, d or ? as in struct */
    uint64_t *scratch;       /* where each scratch array begins */
    stage *stages;
    Py_ssize_t scratch_count, stage_count, hidden;
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

/* A matrix product by one of torch's C functions, with what is known of it before addresses are. */
typedef struct product product;
enum { MOST_WINDOWS = 4 };

/* set_tensor_functions(address of aoti_torch_create_tensor_from_blob, of aoti_torch_delete_tensor_object, watched) */
INTERNAL PyObject *set_tensor_functions(PyObject *module, PyObject *args);

/* From (((sizes, strides), ...), dtype, device type, device, (beta, alpha)) and the function's address; NULL with an exception. */
INTERNAL product *read_product(PyObject *facts, uint64_t function, Py_ssize_t operands);
INTERNAL void drop_product(product *work);

/* Whether somebody is to see each library call: 1 or 0, or -1 with an exception. */
INTERNAL int products_watched(void);

/* Whether the product could be made. */
INTERNAL bool multiply(product *work, const uint64_t *addresses);

/* set_keeping(function or None, copy): what calls, in this thread, whatever makes memory that a host program returns. */
INTERNAL PyObject *tw_set_keeping(PyObject *module, PyObject *args);

/* Adds what replay.c has to the module: 0, or -1 with an exception. */
INTERNAL int add_replay(PyObject *module);

#endif
