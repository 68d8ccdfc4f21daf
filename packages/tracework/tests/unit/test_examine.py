"""case(f) and diff(f): from a function's call to cases, and what the command line does with files and scripts."""

import pytest
import torch
import tracework
from torch.testing._internal.two_tensor import TwoTensor
from tracework import cli
from tracework.cli import app
from tracework.errors import NotCallable
from tracework_capture.interp.handlers import arithmetic
from tracework_capture.values.protocol.constant import ConstantValue
from tracework_inductor.codegen.cpp.text_rules import CPP_TEXT
from tracework_primops import DECOMPS, prims
from typer.testing import CliRunner


def doubled(x):
    y = torch.nn.functional.silu(x)
    x.mul_(2)
    return y


def test_a_case_has_inputs_as_they_were_before_the_call():
    x = torch.ones(3)
    (case,) = tracework.case(torch.compile(doubled, backend="eager"), options={"numerics": "strict"})(x)
    assert case.inputs[0].tolist() == [1, 1, 1] and x.tolist() == [2, 2, 2]
    assert case.options == {"numerics": "strict"} and "silu" in case.program


def test_what_cannot_be_examined():
    with pytest.raises(NotCallable):
        tracework.case(3)
    with pytest.raises(tracework.CaseError, match="no graph"):
        tracework.case(lambda x: x)(3)


def test_a_graph_without_a_text_is_told():
    @tracework.compiler.allow_in_graph
    def local(x):
        return x * 2

    def f(x):
        y = x.sin()
        tracework.graph_break()
        return local(y)

    with pytest.warns(UserWarning, match="has no case.*under the name"):
        (case,) = tracework.case(f)(torch.ones(2, 2))
    assert "sin" in case.program
    with pytest.raises(tracework.CaseError, match="under the name"):
        tracework.case(lambda x: local(x))(torch.ones(2))


@pytest.mark.parametrize("examine", [tracework.case, tracework.diff])
@pytest.mark.parametrize("is_argument", [False, True])
def test_wrapper_subclasses_have_no_case(examine, is_argument):
    weight = TwoTensor(torch.ones(2, 2), torch.ones(2, 2))
    function, given = (torch.mm, (torch.ones(2, 2), weight)) if is_argument else (lambda x: x @ weight, (torch.ones(2, 2),))
    with pytest.raises(tracework.CaseError, match="wrapper subclass"):
        examine(function)(*given)


@pytest.fixture
def wrong(monkeypatch):
    monkeypatch.setitem(DECOMPS, torch.ops.aten.silu.default, lambda x: prims.mul(x, prims.sigmoid(prims.mul(x, 2.0))))


def test_a_function_is_compared(wrong):
    (report,) = reports = tracework.diff(doubled)(torch.ones(3))
    assert report.failure.stage == "primops" and "silu" in str(reports)
    assert tracework.diff(report.case).failure.same(report.failure)


def scaled(x):
    y = x.sin()
    for number, factor in enumerate([1, 2]):
        y = y * (number + factor)
    return {"a": (y.cos(), 2)}


def test_what_is_captured_wrongly_is_said_with_its_line(monkeypatch):
    binary = arithmetic.binary

    def wrong(frame, op, left, right):
        constants = isinstance(left, ConstantValue) and isinstance(right, ConstantValue) and left.obj == 1
        return binary(frame, "*" if constants else op, left, right)

    monkeypatch.setattr(arithmetic, "binary", wrong)
    reports = tracework.diff(scaled)(torch.ones(3))
    line = scaled.__code__.co_firstlineno + 3
    assert str(reports).startswith("at stage captured: result 0 is off by ") and reports[0].failure is None
    assert f"first at aten.mul.Tensor from {__file__}:{line} in scaled" in reports.captured, reports.captured


def test_an_entry_that_is_stored_and_wrong_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path))
    x = torch.linspace(0, 1, 7)
    with monkeypatch.context() as patch:
        patch.setitem(CPP_TEXT, "tanh", lambda t, a: f"tw_tanh({a}) * ({t})1.01")
        tracework.compile(lambda x: x.tanh() + 3)(x)
    reports = tracework.diff(lambda x: x.tanh() + 3)(x)
    assert reports[0].failure is None and "at call 1 result 0" in reports.whole and "cache=False" in reports.whole
    assert str(reports).startswith("each graph agrees by itself, and the whole does not: ")


def test_commands(wrong, tmp_path):
    run = CliRunner().invoke
    (case,) = tracework.case(doubled)(torch.ones(3))
    path = str(case.save(tmp_path / "a.case"))
    found = run(app, ["diff", path])
    assert found.exit_code == 1 and "aten.silu.default" in found.output and f"Next: tracework bisect {path}" in found.output
    found = run(app, ["bisect", path])
    assert found.exit_code == 1 and "decomposition of aten.silu.default" in found.output
    found = run(app, ["minify", path])
    assert found.exit_code == 0 and "import tracework" in found.output and (tmp_path / "a-small.case").exists()
    assert run(app, ["diff", str(tmp_path / "b.case")]).exit_code == 2


def test_a_script_is_run_with_a_folder_for_its_cases(monkeypatch):
    def run(arguments, folder):
        assert arguments == ["program.py", "--epochs", "1"]
        (case,) = tracework.case(doubled)(torch.ones(3))
        case.save(f"{folder}/000-captured.case")

    monkeypatch.setattr(cli, "run_dumping", run)
    found = CliRunner().invoke(app, ["diff", "program.py", "--epochs", "1"])
    assert found.exit_code == 0 and "nothing is wrong" in found.output, found.output
