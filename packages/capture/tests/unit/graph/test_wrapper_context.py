"""What wrapper subclasses keep beside their parts is compared exactly, and what the program changes in it is seen."""

import dataclasses
import enum
import types
from collections import namedtuple

import pytest
import torch
from tracework_capture.graph.wrapper_context import LARGEST, Context, Incomparable


@dataclasses.dataclass
class Config:
    bits: object
    group: object = None


@dataclasses.dataclass(frozen=True)
class Fixed:
    bits: object


class Valued:
    """Promises by its hash not to change."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return type(other) is Valued and other.number == self.number

    def __hash__(self):
        return hash(self.number)


class Unhashable:
    __hash__ = None

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return True


class Slotted:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Kind(enum.Enum):
    ONE, TWO = 1, 2


Record = namedtuple("Record", "bits group")
EQUAL = [
    lambda: None,
    lambda: {"dtype": torch.float32, "sizes": (2, 3), "kind": Kind.ONE, "device": torch.device("cpu")},
    lambda: [1, [2.0, {"three": {3}}]],
    lambda: {"block": [1, 16], "sizes": ((2, 3), {"dtype": torch.int8}), "none": []},
    lambda: Config(4, [1, 2]),
    lambda: Fixed((1, 2)),
    lambda: Record(4, (1, 32)),
    lambda: Valued(3),
    lambda: (float("nan"), torch.Size([1, 2]), slice, len),
]
DIFFERENT = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ((1, 2), [1, 2]),
    ([1], [1, 2]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": 1, "b": 1}),
    ({"a": 1}, {1: 1}),
    ((1, 2), (1, 2.0)),
    ({"a": [1, 2]}, {"a": [True, 2]}),
    ({"a": [1, (2, None)]}, {"a": [1, (2.0, None)]}),
    ({"a": [1, 2]}, {"a": (1, 2)}),
    ({"a": [1, 2]}, {"b": [1, 2]}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}),
    ([{"a": 1}], [{1: 1}]),
    ((0.0,), (-0.0,)),
    (Config(4), Config(4.0)),
    (Config(4), Fixed(4)),
    (Record(4, 1), (4, 1)),
    (Record(4, 1), Record(4, True)),
    (Valued(3), Valued(4)),
    (Unhashable(3), Unhashable(3)),
    (Slotted(3), Slotted(3)),
    (types.SimpleNamespace(a=1), {"a": 1}),
    (Kind.ONE, Kind.TWO),
    (torch.float32, torch.float64),
]


@pytest.mark.parametrize("make", EQUAL)
def test_equal_ones(make):
    kept = Context(make())
    assert kept.is_of(make()) and kept.is_of(kept.fresh())
    assert Context(kept.fresh()).is_of(make())


@pytest.mark.parametrize("pair", DIFFERENT)
def test_different_ones(pair):
    for one, other in (pair, pair[::-1]):
        assert not Context(one).is_of(other)


def change_item(kept):
    kept[0] = 7


def change_nested(kept):
    kept["a"].append(7)


def change_attribute(kept):
    kept.number = 7


@pytest.mark.parametrize(
    ("kept", "change"),
    [
        ([1, 2], change_item),
        ({"a": [1]}, change_nested),
        (types.SimpleNamespace(number=1), change_attribute),
        (Unhashable(1), change_attribute),
        (Slotted(1), change_attribute),
    ],
)
def test_a_change_in_place_is_seen(kept, change):
    context = Context(kept)
    assert context.is_of(kept)
    change(kept)
    assert not context.is_of(kept)


def test_what_is_made_has_containers_of_its_own():
    context = Context({"a": [1], "config": Config(4)})
    first, second = context.fresh(), context.fresh()
    first["a"].append(2)
    first["config"].bits = 8
    assert second == {"a": [1], "config": Config(4)} and context.is_of(second)


def test_circles():
    kept = types.SimpleNamespace()
    kept.itself = kept
    assert Context(kept).is_of(kept)


@pytest.mark.parametrize("kept", [torch.ones(2), {"a": torch.ones(2)}, Config(torch.ones(2)), [[]] * LARGEST])
def test_what_cannot_be_compared(kept):
    with pytest.raises(Incomparable):
        Context(kept)
