"""Padding of products: when it pays, that values stay, and that a graph without unaligned products is the same object."""

import sys

import pytest
import torch
from prim_programs import build, check
from tracework_inductor import compile_graph
from tracework_inductor.passes.pad_matmul import _saved, pad_matmul
from tracework_inductor.product_costs import alignment
from tracework_primops import GraphBuilder, PrimGraph, PrimValue, TensorSpec, prims
from tracework_runtime.host.lines import Launch

CUDA = torch.device("cuda", 0)


def product(name, *shapes, dtype=torch.bfloat16, device=CUDA):
    """A graph of one product of inputs of these shapes."""
    graph = torch.fx.Graph()
    values = []
    for i, shape in enumerate(shapes):
        node = graph.placeholder(f"x{i}")
        node.meta["spec"] = TensorSpec(dtype, device, shape)
        values.append(PrimValue(node.meta["spec"], node))
    with GraphBuilder(graph):
        result = getattr(prims, name)(*values)
    graph.output((result.node,))
    return PrimGraph.from_fx(graph)


def test_alignment_counts_bytes():
    assert [alignment(n, 2) for n in (50257, 30522, 12, 768)] == [2, 4, 8, 16]


@pytest.mark.parametrize(
    ("shapes", "padded"),
    [
        (((16384, 764), (764, 50257)), True),
        (((16384, 768), (768, 50257)), False),  # lowering/product_pieces.py
        (((16384, 50257), (50257, 768)), True),
        (((16384, 768), (768, 50304)), False),
        (((64, 63), (63, 65)), False),
    ],
)
def test_decision(shapes, padded):
    graph = product("mm", *shapes)
    assert (pad_matmul(graph) is not graph) == padded


def logits_gradients(grad, w, x):
    """Of logits of a vocabulary: their gradient is the first matrix of one product and, transposed, of another."""
    return prims.mm(grad, w), prims.mm(prims.permute(grad, (1, 0)), x)


def test_a_matrix_is_padded_once_for_all_products():
    shapes = ((16384, 30522), (30522, 768), (16384, 768))
    graph = build(logits_gradients, [None] * 3, [TensorSpec(torch.bfloat16, CUDA, s) for s in shapes])
    padded = pad_matmul(graph)
    made = [n for n in padded.calls if n.target is prims.pad]
    assert [n.args[0].name for n in made] == ["in0", "in1"]
    assert [o.meta["spec"].sizes for o in padded.outputs] == [(16384, 768), (30522, 768)]
    artifact = compile_graph(graph)
    source = artifact.host_source.split("def call")[1]
    assert source.count("(16384, 30528, ), (30528, 1, )") == 1  # both operands are windows on it
    assert sum(isinstance(line, Launch) for line in artifact.host_lines) == 2


@pytest.mark.parametrize(
    ("shape", "padded"), [((16384, 30522), True), ((16384, 30528), False), ((64, 30522), False), ((16384, 12), False)]
)
def test_rows_of_a_transposed_first_matrix(shape, padded):
    def program(grad, x):
        return (prims.mm(prims.permute(grad, (1, 0)), x),)

    specs = [TensorSpec(torch.bfloat16, CUDA, s) for s in (shape, (shape[0], 768))]
    assert (pad_matmul(graph := build(program, [None] * 2, specs)) is not graph) == padded


def test_values_stay_where_rows_are_padded(monkeypatch):
    monkeypatch.setattr(sys.modules[pad_matmul.__module__], "_pays", lambda node: getattr(node.target, "name", "") == "mm")
    inputs = [torch.randn(s, dtype=torch.float64) for s in ((16, 30), (30, 8), (16, 8))]
    graph = build(logits_gradients, inputs)
    padded = pad_matmul(graph)
    assert sum(n.target is prims.pad for n in padded.calls) == 2
    torch.testing.assert_close(padded.run(*inputs), graph.run(*inputs))
    check(logits_gradients, *inputs, graph=padded)


def test_other_devices_and_dtypes_are_left_alone():
    shapes = ((16384, 768), (768, 50257))
    for graph in (product("mm", *shapes, dtype=torch.float32), product("mm", *shapes, device=torch.device("cpu"))):
        assert pad_matmul(graph) is graph


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mm", ((5, 8), (8, 7))),
        ("mm", ((5, 11), (11, 8))),
        ("mm", ((5, 11), (11, 7))),
        ("addmm", ((7,), (5, 11), (11, 7))),
        ("bmm", ((3, 5, 11), (3, 11, 7))),
    ],
)
def test_values_and_sizes_stay(name, shapes, monkeypatch):
    monkeypatch.setattr(sys.modules[pad_matmul.__module__], "_pays", lambda node: getattr(node.target, "name", "") == name)
    graph = product(name, *shapes, dtype=torch.float64, device=torch.device("cpu"))
    padded = pad_matmul(graph)
    inputs = [torch.randn(s, dtype=torch.float64) for s in shapes]
    torch.testing.assert_close(padded.run(*inputs), graph.run(*inputs))
    assert padded.outputs[0].meta["spec"] == graph.outputs[0].meta["spec"]
    assert any(n.target is prims.pad for n in padded.calls)


def test_copies_are_weighed():
    a, b, out = (TensorSpec(torch.bfloat16, CUDA, s) for s in ((1, 4096), (4096, 50257), (1, 50257)))
    assert _saved(a, b, out) < 0
