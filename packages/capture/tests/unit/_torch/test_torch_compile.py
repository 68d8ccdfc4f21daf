"""What a program told torch.compile, which is not loaded for it."""

import sys
import types

import torch
from tracework_capture._torch import torch_compile
from tracework_capture.errors import Unsupported


def test_errors_become_torchs_when_those_are_there(monkeypatch):
    error, twin = Unsupported("not_modelled"), type("Unsupported", (RuntimeError,), {})
    text = str(error)
    monkeypatch.delitem(sys.modules, "torch._dynamo.exc", raising=False)
    torch_compile.also_torchs(error)
    assert type(error) is Unsupported
    monkeypatch.setitem(sys.modules, "torch._dynamo.exc", types.SimpleNamespace(Unsupported=twin))
    torch_compile.errors_become_torchs(sys.modules["torch._dynamo.exc"])
    assert isinstance(error, twin) and isinstance(error, Unsupported) and str(error) == text


def test_errors_of_others_stay():
    error = ValueError()
    torch_compile.also_torchs(error)
    assert type(error) is ValueError


def test_plain_functions_have_no_marks():
    def plain(x):
        return x

    assert torch_compile.mark_of_torch_compile(plain) is None and torch_compile.substitute_of_torch_compile(plain) is None
    assert torch_compile.patched_by_torch_compile(torch.optim.SGD.step) is None
    assert not torch_compile.breaks_are_errors_in_torch_compile()
