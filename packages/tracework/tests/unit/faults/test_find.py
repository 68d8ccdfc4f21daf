"""Bugs are put in, one after the other: diff, bisect and minify find each."""

import dataclasses

import pytest
import torch
import tracework
import tracework_inductor as inductor
import tracework_primops as primops
import tracework_runtime as runtime
from torch.nn import functional as F
from tracework.faults.find import bisect, diff
from tracework.faults.minify import minify
from tracework_aotautograd import api
from tracework_inductor.codegen.cpp.text_rules import CPP_TEXT
from tracework_inductor.lowering import cpu_products, matmul
from tracework_inductor.lowering.registry import LOWERINGS
from tracework_inductor.passes import packed_linear
from tracework_inductor.schedule import memory
from tracework_inductor.schedule.passes import KernelBuilder
from tracework_primops import DECOMPS, prims

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Bug:
    """inject: called with monkeypatch. program: of two 2-d tensors, or of `inputs`. What is found: kind and stage, the operator (of prims, or
    ATen's) and what bisect names; left: how many operators minify leaves. grad: whether inputs ask for gradients."""

    inject: object
    program: object
    kind: str
    stage: str
    operator: str
    cause: str
    left: int = 1
    inputs: object = lambda: (torch.randn(4, 4), torch.randn(4, 4))
    grad: bool = False


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


def slow_kernel_of_a_quick_graph(patch):
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


def wrong_layouts(patch):
    lay_out = api.lay_out

    def without_relu(gm, answers):
        lay_out(gm, answers)
        for node in [n for n in gm.graph.nodes if n.target is aten.relu.default]:
            node.replace_all_uses_with(node.args[0])

    patch.setattr(api, "lay_out", without_relu)


def wrong_partition(patch):
    cut = api.PARTITIONERS["min_cut"]

    def sine_for_cosine(joint, parts, options):
        saved = cut(joint, parts, options)
        for node in [n for n in joint.graph.graph.nodes if n.target is aten.cos.default]:
            node.target = aten.sin.default
        return saved

    patch.setitem(api.PARTITIONERS, "min_cut", sine_for_cosine)


def wrong_statistics(patch):
    keep_statistics = api.keep_statistics

    def with_one_less(graph, devices):
        keep_statistics(graph, devices)
        for node in [n for n in graph.nodes if n.target is aten.exp.default]:
            node.target = aten.expm1.default

    patch.setattr(api, "keep_statistics", with_one_less)


def wrong_packing(patch):
    made = packed_linear._made

    def negated(node, static):
        found = made(node, static)
        return None if found is None else (found[0].replace("(", "(-", 1), found[1])

    patch.setattr(packed_linear, "_made", negated)
    patch.setattr(packed_linear, "PAYS", {torch.float32: (range(4, 100), 1)})
    patch.setattr(packed_linear, "PAYS_READ", {torch.float32: (range(4, 100), 1)})
    patch.setattr(cpu_products, "has_own_products", lambda: False)


def dropped_write(patch):
    def drop(graph):
        graph = graph.for_editing()
        for node in [n for n in graph.calls if n.target is primops.OPS["copy_into"]]:
            node.args = (node.args[0], node.args[0], *node.args[2:])
        return graph

    patch.setattr(primops, "PRIM_PASSES", (*primops.PRIM_PASSES, primops.Pass("drop", drop)))


def wrong_draws(patch):
    rule = DECOMPS[aten.bernoulli.p]
    patch.setitem(DECOMPS, aten.bernoulli.p, lambda x, p=0.5, generator=None: rule(x, p / 2))


def wrong_library_call(patch):
    rule = LOWERINGS["mm"]

    def squared(low, a, b):
        return matmul.elementwise(low, (rule(low, a, b),), low.spec.dtype, lambda x: matmul.ops.mul(x, x))

    patch.setitem(LOWERINGS, "mm", squared)


def wrong_replay(patch):
    load = runtime.load

    def repeated(*args, **kwargs):
        loaded, first = load(*args, **kwargs), []

        def call(inputs):
            first.append([x.clone() + len(first) for x in inputs])
            return loaded(inputs if len(first) == 1 else first[1])

        call.artifact, call.graph_refusals = loaded.artifact, ()
        return call

    patch.setattr(runtime, "load", repeated)


class Images(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(16, 32, 3), torch.nn.Conv2d(32, 32, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) * 2


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x.sin()) * 2


def product(x, y):
    return x @ x, y.tanh() * 2


def losses(x, y):
    return F.cross_entropy(x * 2, torch.zeros(4, dtype=torch.long)) + y.sum()


def waves(x, y):
    return (x.sin() * y.exp()).tanh().sum()


def writes(x, y):
    x.mul_(y.exp())
    return x.sin()


def drawn(x, y):
    return F.dropout(x.sin(), 0.5) * y


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
    Bug(
        wrong_backward,
        chain,
        "values",
        "primops",
        "aten.silu_backward.default",
        "decomposition of aten.silu_backward.default",
        grad=True,
    ),
    Bug(dropping_pass, chain, "values", "primops", "aten.neg.default", "pass drop_neg of PRIM_PASSES (3 of "),
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
    Bug(
        slow_kernel_of_a_quick_graph,
        product,
        "slow",
        "inductor",
        "tanh",
        "kernel of tanh",
        inputs=lambda: (torch.randn(200, 200), torch.randn(4, 2)),
    ),
    Bug(kernel_of_no_language, two, "raises", "runtime", "tanh", "kernel of tanh"),
    Bug(wrong_layouts, Images, "values", "functional", "relu", "layout of images", 2, lambda: (torch.randn(1, 16, 6, 6),)),
    Bug(wrong_partition, waves, "values", "functional", "sin", "min-cut partitioner", grad=True),
    Bug(wrong_statistics, losses, "values", "functional", "cross_entropy", "row statistics", grad=True),
    Bug(wrong_packing, Linear, "values", "inductor", "addmm", "pass pack_linears", inputs=lambda: (torch.randn(32, 8),)),
    Bug(dropped_write, writes, "values", "primops", "aten.copy_.default", "pass drop of PRIM_PASSES"),
    Bug(wrong_draws, drawn, "values", "primops", "aten.bernoulli.p", "decomposition of aten.bernoulli.p"),
    Bug(wrong_library_call, turned, "values", "inductor", "mm", "kernel of mm"),
    Bug(wrong_replay, two, "values", "runtime", "add", "kept from a call to the next"),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.inject.__name__)
def test_bugs(bug, monkeypatch):
    bug.inject(monkeypatch)
    torch.manual_seed(0)
    inputs = [x.requires_grad_(bug.grad) for x in bug.inputs()]
    with torch.set_grad_enabled(bug.inject is not wrong_packing):
        (case,) = tracework.case(bug.program() if isinstance(bug.program, type) else bug.program)(*inputs)
    found = diff(case, "a.case")
    assert (found.failure.kind, found.failure.stage) == (bug.kind, bug.stage), str(found)
    assert found.operator.split()[0] == bug.operator, str(found)
    assert __file__ in found.location, str(found)
    named = bisect(case, "a.case")
    assert bug.cause in named.cause, str(named)
    small = minify(case)
    assert small.after <= bug.left and len(small.script().splitlines()) < 15, small.script()
    assert found.failure.same(diff(small.case).failure)
