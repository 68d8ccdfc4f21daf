"""Functions of C modules that are evaluated while tracing: with keywords, on numbers that change, and those that write to an argument."""

import dataclasses
import importlib.util
import math
import struct

import pytest
import torch
from harness import check
from tracework_capture import optimize

X = torch.ones(2)
SPEC = importlib.util.find_spec("_operator")
FRESH = importlib.util.module_from_spec(SPEC)
"""Another instance of the module: its functions are other objects than those that have rows."""
SPEC.loader.exec_module(FRESH)


def near(x, a, b):
    return x + 1, math.isclose(a, b, rel_tol=0.1), math.isclose(a, b, abs_tol=b)


def test_keywords_count_for_numbers_that_became_inputs():
    call = optimize(lambda gm, example_inputs: gm.forward)(near)
    for a, b in ((9, 10), (10, 9), (10, 19), (10.5, 19.5), (1e8, 1e8 + 1), (3, 3)):
        assert call(X, a, b)[1:] == near(X, a, b)[1:]


def deletes(x, items):
    FRESH.delitem(items, 1)
    return x + 1


def sets(x, items):
    FRESH.setitem(items, 1, 7)
    return x + 1


def extends(x, items):
    return x + 1, FRESH.iconcat(items, [5]) is items


@pytest.mark.parametrize("fn", [deletes, sets, extends], ids=lambda f: f.__name__)
def test_what_writes_to_a_list_is_not_evaluated_on_a_copy(fn):
    check(fn, X, [4, 3, 2, 1], fullgraph=False)


def packs(x, memory):
    struct.pack_into("i", memory, 0, 7)
    return x + 1


def test_what_writes_to_memory_is_not_evaluated_on_a_copy():
    check(packs, X, bytearray(8), fullgraph=False)


@dataclasses.dataclass
class Shown:
    a: int


def annotations(x):
    return Shown.__repr__.__annotations__


def test_attributes_of_functions_with_rows_are_the_objects_themselves():
    assert optimize(lambda gm, example_inputs: gm.forward)(lambda x: (x + 1, annotations(x)))(X)[1] is annotations(X)
