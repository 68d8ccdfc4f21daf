"""Frozen dataclasses as keys: looked up by their fields, as the code that dataclass makes does."""

import collections
import dataclasses

import pytest
import torch
from tracework_capture import optimize
from tracework_capture.values.plain.sequence import is_record

X = torch.ones(3)


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int
    kind: str = "wide"


@dataclasses.dataclass(frozen=True)
class Pair:
    first: Shape
    more: tuple = (1, 2)
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    rows: int


@dataclasses.dataclass(frozen=True)
class OwnHash:
    rows: int

    def __hash__(self):
        return 7


@dataclasses.dataclass(frozen=True)
class OwnEquality:
    rows: int

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 7


@dataclasses.dataclass(frozen=True)
class HashesMore:
    rows: int
    note: str = dataclasses.field(default="", compare=False, hash=True)


@dataclasses.dataclass(unsafe_hash=True)
class Changing:
    rows: int


SCALES = {Shape(1): 2.0, Shape(2): 3.0, Shape(1, "tall"): 4.0}
NESTED = {Pair(Shape(1), note="a"): 1.0, Pair(Shape(2)): 2.0, ("pair", Shape(3)): 3.0}
PROGRAMS = {
    "item": lambda x, k, d: x * SCALES[k],
    "get": lambda x, k, d: x * SCALES.get(k, 7.0),
    "in": lambda x, k, d: (x * 2, k in SCALES, Shape(k.rows) not in SCALES),
    "new": lambda x, k, d: (x * 2, (e := {k: 1, Shape(2): 2}), e[k], len(e), {Shape(1): 5}.get(k)),
    "set": lambda x, k, d: x * len({k, Shape(1), Shape(2)}) + (k in {Shape(2), Shape(3)}),
    "nested": lambda x, k, d: x * NESTED[Pair(k, note="b")],
    "in a tuple": lambda x, k, d: x * NESTED["pair", k],
    "slots": lambda x, k, d: x * {Slotted(1): 2, Slotted(2): 3}[Slotted(k.rows)],
    "keys": lambda x, k, d: (x * 2, [(type(key.rows), key.kind, value) for key, value in d.items()]),
    "stored": lambda x, k, d: (x * 2, d.__setitem__(k, 5), d),
    "removed": lambda x, k, d: (x * 2, d.pop(k, None), d),
    "no number": lambda x, k, d: (x * 2, (n := Shape(float("nan"))) in {n: 1}, Shape(float("nan")) in {n: 1}),
}
KEYS = [Shape(1), Shape(2), Shape(1, "tall"), Shape(3), Shape(1), Shape(True), Shape(1.0), Shape(4)]


def outcome(function, key):
    try:
        return repr(function(X, key, {Shape(key.rows): 1, Shape(5): 2}))
    except KeyError as error:
        return repr(error)


def eager(gm, inputs):
    return gm.forward


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_plain_python(program):
    whole, compiled = optimize(eager, fullgraph=True)(program), optimize(eager, recompile_limit=20)(program)
    if program is not PROGRAMS["no number"]:
        first = KEYS[3] if program is PROGRAMS["in a tuple"] else KEYS[0]
        assert outcome(whole, first) == outcome(program, first)
    for key in KEYS:
        assert outcome(compiled, key) == outcome(program, key)


@pytest.mark.parametrize("cls", [OwnHash, OwnEquality, HashesMore, Changing])
def test_other_equality_is_asked(cls):
    table = {cls(1): 2.0}
    compiled = optimize(eager, fullgraph=True)(lambda x, key: x * table.get(key, 3.0))
    for rows in (1, 2, 1):
        assert torch.equal(compiled(X, cls(rows)), X * table.get(cls(rows), 3.0))


def test_a_class_that_gets_an_equality_of_its_own():
    @dataclasses.dataclass(frozen=True)
    class Key:
        rows: int

    compiled = optimize(eager)(lambda x, key: x * {Key(1): 2.0}.get(key, 3.0))
    assert torch.equal(compiled(X, Key(4)), X * 3)
    Key.__eq__, Key.__hash__ = lambda self, other: True, lambda self: 7
    assert torch.equal(compiled(X, Key(4)), X * 2)


def test_a_namedtuple_behaves_as_tuples_do():
    """Whatever methods its class was given: 3.13 gives it __replace__."""
    assert is_record(collections.namedtuple("Pair", "first second"))
