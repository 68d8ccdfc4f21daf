"""Addresses lead to the very object, and digests say the same in each process."""

import dataclasses
import enum
import functools
import json
import math
import operator
import sys
import typing

import pytest
import torch
from tracework_capture.guards.access import Scope
from tracework_capture.guards.addresses import Changed, Reader, Writer, address_of, digest_of_attribute, digest_of_code, object_at
from tracework_capture.guards.classes import special_names
from tracework_capture.guards.store import NotPortable
from tracework_capture.sources import Attr, Const, Item, Local


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


def test_a_tensor_is_where_a_guard_finds_it():
    place, mine, other = Item(Local("held"), 0), torch.ones(1), torch.zeros(1)
    writer = Writer(lambda: {id(mine): place})
    data = writer.value(mine)
    with pytest.raises(NotPortable, match="a Tensor that no guard sees"):
        writer.value(other)
    for held, fits in (([other], True), ([3], False), ([], False)):
        reader = Reader(json.loads(json.dumps(writer.document())), Scope({"held": held}, {}, {}))
        if fits:
            assert reader.value(data) is other
        else:
            with pytest.raises(Changed):
                reader.value(data)


def test_values_and_sources_through_json():
    values = (
        1,
        None,
        -0.0,
        1j,
        b"\0",
        (True, [torch.float16]),
        frozenset("ab"),
        torch.device("cpu"),
        torch.Size([2]),
        torch.nn.Linear,
    )
    writer = Writer()
    source = Attr(Item(Local("x"), 1), "y")
    data, number, fixed = writer.value(values), writer.source(source), writer.source(Const(math))
    document = json.loads(json.dumps(writer.document(values=data)))
    reader = Reader(document, Scope({}, {}, {}))
    assert repr(reader.value(document["values"])) == repr(values)
    assert reader.source(number) == source and reader.source(fixed).value is math


def test_digests_do_not_depend_on_the_order_of_a_set():
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert list(one) != list(other)
    code = compile("x = 1", "file", "exec")
    codes = [code.replace(co_consts=((1.5, members),)) for members in (one, other)]
    assert len(set(map(digest_of_code, codes))) == 1


def test_the_place_of_code_is_part_of_its_digest():
    texts = ("x = 1", "x = 2", "\nx = 1")
    assert len({digest_of_code(compile(text, "file", "exec")) for text in texts}) == 3
    assert digest_of_code(compile("x = 1", "file", "exec")) == digest_of_code(compile("x = 1", "file", "exec"))
    assert digest_of_code(compile("x = 1", "file", "exec")) != digest_of_code(compile("x = 1", "other", "exec"))
