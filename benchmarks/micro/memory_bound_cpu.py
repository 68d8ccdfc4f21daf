"""Kernels that memory limits on a CPU: ours, eager's and torch.compile's, in turns, beside a tuned copy of as many bytes.

    python tools/run_in_tree.py python -m benchmarks.micro.memory_bound_cpu [--only WORDS] [--size MB,...] [--threads N] [--no-torch]

The sizes are those of the first input: one that a core's own cache holds, one that the last cache holds, one that none holds. Results lie in
memory that the process has had before: pages that the system fills with zeros at their first write would hide what a kernel takes.

"bytes" are those that must move: inputs read and results written once a direction. "share" is the time of a copy that moves as many, by the
faster of memcpy and streaming stores, over ours. "error" is the largest one, over the largest value of the exact result, beside eager's;
where order or position is the result, whether ours is eager's.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tracework

from benchmarks.micro.memory_bound import call_of, compared, listed

BF16, F32 = torch.bfloat16, torch.float32
SIZES = "0.25,8,256"
COPY = r"""
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
extern "C" void copy(char* to, const char* from, int64_t bytes, int streaming) {
  const int64_t piece = 1 << 16;
#pragma omp parallel for if (bytes > 8 * piece)
  for (int64_t at = 0; at < bytes; at += piece) {
    const int64_t count = bytes - at < piece ? bytes - at : piece;
    if (!streaming) { memcpy(to + at, from + at, count); continue; }
    for (int64_t k = 0; k + 32 <= count; k += 32)
      _mm256_stream_si256((__m256i*)(to + at + k), _mm256_loadu_si256((const __m256i*)(from + at + k))); }
  _mm_sfence(); }
"""
MMAP_MAX, TRIM_THRESHOLD = -4, -1


@dataclass(frozen=True)
class Case:
    """A function of tensors and its inputs for so many elements.

    backward: the gradients of all floating inputs are computed too. exact: whether an error has a meaning. read: the bytes of inputs that
    must be read, where that is not all of them."""

    name: str
    fn: Callable[..., Any]
    inputs: Callable[[int], Sequence[torch.Tensor]]
    dtype: torch.dtype = F32
    backward: bool = False
    exact: bool = True
    read: Callable[[Sequence[torch.Tensor]], int] | None = None


Made = Callable[[int], list[torch.Tensor]]


def rows(width: int, dtype: torch.dtype = F32, *more: Callable[[int, int], torch.Tensor]) -> Made:
    """A matrix of rows so long, and what follows from its sizes."""

    def made(elements: int) -> list[torch.Tensor]:
        height = max(1, elements // width)
        return [torch.randn(height, width).to(dtype), *(f(height, width) for f in more)]

    return made


def weights(dtype: torch.dtype) -> Callable[[int, int], torch.Tensor]:
    return lambda height, width: torch.randn(width).to(dtype)


def classes(height: int, width: int) -> torch.Tensor:
    return torch.randint(0, width, (height,))


def images(channels: int, side: int, form: torch.memory_format = torch.contiguous_format, dtype: torch.dtype = F32) -> Made:
    """Images, so many channels of which are one."""

    def made(elements: int) -> list[torch.Tensor]:
        count = max(1, elements // (channels * side * side))
        return [torch.randn(count, channels, side, side).to(dtype, memory_format=form)]

    return made


def image_norm(channels: int, side: int) -> Made:
    return lambda elements: [*images(channels, side)(elements), torch.randn(channels), torch.randn(channels)]


def several(count: int, width: int) -> Made:
    """Matrices that have the elements together."""
    return lambda elements: [torch.randn(max(1, elements // count // width), width) for _ in range(count)]


def table(width: int, choose: int) -> Made:
    """A table of rows, and indices of a part of them: one of so many."""

    def made(elements: int) -> list[torch.Tensor]:
        height = elements // width
        return [torch.randn(height, width), torch.randint(0, height, (max(1, height // choose),))]

    return made


def heads(elements: int) -> list[torch.Tensor]:
    """Queries of eight heads of 64, and the angles of their positions."""
    length = max(1, elements // 512)
    return [torch.randn(1, 8, length, 64), torch.randn(length, 64), torch.randn(length, 64)]


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    v = x.float()
    return (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 8, w, b)


def rope(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine


def chain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 1.5 + 2) * x - x.abs()


def bag(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(index.view(-1, 8), weight, mode="sum")


def index_add(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1024, x.shape[1], dtype=x.dtype).index_add(0, index % 1024, x)


def adamw(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A step over parameters, gradients and both moments; the results are what it writes."""
    n = len(tensors) // 4
    p, g, m, v = (list(tensors[k * n : (k + 1) * n]) for k in range(4))
    torch._foreach_mul_(p, 1 - 1e-3 * 1e-2)
    torch._foreach_lerp_(m, g, 0.1)
    torch._foreach_mul_(v, 0.999)
    torch._foreach_addcmul_(v, g, g, 0.001)
    root = torch._foreach_sqrt(v)
    torch._foreach_add_(root, 1e-8)
    torch._foreach_addcdiv_(p, m, root, -1e-3)
    return (*p, *m, *v)


