"""Kernels that memory limits on a GPU: ours, eager's and torch.compile's, in turns, beside a copy of as many bytes.

    python tools/run_in_tree.py python benchmarks/micro/memory_bound.py [--only WORDS] [--size MB] [--no-torch] [--config KIND:SIZES]...

Each --config adds a line to every case, for ours with other block sizes in kernels of a kind: "persistent:XBLOCK=1,RBLOCK=1024,warps=1".
memory_bound_cpu.py is the same for CPUs.

"bytes" are those that must move: inputs read once, results written once, forward and backward where both run. "share" is the time of a copy
that moves as many over ours. "error" is the largest one, over the largest value of the exact result, beside eager's; of sorts, whether
values are eager's.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import tracework
from tracework_inductor.codegen.triton import config as config_table

BF16, F32, I64 = torch.bfloat16, torch.float32, torch.int64


@dataclass(frozen=True)
class Case:
    """A function of tensors; inputs(elements) on the default device; moved: elements' bytes times this must move.

    backward: the gradients of all floating inputs are computed too."""

    name: str
    fn: Callable[..., Any]
    inputs: Callable[[int], Sequence[torch.Tensor]]
    moved: float
    dtype: torch.dtype
    backward: bool = False
    exact: bool = True


def rows(width: int, dtype: torch.dtype, *more: Callable[[int, int], torch.Tensor]) -> Callable[[int], list[torch.Tensor]]:
    """A matrix of rows so long, and what follows from its sizes."""

    def made(elements: int) -> list[torch.Tensor]:
        height = max(1, elements // width)
        height -= height % 128 if height > 128 else 0
        return [torch.randn(height, width).to(dtype), *(f(height, width) for f in more)]

    return made


def vector(dtype: torch.dtype) -> Callable[[int, int], torch.Tensor]:
    return lambda height, width: torch.randn(width).to(dtype)


def images(channels: int, side: int, dtype: torch.dtype, form: torch.memory_format) -> Callable[[int], list[torch.Tensor]]:
    def made(elements: int) -> list[torch.Tensor]:
        count = max(1, elements // (channels * side * side))
        return [torch.randn(count, channels, side, side).to(dtype, memory_format=form)]

    return made


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    v = x.float()
    return (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


def router(x: torch.Tensor) -> Any:
    weights, experts = torch.topk(torch.softmax(x.float(), -1), 8)
    return weights / weights.sum(-1, keepdim=True), experts


def cases(of: torch.dtype) -> list[Case]:
    """With floats of this dtype, where the case does not say which."""
    found = []
    for width in (1024, 4096, 8192):
        vectors = vector(of), vector(of)
        found += [
            Case(f"softmax {width}", lambda x: torch.softmax(x, -1), rows(width, of), 2, of),
            Case(f"layer norm {width}", layer_norm, rows(width, of, *vectors), 2, of),
            Case(f"layer norm both ways {width}", layer_norm, rows(width, of, *vectors), 5, of, backward=True),
            Case(f"rms norm both ways {width}", rms_norm, rows(width, of, vectors[0]), 5, of, backward=True),
        ]
    targets = lambda height, width: torch.randint(0, width, (height,))
    found += [
        Case("gelu", F.gelu, rows(4096, of), 2, of),
        Case("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), rows(4096, of), 2, of),
        Case("gelu tanh both ways", lambda x: F.gelu(x, approximate="tanh"), rows(4096, of), 5, of, backward=True),
        Case("softplus", F.softplus, rows(4096, of), 2, of),
        Case("mish", F.mish, rows(4096, of), 2, of),
        Case("gelu both ways", F.gelu, rows(4096, of), 5, of, backward=True),
        Case("cross entropy 128256", F.cross_entropy, rows(128256, of, targets), 1, of),
        Case("cross entropy both ways 128256", F.cross_entropy, rows(128256, of, targets), 3, of, backward=True),
        Case("transpose", lambda x: x.t().contiguous(), rows(4096, of), 2, of),
        Case(
            "transpose of heads",
            lambda x: x.view(-1, min(128, len(x)), 32, 128).transpose(1, 2).contiguous(),
            rows(4096, of),
            2,
            of,
        ),
        Case("cumsum 4096", lambda x: torch.cumsum(x, -1), rows(4096, F32), 2, F32),
        Case("sum of columns", lambda x: x.sum(0), rows(4096, of), 1, of),
        Case("router of 128 experts, 8 chosen", router, rows(128, BF16), 1 + 8 * 12 / 256, BF16, exact=False),
        Case("topk 4 of 256", lambda x: tuple(torch.topk(x, 4)), rows(256, F32), 1 + 4 * 12 / 1024, F32, exact=False),
        Case("topk 50 of 128256", lambda x: tuple(torch.topk(x, 50)), rows(128256, F32), 1, F32, exact=False),
        Case("median 256", lambda x: x.median(-1).values, rows(256, F32), 1, F32, exact=False),
    ]
    for form, name in ((torch.contiguous_format, ""), (torch.channels_last, " channels last")):
        large, small = images(64, 112, of, form), images(64, 56, of, form)
        pool, mean = lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1)
        twice = lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")
        found += [
            Case(f"max pool{name}", pool, large, 1.25, of),
            Case(f"max pool both ways{name}", pool, large, 2.5, of, backward=True),
            Case(f"avg pool{name}", mean, large, 1.25, of),
            Case(f"avg pool both ways{name}", mean, large, 2.5, of, backward=True),
            Case(f"bilinear{name}", twice, small, 5, of),
            Case(f"bilinear both ways{name}", twice, small, 10, of, backward=True),
        ]
    for width in (64, 128, 256, 512, 1024, 2048, 4096):
        found += [
            Case(f"sort {width} fp32", lambda x: tuple(torch.sort(x, -1)), rows(width, F32), 4, F32, exact=False),
            Case(f"sort {width} bf16", lambda x: tuple(torch.sort(x, -1)), rows(width, BF16), 6, BF16, exact=False),
        ]
    return found


def call_of(fn: Callable[..., Any], inputs: Sequence[torch.Tensor], backward: bool) -> Callable[[], Any]:
    """One call, whose gradients are its results if they are wanted."""
    if not backward:
        return lambda: fn(*inputs)
    leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in inputs]
    wanted = [t for t in leaves if t.requires_grad]
    with torch.no_grad():
        out = fn(*inputs)
        grad = (torch.arange(out.numel()) % 5 - 2).to(out.dtype).reshape(out.shape)

    def call() -> Any:
        out = fn(*leaves)
        return (out.detach(), *torch.autograd.grad(out, wanted, grad))

    return call


LONGEST_SLEEP = 1 << 28
"""Cycles, some 0.15 s: a call that is not enqueued by then waits for the device itself."""


def timed(call: Callable[[], Any], cycles: int) -> tuple[float, bool]:
    """Microseconds of a call on the device behind so many idle cycles, and whether the host had enqueued all of it before it began."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)
    start.record()
    call()
    end.record()
    ahead = not start.query()
    end.synchronize()
    return start.elapsed_time(end) * 1e3, ahead


