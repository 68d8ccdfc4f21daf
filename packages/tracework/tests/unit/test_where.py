"""`tracework where NAME` finds each rule by all names of what it is for, and marks the one in force."""

import pytest
import torch
from tracework import where
from tracework_capture.values.policy import rule_of
from tracework_capture.values.protocol.calls import CALLS
from tracework_primops.decomp import DECOMPS


def test_every_row_of_calls_is_found_by_all_of_its_names():
    named = [(name, row) for key, row in CALLS.items() for name in where.names_of(key)]
    places = {name: {found.place for found in where.places(name)} for name, _ in named}
    assert not [(name, row.key) for name, row in named if row.place not in places[name]]


def test_every_decomposition_is_found_by_all_names_of_its_operator():
    missing = [
        (name, key)
        for key in DECOMPS
        for name in where.names_of(key)
        if not any(found.what in ("decomposition", f"decomposition {key}") for found in where.places(name))
    ]
    assert not missing


@pytest.mark.parametrize(
    ("name", "place", "what"),
    [
        ("softmax", "tracework_primops/decomp/normalization.py:", "decomposition aten._softmax.default"),
        ("torch.softmax", "tracework_capture/values/torch/graph_functions.py:", "call of torch.softmax: a node of the graph"),
        ("F.softmax", "tracework_primops/decomp/normalization.py:", "decomposition aten._softmax.default"),
        ("aten._softmax", "tracework_primops/decomp/normalization.py:", "decomposition aten._softmax.default"),
        ("numpy.pad", "tracework_capture/polyfills/numpy_functions.py:", "call of numpy.pad: its Python code is traced"),
        ("np.pad", "tracework_capture/polyfills/numpy_functions.py:", "call of numpy.pad: its Python code is traced"),
        ("list.sort", "tracework_capture/values/plain/sequence_methods.py:", "call of list.sort: modelled by a row of its own"),
        (
            "torch.cond",
            "tracework_capture/values/torch/regions/control_flow.py:",
            "call of torch.cond: modelled by a row of its own",
        ),
        ("lru_cache", "functools.py:", "call of functools.lru_cache: its Python code is traced"),
        ("lru_cache", "objects/lru_cache.py:", "call of what functools.lru_cache gives: modelled by a row of its own"),
        ("Tensor.softmax", "values/torch/tensor.py:", "call of torch.Tensor.softmax: a node of the graph"),
        ("Tensor.sigmoid_", "tracework_primops/decomp/pointwise.py:", "decomposition aten.sigmoid.default"),
        ("collections.Counter", "collections/__init__.py:", "call of collections.Counter: its Python code is traced"),
        ("datetime.date", "objects/refused_classes.py:", "call of datetime.date: breaks the graph (call_unknown)"),
        ("torch.save", "tracework_capture/values/torch/functions.py:", "call of torch.save: breaks the graph (serialization)"),
        ("FOR_ITER", "tracework_capture/interp/handlers/loops.py:", "opcode handler"),
        ("re.compile", "tracework_capture/values/objects/libraries.py:", "call of re.compile: modelled by a row of its own"),
    ],
)
def test_names_that_a_user_writes(name, place, what):
    found = [each for each in where.places(name) if each.what == what]
    assert len(found) == 1 and place in found[0].place
    assert found[0].in_force is what.startswith("call of")


@pytest.mark.parametrize(
    "space", ["torch", "torch.nn.functional", "numpy", "builtins", "math", "operator", "itertools", "functools"]
)
def test_the_rule_of_every_public_callable_is_in_force(space):
    for name, obj in vars(__import__(space, fromlist=["_"])).items():
        if callable(obj) and not name.startswith("_"):
            dotted = f"{space}.{name}".removeprefix("builtins.")
            assert rule_of(obj).place in {found.place for found in where.places(dotted) if found.in_force}, dotted


def test_a_name_that_nothing_bears():
    assert where.places("no_such_thing") == [] and where.places("torch.no_such_thing") == []


def test_of_two_rows_the_one_in_force_is_marked():
    """The method and the function."""
    found = {each.what: each.in_force for each in where.places("torch.Tensor.item")}
    assert found == {"call of torch.Tensor.item: modelled by a row of its own": True}
    assert rule_of(torch.Tensor.item).place == where.places("torch.Tensor.item")[0].place
