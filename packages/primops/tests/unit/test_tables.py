"""Tables are complete, sealed, and every rule is in the file that its op's family names."""

import inspect
import sys
from pathlib import Path

import pytest
import torch
from tracework_primops import attention, decomp, eager, meta
from tracework_primops.errors import SealedTable
from tracework_primops.families import FAMILIES
from tracework_primops.op import OPS, RULES, Kind, make_op
from tracework_primops.ops.reasons import REASONS

COMPOSITE_FILES = {"activation", "normalization", "loss", "attention", "foreach", "quantization"}


def test_every_op_has_both_rules():
    for table in ("meta", "eager"):
        missing = [name for name, op in OPS.items() if op not in RULES[table]]
        assert not missing, f"{table}: {missing}"


def test_every_op_has_a_family_a_doc_line_and_distinct_arguments():
    for name, op in OPS.items():
        assert op.family in FAMILIES, name
        assert op.doc and "\n" not in op.doc, name
        names = [a.name for a in op.args]
        assert len(set(names)) == len(names), name


@pytest.mark.parametrize("kind", ["meta", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rules_are_in_the_file_of_their_family(kind, family):
    package = {"meta": meta, "eager": eager}[kind]
    table = getattr(getattr(package, family), kind.upper())
    assert table and all(op.family == family for op in table)


def test_decompositions_are_in_a_file_named_after_a_family_or_a_composite():
    allowed = {*FAMILIES, *COMPOSITE_FILES}
    files = {inspect.getmodule(row).__name__.rpartition(".")[2] for row in decomp.DECOMPS.values()}
    assert files <= allowed, files - allowed


def test_decompositions_are_keyed_by_functional_aten_overloads():
    in_place = {torch.ops.aten.copy_.default}
    own = {getattr(attention.operators(), name).default for name in ("attention", "attention_backward", "attention_sums")}
    for op in decomp.DECOMPS:
        assert isinstance(op, torch._ops.OpOverload) and (op.namespace == "aten" or op in own), op
        assert op in in_place or not op._schema.is_mutable, op


def test_decompositions_take_the_arguments_of_their_overload():
    for op, row in decomp.DECOMPS.items():
        signature = inspect.signature(row)
        positional = [None for a in op._schema.arguments if not a.kwarg_only]
        keywords = {a.name: None for a in op._schema.arguments if a.kwarg_only and not a.has_default_value()}
        try:
            signature.bind(*positional, **keywords)
        except TypeError as error:
            pytest.fail(f"{op}: {error}")


def test_a_second_row_and_a_late_op_are_errors():
    with pytest.raises(SealedTable, match="add.Tensor"):
        decomp.decomposition(torch.ops.aten.add.Tensor)(lambda a, b: a)
    with pytest.raises(KeyError, match="sealed"):
        OPS.add(make_op("brand_new(x:T)", "nothing", "pointwise", Kind.POINTWISE))
    with pytest.raises(KeyError, match="no prim 'nonsense'"):
        OPS["nonsense"]


def test_profiles():
    assert decomp.select("none") == {}
    prims, core = decomp.select("prims"), decomp.select("core_aten")
    assert set(core) < set(prims)
    assert torch.ops.aten.gelu.default not in core and torch.ops.aten._fused_adam.default in core
    without = decomp.select("prims", {torch.ops.aten.gelu.default: None})
    assert torch.ops.aten.gelu.default not in without and torch.ops.aten.gelu.default in prims
    with pytest.raises(ValueError, match="unknown decomposition profile"):
        decomp.select("everything")


def test_every_library_call_window_product_and_convolution_says_why_it_is_a_prim():
    wanted = {n for n, op in OPS.items() if op.family in ("matmul", "conv", "window") or op.kind is Kind.LIBRARY}
    assert set(REASONS) == wanted


def test_the_page_of_ops_is_current():
    root = Path(__file__).parents[4]
    sys.path.insert(0, str(root / "tools"))
    try:
        import op_docs
    finally:
        sys.path.remove(str(root / "tools"))
    assert (root / "packages" / "primops" / "OPS.md").read_text() == op_docs.page(), "run tools/op_docs.py"
