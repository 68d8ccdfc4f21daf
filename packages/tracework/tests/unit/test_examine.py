"""case(f) and diff(f): from a function's call to cases, and what the command line does with files and scripts."""

import pytest
import torch
import tracework
from tracework import cli, examine
from tracework.cli import app
from tracework.errors import NotCallable
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


@pytest.fixture
def wrong(monkeypatch):
    monkeypatch.setitem(DECOMPS, torch.ops.aten.silu.default, lambda x: prims.mul(x, prims.sigmoid(prims.mul(x, 2.0))))


def test_a_function_is_compared(wrong):
    (report,) = reports = tracework.diff(doubled)(torch.ones(3))
    assert report.failure.stage == "primops" and "silu" in str(reports)
    assert tracework.diff(report.case).failure.same(report.failure)


def test_what_is_captured_wrongly_is_said(monkeypatch):
    x = torch.ones(3)
    monkeypatch.setattr(
        examine, "compile", lambda fn, backend: (lambda x: fn(x + 1)) if backend == "eager" else compile(fn, backend=backend)
    )
    compile = tracework.compile
    reports = tracework.diff(lambda x: {"a": (x + 1, 2)})(x)
    assert str(reports).startswith("at stage captured: result 0 is off by 1 ") and reports[0].failure is None


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
