/* Programs that tracework.save() wrote, loaded and run without Python: libtorch is all that they need.
 *
 * A file is a program, which runs with your rights: load only what you trust.
 * Functions that fail return NULL; tw_last_error() says why, in the words of tracework.load(). A loaded program may be run by several threads
 * at once. */
#ifndef TRACEWORK_H
#define TRACEWORK_H

#include <ATen/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_API __attribute__((visibility("default")))

typedef struct tw_program tw_program;
typedef struct tw_result tw_result;

typedef enum { TW_NONE, TW_TENSOR, TW_INT, TW_FLOAT, TW_BOOL, TW_STRING } tw_kind;

/* A tensor is given as DLPack describes one, on the CPU; strides may be NULL for a contiguous one. Memory of arguments stays the caller's: it is
 * read, and written to where the program writes to its arguments, while tw_run() runs. */
typedef struct {
    tw_kind kind;
    union {
        DLTensor tensor;
        int64_t integer; /* of TW_BOOL, too */
        double real;
        const char *text;
    } as;
} tw_value;

/* What is known of an argument or a result before a call. */
typedef struct {
    const char *name;     /* "x", "x[0]", "options['scale']" */
    tw_kind kind;         /* TW_NONE: anything, or not known */
    DLDataType dtype;     /* of a tensor */
    int32_t ndim;         /* of a tensor; -1 where it is not known */
    const int64_t *sizes; /* -1 for one that changes from call to call */
} tw_info;

/* Loads a file; key: the one that it has to be signed with, or NULL. */
TW_API tw_program *tw_load(const char *file, const char *key);
TW_API void tw_free(tw_program *program);

/* Arguments are counted through: containers are taken apart, and constants that the function was compiled with are arguments, too. */
TW_API size_t tw_input_count(const tw_program *program);
TW_API const tw_info *tw_input(const tw_program *program, size_t number);
TW_API size_t tw_output_count(const tw_program *program);
TW_API const tw_info *tw_output(const tw_program *program, size_t number);

/* Checks the arguments and calls the program. */
TW_API tw_result *tw_run(tw_program *program, const tw_value *inputs, size_t count);
/* Results, which live until tw_result_free(); one that is an argument itself has the caller's memory, one that is a weight is only to be read. */
TW_API size_t tw_result_count(const tw_result *result);
TW_API const tw_value *tw_result_value(const tw_result *result, size_t number);
TW_API void tw_result_free(tw_result *result);

/* Why the last call of this thread that failed did so. */
TW_API const char *tw_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
