"""Constants and trees of values are the same after a way through data."""

import collections
import json
import math

import pytest
import torch
from tracework_runtime.program import values

CONSTANTS = [
    *(None, True, 1, "a", 0.1, -0.0, math.nan, math.inf, 1 + 2j, b"\x00\xff", ..., slice(1, None, 2)),
    *(torch.float32, torch.strided, torch.channels_last, torch.device("cpu"), torch.Size([2, 3])),
    *((1, (2.0, None)), [1, [2]], frozenset({1, 2}), {"a": 1, 2: (3,)}),
]
Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize("value", CONSTANTS, ids=repr)
def test_constants_come_back(value):
    assert values.is_same(values.constant_of(json.loads(json.dumps(values.constant(value)))), value)


@pytest.mark.parametrize(("value", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ((1,), [1]), ((1, 2), (1,)), ("a", "b")])
def test_what_differs_is_not_the_same(value, other):
    assert not values.is_same(value, other)


def test_an_object_is_no_constant():
    with pytest.raises(values.NotData, match="builtins.object"):
        values.constant(object())


def test_trees_are_made_again_with_other_leaves():
    value = {"a": [torch.ones(1), 2], "b": Point((torch.ones(1),), "name")}

    def leaf(part, path):
        return ["input", list(path)] if isinstance(part, torch.Tensor) else None

    data = json.loads(json.dumps(values.tree(value, leaf)))
    make = values.maker(data, lambda found: lambda scope: scope[tuple(found[1])])
    made = make({("a", 0): "first", ("b", "x", 0): "second"})
    assert made == {"a": ["first", 2], "b": Point(("second",), "name")}
    assert values.getter(["b", "x", 0])(value) is value["b"].x[0]
