"""Products of a few rows, as the steps of decoders make them, against a copy of the same bytes and against torch, in one run.

    python tools/run_in_tree.py python benchmarks/micro/gemv.py [--device cpu] [--only WORDS] [--rows 1,4]

Each case is called with one set of weights after the other, of more bytes together than the L2 cache keeps, in one replayed CUDA graph:
times are of the device and hold the gaps between kernels. What is compared takes turns. "copy" is torch's copy of half the bytes, which
reads and writes as much; "of copy" is its time over ours. On a CPU the calls follow each other without a graph, and "copy" is torch's sum of
the bytes, which reads them. "error" is that of our result, in units of float64's norm, beside torch's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import tracework

BF16, F16, F32, I8, U8 = torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8
SETS_BYTES = 400_000_000
"""Bytes of all sets of weights: several times the L2 cache."""


@dataclass(frozen=True)
class Case:
    """A function of (rows, inner) and weights; weights: (sizes, dtype) of each."""

    name: str
    fn: Callable[..., torch.Tensor]
    inner: int
    weights: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    dtype: torch.dtype = BF16

    @property
    def bytes(self) -> int:
        """Of the weights."""
        return sum(torch.Size(sizes).numel() * dtype.itemsize for sizes, dtype in self.weights)


def _norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    v = x.float()
    return w * (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _norm_qkv(x: torch.Tensor, w: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    h = _norm(x, w)
    return F.linear(h, q), F.linear(h, k), F.linear(h, v)


def _norm_gate_up(x: torch.Tensor, w: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    h = _norm(x, w)
    return F.silu(F.linear(h, gate)) * F.linear(h, up)


def _residual(x: torch.Tensor, down: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return residual[: x.shape[0]] + F.linear(x, down)


def _quantised(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype) * scale[:, None])


def _quantised_qkv(x: torch.Tensor, w: torch.Tensor, *parts: torch.Tensor) -> Any:
    h = _norm(x, w)
    return tuple(_quantised(h, q, scale) for q, scale in zip(parts[:3], parts[3:], strict=True))


def _quantised_gate_up(x: torch.Tensor, w: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
    h = _norm(x, w)
    return F.silu(_quantised(h, parts[0], parts[2])) * _quantised(h, parts[1], parts[3])


def _four_bits(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Two neighbours in a byte, a scale for each group of a row."""
    rows, groups = scale.shape
    values = torch.stack((packed & 15, packed >> 4), -1).view(rows, groups, -1)
    return F.linear(x, ((values.to(x.dtype) - 8) * scale[:, :, None]).view(rows, -1))


def _heads(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x[:, None, :64].expand(-1, len(keys), -1).transpose(0, 1), keys.mT)


def _experts(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x.expand(len(w), -1, -1), w)


