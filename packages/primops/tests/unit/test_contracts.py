"""Which ATen ops a contract of numerics leaves to eager's kernels."""

import pytest
import torch
from tracework_primops import DECOMPS, OPS, aten_graph, contract_changes, decompose
from tracework_primops.decomp import numerics

aten = torch.ops.aten


def externs(function, word, *inputs):
    """The ATen ops of function(*inputs) that stay calls of eager's kernels."""
    graph = decompose(aten_graph(function, *inputs), changes=contract_changes(word))
    return [str(n.target) for n in graph.calls if OPS.get(getattr(n.target, "name", "")) is not n.target]


HALF, SINGLE = torch.ones(3, 4, dtype=torch.bfloat16), torch.ones(3, 4)
POINTWISE = {
    "aten.gelu.default": (lambda x: torch.nn.functional.gelu(x), SINGLE),
    "aten.sqrt.default": (lambda x: x.sqrt(), SINGLE),
    "aten.lerp.Scalar": (lambda x: torch.lerp(x, x, 0.3), SINGLE),
    "aten.add.Tensor": (lambda x: torch.add(x, x, alpha=2), SINGLE),
    "aten.clamp.default": (lambda x: x.clamp(0, 1), SINGLE),
}
REDUCTIONS = {
    "aten.sum.default": (lambda x: x.sum(), SINGLE),
    "aten._softmax.default": (lambda x: x.softmax(-1), HALF),
    "aten.mm.default": (lambda x: x @ x.T, SINGLE),
    "aten.scatter_add.default": (lambda x: x.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x), SINGLE),
}


@pytest.mark.parametrize("word", numerics.NUMERICS)
@pytest.mark.parametrize("name", [*POINTWISE, *REDUCTIONS])
def test_ops_of_a_contract(name, word):
    function, x = {**POINTWISE, **REDUCTIONS}[name]
    about = "pointwise" if name in POINTWISE else "reduction"
    assert externs(function, word, x) == ([name] if about in numerics.NUMERICS[word] else [])


@pytest.mark.parametrize("x", [HALF, SINGLE], ids=["half", "single"])
def test_what_has_eagers_bits_is_written_in_prims(x):
    assert externs(lambda x: ((x * 0.3 + x - 1) / x).relu().amax(-1), "strict", x) == []


def test_a_number_that_a_half_type_does_not_have_is_added_by_eager():
    assert externs(lambda x: x + 1.7, "strict", HALF) == ["aten.add.Tensor"]
    assert externs(lambda x: x + 1.75, "strict", HALF) == []


def test_tables_name_ops_that_have_rows():
    known = {op._schema.name.partition("::")[2] for op in DECOMPS}
    for table in (numerics.EXACT_POINTWISE, numerics.EXACT_REDUCTIONS, numerics.SUMS, numerics.SOMETIMES_EXACT):
        assert set(table) <= known
    modules = {row.__module__.rpartition(".")[2] for row in DECOMPS.values()}
    assert all(kinds <= modules for kinds in numerics.KINDS.values())


def test_an_unknown_word_is_an_error():
    with pytest.raises(ValueError, match="known: default, strict_pointwise, strict_reduction, strict"):
        contract_changes("exact")
