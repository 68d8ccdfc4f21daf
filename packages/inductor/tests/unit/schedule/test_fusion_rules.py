"""FUSION_RULES: each has a program that it refuses, and one that it is asked about and lets be one kernel."""

import dataclasses

import pytest
import torch
from prim_programs import build
from product_programs import linear, normed, silu
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.schedule import fusion_rules, mixed_orders
from tracework_inductor.schedule.choice import every
from tracework_inductor.schedule.fusion_rules import FUSION_RULES, Proposal
from tracework_inductor.schedule.group import Candidate, Group, Member, axis_sizes
from tracework_primops import TensorSpec, prims

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64


@dataclasses.dataclass(frozen=True)
class Example:
    """A program of prims, what it is given, and the options it is planned with."""

    program: object
    inputs: tuple
    options: dict = dataclasses.field(default_factory=dict)
    kernels: int = 1
    """How many there are where no rule refuses."""


def given(*sizes, dtype=F32, device=CUDA):
    return TensorSpec(dtype, device, sizes)


def three(x):
    a = prims.exp(x)
    b = prims.sin(a)
    return a, b, prims.neg(b)


def softmax(x):
    e = prims.exp(prims.sub(x, prims.amax(x, (1,), True)))
    return prims.div(e, prims.sum(e, (1,), True))


def softmax_backward(g, y):
    dx = prims.mul(y, prims.sub(g, prims.sum(prims.mul(g, y), (1,), True)))
    return dx, prims.sum(dx, (0,), False)


def sums(x):
    return prims.sum(x, (1,), False)


def turned(x):
    return prims.permute(x, (1, 0))


X, Y = given(64, 32), given(64, 32)
HOST = given(64, 64, device=CPU)
PARTS = (given(64, 32, device=CPU),) * 9
PLACES, HOST_PLACES = given(64, dtype=I64), given(64, dtype=I64, device=CPU)
ROW, WEIGHT, SQUARE = given(1, 512, dtype=BF16), given(512, dtype=BF16), given(512, 512, dtype=BF16)
TILES = {"products": "tiles"}

REFUSED = {
    "size": Example(three, (X,), {"max_fusion_size": 2}),
    "scatter": Example(lambda x, i, y: prims.exp(prims.scatter_add(x, 0, i, y)), (given(64), PLACES, given(64))),
    "columns": Example(lambda g, y: (*softmax_backward(g, y), prims.cumsum(g, 1)), (X, Y)),
    "scan": Example(lambda x: prims.exp(prims.cumsum(x, 1)), (X,)),
    "segments": Example(lambda *x: sums(prims.cat(x, 1)), PARTS),
    "sort": Example(lambda w, x: (prims.mv(w, x), prims.sort(w, 1)[0]), (given(48, 64), given(64))),
    "order": Example(
        lambda x, y: (sums(prims.exp(x)), prims.mul(turned(prims.exp(x)), y)),
        (given(64, 32, device=CPU), given(32, 64, device=CPU)),
    ),
    "products": Example(lambda x, a, b, c: (linear(x, a), linear(x, b), linear(x, c)), (ROW, SQUARE, SQUARE, SQUARE)),
    "core": Example(lambda x, a: (linear(prims.exp(x), a), prims.exp(x)), (given(256, 512, dtype=BF16), SQUARE), TILES),
    "repeats": Example(
        lambda x, w, a: linear(normed(x, w), a),
        (given(1, 32768, dtype=BF16), given(32768, dtype=BF16), given(64, 32768, dtype=BF16)),
    ),
    "neighbours": Example(lambda x, y: (prims.exp(x), sums(prims.mul(turned(prims.exp(x)), y))), (X, given(32, 64))),
    "elements": Example(lambda x: (softmax(x), prims.flip(prims.amax(x, (1,), False), (0,))), (X,)),
    "overwrites": Example(lambda x, y: (prims.flip(x, (0,)), prims.copy_into(x, y)), (X, Y)),
    "raises": Example(
        lambda x, i, y: (prims.add(prims.index_select(y, 0, i), x), prims.copy_into(x, prims.neg(x))), (HOST, HOST_PLACES, HOST)
    ),
}

