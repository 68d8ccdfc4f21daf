"""Attention as models write it out on a GPU, bf16: milliseconds of a forward in inference and of a training step, eager, compiled and by the library.

    python tools/run_in_tree.py python -m benchmarks.micro.written_attention [--only gpt2] [--products]

The library's column is scaled_dot_product_attention without what a model adds to its scores, causal where the model is. Errors of output and
gradients are the largest over the largest element, against float32, in the same run; memory is what a step takes beside its inputs, in MiB. A
form with scores of less than 64 MiB, or with gradients of a bias for each pair, runs as it is written out; with --products all training does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import tracework
from tracework.assemble import GraphCompiler

from benchmarks.micro.flex_attention import milliseconds

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "aotautograd" / "tests"))
from written_attentions import FORMS, Sizes

GPU = torch.device("cuda", 0)
# by form: its sizes in a model, how many heads share keys, whether the library's kernel is causal
MODELS = {
    "vit": (Sizes(64, 16, 577, 64), 1, False),
    "gpt2": (Sizes(16, 12, 1024, 64), 1, True),
    "nano": (Sizes(8, 16, 2048, 64), 1, True),
    "in place": (Sizes(8, 16, 2048, 64), 1, True),
    "bert": (Sizes(32, 16, 512, 64), 1, False),
    "llama": (Sizes(2, 32, 4096, 128), 4, True),
    "alibi": (Sizes(4, 32, 2048, 128), 1, True),
    "trained slopes": (Sizes(4, 32, 2048, 128), 1, False),
    "soft-cap": (Sizes(2, 16, 4096, 128), 1, True),
    "t5": (Sizes(16, 16, 1024, 64), 1, False),
    "t5 in place": (Sizes(16, 16, 1024, 64), 1, False),
    "swin": (Sizes(4096, 4, 49, 32), 1, False),
    "swin without gradients of its bias": (Sizes(4096, 4, 49, 32), 1, False),
}


def operands(sizes: Sizes, heads_per_key: int) -> list[torch.Tensor]:
    """Queries, keys and values, as projections give them."""
    heads = sizes.heads, sizes.heads // heads_per_key, sizes.heads // heads_per_key
    shapes = [(sizes.batch, sizes.length, h, sizes.width) for h in heads]
    return [torch.randn(shape, device=GPU, dtype=torch.bfloat16, requires_grad=True) for shape in shapes]


def library(is_causal: bool) -> Callable[..., torch.Tensor]:
    """The library's kernel between the same transposes."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: Any) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        gqa = q.size(1) != k.size(1)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=gqa)
        return out.transpose(1, 2).contiguous().flatten(2)

    return attend


def both_ways(call: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
    """The output and the gradients of what has some."""
    out = call(*inputs)
    return [out.detach(), *torch.autograd.grad(out, [x for x in inputs if x.requires_grad], grad)]


def measured(call: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], grad: torch.Tensor) -> str:
    """Milliseconds of a forward without gradients and of a step, and MiB of a step."""
    with torch.no_grad():
        forward = milliseconds(lambda: call(*inputs))
    step = milliseconds(lambda: both_ways(call, inputs, grad))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    both_ways(call, inputs, grad)
    return f"{forward:7.3f} {step:7.3f} ms {(torch.cuda.max_memory_allocated() - before) >> 20:6d} MiB"


def errors(call: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], grad: torch.Tensor, wanted: Any) -> str:
    """Of output and gradients, over the largest element."""
    found = both_ways(call, inputs, grad)
    return " ".join(f"{((a.float() - b).abs().max() / b.abs().max()).item():.1e}" for a, b in zip(found, wanted, strict=True))


def train_as_products() -> None:
    """Of all that is compiled from now on, which must be the first in a process."""
    facts = GraphCompiler.facts.fget
    assert facts is not None
    without = property(lambda self: {**facts(self), "trained_attention": frozenset()})
    GraphCompiler.facts = without  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--products", action="store_true")
    given = parser.parse_args()
    only = given.only
    if given.products:
        train_as_products()
    for name, (sizes, heads_per_key, is_causal) in MODELS.items():
        if only not in name:
            continue
        form = FORMS[name]
        inputs = [*operands(sizes, heads_per_key), *form.others(sizes, GPU)]
        grad = torch.randn_like(form.function(*inputs).detach())
        wide = [x.detach().float().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
        wanted = both_ways(form.function, wide, grad.float())
        del wide
        tracework.reset()
        for who, call in (("eager", form.function), ("tracework", tracework.compile(form.function, dynamic=False))):
            print(f"{name}: {who:9} {measured(call, inputs, grad)}, errors {errors(call, inputs, grad, wanted)}", flush=True)
        print(f"{name}: library   {measured(library(is_causal), inputs[:3], grad)}", flush=True)
        for reason in tracework.explain(form.function)(*inputs).all_scores:
            print(f"{name}: all scores are computed: {reason}", flush=True)


if __name__ == "__main__":
    main()
