"""flex_attention on a GPU, bf16: milliseconds of a forward and of a backward, against torch.compile and the library's flash kernel.

    python tools/run_in_tree.py python benchmarks/micro/flex_attention.py [--lengths 1024,8192] [--widths 64,128] [--only causal]

`--only trained` are biases with gradients, which are left out otherwise. A backward is what a step takes longer than its forward alone: every
backward has a forward of its own, since torch.compile's frees what it reads. Programs are compiled in processes of their own first, at the
same time, and taken from the caches then. The last columns are the share of the library's speed, for masks that it has (of others: of its
causal kernel, by the elements that are not masked), the largest error of output and gradients over the largest element, against float32, and
the growth of memory in MiB.
"""

from __future__ import annotations

import argparse
import functools
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import tracework
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, TOKENS = 16, 32768
WINDOW = 1024
SHORT = 500  # length at which errors are measured


@functools.cache
def programs(length: int) -> dict[str, tuple[Any, Any, list[torch.Tensor]]]:
    """Score and mask functions by name, and what they read that has gradients."""
    slopes = torch.exp2(-torch.arange(1, HEADS + 1, device="cuda") / 2)
    trained = slopes.clone().requires_grad_()
    table = torch.randn(HEADS, 2 * length, device="cuda", requires_grad=True)
    documents = torch.arange(length, device="cuda") // max(length // 8, 1)

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    return {
        "plain": (None, None, []),
        "causal": (None, causal, []),
        "window": (None, lambda b, h, i, j: (i >= j) & (i - j < WINDOW), []),
        "alibi": (lambda s, b, h, i, j: s + slopes[h] * (j - i), causal, []),
        "documents": (None, lambda b, h, i, j: (documents[i] == documents[j]) & (i >= j), []),
        "soft-cap": (lambda s, b, h, i, j: 20 * torch.tanh(s / 20), causal, []),
        "trained slopes": (lambda s, b, h, i, j: s + trained[h] * (j - i), causal, [trained]),
        "trained distances": (lambda s, b, h, i, j: s + table[h, i - j + length], causal, [table]),
    }


@functools.cache
def block_mask(name: str, length: int) -> Any:
    """The BlockMask of a program, None where it masks nothing."""
    mask = programs(length)[name][1]
    return None if mask is None else create_block_mask(mask, None, None, length, length, device="cuda")


def attend(q: Any, k: Any, v: Any, score: Any, blocks: Any) -> Any:
    """The program that is compiled."""
    return flex_attention(q, k, v, score_mod=score, block_mask=blocks)


def systems(with_torch: bool) -> dict[str, Callable[..., Any]]:
    """The compilers by name, with nothing compiled: each limits how often a function is compiled again."""
    tracework.reset()
    torch.compiler.reset()
    own = {"tracework": tracework.compile(attend, dynamic=False)}
    return own | {"torch": torch.compile(attend, dynamic=False)} if with_torch else own


def operands(length: int, width: int) -> list[torch.Tensor]:
    """Queries, keys and values."""
    sizes = max(TOKENS // length, 1), HEADS, length, width
    return [torch.randn(sizes, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


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


def measured(call: Callable[[], torch.Tensor], inputs: Sequence[torch.Tensor]) -> tuple[float, float, int]:
    """Milliseconds of a forward and of a backward, and MiB that both take beside their inputs."""
    grad = torch.randn_like(call())

    def step() -> None:
        torch.autograd.grad(call(), inputs, grad)

    step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    grown = (torch.cuda.max_memory_allocated() - before) >> 20
    forward = milliseconds(call)
    return forward, milliseconds(step) - forward, grown


def errors(call: Callable[..., Any], name: str, width: int) -> list[float]:
    """Of output and gradients, over the largest element."""
    score, mask, others = programs(SHORT)[name]
    exact = [torch.randn(1, HEADS, SHORT, width, device="cuda").bfloat16().float().requires_grad_() for _ in range(3)]
    grad = torch.randn(1, HEADS, SHORT, width, device="cuda")
    scores = exact[0] @ exact[1].transpose(-1, -2) / width**0.5
    index = [torch.arange(n, device="cuda").view([-1 if d == e else 1 for e in range(4)]) for d, n in enumerate(scores.shape)]
    scores = scores if score is None else score(scores, *index)
    scores = scores if mask is None else torch.where(mask(*index), scores, -math.inf)
    wanted = scores.softmax(-1) @ exact[2]
    halves = [x.detach().bfloat16().requires_grad_() for x in exact]
    found = call(*halves, score, block_mask(name, SHORT))
    gradients = [
        torch.autograd.grad(out, [*of, *others], g) for out, of, g in ((found, halves, grad.bfloat16()), (wanted, exact, grad))
    ]
    pairs = [(found, wanted), *zip(*gradients, strict=True)]
    return [((a.float() - b).abs().max() / b.abs().max()).item() for a, b in pairs]


def compiled_before(name: str, width: int, lengths: Sequence[int], with_torch: bool) -> list[str]:
    """Fills the caches on disk with what is measured of a program; gives lines that say its errors."""
    lines = []
    for who, call in systems(with_torch).items():
        lines.append(f"errors {name} {width} {who} " + " ".join(f"{e:.1e}" for e in errors(call, name, width)))
    for length in lengths:
        for call in systems(with_torch).values():
            call(*operands(length, width), programs(length)[name][0], block_mask(name, length)).sum().backward()
    return lines


def compile_all(cases: Sequence[tuple[str, int]], lengths: Sequence[int], with_torch: bool) -> None:
    """All programs, by as many processes as there are cores."""
    started = time.perf_counter()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "2"  # in each of the processes
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(cases)), multiprocessing.get_context("spawn")) as pool:
        for found in [pool.submit(compiled_before, name, width, lengths, with_torch) for name, width in cases]:
            print(*found.result(), sep="\n", flush=True)
    print(f"compiled in {time.perf_counter() - started:.0f} s", flush=True)


@functools.cache
def flash(length: int, width: int, causal: bool) -> tuple[float, float, int]:
    """What the library's kernel takes."""
    inputs = operands(length, width)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        found = measured(lambda: torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal), inputs)
    print(
        f"{'causal' if causal else 'plain'} {width} {length} flash {found[0]:.3f} {found[1]:.3f} ms, {found[2]} MiB", flush=True
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", default="1024,8192,32768")
    parser.add_argument("--widths", default="64,128")
    parser.add_argument("--only", default="")
    parser.add_argument("--without-torch", action="store_true")
    given = parser.parse_args()
    lengths, widths = ([int(n) for n in text.split(",")] for text in (given.lengths, given.widths))
    names = [name for name in programs(8) if (given.only in name if given.only else not name.startswith("trained"))]
    cases = [(name, width) for width in widths for name in names]
    compile_all(cases, lengths, not given.without_torch)
    for name, width in cases:
        for length in lengths:
            inputs = operands(length, width)
            score, _, others = programs(length)[name]
            blocks = block_mask(name, length)
            seen = {"window": min(WINDOW * 2 / length, 1.0), "documents": 1 / 8}.get(name, 1.0)
            library = flash(length, width, name != "plain")
            for who, call in systems(not given.without_torch).items():
                found = measured(functools.partial(call, *inputs, score, blocks), [*inputs, *others])
                shares = " ".join(f"{seen * of / own:.2f}" for of, own in zip(library[:2], found[:2], strict=True))
                line = f"{found[0]:.3f} {found[1]:.3f} ms, {shares} of flash, {found[2]} MiB"
                print(f"{name} {width} {length} {who} {line}", flush=True)


if __name__ == "__main__":
    main()
