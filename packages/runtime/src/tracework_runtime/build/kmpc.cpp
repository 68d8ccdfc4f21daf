// What clang's OpenMP calls, over the entry points of GNU's runtime, which torch brings along: kernels that zig compiles run on the threads
// that torch's own kernels run on. It is compiled into each kernel, hidden, so that it stands for no other library's.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
void GOMP_barrier(void);
void GOMP_critical_start(void);
void GOMP_critical_end(void);
bool GOMP_loop_dynamic_start(long, long, long, long, long*, long*);
bool GOMP_loop_dynamic_next(long*, long*);
void GOMP_loop_end_nowait(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
}

#pragma GCC visibility push(hidden)
typedef void (*Task)(int32_t*, int32_t*, ...);
extern "C" void tw_kmpc_invoke(Task task, int32_t* thread, int32_t* bound, uint32_t count, void** given);
// task(thread, bound, given[0], ..., given[count - 1]) by the calling convention of x86-64; given has at least four items.
asm(R"(
  .pushsection .text
  .hidden tw_kmpc_invoke
  .globl tw_kmpc_invoke
  .type tw_kmpc_invoke, @function
tw_kmpc_invoke:
  pushq %rbp
  movq %rsp, %rbp
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movl %ecx, %r11d
  movq %r8, %r10
  subq $4, %r11
  jle 2f
  testb $1, %r11b
  jz 1f
  subq $8, %rsp
1:
  pushq 24(%r10,%r11,8)
  decq %r11
  jnz 1b
2:
  movq (%r10), %rdx
  movq 8(%r10), %rcx
  movq 16(%r10), %r8
  movq 24(%r10), %r9
  movq %rax, %r11
  xorl %eax, %eax
  call *%r11
  leave
  ret
  .size tw_kmpc_invoke, .-tw_kmpc_invoke
  .popsection
)");

namespace {
struct Call { Task task; uint32_t count; void** given; };
struct Loop { long start, end, step, chunk; bool begun; };
thread_local Loop loop;
thread_local unsigned threads_wanted;

void run(void* data) {
  const Call* call = (const Call*)data;
  int32_t thread = omp_get_thread_num(), bound = 0;
  tw_kmpc_invoke(call->task, &thread, &bound, call->count, call->given);
}

const int32_t CHUNKS_IN_TURN = 33, MODIFIERS = 3 << 29;

// The part of the steps from *lower to *upper that is this thread's.
template <class T, class S> void share(int32_t kind, int32_t* last, T* lower, T* upper, S* stride, S step, S chunk) {
  const uint64_t id = omp_get_thread_num(), threads = omp_get_num_threads();
  *last = 0;
  if (step > 0 ? *upper < *lower : *upper > *lower) return;
  if ((kind & ~MODIFIERS) == CHUNKS_IN_TURN) {
    const S span = (chunk < 1 ? 1 : chunk) * step;
    *stride = span * (S)threads;
    *lower += span * (S)id;
    *upper = *lower + span - step;
    return;
  }
  const uint64_t steps = (step > 0 ? (uint64_t)*upper - (uint64_t)*lower : (uint64_t)*lower - (uint64_t)*upper) / (uint64_t)(step > 0 ? step : -step) + 1;
  const uint64_t each = steps / threads, more = steps % threads, first = id * each + (id < more ? id : more), count = each + (id < more);
  *stride = (S)steps * step;
  *last = first + count == steps;
  const T begin = *lower;
  if (count == 0) *lower = *upper + step;
  else *lower = begin + (T)first * step, *upper = begin + (T)(first + count - 1) * step;
}

void begin(long lower, long upper, long step, long chunk) { loop = {lower, upper + (step > 0 ? 1 : -1), step, chunk < 1 ? 1 : chunk, false}; }

template <class T, class S> int next(int32_t* last, T* lower, T* upper, S* stride) {
  long start, end;
  const bool some = loop.begun ? GOMP_loop_dynamic_next(&start, &end) : GOMP_loop_dynamic_start(loop.start, loop.end, loop.step, loop.chunk, &start, &end);
  loop.begun = true;
  if (!some) { GOMP_loop_end_nowait(); return 0; }
  *last = 0; *lower = (T)start; *upper = (T)(end - (loop.step > 0 ? 1 : -1)); *stride = (S)loop.step;
  return 1;
}
}  // namespace

extern "C" {
void __kmpc_fork_call(void*, int32_t count, Task task, ...) {
  void* given[count < 4 ? 4 : count];
  va_list list;
  va_start(list, task);
  for (int32_t n = 0; n < count; ++n) given[n] = va_arg(list, void*);
  va_end(list);
  for (int32_t n = count; n < 4; ++n) given[n] = nullptr;
  Call call = {task, (uint32_t)count, given};
  const unsigned threads = threads_wanted;
  threads_wanted = 0;
  GOMP_parallel(run, &call, threads, 0);
}
void __kmpc_push_num_threads(void*, int32_t, int32_t threads) { threads_wanted = threads; }
void __kmpc_serialized_parallel(void*, int32_t) {}
void __kmpc_end_serialized_parallel(void*, int32_t) {}
int32_t __kmpc_global_thread_num(void*) { return omp_get_thread_num(); }
void __kmpc_barrier(void*, int32_t) { GOMP_barrier(); }
void __kmpc_critical(void*, int32_t, void*) { GOMP_critical_start(); }
void __kmpc_end_critical(void*, int32_t, void*) { GOMP_critical_end(); }
// 1: the calling thread adds its part by itself, before the end.
int32_t __kmpc_reduce(void*, int32_t, int32_t, size_t, void*, void (*)(void*, void*), void*) { GOMP_critical_start(); return 1; }
void __kmpc_end_reduce(void*, int32_t, void*) { GOMP_critical_end(); GOMP_barrier(); }
int32_t __kmpc_reduce_nowait(void*, int32_t, int32_t, size_t, void*, void (*)(void*, void*), void*) { GOMP_critical_start(); return 1; }
void __kmpc_end_reduce_nowait(void*, int32_t, void*) { GOMP_critical_end(); }

#define FOR_TYPE(suffix, T, S) \
  void __kmpc_for_static_init_##suffix(void*, int32_t, int32_t kind, int32_t* last, T* lower, T* upper, S* stride, S step, S chunk) { share(kind, last, lower, upper, stride, step, chunk); } \
  void __kmpc_dispatch_init_##suffix(void*, int32_t, int32_t, T lower, T upper, S step, S chunk) { begin((long)lower, (long)upper, step, chunk); } \
  int __kmpc_dispatch_next_##suffix(void*, int32_t, int32_t* last, T* lower, T* upper, S* stride) { return next(last, lower, upper, stride); }
FOR_TYPE(4, int32_t, int32_t)
FOR_TYPE(4u, uint32_t, int32_t)
FOR_TYPE(8, int64_t, int64_t)
FOR_TYPE(8u, uint64_t, int64_t)
void __kmpc_for_static_fini(void*, int32_t) {}
void __kmpc_dispatch_deinit(void*, int32_t) {}
}
#pragma GCC visibility pop
