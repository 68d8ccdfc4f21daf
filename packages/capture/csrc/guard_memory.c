/* "Nothing changed": what the last full check of a program saw, so that the next one compares versions instead of walking. */
#include "guard_tree.h"

struct tw_recorder { int unused; };
struct tw_memory { int unused; };

struct tw_recorder *tw_recorder_new(tw_program *program) { (void)program; return NULL; }
void tw_recorder_node(struct tw_recorder *recorder, int32_t node, PyObject *parent, PyObject *value) { (void)recorder; (void)node; (void)parent; (void)value; }
tw_memory *tw_recorder_finish(struct tw_recorder *recorder, PyObject **inputs, bool keep) { (void)recorder; (void)inputs; (void)keep; return NULL; }
int tw_memory_check(tw_program *program, tw_memory *memory, tw_run *run) { (void)program; (void)memory; (void)run; return 0; }
void tw_memory_release(tw_memory *memory) { (void)memory; }
