"""Graphs made with primops alone: what becomes of a function's ops, and what is refused with which words."""

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import DataDependentError, DecompositionError, MixedTensorError, PrimError, aten_graph, decompose

X, W = torch.randn(2, 3, 4), torch.randn(4, 5)
PROGRAMS = {
    "composites": lambda x, w: F.scaled_dot_product_attention(x, x, F.linear(x, w.t()[:4])),
    "several results": lambda x, w: (*torch.split(x, 2, 2), torch.std_mean(x @ w)[1], x),
    "lists and views": lambda x, w: torch.cat([x.transpose(0, 1).flatten(1), x.reshape(3, 8)], 1),
    "a number made inside": lambda x, w: x * torch.tensor(2.5) + torch.full((), 3, dtype=torch.float64),
    "factories": lambda x, w: x + torch.arange(4) * torch.ones(3, 1),
    "one tensor twice": lambda x, w: (x, x),
}


@pytest.mark.parametrize("profile", ["prims", "core_aten", "none"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_eagerly(name, profile):
    graph = aten_graph(PROGRAMS[name], X, W)
    expected = PROGRAMS[name](X, W)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found in (graph(X, W), decompose(graph, profile).run(X, W)):
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_a_traced_module_of_torch_fx():
    gm = torch.fx.symbolic_trace(lambda x, w: torch.relu(x @ w).sum())
    with pytest.raises(DecompositionError, match=r"no meta\['val'\].*aten_graph"):
        decompose(gm)
    torch.testing.assert_close(decompose(aten_graph(gm, X, W)).run(X, W)[0], gm(X, W))


OTHER = torch.randn(4)
REFUSED = {
    "a write": (lambda x, w: x.add_(1), PrimError, "writes to a tensor"),
    "a tensor from outside": (lambda x, w: x + OTHER, MixedTensorError, "pass it to the traced function"),
    "only a tensor from outside": (lambda x, w: OTHER, PrimError, "not among the arguments"),
    "data inside": (lambda x, w: x + torch.tensor([1.0, 2, 3, 4]), PrimError, "make it an argument"),
    "looking": (lambda x, w: x if x.sum() > 0 else w, DataDependentError, "depends on the data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    program, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        aten_graph(program, X, W)


OPERATORS = "+ - * // % & | ^ << >>".split()


@pytest.mark.parametrize("written", ["{a} {op} {b}", "{a} {op} 3", "3 {op} {b}"])
@pytest.mark.parametrize("op", OPERATORS)
def test_operators_of_python_are_prims(op, written):
    """None of them is left to an eager kernel, whichever overload Python's operator calls."""
    a, b = torch.arange(1, 9).to(torch.uint8), torch.tensor([1, 2, 3, 4, 5, 6, 7, 1]).to(torch.uint8)
    program = eval("lambda a, b: " + written.format(a="a", op=op, b="b"))
    made = decompose(aten_graph(program, a, b))
    (found,) = made.run(a, b)
    expected = program(a, b)
    assert found.dtype is expected.dtype and torch.equal(found, expected)
    assert not [node.target for node in made.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
