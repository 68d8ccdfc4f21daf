"""Intermediate values in a workspace: what is placed there, and that nothing of it is seen from outside."""

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build, overload
from tracework_inductor import InductorOptions, compile_graph, lower, schedule
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_inductor.schedule import workspace
from tracework_primops import prims as p
from tracework_primops.spec import TensorSpec

SIZE = (16, 32)


@pytest.fixture(autouse=True)
def however_small(monkeypatch):
    monkeypatch.setattr(workspace, "LEAST", 0)


def tensors(*sizes):
    made = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=made) for s in sizes]


def products(x, w, v):
    """Values between library calls, one of them read twice, another an output."""
    a = p.mm(x, w)
    b = p.tanh(p.mm(p.sin(a), w))
    c = p.mm(p.add(b, a), w)
    return c, p.sum(p.mm(p.permute(c, (1, 0)), p.cos(p.mm(p.neg(b), v))), (0,)), p.permute(b, (1, 0))


ARGS = ((16, 32), (32, 32), (32, 8))


def plan(fn, args):
    options = InductorOptions()
    return schedule(lower(build(fn, args), options), options, CppRenderer().capabilities)


def test_values_and_outputs_of_several_calls() -> None:
    first, second = tensors(*ARGS), [t + 1 for t in tensors(*ARGS)]
    graph = build(products, first)
    artifact = compile_graph(graph)
    assert "work = take(" in artifact.host_source and "out=views[" in artifact.host_source
    compiled = runtime.load(artifact)
    got = compiled(list(first))
    compiled(list(second))
    for mine, expected in zip(got, graph.run(*first), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


def test_a_first_call_in_inference_mode() -> None:
    args = tensors(*ARGS)
    graph = build(products, args)
    compiled = runtime.load(compile_graph(graph))
    with torch.inference_mode():
        compiled(list(args))
    for mine, expected in zip(compiled(list(args)), graph.run(*args), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


def test_what_is_placed_does_not_overlap_while_it_lives() -> None:
    found = plan(products, tensors(*ARGS))
    offsets = found.memory.workspace.offsets
    outputs = {o.buffer for o in found.program.outputs}
    assert offsets and not outputs & set(offsets)
    touched = {name: [n for n, k in enumerate(found.kernels) if name in k.reads | k.writes] for name in offsets}
    pairs = [(a, b) for a in offsets for b in offsets if a < b and touched[a][0] < touched[b][0] <= touched[a][-1]]
    shared = {new: old for step in found.memory.steps for new, old in step.reuse}
    for a, b in pairs:
        first, second = offsets[a], offsets[b]
        bytes_of = {n: 4 * found.program.buffers[n].layout.elements() for n in (a, b)}
        apart = first + bytes_of[a] <= second or second + bytes_of[b] <= first
        assert apart or shared.get(b) == a, (a, b)
    assert all(
        offset + 4 * found.program.buffers[n].layout.elements() <= found.memory.workspace.size for n, offset in offsets.items()
    )


def test_operators_that_count_from_the_beginning_of_a_storage() -> None:
    def fn(x, w):
        first, second = p.mm(x, w), p.mm(p.neg(x), w)
        spec = TensorSpec(torch.float32, torch.device("cpu"), SIZE)
        scatter = torch.ops.aten.as_strided_scatter.default
        return overload(scatter, (p.add(first, second), p.mm(x, w), (16, 32), (32, 1), 0), spec), p.sum(
            p.mul(first, second), (0,)
        )

    args = tensors(*ARGS[:2])
    graph = build(fn, args)
    got = runtime.load(compile_graph(graph))(list(args))
    for mine, expected in zip(got, graph.run(*args), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


@torch.library.custom_op("tracework_workspace_tests::passes_on", mutates_args=())
def passes_on(x: torch.Tensor) -> torch.Tensor:
    """Any operator of somebody else's, which might give or keep what it was given."""
    return x.clone()


@pytest.mark.parametrize(
    ("target", "placed"),
    [(torch.ops.tracework_workspace_tests.passes_on.default, False), (torch.ops.aten.cumprod.default, True)],
    ids=str,
)
def test_arguments_of_unknown_operators_are_not_placed(target, placed) -> None:
    def fn(x):
        extra = (1,) if placed else ()
        return overload(target, (p.exp(x), *extra), TensorSpec(torch.float32, torch.device("cpu"), (16, 32)))

    found = plan(fn, tensors((16, 32)))
    assert bool(found.memory.workspace.offsets) is placed
