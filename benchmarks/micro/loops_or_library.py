"""Prims that loops compute, against the library's kernels for them: time of one call, and the error of both against float64.

python tools/run_in_tree.py python benchmarks/micro/loops_or_library.py [--device cuda] [NAME ...]

A lowering that is slower than the library somewhere should refuse there (lowering/<family>.py).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "inductor" / "tests"))

import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import InductorOptions, compile_graph
from tracework_primops import prims

ROUNDS, CALLS = 20, 10
Program = Callable[..., Any]
Make = Callable[[torch.device], tuple[torch.Tensor, ...]]


def _images(*sizes: int) -> Make:
    return lambda device: (torch.randn(sizes, device=device),)


def _rows(*sizes: int) -> Callable[[torch.device], torch.Tensor]:
    return lambda device: torch.randn(sizes, device=device).sort(-1).values


def _padded(pad: Any, backward: Any, padding: tuple[int, ...]) -> tuple[Program, Make]:
    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        x = torch.randn(16, 64, 112, 112, device=device)
        return torch.randn_like(pad(x, padding)), x

    return lambda grad, x: backward(grad, x, padding), make


def _pooled_backward(sizes: tuple[int, ...]) -> tuple[Program, Make]:
    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        x = torch.randn(16, 64, 56, 56, device=device)
        values, indices = prims.adaptive_max_pool(x, sizes)
        return torch.randn_like(values), x, indices

    return prims.adaptive_max_pool_backward, make


def _masked(rows: bool) -> Make:
    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        mask = torch.rand(2048, 1 if rows else 4096, device=device) > 0.5
        return (
            torch.randn(2048, 4096, device=device),
            mask.expand(2048, 4096).contiguous(),
            torch.randn(2048, 4096, device=device),
        )

    return make


def _vectors(count: int, dtype: torch.dtype = torch.float32) -> Make:
    return lambda device: (torch.randn(count, device=device).to(dtype), torch.randn(count, device=device).to(dtype))


def _put(accumulate: bool) -> tuple[Program, Make]:
    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        index = torch.randperm(1 << 22, device=device)[: 1 << 20]
        return torch.randn(2048, 2048, device=device), index, torch.randn(1 << 20, device=device)

    return lambda x, i, s: prims.put(x, i, s, accumulate), make


def _search(prim: Program) -> Program:
    return lambda x, row: prim(x, row)


CASES: dict[str, tuple[Program, Make]] = {
    **{
        f"bucketize by {n}": (
            _search(prims.bucketize),
            lambda device, n=n: (torch.randn(1 << 20, device=device), _rows(n)(device)),
        )
        for n in (16, 1000, 100_000)
    },
    "searchsorted": (
        _search(prims.searchsorted),
        lambda device: (_rows(256, 1000)(device), torch.randn(256, 4096, device=device)),
    ),
    "patches 3x3": (lambda x: prims.im2col(x, (3, 3), (1, 1), (1, 1), (1, 1)), _images(16, 64, 56, 56)),
    "patches 16x16": (lambda x: prims.im2col(x, (16, 16), (1, 1), (0, 0), (16, 16)), _images(32, 3, 224, 224)),
    "image 3x3": (lambda x: prims.col2im(x, (56, 56), (3, 3), (1, 1), (1, 1), (1, 1)), _images(16, 64 * 9, 56 * 56)),
    "image 16x16": (lambda x: prims.col2im(x, (224, 224), (16, 16), (1, 1), (0, 0), (16, 16)), _images(32, 3 * 256, 14 * 14)),
    "largest, 56 to 28": (lambda x: prims.adaptive_max_pool(x, (28, 28)), _images(16, 64, 56, 56)),
    "largest, 56 to 20": (lambda x: prims.adaptive_max_pool(x, (20, 20)), _images(16, 64, 56, 56)),
    "largest, gradient, 28": _pooled_backward((28, 28)),
    "largest, gradient, 20": _pooled_backward((20, 20)),
    "bicubic, twice": (lambda x: prims.upsample_bicubic(x, (112, 112), False, (None, None)), _images(16, 64, 56, 56)),
    "bicubic, half": (lambda x: prims.upsample_bicubic(x, (28, 28), False, (None, None)), _images(16, 64, 56, 56)),
    "mirror, gradient, 1": _padded(prims.reflection_pad, prims.reflection_pad_backward, (1, 1, 1, 1)),
    "mirror, gradient, 3": _padded(prims.reflection_pad, prims.reflection_pad_backward, (3, 3, 3, 3)),
    "copies, gradient, 1": _padded(prims.replication_pad, prims.replication_pad_backward, (1, 1, 1, 1)),
    "copies, gradient, 2": _padded(prims.replication_pad, prims.replication_pad_backward, (2, 2, 2, 2)),
    "put": _put(False),
    "put, added": _put(True),
    "masked_scatter": (prims.masked_scatter, _masked(rows=False)),
    "masked_scatter of rows": (prims.masked_scatter, _masked(rows=True)),
    **{
        f"dot of {n}, {dtype}": (prims.dot, _vectors(n, dtype))
        for n in (1000, 1 << 22)
        for dtype in (torch.float32, torch.bfloat16)
    },
    "frexp": (prims.frexp, _images(1 << 22)),
    "logaddexp2": (prims.logaddexp2, _vectors(1 << 22)),
}


def milliseconds(call: Callable[..., Any], given: tuple[torch.Tensor, ...], device: torch.device) -> float:
    """Of one call, several in a row."""
    if device.type == "cpu":
        before = time.perf_counter()
        for _ in range(CALLS):
            call(list(given))
        return (time.perf_counter() - before) * 1e3 / CALLS
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(2_000_000)  # the calls are queued while the device waits: what the host takes does not count
    start.record()
    for _ in range(CALLS):
        call(list(given))
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / CALLS


def errors(program: Program, given: tuple[torch.Tensor, ...], found: Any) -> float:
    """The largest difference from float64, over the largest element."""
    exact = program(*(t.double() if t.is_floating_point() else t for t in given))
    exact = exact if isinstance(exact, tuple) else (exact,)
    worst = 0.0
    for a, b in zip(found, exact, strict=True):
        scale = b.double().abs().max().clamp_min(1e-30)
        worst = max(worst, ((a.double() - b.double()).abs().max() / scale).item())
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args()
    device = torch.device(chosen.device, 0) if chosen.device == "cuda" else torch.device(chosen.device)
    print(f"{torch.cuda.get_device_name() if device.type == 'cuda' else 'cpu'}, torch {torch.__version__}")
    for name, (program, make) in CASES.items():
        if chosen.names and not any(part in name for part in chosen.names):
            continue
        torch.manual_seed(0)
        given = make(device)
        graph = build(program, given)
        prim = next(n.target.name for n in graph.graph.nodes if hasattr(n.target, "family"))
        artifacts = [compile_graph(graph, InductorOptions(fallback_ops=ops)) for ops in (frozenset(), frozenset({prim}))]
        ways = [runtime.load(artifact) for artifact in artifacts]
        off = [errors(program, given, way(list(given))) for way in ways]
        times: list[list[float]] = [[], []]
        for n in range(ROUNDS):
            for which in (0, 1) if n % 2 else (1, 0):
                times[which].append(milliseconds(ways[which], given, device))
        ours, librarys = map(statistics.median, times)
        refused = "; the library's here" if artifacts[0].notes["fallbacks"] else ""
        print(
            f"{name}: {ours * 1e3:.1f} us, library {librarys * 1e3:.1f}, {librarys / ours:.2f} times as fast;"
            f" error {off[0]:.1e}, library {off[1]:.1e}{refused}",
            flush=True,
        )


if __name__ == "__main__":
    main()
