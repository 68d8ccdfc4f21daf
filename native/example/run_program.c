/* Loads a program, says what it takes and gives, and calls it: run_program FILE [SIZES:INPUT_FILE | NUMBER]...
 *
 * An input file has a tensor's elements, as "2x3:x.bin". Results are written to result0.bin, result1.bin, ... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tracework.h>

enum { MOST = 16 };

static int fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return 1;
}

static void show(const char *word, const tw_info *info)
{
    printf("%s %s:", word, info->name);
    for (int n = 0; n < info->ndim; n++) {
        printf(" %lld", (long long)info->sizes[n]);
    }
    printf("\n");
}

/* A tensor of the dtype of an argument, with these sizes, read from a file. */
static int read_tensor(tw_value *value, const tw_info *info, char *text, int64_t *sizes)
{
    char *name = strchr(text, ':');
    FILE *file = name ? fopen(name + 1, "rb") : NULL;
    size_t bytes = (size_t)(info->dtype.bits + 7) / 8 * info->dtype.lanes;
    int count = 0;
    for (char *at = text; file && at < name && count < MOST; at++) {
        sizes[count] = strtoll(at, &at, 10);
        bytes *= (size_t)sizes[count++];
    }
    void *data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!file || !data || fread(data, 1, bytes, file) != bytes) {
        return -1;
    }
    fclose(file);
    value->kind = TW_TENSOR;
    value->as.tensor = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = count, .dtype = info->dtype, .shape = sizes};
    return 0;
}

static int write_result(const tw_value *value, size_t number)
{
    char name[32];
    snprintf(name, sizeof(name), "result%zu.bin", number);
    if (value->kind != TW_TENSOR) {
        return 0;
    }
    const DLTensor *tensor = &value->as.tensor; /* contiguous, in this example */
    size_t bytes = (size_t)(tensor->dtype.bits + 7) / 8;
    for (int n = 0; n < tensor->ndim; n++) {
        bytes *= (size_t)tensor->shape[n];
    }
    FILE *file = fopen(name, "wb");
    const int done = file && fwrite((const char *)tensor->data + tensor->byte_offset, 1, bytes, file) == bytes;
    return done && fclose(file) == 0 ? 0 : -1;
}

int main(int count, char **words)
{
    tw_program *program = count > 1 ? tw_load(words[1], NULL) : NULL;
    if (!program) {
        return fail(count > 1 ? tw_last_error() : "usage: run_program FILE [SIZES:INPUT_FILE | NUMBER]...");
    }
    tw_value inputs[MOST] = {0};
    int64_t sizes[MOST][MOST];
    for (size_t n = 0; n < tw_input_count(program); n++) {
        show("argument", tw_input(program, n));
    }
    for (size_t n = 0; n < tw_output_count(program); n++) {
        show("result", tw_output(program, n));
    }
    for (int n = 0; n < count - 2 && n < MOST; n++) {
        const tw_info *info = tw_input(program, (size_t)n);
        if (!info || info->kind != TW_TENSOR) {
            inputs[n].kind = TW_INT;
            inputs[n].as.integer = atoll(words[n + 2]);
        }
        else if (read_tensor(&inputs[n], info, words[n + 2], sizes[n]) < 0) {
            return fail("an input cannot be read");
        }
    }
    tw_result *result = count > 2 ? tw_run(program, inputs, (size_t)count - 2) : NULL;
    if (count > 2 && !result) {
        return fail(tw_last_error());
    }
    for (size_t n = 0; result && n < tw_result_count(result); n++) {
        if (write_result(tw_result_value(result, n), n) < 0) {
            return fail("a result cannot be written");
        }
    }
    for (int n = 0; n < count - 2; n++) {
        free(inputs[n].kind == TW_TENSOR ? inputs[n].as.tensor.data : NULL);
    }
    tw_result_free(result);
    tw_free(program);
    return 0;
}
