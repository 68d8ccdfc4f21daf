"""What kernels call that zig compiles: here g++ compiles the same calls, written out."""

import ctypes
import subprocess
from pathlib import Path

import pytest
from tracework_runtime import _torch
from tracework_runtime.build import cpp

CALLS = """
#include <atomic>
typedef void (*Task)(int32_t*, int32_t*, ...);
struct Work { int64_t n, step, chunk; int kind; int* seen; };
static int64_t seven(int64_t* p, int64_t* q) { return *p * 10 + *q; }

static void task(int32_t* thread, int32_t* bound, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, Work* work) {
  int32_t last; int64_t lower = 0, upper = work->n - 1, stride = 0;
  if (a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 != 91) return;
  if (work->kind >= 35) {
    __kmpc_dispatch_init_8(nullptr, *thread, work->kind, lower, upper, work->step, work->chunk);
    while (__kmpc_dispatch_next_8(nullptr, *thread, &last, &lower, &upper, &stride))
      for (int64_t n = lower; n <= upper; n += stride) ++work->seen[n];
  } else {
    __kmpc_for_static_init_8(nullptr, *thread, work->kind, &last, &lower, &upper, &stride, work->step, work->chunk);
    for (; lower < work->n; lower += stride, upper += stride) {
      for (int64_t n = lower; n <= upper && n < work->n; n += work->step) ++work->seen[n];
      if (work->kind == 34) break;
    }
    __kmpc_for_static_fini(nullptr, *thread);
  }
  if (__kmpc_reduce(nullptr, *thread, 1, 8, nullptr, nullptr, nullptr) == 1) {
    ++work->seen[work->n];
    __kmpc_end_reduce(nullptr, *thread, nullptr);
  }
}

extern "C" void run(int64_t n, int64_t step, int64_t chunk, int kind, int* seen, int threads) {
  Work work = {n, step, chunk, kind, seen};
  __kmpc_push_num_threads(nullptr, 0, threads);
  __kmpc_fork_call(nullptr, 7, (Task)task, (int64_t)1, (int64_t)2, (int64_t)3, (int64_t)4, (int64_t)5, (int64_t)6, &work);
}
"""
STATIC, IN_TURN, DYNAMIC = 34, 33, 35


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, library = tmp_path_factory.mktemp("kmpc"), _torch.openmp_library()
    (folder / "calls.cpp").write_text(f'#include "{Path(cpp.__file__).with_name("kmpc.cpp")}"\n{CALLS}')
    command = ["g++", "-O2", "-w", "-std=c++17", "-shared", "-fPIC", "calls.cpp", "-o", "calls.so", str(library)]
    subprocess.run(command, check=True, cwd=folder, timeout=300)
    function = ctypes.CDLL(str(folder / "calls.so")).run
    function.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    return function


@pytest.mark.parametrize("kind", [STATIC, IN_TURN, DYNAMIC, DYNAMIC | 1 << 30])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_each_step_is_taken_once(run, kind, count, step, threads):
    for chunk in (0, 1, 4):
        seen = (ctypes.c_int * (count + 1))()
        run(count, step, chunk, kind, seen, threads)
        assert list(seen)[:-1] == [n % step == 0 for n in range(count)] and seen[count] == threads


def test_zig_is_known_however_it_is_called(monkeypatch):
    monkeypatch.setattr(cpp, "_identity", lambda words: "clang")
    for words in (("python", "-m", "ziglang", "c++"), ("/opt/zig/zig", "c++")):
        found = cpp._found(words)
        assert found.command == (*words, "-nostdlib++", "-fno-exceptions") and any("kmpc.cpp" in flag for flag in found.openmp)
    assert not any("kmpc" in flag for flag in cpp._found(("g++",)).openmp)
