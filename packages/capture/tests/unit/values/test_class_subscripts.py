"""`Class[key]` by a `__class_getitem__` of the program's own is a call, with what it does and makes anew; an alias of C or typing is constant."""

import collections.abc
import functools
import os
import types
import typing

import pytest
import torch
from tracework_capture.hook.context import optimize

LOG = []
T = typing.TypeVar("T")


def noted(cls, key):
    LOG.append((cls.__name__, key))
    return [cls, key, len(LOG)]


class Implicit:
    def __class_getitem__(cls, key):
        return noted(cls, key)


class Inherits(Implicit):
    pass


class Explicit:
    @classmethod
    def __class_getitem__(cls, key):
        return noted(cls, key)


class Static:
    @staticmethod
    def __class_getitem__(key):
        return noted(Static, key)


class Assigned:
    pass


Assigned.__class_getitem__ = lambda key: noted(Assigned, key)


class Partial:
    __class_getitem__ = functools.partial(noted, Static)


class PartialOfClass:
    __class_getitem__ = classmethod(functools.partial(noted))


class Builtin(list):
    def __class_getitem__(cls, key):
        return noted(cls, key)


class Extended(typing.Generic[T]):
    def __class_getitem__(cls, key):
        noted(cls, key)
        return super().__class_getitem__(key)


class Made:
    """Gives an object, as a class that describes types does."""

    def __init__(self, key):
        self.key = key

    def __class_getitem__(cls, key):
        LOG.append(cls.__name__)
        return cls(key)

    def __eq__(self, other):
        return type(self) is type(other) and self.key == other.key


class Alias(types.GenericAlias):
    def __new__(cls, *args):
        LOG.append(cls.__name__)
        return super().__new__(cls, *args)


class OwnAlias:
    __class_getitem__ = classmethod(Alias)


class Meta(type):
    def __class_getitem__(cls, key):
        return noted(cls, key)


class Metaclass(metaclass=Meta):
    """Has the one of its metaclass, which is bound to that one."""


class Generic(typing.Generic[T]):
    pass


class Structural(typing.Protocol[T]):
    pass


OWN = [
    Implicit,
    Inherits,
    Explicit,
    Static,
    Assigned,
    Partial,
    PartialOfClass,
    Builtin,
    Extended,
    Made,
    OwnAlias,
    Metaclass,
    Meta,
]
ALIASES = [Generic, Structural, list, os.PathLike, collections.abc.Mapping, torch.utils.data.Dataset]


def run(subscript, cls):
    """What three calls give, and what they did."""
    LOG.clear()
    found = [subscript(torch.ones(2), cls, int) for _ in range(3)]
    return [(given, x.tolist()) for given, x in found], [*LOG]


@pytest.mark.parametrize("cls", [*OWN, *ALIASES], ids=lambda cls: cls.__name__)
def test_subscripts_do_and_give_what_plain_ones_do(cls):
    def subscript(x, cls, key):
        return cls[key], x + 1

    assert run(optimize(lambda gm, _: gm.forward)(subscript), cls) == run(subscript, cls)


@pytest.mark.parametrize("cls", ALIASES, ids=lambda cls: cls.__name__)
def test_aliases_stay_in_the_graph(cls):
    graphs = []

    def subscript(x):
        y = x + 1
        return cls[int], y * 2

    found, _ = optimize(lambda gm, _: graphs.append(gm) or gm.forward)(subscript)(torch.ones(2))
    assert found == cls[int]
    assert len(graphs) == 1


def test_what_a_class_makes_of_its_subscript_is_new_and_may_be_a_base():
    class Described:
        def __init__(self, *names):
            self.names = names

        def __class_getitem__(cls, names):
            return cls(*names)

        def __mro_entries__(self, bases):
            return (Implicit,)

    def derive(x):
        made = Described["a"]

        class Derived(Described["b"]):
            pass

        return made, Derived, x + 1

    compiled = optimize(lambda gm, _: gm.forward)(derive)
    results = [compiled(torch.ones(2)) for _ in range(3)]
    assert len({id(made) for made, _, _ in results}) == 3
    assert all(made.names == ("a",) and cls.__mro__[1:] == (Implicit, object) for made, cls, _ in results)
