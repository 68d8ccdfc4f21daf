"""Scripts of small programs run, and show the failure."""

import pytest
import torch
import tracework
from tracework.cases import Case, CaseError
from tracework.faults.find import bisect, diff
from tracework.faults.minify import minify
from tracework_inductor.lowering.registry import LOWERINGS
from tracework_primops import DECOMPS, prims


@pytest.fixture
def wrong(monkeypatch):
    """Wrong for numbers above 1000 alone, which random inputs do not have."""

    def rule(x):
        return prims.where(prims.gt(x, 1000.0), prims.neg(x), prims.mul(x, prims.sigmoid(x)))

    monkeypatch.setitem(DECOMPS, torch.ops.aten.silu.default, rule)


def test_inputs_come_from_the_case_where_random_ones_do_not_fail(wrong, tmp_path, capsys):
    (case,) = tracework.case(lambda x: torch.nn.functional.silu(x + 1)[:, 1:].contiguous())(torch.full((2, 3), 2000.0))
    small = minify(case)
    assert not small.seeded and small.after == 1
    path = small.case.save(tmp_path / "small.case")
    script = small.script(str(path))
    exec(compile(script, "script", "exec"), {})
    assert "values at stage primops" in capsys.readouterr().out
    assert Case.load(path).stage == "primops"


def test_a_graph_inside_a_case_with_open_sizes(monkeypatch, tmp_path):
    def rule(low, x):
        if isinstance(x.sizes[0], int):
            return atan(low, x)
        raise ValueError("sizes are open")

    atan = LOWERINGS["atan"]
    monkeypatch.setitem(LOWERINGS, "atan", rule)
    with pytest.raises(tracework.CompileError) as raised:
        options = {"dump_dir": str(tmp_path), "cache": False}
        tracework.compile(lambda x: (x + 1).atan() * 2, dynamic=True, options=options)(torch.ones(5, 3))
    case = Case.load(raised.value.case)
    assert case.level == "captured" and case.inner().level == "functional"
    small = minify(case)
    assert small.after == 1 and small.case.level == "functional" and "symbol s0" in small.script()
    assert "open" in str(diff(case)) and "lowering of atan" in bisect(case).cause


def test_a_graph_of_prims(wrong, capsys):
    text = "inference graph\n%x: f32[3] = input\n%a: f32[3] = aten.exp.default(%x)\n%silu: f32[3] = aten.silu.default(%a)\nreturn %silu\n"
    small = minify(Case("functional", text, (torch.full((3,), 9.0),)))
    assert small.after == 1 and "aten.exp" not in small.script()
    assert len(small.script().splitlines()) < 15


def test_what_does_not_fail_is_not_made_smaller():
    with pytest.raises(CaseError, match="does not fail"):
        minify(Case.of_prims("inference graph\n%x: f32[3] = input\n%exp: f32[3] = exp(%x)\nreturn %exp\n"))
