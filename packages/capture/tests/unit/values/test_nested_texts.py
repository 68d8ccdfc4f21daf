"""Texts of dataclasses, and of what reprlib.recursive_repr decorates: an object inside of itself is shown as dots."""

import dataclasses
import reprlib

import pytest
import torch
from harness import check
from tracework_capture import optimize

X = torch.ones(3)


@dataclasses.dataclass
class Settings:
    rate: float = 0.5
    tags: list = dataclasses.field(default_factory=list)
    more: object = None


@dataclasses.dataclass
class Derived(Settings):
    hidden: int = dataclasses.field(default=3, repr=False)


class Tree:
    def __init__(self):
        self.parent = None

    @reprlib.recursive_repr("<...>")
    def __repr__(self):
        return f"Tree({self.parent!r})"


class Refuses:
    def __repr__(self):
        raise ValueError("no text")


HELD = Settings(2.0, ["x"], Settings())


def of_new_ones(x):
    return x + 1, repr(Settings()), f"{Settings(1.0, ['b'])!s:>60}", str(Derived(2.0)), repr(Settings(more=x.shape[0]))


def of_one_that_is_there(x):
    return x + 1, repr(HELD)


def inside_of_themselves(x):
    one, tree = Settings(), Tree()
    other = Settings(more=one)
    one.more, tree.parent = other, tree
    return x + 1, repr(one), repr(other), repr(one), repr(tree)


def after_an_error(x):
    one = Settings(more=Refuses())
    try:
        repr(one)
    except ValueError as error:
        said = str(error)
    one.more = None
    return x + 1, said, repr(one)


@pytest.mark.parametrize(
    "fn", [of_new_ones, of_one_that_is_there, inside_of_themselves, after_an_error], ids=lambda f: f.__name__
)
def test_same_as_plain(fn):
    check(fn, X)


def test_while_its_text_is_being_written():
    """Compiled code that runs inside of an object's own text sees that, too."""
    seen = []

    class Shows:
        def __repr__(self):
            seen.append(call(X))
            return "shows"

    one = Settings(more=Shows())

    def step(x):
        return x + 1, repr(one) if len(seen) else "first"

    call = optimize(lambda gm, example_inputs: gm.forward)(step)
    assert repr(one) == "Settings(rate=0.5, tags=[], more=shows)" and seen[0][1] == "first"
    repr(one)
    assert seen[1][1] == "..."
