"""Ten bugs are put in, one after the other: diff, bisect and minify find each."""

import dataclasses

import pytest
import torch
import tracework
import tracework_inductor as inductor
import tracework_primops as primops
from torch.nn import functional as F
from tracework.faults.find import bisect, diff
from tracework.faults.minify import minify
from tracework_inductor.codegen.cpp.text_rules import CPP_TEXT
from tracework_inductor.lowering.registry import LOWERINGS
from tracework_inductor.schedule import memory
from tracework_inductor.schedule.passes import KernelBuilder
from tracework_primops import DECOMPS, prims

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Bug:
    """inject: called with monkeypatch. program: of two 2-d tensors. What is found: kind and stage, the operator (of prims, or ATen's) and what
    bisect names; left: how many operators minify leaves."""

    inject: object
    program: object
    kind: str
    stage: str
    operator: str
    cause: str
    left: int = 1


def wrong_decomposition(patch):
    patch.setitem(DECOMPS, aten.silu.default, lambda x: prims.mul(prims.mul(x, prims.sigmoid(x)), 1.01))


def wrong_backward(patch):
    patch.setitem(DECOMPS, aten.silu_backward.default, lambda g, x: prims.mul(g, prims.sigmoid(x)))


def dropping_pass(patch):
    def drop_neg(graph):
        graph = graph.for_editing()
        for node in [n for n in graph.calls if n.target is primops.OPS["neg"]]:
            node.replace_all_uses_with(node.args[0])
        return graph

    patch.setattr(
        primops, "PRIM_PASSES", (*primops.PRIM_PASSES[:2], primops.Pass("drop_neg", drop_neg), *primops.PRIM_PASSES[2:])
    )


def dropping_graph_pass(patch):
    def drop_abs(graph):
        graph = graph.copy()
        for node in [n for n in graph.calls if n.target is primops.OPS["abs"]]:
            node.replace_all_uses_with(node.args[0])
        return graph

    patch.setitem(inductor.GRAPH_PASSES, drop_abs, lambda options: True)


def wrong_fusion(patch):
    load = KernelBuilder._load

    def negated(self, into, phase, buffer, dtype):
        value = load(self, into, phase, buffer, dtype)
        return value if value is None else into.apply("neg", (value,))

    patch.setattr(KernelBuilder, "_load", negated)


def wrong_kernel(patch):
    patch.setitem(CPP_TEXT, "tanh", lambda t, a: f"tw_tanh({a}) * ({t})1.001")


def kernel_of_no_language(patch):
    patch.setitem(CPP_TEXT, "tanh", lambda t, a: f"tw_no_such_function({a})")


def slow_kernel(patch):
    wait = "[](auto x) { volatile int n = 0; for (int i = 0; i < 200000; i++) n = n + 1; return x; }"
    patch.setitem(CPP_TEXT, "tanh", lambda t, a: f"({wait})(tw_tanh({a}))")


def wrong_reuse(patch):
    patch.setattr(memory, "in_place", lambda kernel, new, old: True)


def raising_lowering(patch):
    def rule(low, x):
        raise ValueError("no loops for atan")

    patch.setitem(LOWERINGS, "atan", rule)


@torch.library.custom_op("tracework_faults::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


doubled.register_autograd(lambda ctx, g: g * 2)


def wrong_strides(patch):
    patch.setattr(doubled, "_abstract_fn", lambda x: torch.empty_like(x).t())


def chain(x, y):
    z = torch.relu(x) + y
    z = torch.atan(-z.abs()) * 2
    return F.silu(z), torch.tanh(z) - x, doubled(z) + y


def few(x, y):
    z = x + y
    return torch.tanh(z) * 2, z.cos()


def two(x, y):
    return torch.tanh(x + y)


def rows(x, y):
    z = torch.sin(x) * y
    return z - z.amax(1, keepdim=True), torch.cos(y)


def turned(x, y):
    z = torch.mm(x, y)
    return torch.sin(z.t() + z) * 2, torch.cos(y)


BUGS = (
    Bug(wrong_decomposition, chain, "values", "primops", "aten.silu.default", "decomposition of aten.silu.default"),
    Bug(wrong_backward, chain, "values", "primops", "aten.silu_backward.default", "decomposition of aten.silu_backward.default"),
    Bug(dropping_pass, chain, "values", "primops", "aten.neg.default", "pass drop_neg of PRIM_PASSES (3 of 6)"),
    Bug(dropping_graph_pass, chain, "values", "inductor", "abs", "pass drop_abs of GRAPH_PASSES"),
    Bug(wrong_fusion, rows, "values", "inductor", "sub", "fusion ", 2),
    Bug(wrong_kernel, few, "values", "inductor", "tanh", "kernel of tanh"),
    Bug(wrong_reuse, turned, "values", "inductor", "add", "reuse of memory", 3),
    Bug(raising_lowering, chain, "raises", "inductor", "atan", "lowering of atan"),
    Bug(
        wrong_strides,
        chain,
        "layout",
        "functional",
        "tracework_faults.doubled.default",
        "the fake of tracework_faults.doubled.default",
    ),
    Bug(slow_kernel, few, "slow", "inductor", "tanh", "kernel of tanh"),
    Bug(kernel_of_no_language, two, "raises", "runtime", "tanh", "kernel of tanh"),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.inject.__name__)
def test_bugs(bug, monkeypatch):
    bug.inject(monkeypatch)
    torch.manual_seed(0)
    x, y = torch.randn(4, 4, requires_grad=bug.inject is wrong_backward), torch.randn(4, 4)
    (case,) = tracework.case(bug.program)(x, y)
    found = diff(case, "a.case")
    assert (found.failure.kind, found.failure.stage) == (bug.kind, bug.stage), str(found)
    assert found.operator.split()[0] == bug.operator, str(found)
    assert __file__ in found.location, str(found)
    named = bisect(case, "a.case")
    assert bug.cause in named.cause, str(named)
    small = minify(case)
    assert small.after <= bug.left and len(small.script().splitlines()) < 15, small.script()
    assert found.failure.same(diff(small.case).failure)
