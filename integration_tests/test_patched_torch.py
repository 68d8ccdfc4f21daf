"""Methods that a program puts into torch.Tensor, before its functions are compiled and between calls."""

import pytest
import torch
import tracework
from training import BACKENDS

PATCHES = {
    "a method": ("sin", lambda x: (x * 2).sin(), lambda x: x.exp()),
    "an operator": ("__add__", lambda x: x + 1, lambda x, y: torch.sub(x, y)),
    "a sign": ("__neg__", lambda x: -x, lambda x: torch.exp(x)),
    "a comparison": ("__lt__", lambda x: x < 0, lambda x, y: torch.ge(x, y)),
    "a method in Python": ("norm", lambda x: x.norm() + 1, lambda x: torch.sum(x)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name, program, patch", PATCHES.values(), ids=PATCHES)
def test_they_are_noticed(name, program, patch, backend, monkeypatch):
    x = torch.tensor([-1.0, 0.5])
    compiled = tracework.compile(program, backend=backend)
    before = compiled(x)
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, name, patch)
        torch.testing.assert_close(compiled(x), program(x))
        torch.testing.assert_close(tracework.compile(lambda x: program(x), backend=backend)(x), program(x))
        assert not torch.equal(compiled(x), before)
    assert torch.equal(compiled(x), before)


def test_they_run_once_a_call(monkeypatch):
    seen = []

    def counted(x, scale):
        seen.append(scale)
        return x * scale

    def program(x):
        return x.scaled_by(2.0) + x.scaled_by(scale=3.0)

    monkeypatch.setattr(torch.Tensor, "scaled_by", counted, raising=False)
    compiled = tracework.compile(program, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 5.0))
    assert seen == [2.0, 3.0] * 2