def in_turns(calls: dict[str, Callable[[], Any]], repeat: int = 9) -> dict[str, float]:
    """Name -> median microseconds of a call on the device. The time of the host, which an autograd step has most of, does not count: the
    device idles until all is enqueued."""
    cycles = {}
    for name, call in calls.items():
        for _ in range(2):
            call()
        cycles[name] = 1 << 20
        while not timed(call, cycles[name])[1] and cycles[name] < LONGEST_SLEEP:
            cycles[name] *= 2
    times: dict[str, list[float]] = {name: [] for name in calls}
    late = dict.fromkeys(calls, 0)
    for _ in range(repeat):
        for name, call in calls.items():
            found, ahead = timed(call, 2 * cycles[name])
            times[name].append(found)
            late[name] += not ahead
    if waiting := [name for name, count in late.items() if 2 * count > repeat]:
        print(f"the next line counts time of the host: {', '.join(waiting)}")
    return {name: statistics.median(found) for name, found in times.items()}


def listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


def error(found: Any, exact: Any) -> float:
    return max(
        float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-30))
        for a, b in zip(listed(found), listed(exact), strict=True)
    )


def compared(case: Case, ours: Any, eager: Any, elements: int) -> str:
    """Of a small input for the errors: float64 takes four times the memory.

    The exact result is of row-major inputs: torch 2.13's gradient of avg_pool2d with padding is wrong for channels-last ones on a GPU, where it
    looks for an element's windows as if there were no padding (pytorch/pytorch#188344).
    """
    inputs = case.inputs(min(elements, 1 << 22))
    results = [call_of(fn, [t.clone() for t in inputs], case.backward)() for fn in (ours, eager)]
    if not case.exact:
        found, expected = (listed(r)[0] for r in results)
        return f"values equal {torch.equal(found, expected) or error(found, expected)}"
    wide = [t.double().contiguous() if t.is_floating_point() else t for t in inputs]
    exact = call_of(eager, wide, case.backward)()
    return f"{error(results[0], exact):.1e} {error(results[1], exact):.1e}"


