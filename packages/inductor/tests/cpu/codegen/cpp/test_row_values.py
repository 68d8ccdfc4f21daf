"""What is the same for all elements of a row is computed once for each row."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import check
from tracework_primops import prims

p = prims


def log_softmax(x):
    shifted = p.sub(x, p.amax(x, (1,), True))
    return p.sub(shifted, p.log(p.sum(p.exp(shifted), (1,), True)))


def scaled_twice(x):
    """A function of whole vectors of what a reduction gives, and a quotient."""
    total = p.sum(x, (1,), True)
    y = p.mul(x, p.sigmoid(total))
    return p.div(p.sub(y, p.amax(y, (1,), True)), p.add(p.sqrt(p.abs(total)), 1.0))


@pytest.mark.parametrize(("program", "function"), [(log_softmax, "tw_log("), (scaled_twice, "tw_exp(-")], ids=["log", "sigmoid"])
def test_once_for_each_row(program, function) -> None:
    source = check(program, torch.randn(5, 300), rtol=2e-6, atol=2e-6).kernels[0].source
    text = source[source.index('extern "C"', source.index("declare reduction")) :]
    indents = [len(line) - len(line.lstrip()) for line in text.splitlines() if function in line]
    assert indents and set(indents) == {4}, "in the loop over rows, and in no other"
