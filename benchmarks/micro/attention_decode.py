"""One token's attention over a cache: ours against eager, and against the bytes of keys and values over the bandwidth, in one run, in turns.

    python tools/run_in_tree.py python benchmarks/micro/attention_decode.py [--only WORDS]

"masked": transformers' way, with a boolean mask and heads repeated by expand and reshape; "sparse": the same with a twentieth of the cache
filled; "gqa": no mask and enable_gqa; "step": a row of keys and values is written into a static cache first; "slice": that row by a slice, and
attention written out by products. A call is four layers with one mask, each with a cache of its own. Device time is that of replayed CUDA
graphs of calls whose caches are several times the L2 cache together, microseconds a layer. "limit" is what keys and values that are not hidden
take at the rate of a plain copy.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import tracework

BF16, F32 = torch.bfloat16, torch.float32
L2 = 50 << 20
LAYERS, ROUNDS = 4, 9


class Shape(NamedTuple):
    """A model's attention."""

    name: str
    heads: int
    key_heads: int
    width: int


MODELS = Shape("llama 1b", 32, 8, 64), Shape("llama 8b", 32, 8, 128), Shape("gpt2", 12, 12, 64), Shape("qwen 0.5b", 14, 2, 64)


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """As transformers' repeat_kv."""
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


def masked(q: Any, k: Any, v: Any, mask: Any, new: Any, at: Any) -> Any:
    """Attention with repeated heads."""
    times = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, repeated(k, times), repeated(v, times), attn_mask=mask)


def gqa(q: Any, k: Any, v: Any, mask: Any, new: Any, at: Any) -> Any:
    """Attention that is told of the key heads."""
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def step(q: Any, k: Any, v: Any, mask: Any, new: Any, at: Any) -> Any:
    """A token of a static cache."""
    k.index_copy_(2, at, new)
    v.index_copy_(2, at, new)
    return masked(q, k, v, mask, new, at)


def sliced(q: Any, k: Any, v: Any, mask: Any, new: Any, at: Any) -> Any:
    """A token of a static cache, whose row is at a number."""
    place = k.shape[2] // 40
    k[:, :, place : place + 1] = new
    v.narrow(2, place, 1).copy_(new)
    times = q.shape[1] // k.shape[1]
    scores = q @ repeated(k, times).transpose(2, 3) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask, torch.finfo(q.dtype).min).softmax(-1, dtype=torch.float32).to(q.dtype)
    return weights @ repeated(v, times)


class Case(NamedTuple):
    """A row of the table; filled: the part of the cache that the mask shows."""

    label: str
    fn: Callable[..., Any]
    filled: float


CASES = (
    Case("masked", masked, 1.0),
    Case("sparse", masked, 0.05),
    Case("gqa", gqa, 1.0),
    Case("step", step, 1.0),
    Case("slice", sliced, 1.0),
)


def recorded(calls: Sequence[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """A graph of the calls, warm."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:3]:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    return graph


def in_turns(graphs: Sequence[torch.cuda.CUDAGraph], calls: int) -> list[float]:
    """Microseconds of a call of each, the best of ROUNDS."""
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(ROUNDS):
        for graph, taken in zip(graphs, times, strict=True):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            taken.append(start.elapsed_time(end) * 1000 / calls)
    return [min(t) for t in times]


def copy_rate() -> float:
    """Bytes a microsecond of a kernel that copies, read and written; the driver's copy of so much does not take the multiprocessors."""
    x = torch.zeros(1 << 28, dtype=BF16, device="cuda")
    y = torch.empty_like(x)
    (taken,) = in_turns([recorded([lambda: torch.neg(x, out=y)] * 4)], 4)
    return 2 * x.nbytes / taken


def measure(model: Shape, batch: int, length: int, dtype: torch.dtype, case: Case, rate: float) -> str:
    """One row; raises where a value is wrong."""
    torch.manual_seed(0)
    bytes_moved = 2 * batch * model.key_heads * length * model.width * dtype.itemsize
    copies = max(2, min(12, 4 * L2 // (LAYERS * bytes_moved)))
    new = lambda *sizes: torch.randn(*sizes, dtype=dtype, device="cuda")
    q = new(batch, 1, model.heads, model.width).transpose(1, 2)
    cache = lambda: tuple(new(batch, model.key_heads, length, model.width) for _ in range(2))
    caches = [[cache() for _ in range(LAYERS)] for _ in range(copies)]
    row, at = new(batch, model.key_heads, 1, model.width), torch.tensor([length // 40], device="cuda")
    mask = (torch.arange(length, device="cuda") < case.filled * length).expand(batch, 1, 1, length).contiguous()
    tracework.reset()
    layers = lambda q, caches, *rest: [case.fn(q, k, v, *rest) for k, v in caches]
    compiled = tracework.compile(layers, fullgraph=True, dynamic=False)
    rest = mask, row, at
    got, eager = compiled(q, caches[0], *rest), layers(q, caches[1], *rest)
    times = model.heads // model.key_heads
    for value, (k, v) in zip((*got, *eager), (*caches[0], *caches[1]), strict=True):
        k, v = (repeated(x, times).double() for x in (k, v))
        exact = F.scaled_dot_product_attention(q.double(), k, v, attn_mask=None if case.fn is gqa else mask)
        torch.testing.assert_close(value.double(), exact, rtol=0, atol=4 * torch.finfo(dtype).eps * v.abs().max().item())
    calls = [[lambda fn=fn, kv=kv: fn(q, kv, *rest) for kv in caches] for fn in (layers, compiled)]
    theirs, ours = in_turns([recorded(c) for c in calls], copies * LAYERS)
    limit = bytes_moved * case.filled / rate
    name = f"{model.name} {str(dtype)[6:]} batch {batch} keys {length} {case.label}"
    return f"{name:<52}{theirs:>9.1f}{ours:>9.1f}{theirs / ours:>8.2f}{limit:>9.1f}{limit / ours:>7.0%}"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only rows whose name has all of these comma-separated words")
    words = [w for w in parser.parse_args().only.split(",") if w]
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, a copy moves {rate / 1e6:.2f} TB/s")
    print(f"{'':<52}{'eager':>9}{'ours':>9}{'ratio':>8}{'limit':>9}{'':>7}")
    rows = itertools.product(MODELS, (1, 8), (512, 4096, 32768), (BF16, F32), CASES)
    with torch.no_grad():
        for model, batch, length, dtype, case in rows:
            name = f"{model.name} {str(dtype)[6:]} batch {batch} keys {length} {case.label}"
            if dtype == F32 and (model.name, batch, length) != ("llama 1b", 1, 4096):
                continue
            if all(word in name for word in words):
                print(measure(model, batch, length, dtype, case, rate), flush=True)
                torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