@contextlib.contextmanager
def block_sizes(text: str) -> Iterator[None]:
    """Kernels of a kind have these block sizes, in Triton's names, warps and stages."""
    if not text:
        yield
        return
    kind, _, sizes = text.partition(":")
    numbers = {name: int(n) for name, n in (pair.split("=") for pair in sizes.split(","))}
    compiled = numbers.pop("warps", 4), numbers.pop("stages", 1)
    usual = config_table.TABLES[kind]
    config_table.TABLES[kind] = lambda shape: [config_table.Config(numbers, *compiled)]
    try:
        yield
    finally:
        config_table.TABLES[kind] = usual


def measure(case: Case, megabytes: float, with_torch: bool) -> str:
    """One line."""
    torch.manual_seed(0)
    tracework.reset()
    elements = int(megabytes * 1e6) // case.dtype.itemsize
    ours = tracework.compile(case.fn, dynamic=False, options={"cache": False})
    note = compared(case, ours, case.fn, elements)
    inputs = case.inputs(elements)
    moved = int(inputs[0].nbytes * case.moved)
    source = torch.empty(moved // 2, dtype=torch.uint8)
    target = torch.empty_like(source)
    calls = {
        "copy": lambda: target.copy_(source),
        "eager": call_of(case.fn, inputs, case.backward),
        "ours": call_of(ours, inputs, case.backward),
    }
    if with_torch:
        torch.compiler.reset()
        calls["torch"] = call_of(torch.compile(case.fn, dynamic=False), inputs, case.backward)
    us = in_turns(calls)
    figures = "".join(f"{us.get(name, float('nan')):9.0f}" for name in ("copy", "eager", "torch", "ours"))
    return f"{case.name:34s}{moved / 1e6:7.{0 if moved > 1e7 else 1}f}{figures}{us['copy'] / us['ours']:7.2f}   {note}"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names hold one of these words, separated by commas")
    parser.add_argument("--size", default="134", help="megabytes of the first input, separated by commas")
    parser.add_argument("--no-torch", action="store_true", help="without torch.compile")
    parser.add_argument("--config", action="append", default=[], help="block sizes for ours, in a line of their own")
    chosen = parser.parse_args()
    torch.set_default_device("cuda")
    print(torch.cuda.get_device_name())
    print(f"{'case':34s}{'MB':>7s}{'copy us':>9s}{'eager':>9s}{'torch':>9s}{'ours':>9s}{'share':>7s}   error: ours, eager's")
    for case in cases(BF16):
        if any(word in case.name for word in chosen.only.split(",")):
            for size, config in itertools.product(chosen.size.split(","), ("", *chosen.config)):
                with block_sizes(config):
                    print(measure(case, float(size), not (chosen.no_torch or config)), config, flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
