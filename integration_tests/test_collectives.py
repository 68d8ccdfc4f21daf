"""Collectives in compiled functions, in two processes: values, gradients and what is written are eager's, and all ranks have the same graphs."""

import hashlib
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import tracework
from ranks import in_ranks, of_all_ranks

LIMIT = timedelta(seconds=60)


def gathered(x):
    return functional.all_gather_tensor(x.sin(), 0, dist.group.WORLD).cos()


def gathered_along_columns(x):
    return functional.all_gather_tensor(x.sin().view(2, 4), 1, "0").cos()


def scattered(x):
    return functional.reduce_scatter_tensor_autograd(x.sin(), "sum", 0, dist.group.WORLD).cos()


def exchanged(x):
    return functional.all_to_all_single(x.sin(), [4, 4], [4, 4], "0").cos()


def several_at_once(x):
    return [y.cos() for y in functional.all_reduce_coalesced([x.sin(), x.cos()], "sum", "0")]


def overlapping(x):
    y = functional.all_gather_tensor(x.sin(), 0, "0")
    w = (x * 2).cos()
    u = functional.all_reduce(w, "sum", "0")
    return y.sum() + w @ w, u * 2


def nobody_reads(x):
    functional.all_reduce(x.detach(), "sum", "0")
    return functional.all_reduce(x, "sum", "0")


def asks_for_its_rank(x):
    return x * dist.get_rank() + dist.get_world_size()


def waited_for_late(x):
    y = torch.ops._c10d_functional.all_reduce(x, "sum", "0")
    torch.ops._c10d_functional.wait_tensor(y)
    return y + 1


def broken_in_between(x):
    with torch.no_grad():
        y = x.sin()
        work = dist.all_reduce(y, async_op=True)
        torch._dynamo.graph_break()
        work.wait(LIMIT)
    return y.cos() + x


@torch.no_grad()
def in_place(x):
    row, rows, part = x.sin(), x.new_empty(16), x.new_empty(4)
    parts = [torch.empty_like(x) for _ in range(2)]
    swapped = torch.empty_like(x)
    dist.broadcast(row, 1)
    dist.all_gather_into_tensor(rows, x.cos())
    dist.reduce_scatter_tensor(part, x)
    dist.all_gather(parts, x * 2)
    dist.all_to_all_single(swapped, x)
    dist.all_reduce(x.data, op=dist.ReduceOp.MAX)
    return row, rows, part, *parts, swapped, x + 1


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
        return gradient * 3


def in_a_function_with_a_backward(x):
    return Summed.apply(x.sin()).cos()


FUNCTIONS: list[Callable[..., Any]] = [
    gathered,
    gathered_along_columns,
    scattered,
    exchanged,
    several_at_once,
    overlapping,
    nobody_reads,
    asks_for_its_rank,
    waited_for_late,
    in_place,
    in_a_function_with_a_backward,
]


def run(f: Callable[..., Any], rank: int, requires_grad: bool) -> list[torch.Tensor]:
    """Results, the input, and its gradient."""
    x = (torch.arange(8.0) + rank).requires_grad_(requires_grad)
    found = f(x)
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    losses = [result.sum() for result in results if result.requires_grad]
    if losses:
        results += torch.autograd.grad(sum(losses), x)  # type: ignore[arg-type]
    return [*results, x]


def compare(rank: int) -> None:
    """All functions, in one of two processes."""
    warnings.simplefilter("ignore", FutureWarning)
    texts: list[str] = []
    for f in FUNCTIONS:
        compiled = tracework.compile(f, fullgraph=True)
        expected, found = run(f, rank, f is not in_place), run(compiled, rank, f is not in_place)
        for e, g in zip(expected, found, strict=True):
            torch.testing.assert_close(g, e + 0, msg=lambda text, f=f: f"{f.__name__}: {text}")
            assert g.requires_grad == e.requires_grad, f.__name__
        assert found[-1]._version == expected[-1]._version, f.__name__
    for f in (overlapping, in_a_function_with_a_backward):
        run(tracework.compile(f, backend=lambda gm, inputs: texts.append(gm.code) or gm.forward), rank, True)
    expected, found = run(broken_in_between, rank, True), run(tracework.compile(broken_in_between), rank, True)
    torch.testing.assert_close(found, [e + 0 for e in expected])
    digests = of_all_ranks(hashlib.sha256("".join(texts).encode()).hexdigest())
    assert len(texts) == 2 and digests[0] == digests[1], "ranks have other graphs"


def test_collectives_in_two_processes(tmp_path):
    in_ranks(compare, tmp_path)
