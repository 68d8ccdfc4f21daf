"""Our GPU kernels for typical shapes, against eager and against the memory bandwidth of the same GPU, in one run.

    python tools/run_in_tree.py python benchmarks/micro/kernels_gpu.py [--only WORDS] [--sweep] [--text] [--compile]

Device time is that of replayed CUDA graphs, so that it is free of launch gaps; "host" is what one call costs the CPU,
without waiting. "GB/s" is the fewest bytes the function must move over our time; "peak" compares it with a plain copy.
`--sweep` compares with max_autotune and prints what that has looked at; `--text` prints kernels;
`--compile` adds torch.compile's device time.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import tracework

BF16, F32 = torch.bfloat16, torch.float32
Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A function, its inputs as (sizes, dtype) and how often all inputs and outputs are moved at least.

    bytes: fewest bytes a call moves; train: forward and backward are measured together.
    """

    name: str
    fn: Callable[..., Any]
    inputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    bytes: int
    train: bool = False


def _layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


def _residual_layer_norm(x, y, w, b):
    z = x + y
    return F.layer_norm(z, z.shape[-1:], w, b), z


def _rms_norm(x, w):
    v = x.float()
    return w * (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _cross_entropy(x, target):
    return F.cross_entropy(x.float(), target)


def _batch_norm(x, w, b):
    return F.relu(F.batch_norm(x, None, None, w, b, True))


def _batch_norm_eval(x, w, b, mean, var):
    return F.relu(F.batch_norm(x, mean, var.abs(), w, b, False))


def _swiglu(x, y):
    return F.silu(x) * y


def _rope(q, cos, sin):
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def _depthwise(x, w):
    return F.conv2d(x.permute(0, 3, 1, 2), w, None, 1, w.shape[-1] // 2, 1, w.shape[0])


def cases() -> list[Case]:
    """All cases; sizes are several times the L2 cache where memory is what is measured."""
    found = [
        Case("add 64Mx bf16", torch.add, (((16384, 4096), BF16),) * 2, 3 * 16384 * 4096 * 2),
        Case("gelu 16kx3072 bf16", F.gelu, (((16384, 3072), BF16),), 2 * 16384 * 3072 * 2),
        Case("gelu tanh fwd+bwd", lambda x: F.gelu(x, approximate="tanh"), (((16384, 3072), BF16),), 5 * 16384 * 3072 * 2, True),
        Case("swiglu 16kx2816 fwd+bwd", _swiglu, (((16384, 2816), BF16),) * 2, 8 * 16384 * 2816 * 2, True),
        Case("rope 32x16x1024x64", _rope, (((32, 16, 1024, 64), BF16), *(((1024, 64), BF16),) * 2), 2 * 32 * 16 * 1024 * 64 * 2),
        Case("transpose 8kx8k", lambda x: x.t().contiguous(), (((8192, 8192), BF16),), 2 * 8192 * 8192 * 2),
        Case("column sum 16kx3072", lambda x: x.sum(0), (((16384, 3072), BF16),), 16384 * 3072 * 2),
        Case("column sum 16kx768 fp32", lambda x: x.sum(0), (((16384, 768), F32),), 16384 * 768 * 4),
        Case("sum of all 64M", lambda x: x.float().sum(), (((16384, 4096), BF16),), 16384 * 4096 * 2),
        Case("small add 64x64", torch.add, (((64, 64), F32),) * 2, 3 * 64 * 64 * 4),
    ]
    for rows, width in ((65536, 768), (16384, 4096), (8192, 50257)):
        one = rows * width * 2
        row = (((rows, width), BF16),)
        vectors = (((width,), BF16),) * 2
        if width < 50000:
            found += [
                Case(f"layer norm {rows}x{width}", _layer_norm, row + vectors, 2 * one),
                Case(f"layer norm {rows}x{width} fwd+bwd", _layer_norm, row + vectors, 5 * one, True),
                Case(f"residual+layer norm {rows}x{width}", _residual_layer_norm, row * 2 + vectors, 4 * one),
                Case(f"rms norm {rows}x{width} fwd+bwd", _rms_norm, row + vectors[:1], 5 * one, True),
            ]
        found += [
            Case(f"softmax {rows}x{width}", lambda x: x.softmax(-1), row, 2 * one),
            Case(f"softmax {rows}x{width} fwd+bwd", lambda x: x.softmax(-1), row, 5 * one, True),
            Case(f"cross entropy {rows}x{width}", _cross_entropy, row + (((rows,), torch.int64),), one),
            Case(f"cross entropy {rows}x{width} fwd+bwd", _cross_entropy, row + (((rows,), torch.int64),), 3 * one, True),
        ]
    for channels, side in ((64, 56), (512, 7)):
        image, vector = ((64, channels, side, side), BF16), ((channels,), F32)
        one = 64 * channels * side * side * 2
        found += [
            Case(f"batch norm+relu eval 64x{channels}x{side}^2", _batch_norm_eval, (image,) + (vector,) * 4, 2 * one),
            Case(f"batch norm+relu 64x{channels}x{side}^2", _batch_norm, (image,) + (vector,) * 2, 3 * one),
            Case(f"batch norm+relu 64x{channels}x{side}^2 fwd+bwd", _batch_norm, (image,) + (vector,) * 2, 8 * one, True),
        ]
    for images, channels, side, window in (
        (1, 96, 56, 7),
        (1, 384, 14, 7),
        (1, 768, 7, 7),
        (1, 120, 28, 5),
        (8, 96, 56, 7),
        (8, 672, 14, 3),
    ):
        image, weight = (images, side, side, channels), (channels, 1, window, window)
        name = f"depthwise {window}x{window} {images}x{channels}x{side}^2"
        found.append(Case(name, _depthwise, ((image, BF16), (weight, BF16)), 2 * images * channels * side * side * 2))
    return found


def make(case: Case) -> list[torch.Tensor]:
    """Random inputs; integers index the columns of the first input."""
    torch.manual_seed(0)
    made = []
    for sizes, dtype in case.inputs:
        if dtype == torch.int64:
            made.append(torch.randint(0, made[0].shape[-1], sizes, device="cuda"))
            continue
        made.append(torch.randn(sizes, dtype=dtype, device="cuda").requires_grad_(case.train))
    return made


def in_float64(case: Case, inputs: list[torch.Tensor]) -> Any:
    """What the function gives in float64."""
    wide = [x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
    if case.train:  # the same gradient of the output as in narrower types
        out = case.fn(*wide)
        torch.manual_seed(1)
        grad = torch.randn(out.shape, device="cuda").to(inputs[0].dtype).to(out.dtype)
        return (out, *torch.autograd.grad(out, [x for x in wide if x.requires_grad], grad))
    with torch.no_grad():
        return case.fn(*wide)


def caller(case: Case, fn: Callable[..., Any], inputs: list[torch.Tensor]) -> Callable[[], Any]:
    """One call: forward without gradients, or forward and backward."""
    if not case.train:

        def infer() -> Any:
            with torch.no_grad():
                return fn(*inputs)

        return infer
    wanted = [x for x in inputs if x.requires_grad]
    with torch.no_grad():
        out = case.fn(*inputs)
        torch.manual_seed(1)
        grad = torch.randn(out.shape, device="cuda").to(inputs[0].dtype).to(out.dtype)  # exact in every dtype used
        del out

    def train() -> Any:
        out = fn(*inputs)
        return (out, *torch.autograd.grad(out, wanted, grad))

    return train


def device_us(call: Callable[[], Any], calls: int = 8) -> float:
    """Microseconds of one call on the device: median of replays of a graph of several calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / calls)
    return statistics.median(times)


def host_us(call: Callable[[], Any], calls: int = 20) -> float:
    """Microseconds one call keeps the CPU, with an empty queue at the start."""
    best = float("inf")
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) * 1e6 / calls)
    return best


def peak_mb(call: Callable[[], Any]) -> float:
    """Megabytes allocated at most during one call, above what was there."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def error(got: Any, expected: Any) -> float:
    """The largest relative error of all results."""
    pairs = zip(got, expected, strict=True) if isinstance(got, (tuple, list)) else [(got, expected)]
    return max(((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30)).item() for a, b in pairs)


def copy_rate() -> float:
    """GB/s of a plain copy of 1 GiB, bytes read and written."""
    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.nbytes / device_us(lambda: y.copy_(x)) / 1000


def measure(case: Case, peak: float, with_compile: bool) -> None:
    """Prints one row."""
    inputs = make(case)
    compiled = tracework.compile(case.fn, fullgraph=True, options={"cache": False})
    ours, eager = caller(case, compiled, inputs), caller(case, case.fn, inputs)
    started = time.perf_counter()
    got = ours()
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    truth = in_float64(case, inputs)
    wrong, allowed = error(got, truth), error(eager(), truth)
    del got, truth
    torch.cuda.empty_cache()
    mine, theirs = device_us(ours), device_us(eager)
    rate = case.bytes / mine / 1000
    row = f"{case.name:<40}{theirs:>10.1f}{mine:>10.1f}{theirs / mine:>8.2f}{rate:>8.0f}{rate / peak:>7.0%}"
    row += f"{host_us(eager):>8.1f}{host_us(ours):>8.1f}{peak_mb(eager):>9.0f}{peak_mb(ours):>9.0f}{wrong:>9.0e}{first:>7.2f}"
    if with_compile:
        row += f"{device_us(caller(case, torch.compile(case.fn), inputs)):>10.1f}"
    print(row, "" if wrong <= 2 * allowed + 1e-6 else f"WRONG: eager's error is {allowed:.0e}", flush=True)


# the sweep


def sweep(case: Case) -> None:
    """Device time as it is and with max_autotune, and the candidates of each kernel, the chosen one first."""
    found: list[str] = []

    def observe(stage: str, product: Any) -> None:
        if stage == "inductor":
            for name, lines in product.notes.get("choices", {}).items():
                found.extend(f"    {name} {line}" for line in lines)

    inputs, times = make(case), []
    for tuned in (False, True):
        tracework.reset()
        compiled = tracework.compile(
            case.fn,
            fullgraph=True,
            options={"cache": False, "max_autotune": tuned},
            observe=observe if tuned else lambda *_: None,
        )
        times.append(device_us(caller(case, compiled, inputs)))
    tracework.reset()
    print(f"{case.name}: {times[0]:.1f} us, tuned {times[1]:.1f} us", *found, sep="\n", flush=True)


def _print_texts() -> None:
    from tracework_runtime.launch import triton as launch

    original = launch.bind_all

    def printing(kernels: Any, *rest: Any) -> Any:
        for kernel in kernels:
            print(kernel.source, kernel.launch)
        return original(kernels, *rest)

    launch.bind_all = printing


def main() -> int:
    """Runs all cases; the exit status counts failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only cases whose name has one of these comma-separated words")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if options.text:
        _print_texts()
    peak = copy_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, a copy moves {peak:.0f} GB/s")
    heads = ["eager us", "ours us", "x", "GB/s", "peak", "host e", "host o", "MB e", "MB o", "error", "first s"]
    widths = [10, 10, 8, 8, 7, 8, 8, 9, 9, 9, 8]
    print(f"{'':<40}" + "".join(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True)))
    failures = 0
    for case in cases():
        if options.only and not any(word in case.name for word in options.only.split(",")):
            continue
        try:
            (sweep(case) if options.sweep else measure(case, peak, options.compile))
        except Exception:
            failures += 1
            print(case.name, "FAILED")
            traceback.print_exc(limit=-4)
        tracework.reset()
        torch.cuda.empty_cache()
    return failures


if __name__ == "__main__":
    sys.exit(main())
