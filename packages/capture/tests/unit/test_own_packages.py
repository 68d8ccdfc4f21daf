"""Modules of a program that have names like this stack's are the program's."""

import sys
import types

import pytest
import torch
import tracework_capture
from tracework_capture import own_packages
from tracework_capture._torch.torch_compile import also_torchs
from tracework_capture.errors import CaptureError
from tracework_capture.guards import finalizers
from tracework_capture.own_packages import PACKAGES, is_own_module
from tracework_capture.signals import _got_its_caller
from tracework_capture.uncompiled import is_of_operators

NAMES = ("tracework_utils", "tracework_capture_of_mine", "tracework", "tracework_backend")
SOURCE = """
import sys

class CompileError(RuntimeError):
    pass

def notices(reference):
    pass

def handler(number, frame):
    return sys._getframe()

def outer():
    return handler(2, sys._getframe())
"""


@pytest.fixture(params=NAMES)
def module(request, tmp_path, monkeypatch):
    """A module of the program."""
    made = types.ModuleType(request.param)
    path = tmp_path / f"{request.param}.py"
    path.write_text(SOURCE)
    made.__file__ = str(path)
    monkeypatch.setitem(sys.modules, request.param, made)
    exec(compile(SOURCE, str(path), "exec"), made.__dict__)
    return made


def test_a_module_of_the_program_is_not_ours(module, monkeypatch):
    twins = types.SimpleNamespace(BackendCompilerFailed=type("BackendCompilerFailed", (RuntimeError,), {}))
    monkeypatch.setitem(sys.modules, "torch._dynamo.exc", twins)
    assert not is_own_module(module.__name__)
    assert not is_of_operators(module.CompileError())
    error = module.CompileError()
    also_torchs(error)
    assert type(error) is module.CompileError
    assert finalizers.acts(None, module.notices)
    assert _got_its_caller(module.outer())


def test_exceptions_of_such_a_module_have_their_traceback(module):
    """What the program's function raises and catches is as in plain Python."""
    exec("def f(x):\n    try:\n        raise CompileError('no')\n    except CompileError as error:\n        e = error\n"
         "    return x + len(e.args), e.__traceback__ is not None\n", module.__dict__)  # fmt: skip
    x = torch.ones(2)
    found = tracework_capture.optimize(lambda gm, inputs: gm.forward)(module.f)(x)
    assert found[1] is module.f(x)[1] is True


def test_ours_are():
    for name in (own_packages.__name__, "tracework_capture", "tracework_capture._C"):
        assert is_own_module(name)
    assert is_of_operators(CaptureError("no"))


@pytest.mark.parametrize("name", [None, 3, "", "no_such_module", "builtins", "torch"])
def test_others_are_not(name):
    assert name not in PACKAGES
    assert not is_own_module(name)
