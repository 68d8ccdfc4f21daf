"""Attention as models write it out, in training, where it becomes one operator: compiled for a GPU, its kernels hold no
scores and nothing of the scores is kept for the backward; on one, values and gradients are eager's."""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "packages" / "aotautograd" / "tests"))

import pytest
import torch
import tracework
import tracework_aotautograd as aotautograd
import tracework_inductor as inductor
import tracework_primops as primops
import tracework_primops.written_attention
from gpu_specs import move
from tracework.assemble import GraphCompiler
from written_attentions import FORMS, Sizes, swin

SMALL, LARGE = Sizes(2, 4, 256, 16), Sizes(2, 8, 2048, 64)


def operands(form, sizes, device):
    heads = sizes.heads, sizes.heads // form.heads_per_key, sizes.heads // form.heads_per_key
    shapes = [(sizes.batch, sizes.length, h, sizes.width) for h in heads]
    given = [torch.randn(s, device=device, dtype=torch.bfloat16).requires_grad_() for s in shapes]
    return given + form.others(sizes, torch.device(device))


def plans(form, sizes):
    """What is compiled for a GPU of a training step, as captured, forward and backward; the bytes that are kept beside inputs; and why attention
    stays written out."""
    programs, reasons = [], []

    def observe(stage, product):
        (programs if stage == "functional" else reasons).append(product)

    def backend(gm, inputs):
        options = aotautograd.AotOptions(trained_attention=frozenset({"cpu"}), fallback=False)
        return aotautograd.aot_compile(
            gm, inputs, forward_compiler=lambda gm, spec: lambda given: gm(*given), options=options, observe=observe
        )

    tracework.compile(form.function, backend=backend)(*operands(form, sizes, "cpu"))
    (program,) = programs
    found = []
    for gm, spec in ((program.forward, program.forward_spec), *((b.graph, b.spec) for b in program.backwards)):
        move(gm, spec.fake_mode)
        graph = primops.run_passes(primops.decompose(gm, spec=spec).replace(editable=True))
        found.append(inductor.plan_graph(graph, inductor.InductorOptions()))
    (*_, output) = program.forward.graph.nodes
    made = {n for n in output.args[0][program.signature.number_of_graph_outputs :] if getattr(n, "op", "") == "call_function"}
    kept = sum(n.meta["val"].numel() * n.meta["val"].element_size() for n in made)
    return found, kept, [reason for given in reasons for reason in given]


def largest(plan):
    return max(math.prod(map(int, b.layout.sizes)) * b.layout.dtype.itemsize for b in plan.program.buffers.values())


@pytest.mark.parametrize("name", FORMS)
def test_plans_for_a_gpu_hold_no_scores(name, monkeypatch):
    monkeypatch.setattr(tracework_primops.written_attention, "LEAST_BYTES", 0)
    form = FORMS[name]
    found, kept, reasons = plans(form, SMALL)
    scores = 2 * SMALL.batch * SMALL.heads * SMALL.length**2
    if form.stays:
        assert len(reasons) == 1 and form.stays in reasons[0]
        return
    assert not reasons
    sums = {f"attention_sums_of_{form.sums}"} if form.sums else set()
    for plan, cores in zip(found, ({"attention"}, {"attention_queries", "attention_keys"} | sums), strict=True):
        assert {node.core for node in plan.program.nodes if getattr(node, "core", "")} == cores
        assert largest(plan) < scores
    copies = sum(x.numel() * x.element_size() for x in operands(form, SMALL, "cpu"))  # since the caller may write to inputs
    assert kept < scores + copies


def test_it_stays_written_out_unless_asked_for(monkeypatch):
    monkeypatch.setattr(tracework_primops.written_attention, "LEAST_BYTES", 0)
    assert not aotautograd.AotOptions().trained_attention
    seen = []

    def backend(gm, inputs):
        options = aotautograd.AotOptions(attention=frozenset({"cpu"}), fallback=False)
        return aotautograd.aot_compile(
            gm, inputs, forward_compiler=lambda gm, spec: seen.append(gm) or (lambda given: gm(*given)), options=options
        )

    form = FORMS["nano"]
    inputs = operands(form, SMALL, "cpu")
    tracework.compile(form.function, backend=backend)(*inputs).sum().backward()
    assert len(seen) == 2 and not any("tracework." in str(n.target) for gm in seen for n in gm.graph.nodes)
    said = tracework.explain(form.function)(*inputs)
    assert not said.all_scores


@pytest.fixture
def as_one_operator(monkeypatch):
    """What functional graphs are told of, to see that they have the operator."""
    prims, targets = GraphCompiler.prims, set()

    def told(self, gm, spec):
        targets.update(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
        return prims(self, gm, spec)

    monkeypatch.setattr(GraphCompiler, "prims", told)
    return targets


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", FORMS)
def test_values_gradients_and_memory(name, as_one_operator):
    form = FORMS[name]
    inputs = operands(form, LARGE, "cuda")
    leaves = [x for x in inputs if x.requires_grad]
    compiled = tracework.compile(form.function)
    grad = torch.randn_like(compiled(*inputs))

    def step(function, given, grad):
        out = function(*given)
        return out, *torch.autograd.grad(out, [x for x in given if x.requires_grad], grad)

    step(compiled, inputs, grad)
    used = {t for t in as_one_operator if t.startswith("tracework.attention")}
    assert bool(used) is not bool(form.stays), as_one_operator
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = step(compiled, inputs, grad)
    grown = torch.cuda.max_memory_allocated() - before
    eager = step(form.function, inputs, grad)
    wide = [x.detach().float().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
    wanted = step(form.function, wide, grad.float())
    assert len(found) == 1 + len(leaves)
    for got, plain, want in zip(found, eager, wanted, strict=True):
        assert (got.dtype, got.shape, got.stride()) == (plain.dtype, plain.shape, plain.stride())
        least = (plain - want).abs().max().item()
        assert (got - want).abs().max().item() <= 1.5 * least + 2**-7 * want.abs().max().item()
    if not form.stays:
        gathered = (
            LARGE.heads * LARGE.length**2 if form.function is swin else 0
        )  # by rows of the table, before it has rows of keys
        assert grown < 2 * (LARGE.batch * LARGE.heads * LARGE.length**2 + gathered)
