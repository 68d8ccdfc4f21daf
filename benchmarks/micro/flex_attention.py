"""flex_attention on a GPU, bf16: milliseconds of a forward and of a backward, against torch.compile and the library's flash kernel.

    python tools/run_in_tree.py python benchmarks/micro/flex_attention.py [--lengths 1024,8192] [--widths 64,128] [--only causal]

A backward is what a step takes longer than its forward alone: every backward has a forward of its own, since torch.compile's frees what it
reads. Programs are compiled in processes of their own first, at the same time, and taken from the caches then. The last columns are the
share of the library's speed, for masks that it has (of others: of its causal kernel, by the elements that are not masked), the largest
error of output and gradients over the largest element, against float32, and the growth of memory in MiB.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import tracework
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, TOKENS = 16, 32768
WINDOW = 1024


@functools.cache
def programs(length: int) -> dict[str, tuple[Any, Any]]:
    """Score and mask functions by name."""
    slopes = torch.exp2(-torch.arange(1, HEADS + 1, device="cuda") / 2)
    documents = torch.arange(length, device="cuda") // max(length // 8, 1)

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    return {
        "plain": (None, None),
        "causal": (None, causal),
        "window": (None, lambda b, h, i, j: (i >= j) & (i - j < WINDOW)),
        "alibi": (lambda s, b, h, i, j: s + slopes[h] * (j - i), causal),
        "documents": (None, lambda b, h, i, j: (documents[i] == documents[j]) & (i >= j)),
        "soft-cap": (lambda s, b, h, i, j: 20 * torch.tanh(s / 20), causal),
    }


@functools.cache
def block_mask(name: str, length: int) -> Any:
    """The BlockMask of a program, None where it masks nothing."""
    mask = programs(length)[name][1]
    return None if mask is None else create_block_mask(mask, None, None, length, length, device="cuda")


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of rounds of 0.1 s in all, of 3 at least."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 100 and len(times) < 100):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measured(call: Callable[..., Any], inputs: list[torch.Tensor], grad: torch.Tensor) -> tuple[float, float, int]:
    """Milliseconds of a forward and of a backward, and MiB that both take beside their inputs."""

    def step() -> None:
        torch.autograd.grad(call(*inputs), inputs, grad)

    with torch.no_grad():
        forward = milliseconds(lambda: call(*inputs))
    step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    grown = (torch.cuda.max_memory_allocated() - before) >> 20
    return forward, milliseconds(step) - milliseconds(lambda: call(*inputs)), grown


def operands(length: int, width: int) -> list[torch.Tensor]:
    """Queries, keys and values."""
    sizes = max(TOKENS // length, 1), HEADS, length, width
    return [torch.randn(sizes, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


def systems(with_torch: bool) -> dict[str, Callable[..., Any]]:
    """The compilers by name, with nothing compiled: each limits how often a function is compiled again."""
    tracework.reset()
    torch.compiler.reset()
    own = {"tracework": tracework.compile(attend, dynamic=False)}
    return own | {"torch": torch.compile(attend, dynamic=False)} if with_torch else own


def warm(name: str, width: int, lengths: list[int], with_torch: bool) -> None:
    """Compiles what is measured of a program, so that the caches on disk have it."""
    for call in systems(with_torch).values():
        errors(call, name, width)
    for length in lengths:
        inputs = operands(length, width)
        for call in systems(with_torch).values():
            with torch.no_grad():
                call(*inputs, programs(length)[name][0], block_mask(name, length))
            call(*inputs, programs(length)[name][0], block_mask(name, length)).sum().backward()


def warm_all(cases: Iterable[tuple[str, int]], lengths: list[int], with_torch: bool) -> None:
    """All programs, by as many processes as there are cores."""
    started = time.perf_counter()
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 12), multiprocessing.get_context("spawn")) as pool:
        for found in [pool.submit(warm, name, width, lengths, with_torch) for name, width in cases]:
            found.result()
    print(f"compiled in {time.perf_counter() - started:.0f} s", flush=True)


def errors(call: Callable[..., Any], name: str, width: int) -> list[float]:
    """Of output and gradients, over the largest element, at a length of 500."""
    score, mask = programs(500)[name]
    exact = [torch.randn(1, HEADS, 500, width, device="cuda").bfloat16().float().requires_grad_() for _ in range(3)]
    grad = torch.randn(1, HEADS, 500, width, device="cuda")
    scores = exact[0] @ exact[1].transpose(-1, -2) / width**0.5
    index = [torch.arange(n, device="cuda").view([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)]
    scores = scores if score is None else score(scores, *index)
    scores = scores if mask is None else torch.where(mask(*index), scores, float("-inf"))
    wanted = scores.softmax(-1) @ exact[2]
    halves = [x.detach().bfloat16().requires_grad_() for x in exact]
    found = call(*halves, score, block_mask(name, 500))
    pairs = [(found, wanted)] + list(
        zip(torch.autograd.grad(found, halves, grad.bfloat16()), torch.autograd.grad(wanted, exact, grad), strict=True)
    )
    return [((a.float() - b).abs().max() / b.abs().max()).item() for a, b in pairs]


def attend(q: Any, k: Any, v: Any, score: Any, blocks: Any) -> Any:
    """The program that is compiled."""
    return flex_attention(q, k, v, score_mod=score, block_mask=blocks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", default="1024,8192,32768")
    parser.add_argument("--widths", default="64,128")
    parser.add_argument("--only", default="")
    parser.add_argument("--without-torch", action="store_true")
    given = parser.parse_args()
    lengths, with_torch = list(map(int, given.lengths.split(","))), not given.without_torch
    cases = [(name, width) for width in map(int, given.widths.split(",")) for name in programs(8) if given.only in name]
    warm_all(cases, lengths, with_torch)
    for name, width in cases:
        for who, call in systems(with_torch).items():
            print(f"errors {name} {width} {who}", " ".join(f"{e:.1e}" for e in errors(call, name, width)), flush=True)
        for length in lengths:
            inputs = operands(length, width)
            grad = torch.randn_like(inputs[0])
            score, blocks = programs(length)[name][0], block_mask(name, length)
            seen = {"plain": 1.0, "window": min(WINDOW, length) * 2 / length, "documents": 1 / 8}.get(name, 1.0)
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                flash = measured(
                    lambda *x: torch.nn.functional.scaled_dot_product_attention(*x, is_causal=name != "plain"), inputs, grad
                )
            print(f"{name} {width} {length} flash {flash[0]:.3f} {flash[1]:.3f} ms, {flash[2]} MiB", flush=True)
            for who, call in systems(with_torch).items():
                forward, backward, grown = measured(lambda *x, call=call: call(*x, score, blocks), inputs, grad)
                shares = f"{min(seen, 1.0) * flash[0] / forward:.2f} {min(seen, 1.0) * flash[1] / backward:.2f} of flash"
                print(f"{name} {width} {length} {who} {forward:.3f} {backward:.3f} ms, {shares}, {grown} MiB", flush=True)


if __name__ == "__main__":
    main()
