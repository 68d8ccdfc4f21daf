"""Cases: what is saved is loaded, and who writes them."""

import os
import pathlib
import zipfile

import pytest
import torch
import tracework
from tracework import cases
from tracework.cases import Case, CaseError
from tracework_inductor.lowering.registry import LOWERINGS

PRIMS = "inference graph\n%x: f32[3] = input\n%exp: f32[3] = exp(%x)\nreturn %exp\n"


def saved(case, tmp_path):
    return Case.load(case.save(tmp_path / "a.case"))


def test_inputs_share_memory_again(tmp_path):
    x = torch.arange(12.0).reshape(3, 4)
    inputs = (x.t()[1:], x, torch.tensor([True]), x.half().requires_grad_(), torch.empty(0, 2), 3, 1.5, None)
    case = saved(
        Case("prim", PRIMS, inputs, {"numerics": "strict"}, "inductor", "ValueError: no", "f.py:1 in f", {"plan": "p"}), tmp_path
    )
    for before, after in zip(inputs, case.inputs, strict=True):
        if not isinstance(before, torch.Tensor):
            assert before == after
            continue
        torch.testing.assert_close(after, before, rtol=0, atol=0)
        assert after.stride() == before.stride() and after.requires_grad == before.requires_grad
    assert case.inputs[0].untyped_storage().data_ptr() == case.inputs[1].untyped_storage().data_ptr()
    assert (case.stage, case.error, case.place, case.texts) == ("inductor", "ValueError: no", "f.py:1 in f", {"plan": "p"})
    assert case.chosen.numerics == "strict" and case.versions["torch"] == torch.__version__
    assert "f.py:1" in str(case) and "1 operators" in str(case)


def test_large_inputs_are_described(tmp_path, monkeypatch):
    monkeypatch.setattr(cases, "MOST_BYTES", 1 << 10)
    case = saved(Case.of_prims(PRIMS, [torch.randn(3), torch.randn(32, 32) * 5 + 2, torch.arange(1000)]), tmp_path)
    small, large, index = case.inputs
    assert small.shape == (3,) and large.shape == (32, 32) and not index.any()
    assert abs(large.mean() - 2) < 1 and abs(large.std() - 5) < 1


@pytest.mark.parametrize("value", [torch.eye(2).to_sparse(), object()], ids=["sparse", "object"])
def test_what_is_no_plain_data_is_refused(value, tmp_path):
    with pytest.raises(CaseError, match="does not keep"):
        Case.of_prims(PRIMS, [value]).save(tmp_path / "a.case")


def test_what_is_no_case_is_refused(tmp_path):
    (tmp_path / "a.case").write_text("no")
    with zipfile.ZipFile(tmp_path / "b.case", "w") as archive:
        archive.writestr("case.json", "{}")
    for name in ("a", "b", "c"):
        with pytest.raises(CaseError, match="is no case"):
            Case.load(tmp_path / f"{name}.case")


def failing(monkeypatch):
    def rule(low, x):
        raise ValueError("no loops")

    monkeypatch.setitem(LOWERINGS, "atan", rule)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_an_error_names_its_case(backward, tmp_path, monkeypatch):
    x = torch.randn(3, requires_grad=backward)
    compiled = tracework.compile(
        lambda x: (x * 2).atan() if not backward else x.sin(), options={"dump_dir": str(tmp_path), "cache": False}
    )
    if backward:
        result = compiled(x)
        monkeypatch.setitem(LOWERINGS, "cos", lambda low, x: 1 / 0)
        with pytest.raises(tracework.CompileError) as raised:
            result.sum().backward()
    else:
        failing(monkeypatch)
        with pytest.raises(tracework.CompileError) as raised:
            compiled(x)
    error = raised.value
    assert f"tracework minify {error.case}" in str(error)
    case = Case.load(error.case)
    assert (case.level, case.stage) == ("functional" if backward else "captured", "inductor")
    assert "cannot lower" in case.error
    assert len(list(tmp_path.glob("failed*.case"))) == 1
    if not backward:
        torch.testing.assert_close(case.inputs[0], x)
        assert "test_cases.py" in case.place


def test_the_temporary_folder_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(cases.tempfile, "gettempdir", lambda: str(tmp_path))
    error = tracework.CompileError("inductor", ValueError("no"))
    for _ in range(cases.KEPT + 3):
        error = tracework.CompileError("inductor", ValueError("no"))
        cases.keep(lambda: Case.of_prims(PRIMS), error, "")
    (home,) = tmp_path.iterdir()
    assert len(list(home.iterdir())) == cases.KEPT and pathlib.Path(error.case).exists()
    assert home.stat().st_mode & 0o077 == 0
    os.chmod(home, 0o777)  # others may write there: another folder is taken
    monkeypatch.setattr(cases.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "own"))
    cases.keep(lambda: Case.of_prims(PRIMS), again := tracework.CompileError("inductor", ValueError("no")), "")
    assert pathlib.Path(again.case).parent == tmp_path / "own"


def test_an_error_without_a_case_says_why():
    def case():
        raise CaseError("an input is odd")

    cases.keep(case, error := tracework.CompileError("inductor", ValueError("no")), "")
    assert error.case is None and "an input is odd" in error.__notes__[0]
