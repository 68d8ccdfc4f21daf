"""Operators that take an index, at indices in range and out of it, are eager's: a sample of indices.py, whose session runs all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import tracework
from indices import CASES, WITHOUT, Called, differences, operators, outcome

SAMPLE = (
    "gather",
    "take_along_dim",
    "index_select, columns",
    "index_select of a part",
    "embedding, 2-d",
    "embedding, joined",
    "index, both",
    "index by one",
    "index, padded",
    "take",
    "one_hot, float",
    "index of ones",
    "embedding of ones",
    "cross_entropy, weighted",
    "cross_entropy, ignored",
    "nll_loss2d",
    "multi_margin_loss",
    "scatter",
    "scatter, value",
    "scatter_add",
    "scatter_reduce, sum",
    "scatter_reduce, amax, without self",
    "index_add, alpha",
    "index_copy",
    "index_fill",
    "index_put, accumulate",
    "put",
    "index, of nothing",
    "overwritten",
    "binary_cross_entropy",
    "unused",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_as_eager(name):
    assert list(differences(name)) == []


def test_the_table_has_every_operator():
    called = Called()
    with called:
        for case in CASES.values():
            outcome(case.program, case, None, "cpu")
    assert operators() - called.names - set(WITHOUT) == set()


@pytest.mark.parametrize("name", ["index, 2-d", "embedding", "cross_entropy", "scatter_add"])
def test_as_eager_with_symbolic_sizes(name):
    assert list(differences(name, dynamic=True)) == []


def test_inputs_are_as_eager_leaves_them():
    def program(x, y, i):
        x.add_(1)
        y.index_add_(0, i, x[i])
        return y

    outcomes = []
    for run in (program, tracework.compile(program)):
        x, y = torch.arange(5.0), torch.zeros(5)
        for index in ([0, 1], [0, -6]):
            try:
                run(x, y, torch.tensor(index))
            except IndexError as error:
                outcomes.append(str(error))
        outcomes.append((x.tolist(), y.tolist()))
    assert outcomes[:2] == outcomes[2:]


def test_what_the_kernel_said_is_a_note():
    with pytest.raises(IndexError, match="^index out of range in self") as caught:
        tracework.compile(CASES["embedding"].program)(torch.zeros(5, 3), torch.tensor([0, 7]))
    assert str(caught.value) == "index out of range in self"
    (note,) = caught.value.__notes__
    assert "index out of range in embedding, integration_tests/indices.py:" in note


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu():
    """What is out of range ends a process."""
    table = Path(__file__).parent / "indices.py"
    names = [n for n in SAMPLE if n in CASES][::2]
    ended = subprocess.run(
        [sys.executable, table, "--device", "cuda", *names], capture_output=True, text=True, env=os.environ, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
