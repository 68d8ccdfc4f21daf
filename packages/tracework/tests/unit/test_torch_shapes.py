"""Sizes that change, as torch.export spells them."""

import inspect

import pytest
import torch
from torch.export import Dim
from tracework import InvalidArgument
from tracework.torch_shapes import given_shapes
from tracework_capture import DimRange

X = torch.ones(4, 3)


def fn(x, parts, *rest, k=2, **named): ...


def shapes(spec, args=(X, [X, X]), kwargs=None):
    return given_shapes(spec, inspect.signature(fn), args, kwargs or {})


def test_dims_are_found_by_name_and_by_place():
    wanted = {("args", 0): (DimRange(2, 8), None), ("args", 1, 1): (None, 3)}
    dim = {0: DimRange(2, 8)}
    for spec in ({"x": dim, "parts": [None, {1: 3}]}, (dim, [None, [None, 3]])):
        assert shapes(spec).declared == wanted


def test_those_that_may_change_and_those_that_do():
    found = shapes({"x": [Dim.AUTO, Dim.STATIC], "k": Dim.DYNAMIC, "named": {"z": {0: Dim.DYNAMIC}}}, kwargs={"k": 3, "z": X})
    assert [(t is X, dims) for t, dims in found.maybe] == [(True, [0])]
    assert set(found.declared) == {("args", 0), ("kwargs", "k"), ("kwargs", "z")}


def test_dims_of_one_name_are_of_one_group():
    n = Dim("n", min=2)
    found = shapes({"x": {0: n}, "parts": [{0: n}, None]}).declared
    (a, _), (b, _) = found.values()
    assert a == b and a.lower == 2


WRONG = {
    "names 'y', which is no parameter": {"y": None},
    "has 9 items": (None,) * 9,
    "takes a dict by the names": 3,
    "a tensor of 2 dims": {"x": {2: Dim.AUTO}},
    "give a dict by dims": {"x": Dim("n")},
    "is computed from another size": {"x": {0: 2 * Dim("n")}},
    "takes a torch.export.Dim": {"x": {0: "n"}},
    "which is a list": {"parts": 3},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said(message):
    with pytest.raises(InvalidArgument, match=message):
        shapes(WRONG[message])
