"""Tensors of one int that is known while tracing are places in Python's sequences, as their __index__ says; in tensors they stay tensors."""

import pytest
import torch
from harness import check

X = torch.arange(6.0).reshape(2, 3)
ITEMS = [3, 5, 7, 9]


def size(x):
    return x + x.shape[torch.tensor(1)], range(7)[torch.tensor(2)], "abc"[torch.tensor(-1)], ITEMS[torch.tensor([1])]


def rows_of_constants(x):
    for place in torch.tensor([0, 2, 3]):
        x = x + ITEMS[place]
    first, last = torch.arange(1, 4, 2)
    return x, ITEMS[first:last], ITEMS[-first], [4, 5][torch.ones(1, dtype=torch.long)[0]]


def calls(x):
    return x + sum(range(torch.tensor(3))), list(ITEMS).pop(torch.tensor(1)), ITEMS[torch.tensor(True)]


def modules(x):
    layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh()])
    return layers[torch.tensor(1)](x)


def of_tensors(x):
    mask, place = torch.tensor(True), torch.tensor([0])
    return x[mask], x[place], x[torch.tensor(0)], x[torch.tensor([True, False])]


@pytest.mark.parametrize("function", [size, rows_of_constants, calls, modules, of_tensors])
def test_places(function):
    check(function, X)


def written(x):
    rows = torch.tensor([0, 1])
    first, _ = rows
    rows.add_(1)
    return x + ITEMS[first]


def a_fraction(x):
    try:
        return x + ITEMS[torch.tensor(1.5)]
    except TypeError as error:
        return x, str(error)


@pytest.mark.parametrize("function", [written, a_fraction])
def test_what_is_left_to_plain_python(function):
    check(function, X, fullgraph=False)
