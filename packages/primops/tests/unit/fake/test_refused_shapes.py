"""Shapes that eager's kernels refuse are refused while tracing, with eager's exception; those that they take give eager's shape."""

import itertools

import pytest
import torch
from tracework_primops import FakeMode


def outcome(function, *tensors):
    try:
        return tuple(function(*tensors).shape)
    except Exception as error:
        return type(error), str(error)[:30]


@pytest.mark.parametrize("index", [[0], 0, [0, 0], []])
def test_index_add(index):
    """Also of numbers: a source without dimensions counts as one row, and fits nothing but a number."""
    index = torch.tensor(index, dtype=torch.int64)
    for x, source in itertools.product([(), (1,), (3,), (3, 2), (1, 1)], [(), (1,), (2,), (1, 2), (1, 1)]):
        given = torch.zeros(x), index, torch.ones(source)
        found = outcome(lambda t, i, s: t.index_add(0, i, s), *map(FakeMode().from_real, given))
        assert found == outcome(lambda t, i, s: t.index_add(0, i, s), *given), (x, source)


@pytest.mark.parametrize("pad", [(1, -2), (-2, 1), (-1, -1), (-1, -2), (3, -3), (-4, 4), (-3, 0), (0, 0, 1, -2), (0, 0, -1, -1)])
def test_pad(pad):
    """More is cut off than there is, which what is added does not make up for."""
    for sizes in itertools.product((1, 2, 3), repeat=2):
        x = torch.zeros(sizes)
        found, expected = (outcome(torch.nn.functional.pad, t, pad) for t in (FakeMode().from_real(x), x))
        assert found == expected, sizes