FUSED = {
    "device": Example(lambda x: (prims.exp(x), prims.sin(x)), (X,)),
    "size": Example(three, (X,), {"max_fusion_size": 3}),
    "scatter": Example(lambda x, i, y: (prims.gather(x, 0, i), prims.gather(y, 0, i)), (given(64), PLACES, given(64))),
    "columns": Example(softmax_backward, (X, Y), kernels=2),  # of which one adds up what blocks have kept
    "scan": Example(three, (X,)),
    "segments": Example(lambda *x: (prims.cat(x[:8], 1), sums(prims.cat(x[:8], 1))), PARTS),
    "sort": Example(lambda x: (prims.sort(x, 1)[0], sums(x)), (X,)),
    "order": Example(lambda x, y: (prims.exp(x), prims.mul(turned(prims.exp(x)), y)), (X, given(32, 64))),
    "axes": Example(lambda x: (prims.exp(x), prims.sin(prims.reshape(prims.exp(x), (2, 1024)))), (X,)),
    "products": Example(lambda x, a, b: (linear(x, a), linear(x, b)), (ROW, SQUARE, SQUARE)),
    "core": Example(lambda x, a: silu(linear(x, a)), (given(256, 512, dtype=BF16), SQUARE), TILES),
    "repeats": Example(lambda x, w, a: linear(normed(x, w), a), (ROW, WEIGHT, SQUARE)),
    "neighbours": Example(lambda x: (sums(x), prims.amax(x, (1,), False)), (X,)),
    "elements": Example(softmax, (X,)),
    "overwrites": Example(lambda x, y: (prims.exp(x), prims.copy_into(x, y)), (X, Y)),
    "raises": Example(lambda x, i, y: (prims.add(prims.index_select(y, 0, i), x), prims.exp(x)), (HOST, HOST_PLACES, HOST)),
}

OF_HAND = {
    "device": ((X, given(64, 32, device=CPU)), [64, 32]),
    "axes": ((X, Y), [32, 64]),
}
"""Rules that no program is known to need: two tensors, and the axes that two nodes over them would share."""


def planned(example, monkeypatch):
    """The plan, and what each rule answered."""
    answers = []

    def watched(name, rule):
        def asked(proposal):
            answers.append((name, rule(proposal)))
            return answers[-1][1]

        return asked

    monkeypatch.setattr(fusion_rules, "FUSION_RULES", tuple((name, watched(name, rule)) for name, rule in FUSION_RULES))
    graph = build(example.program, [torch.empty(s.sizes, device="meta") for s in example.inputs], example.inputs)
    options = InductorOptions(**example.options)
    renderer = TritonRenderer if example.inputs[0].device == CUDA else CppRenderer
    capabilities = renderer.capabilities
    if capabilities.column_blocks:
        capabilities = dataclasses.replace(capabilities, column_blocks=4)
    return schedule(lower(graph, options), options, capabilities, every), answers


@pytest.fixture
def small(monkeypatch):
    """Sums of columns are kept by blocks of small matrices, too."""
    monkeypatch.setattr(mixed_orders, "LEAST_SAVED", {"cuda": 1})
    monkeypatch.setattr(mixed_orders, "ROWS_OF_BLOCK", 8)
    monkeypatch.setattr(mixed_orders, "_bytes", lambda fuser, name, elements: 1 << 30)


def test_every_rule_is_here():
    names = {name for name, _ in FUSION_RULES}
    assert {*REFUSED, *OF_HAND} == set(FUSED) == names


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name, small, monkeypatch):
    plan, answers = planned(REFUSED[name], monkeypatch)
    assert name in {asked for asked, reason in answers if reason is not None}
    assert name in {refusal.rule for refusal in plan.refusals}


@pytest.mark.parametrize("name", FUSED)
def test_lets_pass(name, small, monkeypatch):
    plan, answers = planned(FUSED[name], monkeypatch)
    assert (name, None) in answers
    assert len(plan.kernels) == FUSED[name].kernels, plan.refusals
    assert name not in {rule for rule, reason in answers if reason is not None}


@pytest.mark.parametrize("name", OF_HAND)
def test_refuses_by_itself(name):
    specs, outer = OF_HAND[name]
    inputs = [torch.empty(s.sizes, device="meta") for s in specs]
    options = InductorOptions()
    program = lower(build(lambda x, y: (prims.exp(x), prims.sin(y)), inputs, specs), options)
    first, second = program.nodes
    group = Group(0, [Member(first, "outer")], *axis_sizes(first))
    candidate = Candidate(outer, [], Member(second, "outer"))
    proposal = Proposal(group, second, candidate, program.buffers, options, TritonRenderer.capabilities)
    rules = dict(FUSION_RULES)
    assert rules[name](proposal) is not None
