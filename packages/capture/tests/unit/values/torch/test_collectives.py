"""Collectives in a group of one process: what is a node, what is answered and guarded, what breaks, and that polyfills do as their originals."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import tracework_capture as capture
from tracework_capture.polyfills.collectives import IN_PLACE
from tracework_capture.values.torch.collectives import OTHERS

LIMIT = timedelta(seconds=60)
FUNCTIONAL = torch.ops._c10d_functional


@pytest.fixture(autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def graphs_of(f, *args):
    """What a call gives, and the targets of its graphs."""
    graphs = []

    def backend(gm, inputs):
        graphs.append([node.target for node in gm.graph.nodes if node.op == "call_function"])
        return gm.forward

    return capture.optimize(backend, fullgraph=True)(f)(*args), graphs


def by_name(x):
    return functional.all_reduce(x, "sum", "0") + 1


def by_group(x):
    return functional.all_reduce(x, "sum", dist.group.WORLD) + 1


def by_operator(x):
    return FUNCTIONAL.wait_tensor(FUNCTIONAL.all_reduce(x, "sum", "0")) + 1


def in_place(x):
    y = x.clone()
    work = dist.all_reduce(y, async_op=True)
    assert work.wait(LIMIT)
    return y + 1


@pytest.mark.parametrize("f", [by_name, by_group, by_operator, in_place])
def test_nodes(f):
    x = torch.arange(4.0)
    result, (targets,) = graphs_of(f, x)
    torch.testing.assert_close(result, f(x))
    assert type(result) is torch.Tensor
    names = [getattr(target, "__name__", str(target)) for target in targets]
    assert sum("all_reduce" in name for name in names) == sum("wait_tensor" in name for name in names) == 1


def test_one_that_nobody_reads_stays():
    _, (targets,) = graphs_of(lambda x: (functional.all_reduce(x, "sum", "0"), x + 1)[1], torch.ones(2))
    assert any("all_reduce" in str(target) for target in targets)


def test_what_is_asked_is_guarded_with_the_group():
    compiled = capture.optimize(backend := Counting(), fullgraph=True)(lambda x: x * dist.get_world_size() + dist.get_rank())
    for _ in range(2):
        compiled(torch.ones(2))
    assert backend.count == 1
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    compiled(torch.ones(2))
    assert backend.count == 2


class Counting:
    count = 0

    def __call__(self, gm, inputs):
        self.count += 1
        return gm.forward


@pytest.mark.parametrize("name", [name for name in OTHERS if hasattr(dist, name)])
def test_others_say_what_to_call(name):
    function = getattr(dist, name)
    with pytest.raises(capture.Unsupported, match=f"torch.distributed.{name}; collectives of a graph are all_gather"):
        capture.optimize(Counting(), fullgraph=True)(lambda x: function(x))(torch.ones(2))


X = torch.arange(6.0).reshape(2, 3)
CALLS = {
    "all_gather": lambda call: (out := [torch.zeros(2, 3)], call(out, X)),
    "all_gather_into_tensor": lambda call: (out := torch.zeros(2, 3), call(out, X)),
    "all_reduce": lambda call: (out := X.clone(), call(out, dist.ReduceOp.MAX)),
    "all_reduce_coalesced": lambda call: (out := [X.clone(), X.sin()], call(out)),
    "all_to_all_single": lambda call: (out := torch.zeros(2, 3), call(out, X, [2], [2])),
    "broadcast": lambda call: (out := X.clone(), call(out, 0)),
    "reduce_scatter": lambda call: (out := torch.zeros(2, 3), call(out, [X])),
    "reduce_scatter_tensor": lambda call: (out := torch.zeros(2, 3), call(out, X)),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", CALLS)
def test_polyfills_write_what_the_originals_write(name):
    torch.testing.assert_close(CALLS[name](IN_PLACE[name]), CALLS[name](getattr(dist, name)))


REFUSED = {
    "with a history": lambda x: dist.all_reduce(x * torch.ones(2, 3, requires_grad=True)),
    "complex": lambda x: dist.all_reduce(x + 1j),
    "not contiguous": lambda x: dist.all_reduce(x.t()),
    "other sizes": lambda x: dist.all_gather_into_tensor(torch.zeros(3), x),
    "operation": lambda x: dist.all_reduce(
        x, dist._make_nccl_premul_sum(2.0) if hasattr(dist, "_make_nccl_premul_sum") else None
    ),
    "no formula for a gradient": lambda x: functional.broadcast(x.requires_grad_(), 0, "0"),
    "to one rank": lambda x: FUNCTIONAL.isend(x, 0, 0, "0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_to_eager(name):
    with pytest.raises(capture.Unsupported):
        capture.optimize(Counting(), fullgraph=True)(REFUSED[name])(torch.ones(2, 3))
