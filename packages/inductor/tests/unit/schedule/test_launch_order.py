"""What only reduces runs as soon as what it reads is there, not where the program asks for it."""

from types import SimpleNamespace

import torch
from prim_programs import build
from tracework_inductor import InductorOptions
from tracework_inductor.pipeline import plan_graph
from tracework_inductor.schedule.order import launch_order
from tracework_primops import TensorSpec, prims

CUDA = torch.device("cuda", 0)
BATCH, WIDTH, DEPTH = 4096, 512, 6


def backward(grad, *weights):
    """The gradients of a chain of layers: all inputs' first, the biases' at the end, as results are asked for."""
    grads = [grad]
    for w in weights:
        grads.append(prims.mm(prims.maximum(grads[-1], 0.0), w))
    return (grads[-1], *(prims.sum(g, (0,), False, None) for g in grads[1:-1]))


def test_gradients_of_biases_are_computed_where_gradients_are_there():
    specs = [TensorSpec(torch.bfloat16, CUDA, s) for s in ((BATCH, WIDTH), *[(WIDTH, WIDTH)] * DEPTH)]
    plan = plan_graph(build(backward, [None] * len(specs), specs), InductorOptions())
    products = [n for n, k in enumerate(plan.kernels) if getattr(k, "node", None) is not None and k.node.target == "torch.mm"]
    sums = [n for n, k in enumerate(plan.kernels) if getattr(k, "reduction_axes", ())]
    assert len(products) == DEPTH and len(sums) == DEPTH - 1
    assert all(after < sums[n] < products[n + 1] for n, after in enumerate(products[:-1]))
    assert plan.memory.peak_bytes < 5 * 2 * BATCH * WIDTH  # with the sums at the end DEPTH of them were alive


def test_waiting_comes_last():
    def group(number, target):
        member = SimpleNamespace(node=SimpleNamespace(device=CUDA, target=target))
        return SimpleNamespace(number=number, outer=[], inner=[], members=[member])

    start, wait, other = (f"torch.ops._c10d_functional.{name}.default" for name in ("all_reduce", "wait_tensor", "other"))
    groups = [group(n, target) for n, target in enumerate((start, wait, other, start, wait, other, other))]
    before = [set(), {0}, {1}, {1}, {3}, {4, 6}, set()]
    assert [g.number for g in launch_order(groups, before, dict(enumerate(groups)))] == [0, 6, 1, 2, 3, 4, 5]
