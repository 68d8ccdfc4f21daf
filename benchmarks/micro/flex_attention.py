"""flex_attention on a GPU, bf16: milliseconds of a forward and of a backward, against torch.compile and the library's flash kernel.

    python tools/run_in_tree.py python benchmarks/micro/flex_attention.py [--lengths 1024,8192] [--widths 64,128] [--only causal]

The last columns are the share of the library's speed, for masks that it has (of others: of its causal kernel, by the elements that are not
masked), the largest error of output and gradients over the largest element, against float32, and the growth of memory in MiB.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
import tracework
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, TOKENS = 16, 32768
WINDOW = 1024


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


def milliseconds(run: Callable[[], Any], rounds: int = 7) -> float:
    """The median of rounds of at least a few milliseconds."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(3):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 3)
    return statistics.median(times)


def measured(call: Callable[..., Any], inputs: list[torch.Tensor], grad: torch.Tensor) -> tuple[float, float, int]:
    """Milliseconds of a forward and of a backward, and MiB that both take beside their inputs."""
    with torch.no_grad():
        forward = milliseconds(lambda: call(*inputs))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = call(*inputs)
    torch.autograd.grad(out, inputs, grad)
    grown = (torch.cuda.max_memory_allocated() - before) >> 20
    out = call(*inputs)
    return forward, milliseconds(lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)), grown


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
    blocks = None if mask is None else create_block_mask(mask, None, None, 500, 500, device="cuda")
    found = call(*halves, score, blocks)
    pairs = [(found, wanted)] + list(
        zip(torch.autograd.grad(found, halves, grad.bfloat16()), torch.autograd.grad(wanted, exact, grad), strict=True)
    )
    return [((a.float() - b).abs().max() / b.abs().max()).item() for a, b in pairs]


def attend(q: Any, k: Any, v: Any, score: Any, blocks: Any) -> Any:
    """The program that is compiled."""
    return flex_attention(q, k, v, score_mod=score, block_mask=blocks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", default="1024,4096,16384,32768")
    parser.add_argument("--widths", default="64,128")
    parser.add_argument("--only", default="")
    parser.add_argument("--without-torch", action="store_true")
    given = parser.parse_args()
    own = tracework.compile(attend, dynamic=False)
    others = {"tracework": own} if given.without_torch else {"tracework": own, "torch": torch.compile(attend, dynamic=False)}
    for width in map(int, given.widths.split(",")):
        for name in [n for n in programs(8) if given.only in n]:
            for who, call in others.items():
                print(f"errors {name} {width} {who}", " ".join(f"{e:.1e}" for e in errors(call, name, width)), flush=True)
            for length in map(int, given.lengths.split(",")):
                batch = max(TOKENS // length, 1)
                inputs = [
                    torch.randn(batch, HEADS, length, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                    for _ in range(3)
                ]
                grad = torch.randn_like(inputs[0])
                score, mask = programs(length)[name]
                blocks = None if mask is None else create_block_mask(mask, None, None, length, length, device="cuda")
                seen = {"plain": 1.0, "window": min(WINDOW, length) * 2 / length, "documents": 1 / 8}.get(name, 1.0)
                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    flash = measured(
                        lambda *x: torch.nn.functional.scaled_dot_product_attention(*x, is_causal=name != "plain"), inputs, grad
                    )
                print(f"{name} {width} {length} flash {flash[0]:.3f} {flash[1]:.3f} ms, {flash[2]} MiB", flush=True)
                for who, call in others.items():
                    forward, backward, grown = measured(lambda *x, call=call: call(*x, score, blocks), inputs, grad)
                    shares = f"{min(seen, 1.0) * flash[0] / forward:.2f} {min(seen, 1.0) * flash[1] / backward:.2f} of flash"
                    print(f"{name} {width} {length} {who} {forward:.3f} {backward:.3f} ms, {shares}, {grown} MiB", flush=True)


if __name__ == "__main__":
    main()
