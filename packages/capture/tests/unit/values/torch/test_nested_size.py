"""Sizes of nested tensors that are no numbers."""

import pytest
import torch
from tracework_capture import Unsupported, optimize


def nested(*lengths):
    return torch.nested.nested_tensor([torch.ones(n, 4) for n in lengths], layout=torch.jagged)


def captured(function):
    return optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)


def test_an_argument():
    x = nested(2, 3)
    found = captured(lambda x: x.reshape(2, x.shape[1], 2, 2) * 2)(x)
    assert found.shape == (2, x.shape[1], 2, 2) and torch.equal(found.values(), torch.full((5, 2, 2), 2.0))


def test_a_result():
    x = nested(2, 3)
    (size, twice), shape = captured(lambda x: ((x.size(1), (x * 2).size(1)), x.shape))(x)
    assert size == twice == x.size(1) and shape == x.shape


@pytest.mark.parametrize("other", [lambda x: x * 2, lambda x: nested(2, 3)], ids=["same offsets", "others"])
def test_equality(other):
    x = nested(2, 3)
    y = other(x)
    found = captured(lambda x, y: (x.values() + 1, x.shape[1] == y.shape[1], x.shape[1] != 2))(x, y)
    assert found[1:] == (x.shape[1] == y.shape[1], True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (2 if x.shape[1] > 7 else 3),
        lambda x: x.reshape(2, x.shape[1] * 1, 4),
        lambda x: x * (2 if 3 - x.shape[1] else 3),
        lambda x: x * len({x.shape[1]}),
        lambda x: x * (2 if x.shape[1] else 3),
        lambda x: x * -x.shape[1],
    ],
)
def test_what_is_computed_of_it_is_no_business_of_a_graph(function):
    with pytest.raises(Unsupported, match="size of rows that differ"):
        captured(function)(nested(2, 3))


def test_how_many_elements():
    found = captured(lambda x: x * x.numel())(nested(2, 3))
    assert torch.equal(found.values(), torch.full((5, 4), 20.0))