def rows_chosen(inputs: Sequence[torch.Tensor]) -> int:
    return inputs[1].nbytes + inputs[1].numel() * inputs[0][0].nbytes


def cases() -> list[Case]:
    """All of them."""
    found: list[Case] = []

    def add(name: str, fn: Callable[..., Any], inputs: Made, *, both: bool = False, **more: Any) -> None:
        """both: a second case with gradients."""
        found.append(Case(name, fn, inputs, **more))
        if both:
            found.append(Case(f"{name}, both ways", fn, inputs, backward=True, **more))

    for width in (64, 1024, 32768):
        add(f"softmax {width}", lambda x: torch.softmax(x, -1), rows(width), both=width == 1024)
        add(f"log_softmax {width}", lambda x: torch.log_softmax(x, -1), rows(width))
    add("softmax of channels", lambda x: torch.softmax(x, 1), images(64, 32), both=True)
    add("layer norm 1024", layer_norm, rows(1024, F32, weights(F32), weights(F32)), both=True)
    add("layer norm 768", layer_norm, rows(768, F32, weights(F32), weights(F32)))
    add("rms norm 1024", rms_norm, rows(1024, F32, weights(F32)), both=True)
    add("group norm", group_norm, image_norm(64, 32), both=True)
    add("batch norm", batch_norm, image_norm(64, 32), both=True)
    add("gelu", F.gelu, rows(1024), both=True)
    add("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), rows(1024), both=True)
    add("silu", F.silu, rows(1024), both=True)
    add("mish", F.mish, rows(1024), both=True)
    add("chain", chain, rows(1024), both=True)
    for width in (1000, 32000, 128256):
        add(f"cross entropy {width}", F.cross_entropy, rows(width, F32, classes), both=True)
    add("transpose", lambda x: x.t().contiguous(), rows(1024))
    add("transpose to bf16", lambda x: x.t().contiguous().bfloat16(), rows(1024))
    last, first = torch.channels_last, torch.contiguous_format
    add("channels last", lambda x: x.contiguous(memory_format=last) + 1, images(64, 32))
    add("channels first", lambda x: x.contiguous(memory_format=first) + 1, images(64, 32, last))
    for form, name in ((first, ""), (last, " channels last")):
        add(f"max pool{name}", lambda x: F.max_pool2d(x, 3, 2, 1), images(64, 32, form), both=True)
        add(f"avg pool{name}", lambda x: F.avg_pool2d(x, 3, 2, 1), images(64, 32, form), both=True)
        add(f"bilinear up{name}", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), images(64, 32, form), both=True)
        add(
            f"bilinear down{name}", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), images(64, 32, form), both=True
        )
    add("max pool 2x2", lambda x: F.max_pool2d(x, 2), images(64, 32), both=True)
    add("sum of rows", lambda x: x.sum(1), rows(1024))
    add("sum of rows of 64", lambda x: x.sum(1), rows(64))
    add("sum of columns", lambda x: x.sum(0), rows(1024))
    add("sum of all", lambda x: x.sum(), rows(1024))
    add("var of rows", lambda x: x.var(1), rows(1024))
    add("var of columns", lambda x: x.var(0), rows(1024))
    add("argmax of rows", lambda x: x.argmax(1), rows(1024), exact=False)
    add("argmax of columns", lambda x: x.argmax(0), rows(1024), exact=False)
    add("amax of rows", lambda x: x.amax(1), rows(1024))
    add("cumsum", lambda x: x.cumsum(1), rows(1024))
    add("cumsum of columns", lambda x: x.cumsum(0), rows(1024))
    add("cumprod", lambda x: (1 + x * 1e-3).cumprod(1), rows(1024))
    for width in (64, 1000):
        add(f"sort {width}", lambda x: tuple(torch.sort(x, -1)), rows(width), exact=False)
        add(f"topk 8 of {width}", lambda x: tuple(torch.topk(x, 8)), rows(width), exact=False)
    add("embedding", lambda w, i: F.embedding(i, w), table(256, 2), both=True, read=rows_chosen)
    add("embedding bag", bag, lambda n: table(256, 2)(n // 2048 * 2048), both=True, read=rows_chosen)
    add("index_add", index_add, table(256, 1))
    add("one_hot", lambda i: F.one_hot(i, 64).float(), lambda n: [torch.randint(0, 64, (max(1, n // 128),))])
    add("cat of 16", lambda *x: torch.cat([t * 2 for t in x], 1), several(16, 64))
    add("stack of 16", lambda *x: torch.stack([t * 2 for t in x], 1), several(16, 64))
    add("rope", rope, heads, both=True)
    add("dropout", lambda x: F.dropout(x, 0.1), rows(1024), both=True, exact=False)
    wide = 1024, BF16
    add("bf16 softmax 1024", lambda x: torch.softmax(x, -1), rows(*wide), both=True, dtype=BF16)
    add("bf16 layer norm 1024", layer_norm, rows(*wide, weights(BF16), weights(BF16)), both=True, dtype=BF16)
    add("bf16 rms norm 1024", rms_norm, rows(*wide, weights(BF16)), both=True, dtype=BF16)
    add("bf16 gelu", F.gelu, rows(*wide), both=True, dtype=BF16)
    add("bf16 silu", F.silu, rows(*wide), dtype=BF16)
    add("bf16 chain", chain, rows(*wide), dtype=BF16)
    add("bf16 cross entropy 32000", F.cross_entropy, rows(32000, BF16, classes), both=True, dtype=BF16)
    add("bf16 transpose", lambda x: x.t().contiguous(), rows(*wide), dtype=BF16)
    add("bf16 sum of rows", lambda x: x.sum(1), rows(*wide), dtype=BF16)
    add("bf16 sum of columns", lambda x: x.sum(0), rows(*wide), dtype=BF16)
    add("bf16 max pool", lambda x: F.max_pool2d(x, 3, 2, 1), images(64, 32, first, BF16), both=True, dtype=BF16)
    add("bf16 to fp32", lambda x: x.float() * 2, rows(*wide), dtype=BF16)
    add("adamw of 20", adamw, lambda n: [t.abs() for t in several(80, 64)(4 * n)])
    return found


@functools.cache
def copying() -> Callable[[torch.Tensor, torch.Tensor, int], None]:
    """copy(to, from, streaming), as long as the process lives."""
    folder = Path(tempfile.mkdtemp())
    (folder / "copy.cpp").write_text(COPY)
    command = ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-o", folder / "copy.so", folder / "copy.cpp"]
    subprocess.run(command, check=True)
    entry = ctypes.CDLL(str(folder / "copy.so")).copy
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    return lambda to, source, streaming: entry(
        pointer(to.data_ptr()), pointer(source.data_ptr()), size(source.nbytes), ctypes.c_int(streaming)
    )


def keep_memory() -> None:
    """Freed memory stays in the process, however large."""
    libc = ctypes.CDLL(None)
    libc.mallopt(MMAP_MAX, 0)
    libc.mallopt(TRIM_THRESHOLD, -1)


def in_turns(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Name -> median microseconds of a call, in rounds of a millisecond or one call, for some seconds together."""
    counts, total = {}, 0.0
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        took = time.perf_counter() - start
        counts[name] = max(1, min(1000, int(1e-3 / took)))
        total += took * counts[name]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(max(3, min(31, int(seconds / total)))):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - start) / counts[name] * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def moved(case: Case, inputs: Sequence[torch.Tensor], results: Any) -> int:
    """Bytes that must move."""
    read = case.read(inputs) if case.read else sum(t.nbytes for t in inputs)
    if not case.backward:
        written = sum(t.nbytes for t in listed(results))
        return read + written
    out, *grads = results
    return 2 * (read + out.nbytes) + sum(t.nbytes for t in grads)


HEAD = f"{'case':38s}{'MB':>8s}{'copy us':>10s}{'eager':>10s}{'torch':>10s}{'ours':>10s}{'share':>7s}{'best':>7s}   error: ours, eager's"


@dataclass
class Compiled:
    """A case of one size that has been compiled and compared: the functions by who made them."""

    case: Case
    elements: int
    functions: dict[str, Callable[..., Any]]
    note: str

    def measure(self, seconds: float) -> str:
        """One line of the table. best: the fastest other one's time over ours."""
        torch.manual_seed(0)
        inputs = self.case.inputs(self.elements)
        calls = {name: call_of(fn, inputs, self.case.backward) for name, fn in self.functions.items()}
        count = moved(self.case, inputs, calls["eager"]())
        copy = copying()
        source = torch.ones(count // 2, dtype=torch.uint8)
        target = torch.ones_like(source)
        copies = {f"copy {k}": functools.partial(copy, target, source, k) for k in (0, 1)}
        us = in_turns({**copies, **calls}, seconds)
        best = min(us.pop(name) for name in copies)
        others = [us[name] for name in ("eager", "torch") if name in us]
        figures = "".join(f"{us.get(name, float('nan')):10.1f}" for name in ("eager", "torch", "ours"))
        title = f"{self.case.name} {self.elements * self.case.dtype.itemsize / 2**20:g}"
        size = f"{count / 1e6:8.{0 if count > 1e7 else 2}f}"
        return f"{title:38s}{size}{best:10.1f}{figures}{best / us['ours']:7.2f}{min(others) / us['ours']:7.2f}   {self.note}"


def compiled(case: Case, megabytes: float, with_torch: bool) -> Compiled:
    """Compiled for this size, with the errors of a result of it, or of one of 8 MB where it is larger."""
    torch.manual_seed(0)
    elements = int(megabytes * 2**20) // case.dtype.itemsize
    functions = {"eager": case.fn, "ours": tracework.compile(case.fn, dynamic=False)}
    if with_torch:
        functions["torch"] = torch.compile(case.fn, dynamic=False)
    note = compared(case, functions["ours"], case.fn, min(elements, 2**21)) if "dropout" not in case.name else ""
    inputs = case.inputs(elements)
    for fn in functions.values():
        call_of(fn, inputs, case.backward)()
    return Compiled(case, elements, functions, note)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names hold one of these words, separated by commas")
    parser.add_argument("--size", default=SIZES, help="megabytes of the first input, separated by commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=1.0, help="that a line is measured for")
    parser.add_argument("--no-torch", action="store_true", help="without torch.compile")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_memory()
    print(f"{torch.backends.cpu.get_cpu_capability()}, {chosen.threads} threads\n{HEAD}")
    for case in cases():
        if any(word in case.name for word in chosen.only.split(",")):
            for size in chosen.size.split(","):
                tracework.reset()
                torch.compiler.reset()
                print(compiled(case, float(size), not chosen.no_torch).measure(chosen.seconds), flush=True)


if __name__ == "__main__":
    main()