def _vector(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.mv(w, x[0])


def _conv1d(x: torch.Tensor, bias: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, x, w)


def _gelu(x: torch.Tensor, bias: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(torch.addmm(bias, x, w), approximate="tanh")


def cases() -> list[Case]:
    """Of Llama 1B and 8B, Qwen 0.5B, GPT-2 and T5."""
    found = []
    for model, width, values, inner in (
        ("llama1b", 2048, 512, 8192),
        ("llama8b", 4096, 1024, 14336),
        ("qwen0.5b", 896, 128, 4864),
    ):
        square, up, down = ((width, width), BF16), ((inner, width), BF16), ((width, inner), BF16)
        norm, key = ((width,), BF16), ((values, width), BF16)
        found += [
            Case(f"{model} linear o {width}x{width}", F.linear, width, (square,)),
            Case(f"{model} linear up {inner}x{width}", F.linear, width, (up,)),
            Case(f"{model} linear down {width}x{inner}", F.linear, inner, (down,)),
            Case(f"{model} norm qkv", _norm_qkv, width, (norm, square, key, key)),
            Case(f"{model} norm gate up silu", _norm_gate_up, width, (norm, up, up)),
            Case(f"{model} down residual", _residual, inner, (down, ((8, width), BF16))),
            Case(f"{model} int8 up", _quantised, width, ((up[0], I8), ((inner,), BF16))),
            Case(f"{model} int8 down", _quantised, inner, ((down[0], I8), ((width,), BF16))),
            Case(f"{model} int8 norm qkv", _quantised_qkv, width, (norm, *_eight_bits(width, width, values, values))),
            Case(f"{model} int8 norm gate up", _quantised_gate_up, width, (norm, *_eight_bits(width, inner, inner))),
        ]
    found += [
        Case("llama1b head 128256x2048", F.linear, 2048, (((128256, 2048), BF16),)),
        Case("gpt2 qkv", _conv1d, 768, (((2304,), BF16), ((768, 2304), BF16))),
        Case("gpt2 up gelu", _gelu, 768, (((3072,), BF16), ((768, 3072), BF16))),
        Case("gpt2 down", _conv1d, 3072, (((768,), BF16), ((3072, 768), BF16))),
        Case("t5 512x512 fp32", F.linear, 512, (((512, 512), F32),), F32),
        Case("t5 2048x512 fp32", F.linear, 512, (((2048, 512), F32),), F32),
        Case("4096x4096 fp32", F.linear, 4096, (((4096, 4096), F32),), F32),
        Case("4096x4096 fp16", F.linear, 4096, (((4096, 4096), F16),), F16),
        Case("llama1b int4 up", _four_bits, 2048, (((8192, 1024), U8), ((8192, 16), BF16))),
        Case("llama1b int4 down", _four_bits, 8192, (((2048, 4096), U8), ((2048, 64), BF16))),
        Case("heads 32x(512x64)", _heads, 64, (((32, 512, 64), BF16),)),
        Case("experts 8x(1024x1024)", _experts, 1024, (((8, 1024, 1024), BF16),)),
        Case("vector 4096x4096", _vector, 4096, (((4096, 4096), BF16),)),
    ]
    return found


def _eight_bits(width: int, *rows: int) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Matrices of so many rows, and then their scales."""
    return [*(((n, width), I8) for n in rows), *(((n,), BF16) for n in rows)]


def weights_of(case: Case, device: str) -> list[list[torch.Tensor]]:
    """So many sets that a set is no longer in the L2 cache when its turn comes."""
    torch.manual_seed(0)
    sets = max(4, min(64, -(-SETS_BYTES // case.bytes)))
    return [[_random(sizes, dtype, device) for sizes, dtype in case.weights] for _ in range(sets)]


def _random(sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.randint(*((-127, 128) if dtype == I8 else (0, 256)), sizes, dtype=dtype, device=device)
    return torch.randn(sizes, dtype=dtype, device=device) / 8


def recorded(calls: Sequence[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """All calls as one graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return graph


def in_turns(graphs: dict[str, torch.cuda.CUDAGraph], repeat: int = 7) -> dict[str, float]:
    """Name -> median milliseconds of a replay."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(repeat + 1):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def in_turns_on_cpu(calls: dict[str, list[Callable[[], Any]]], repeat: int = 7) -> dict[str, float]:
    """Name -> median milliseconds of all calls of that name."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat + 1):
        for name, of_name in calls.items():
            start = time.perf_counter()
            for call in of_name:
                call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def error(found: Any, wanted: Any) -> float:
    """The largest error of a result, over its norm."""
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)


def measure(case: Case, rows: int, device: str) -> str:
    """One line."""
    sets = weights_of(case, device)
    x = _random((rows, case.inner), case.dtype, device)
    ours = tracework.compile(case.fn, fullgraph=True, dynamic=False)
    with torch.no_grad():
        wanted = case.fn(x.double(), *(w.double() if w.is_floating_point() else w for w in sets[0]))
        errors = [error(fn(x, *sets[0]), wanted) for fn in (ours, case.fn)]
        calls = {
            "copy": _moves(case.bytes, len(sets), device),
            "torch": [lambda w=w: case.fn(x, *w) for w in sets],  # type: ignore[misc]
            "ours": [lambda w=w: ours(x, *w) for w in sets],  # type: ignore[misc]
        }
        if device == "cpu":
            found = in_turns_on_cpu(calls)
        else:
            found = in_turns({name: recorded(of_name) for name, of_name in calls.items()})
        us = {name: ms * 1e3 / len(sets) for name, ms in found.items()}
    figures = "".join(f"{us[name]:8.2f}" for name in ("copy", "torch", "ours"))
    speed = case.bytes / us["ours"] / 1e3
    return f"{case.name:34s}{rows:3d}{figures}{us['copy'] / us['ours']:9.2f}{speed:7.0f}   {errors[0]:.1e} {errors[1]:.1e}"


def _moves(size: int, sets: int, device: str) -> list[Callable[[], Any]]:
    """Calls that move so many bytes each, as quickly as torch can."""
    if device == "cpu":
        memory = torch.ones(size // 4 * sets)
        return [memory[n * (size // 4) : (n + 1) * (size // 4)].sum for n in range(sets)]
    half = size // 2
    memory, to = (torch.empty(half * sets, dtype=torch.uint8, device=device) for _ in range(2))
    parts = [(to[n * half : (n + 1) * half], memory[n * half : (n + 1) * half]) for n in range(sets)]
    return [lambda a=a, b=b: a.copy_(b) for a, b in parts]  # type: ignore[misc]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names hold one of these words, separated by commas")
    parser.add_argument("--rows", default="1", help="numbers of rows, separated by commas")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    chosen = parser.parse_args()
    words = chosen.only.split(",")
    if chosen.device == "cuda":
        print(torch.cuda.get_device_name())
    print(f"{'case':34s}{'M':>3s}{'copy us':>8s}{'torch':>8s}{'ours':>8s}{'of copy':>9s}{'GB/s':>7s}   error: ours, torch's")
    for case in cases():
        if any(word in case.name for word in words):
            for rows in chosen.rows.split(","):
                print(measure(case, int(rows), chosen.device), flush=True)
                if chosen.device == "cuda":
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
