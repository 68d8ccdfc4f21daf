"""Addresses lead to the very object, and digests say the same in each process."""

import dataclasses
import enum
import functools
import json
import math
import operator
import sys
import typing

import numpy
import pytest
import torch
import torch.nn.attention
from tracework_capture.guards.addresses import address_of, digest_of_attribute, object_at
from tracework_capture.guards.classes import special_names
from tracework_capture.guards.paths import Changed
from tracework_capture.guards.store import NotPortable


class Colour(enum.Enum):
    RED = 1


class Answering(enum.Enum):
    RED = 1

    @property
    def other(self):
        return math.pi


class Searched(enum.StrEnum):
    RED = "red"

    @classmethod
    def _missing_(cls, value):
        return cls.RED


class Holder:
    @property
    def size(self):
        return 1

    @staticmethod
    def plain():
        return 2


def decorated(function):
    @functools.wraps(function)
    def outer(*args):
        return function(*args)

    return outer


@decorated
@decorated
def inside():
    return 1


PLACED = (
    *(inside, inside.__wrapped__, inside.__wrapped__.__wrapped__),
    *(torch, torch.nn.Linear, torch.nn.functional.gelu, torch.nn.functional.interpolate, torch.arange, torch.Tensor.view),
    *(
        math.sin,
        operator.add,
        len,
        dict,
        type(lambda: 0),
        Colour,
        Colour.RED,
        Searched.RED,
        Holder.__dict__["size"],
        Holder.__dict__["plain"],
    ),
    *(sys.modules, vars(math), torch.Tensor.__add__, torch.nn.Linear.forward, functools.partial, type(torch.backends)),
)


@pytest.mark.parametrize("obj", PLACED, ids=lambda obj: getattr(obj, "__name__", type(obj).__name__))
def test_an_address_leads_to_the_object(obj):
    assert object_at(json.loads(json.dumps(address_of(obj)))) is obj


@pytest.mark.parametrize(
    "obj", [lambda: 0, object(), {}, Answering.RED, functools.partial(len), [1]], ids=lambda obj: type(obj).__name__
)
def test_what_has_no_address(obj):
    with pytest.raises(NotPortable):
        address_of(obj)


@dataclasses.dataclass
class Fields:
    a: int
    b: typing.ClassVar[int] = 1
    c: list[int] = dataclasses.field(default_factory=list, kw_only=True, metadata={"a": 1})


def test_a_digest_names_no_place_in_memory():
    assert "0x" not in "".join(digest_of_attribute(each) for each in special_names(Fields).values())


def test_what_an_enumeration_calls_is_part_of_the_address_of_a_member(monkeypatch):
    address = address_of(Searched.RED)
    monkeypatch.setattr(Searched, "_missing_", classmethod(lambda cls, value: None))
    with pytest.raises(Changed):
        object_at(address)


def test_an_address_of_something_else_now(monkeypatch):
    address = address_of(Holder.plain)
    monkeypatch.setattr(Holder, "plain", staticmethod(lambda: 3))
    with pytest.raises(Changed):
        object_at(address)
    with pytest.raises(Changed):
        object_at(["module", "no_such_module"])


def test_members_of_enumerations_in_cpp():
    for member in (torch.nn.attention.SDPBackend.MATH, torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.Tag.core):
        address = json.loads(json.dumps(address_of(member)))
        assert object_at(address) is member
    kind = torch.nn.attention.SDPBackend
    for found in (type(kind), kind.__base__, kind.__base__.__new__):
        assert object_at(address_of(found)) is found


NUMPYS = {
    # what a program may have of NumPy -> whether it is found in another process
    "a function": (numpy.sum, True),
    "a method in C": (numpy.random.Generator.normal, True),
    "the generator of its functions": (numpy.random.mtrand._rand, True),
    "a generator": (numpy.random.default_rng(), False),
    "an int": (numpy.int64(3), False),
}


@pytest.mark.parametrize(("obj", "is_found"), NUMPYS.values(), ids=NUMPYS)
def test_objects_of_numpy(obj, is_found):
    if not is_found:
        with pytest.raises(NotPortable, match="has no address"):
            address_of(obj)
    else:
        assert object_at(json.loads(json.dumps(address_of(obj)))) is obj
