"""Partitioners on random programs: both halves compute what the joint graph does, and the cut never keeps more than the default."""

import random
import sys

import pytest
import torch
import tracework_aotautograd as aot
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from tracework_aotautograd import flow
from tracework_aotautograd.partition import JointParts
from tracework_aotautograd.partition.cost import kept_bytes
from tracework_aotautograd.partition.recompute import Recompute, of_target

min_cut = sys.modules["tracework_aotautograd.partition.min_cut"]  # the package gives the function by this name

OPS = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: torch.tanh(a) - b,
    lambda a, b: a @ b.t() @ a / 8,
    lambda a, b: torch.softmax(a, -1) * b,
    lambda a, b: a.sum(0, keepdim=True).expand(4, 4) + b,
    lambda a, b: F.relu(a).t().contiguous() * b,
    lambda a, b: torch.cat([a[:2], b[2:]]),
    lambda a, b: torch.where(a > b, a.exp(), b).clamp(-2, 2),
)
PROGRAMS = st.lists(st.tuples(st.integers(0, len(OPS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9)


def program(steps):
    def fn(*inputs):
        values = list(inputs)
        for op, left, right in steps:
            values.append(OPS[op](values[left % len(values)], values[right % len(values)]))
        return values[-1], values[-2] * 2

    return fn


def joint_of(graph, fn):
    torch.manual_seed(0)
    inputs = [torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    return aot.trace_joint(graph(fn, 2), inputs), inputs


def saved_bytes(joint, name):
    parts = JointParts.of(joint)
    saved = aot.PARTITIONERS[name](joint, parts, aot.AotOptions())
    return sum(kept_bytes(n) for n in saved if n not in parts.inputs), saved


@pytest.fixture(scope="module")
def module_graph():
    def make(fn, count):
        graph = torch.fx.Graph()
        graph.output(graph.call_function(fn, tuple(graph.placeholder(f"x{i}") for i in range(count))))
        return torch.fx.GraphModule({}, graph)

    return make


@settings(max_examples=40, deadline=None, derandomize=True)
@given(steps=PROGRAMS)
def test_the_cut_keeps_no_more_than_the_default(module_graph, steps):
    joint, _ = joint_of(module_graph, program(steps))
    assert saved_bytes(joint, "min_cut")[0] <= saved_bytes(joint, "default")[0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(steps=PROGRAMS, name=st.sampled_from(sorted(aot.PARTITIONERS)))
def test_halves_compute_the_joint_graph(module_graph, steps, name):
    joint, inputs = joint_of(module_graph, program(steps))
    tangents = [torch.ones(4, 4, dtype=torch.float64) for _ in joint.signature.tangents]
    with torch.no_grad():
        whole = joint.graph(*inputs, *tangents)
        halves = aot.partition(joint, aot.AotOptions(partitioner=name))
        values = halves.forward(*inputs)
        count = joint.signature.number_of_graph_outputs
        gradients = []
        for backward in halves.backwards:
            saved = [values[count + place] for place in backward.saved]
            gradients += backward.graph(*saved, *[tangents[place] for place in backward.component.tangents])
    for mine, theirs in zip((*values[:count], *gradients), whole, strict=True):
        if theirs is not None:
            torch.testing.assert_close(mine, theirs)


def test_pointwise_chains_are_computed_again(graph):
    joint, _ = joint_of(graph, lambda x, w: (((x * w + 1).clamp(-1, 1) * x).relu().sum(), x.sum()))
    bytes_kept, saved = saved_bytes(joint, "min_cut")
    assert bytes_kept == 0 and {n.op for n in saved} == {"placeholder"}


def test_log_probabilities_are_computed_again_from_narrower_numbers(graph):
    """On a GPU a loss of logits in half precision keeps these, and not probabilities of twice the bytes."""

    def loss(x, w):
        logits = (x @ w).bfloat16()
        return F.cross_entropy(logits.float(), torch.zeros(len(x), dtype=torch.int64)), x.sum()

    joint, _ = joint_of(graph, loss)
    for costly, expected in (("always", 0), ("never", 1)):
        halves = aot.partition(joint, aot.AotOptions(recompute_costly=costly))
        saved = [n for n in halves.backwards[0].graph.graph.nodes if n.op == "placeholder"]
        assert sum("log_softmax" in n.name for n in saved) == expected


def test_random_numbers_are_never_drawn_again(graph):
    joint, _ = joint_of(graph, lambda x, w: (F.dropout(x * w, 0.5).sin(), x.sum()))
    halves = aot.partition(joint, aot.AotOptions())
    for node in halves.backwards[0].graph.graph.nodes:
        tags = getattr(node.target, "tags", ())
        assert torch.Tag.nondeterministic_seeded not in tags


def test_matmuls_are_not_repeated(graph):
    joint, _ = joint_of(graph, lambda x, w: ((x @ w).relu() @ w, x.sum()))
    halves = aot.partition(joint, aot.AotOptions())
    products = [n for n in halves.backwards[0].graph.graph.nodes if n.target is torch.ops.aten.mm.default]
    assert len(products) == 4


def test_a_residual_stream_is_kept_as_its_sums(graph):
    """Keeping the products instead takes as many bytes, and all sums would be computed again before the backward begins."""

    def blocks(x, w):
        for _ in range(3):
            x = x + F.gelu(x) @ w
        return x.sum(), w.sum()

    joint, _ = joint_of(graph, blocks)
    parts = JointParts.of(joint)
    saved = aot.PARTITIONERS["min_cut"](joint, parts, aot.AotOptions(recompute_costly="always"))
    assert {n.target for n in saved if n not in parts.inputs} == {torch.ops.aten.add.Tensor}


def test_what_a_product_reads_is_kept_instead_of_a_copy_of_an_input(graph):
    """As weights that are rounded for a product: the forward would write the copy beside it."""

    def fn(x, w):
        rounded = w + ((w * 4).round() / 4 - w).detach()
        return x @ torch.where((w > -1) & (w < 1), rounded, rounded.detach())

    inputs = [torch.randn(4, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)]
    joint = aot.trace_joint(graph(fn, 2), inputs)
    saved = aot.PARTITIONERS["min_cut"](joint, JointParts.of(joint), aot.AotOptions())
    assert [n.meta["val"].dtype for n in saved] == [torch.float32, torch.bool, torch.float32]
    assert [n.name for n in saved if n.op == "placeholder"] == ["x0"]


@pytest.mark.parametrize(("shown", "kept"), [(False, "t"), (True, "clone")])
def test_what_was_copied_is_kept_instead_of_the_copy(graph, shown, kept):
    """Both take as many bytes, and the copy need not be made in the forward; but the caller may write to what it is given."""

    def turned(x, w):
        product = x @ w
        copy = product.t().contiguous()
        return (copy * copy).sum(), product if shown else w.sum()

    joint, _ = joint_of(graph, turned)
    parts = JointParts.of(joint)
    saved = aot.PARTITIONERS["min_cut"](joint, parts, aot.AotOptions())
    assert [n.target._schema.name for n in saved if n not in parts.inputs] == [f"aten::{kept}"]


@pytest.mark.parametrize(
    ("op", "kind"),
    [("mm.default", Recompute.NEVER), ("view.default", Recompute.FREE), ("add.Tensor", Recompute.CHEAP), ("exp.default", Recompute.COSTLY),
     ("bernoulli.p", Recompute.NEVER), ("convolution.default", Recompute.NEVER), ("sum.dim_IntList", Recompute.NEVER)],
)  # fmt: skip
def test_recompute_table(op, kind):
    packet, overload = op.split(".")
    assert of_target(getattr(getattr(torch.ops.aten, packet), overload)) is kind


def test_unknown_partitioner(graph):
    with pytest.raises(aot.UsageError, match="min_cut"):
        aot.aot_compile(graph(lambda x: (x,), 1), [torch.ones(1)], forward_compiler=None, partitioner="other")


@pytest.mark.parametrize("name", sorted(aot.PARTITIONERS))
def test_equal_programs_are_cut_into_equal_graphs(module_graph, name):
    """Caches on disk find a graph by its text, so the order of saved values must not depend on where objects lie in memory."""

    def fn(a, b):
        for _ in range(20):
            a, b = torch.tanh(a @ b) * a, torch.sigmoid(a) + b
        return a, b

    cut = [aot.partition(joint_of(module_graph, fn)[0], aot.AotOptions(partitioner=name)) for _ in range(3)]
    assert len({(str(p.forward.graph), str(p.backwards[0].graph.graph)) for p in cut}) == 1


class Kept(dict):
    """Answers in memory."""

    def put(self, key, answer):
        self[key] = answer


def test_a_cut_that_is_known_is_not_solved_again(module_graph, monkeypatch):
    joint, _ = joint_of(module_graph, program([(2, 0, 1), (1, 2, 0), (8, 3, 2), (4, 4, 3)]))
    kept = Kept()

    def saved(answers):
        return aot.PARTITIONERS["min_cut"](joint, JointParts.of(joint), aot.AotOptions(answers=answers))

    first = saved(kept)
    assert first == saved(None) and len(kept) == 1
    monkeypatch.setattr(flow, "source_side", lambda *problem: pytest.fail("solved again"))
    assert saved(kept) == first


@pytest.mark.parametrize("vertices", [2, 7, 40])
def test_the_cut_next_to_the_sink_is_found_by_hand_as_by_scipy(vertices):
    rng = random.Random(vertices)
    for _ in range(20):
        pairs = [(rng.randrange(vertices), rng.randrange(vertices)) for _ in range(3 * vertices)]
        inner = [(a, b, rng.choice((0, 1, 2, 9, flow.INFINITE))) for a, b in pairs if a != b]
        outer = [(vertices, rng.randrange(vertices), flow.INFINITE), (rng.randrange(vertices), vertices + 1, rng.randint(0, 9))]
        assert flow._residual(vertices, inner + outer) == flow._residual_by_scipy(vertices, inner + outer)


def test_cuts_of_other_costs_are_other_problems(module_graph):
    kept = Kept()
    for size in (4, 8):
        inputs = [torch.randn(size, size, requires_grad=True) for _ in range(2)]
        joint = aot.trace_joint(module_graph(lambda a, b: (torch.tanh(a * b) * torch.cat([a, b])[: a.shape[0]],), 2), inputs)
        aot.PARTITIONERS["min_cut"](joint, JointParts.of(joint), aot.AotOptions(answers=kept))
    assert len(kept) == 2


@pytest.mark.parametrize("answer", [b"", b"rubbish", b"\xff", b"1.5", b"0 1", b"-1", b"99999999"])
def test_an_answer_that_is_none_is_solved_again(module_graph, answer):
    joint, _ = joint_of(module_graph, program([(2, 0, 1), (1, 2, 0), (8, 3, 2), (4, 4, 3)]))
    kept = Kept()
    cut = str(aot.partition(joint, aot.AotOptions(answers=kept)).forward.graph)
    right = dict(kept)
    kept.update(dict.fromkeys(kept, answer))
    joint, _ = joint_of(module_graph, program([(2, 0, 1), (1, 2, 0), (8, 3, 2), (4, 4, 3)]))
    assert str(aot.partition(joint, aot.AotOptions(answers=kept)).forward.graph) == cut
    assert right and kept == right
