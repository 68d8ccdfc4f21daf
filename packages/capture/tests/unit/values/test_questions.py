"""What a program asks of classes, functions and objects while it runs: signatures, members, subclasses, paths, and ready-made getters."""

import dataclasses
import functools
import inspect
import operator
import os
import pathlib

import pytest
import torch
from harness import check
from tracework_capture import explain, optimize

X = torch.arange(12.0).reshape(3, 4)
FIRST, SHAPE, TOTAL = operator.itemgetter(0, 1), operator.attrgetter("shape"), operator.methodcaller("sum", dim=0)


@dataclasses.dataclass
class Config:
    width: int = 4
    name: str = "x"

    def scale(self):
        return self.width

    @property
    def double(self):
        return self.width * 2


class Base:
    def apply(self, x):
        raise NotImplementedError


class Plus(Base):
    def apply(self, x):
        return x + 1


class Times(Base):
    def apply(self, x):
        return x * 2


def known_arguments(x):
    def call(function, **options):
        names = inspect.signature(function).parameters
        return function(**{name: value for name, value in options.items() if name in names})

    def shifted(x, by=2, *, times: float = 3.0):
        return x * times + by

    return call(shifted, x=x, by=1, other=2), str(inspect.signature(shifted))


def bound(x):
    def function(a, /, b, *rest, c=3, **more):
        return a * b + c + sum(rest) + len(more)

    given = inspect.signature(function).bind(x, 2, 5, z=1)
    first = function(*given.args, **given.kwargs)
    given.apply_defaults()
    given.arguments["c"] = 7
    return first, function(*given.args, **given.kwargs), list(given.arguments)


def bound_partially(x):
    given = inspect.signature(Config).bind_partial(5)
    given.apply_defaults()
    return x * given.arguments["width"], Config(*given.args, **given.kwargs)


def not_bound(x):
    try:
        inspect.signature(lambda a: a).bind(x, 1)
    except TypeError as error:
        return x + 1, str(error)


def members(x):
    config = Config(3)
    config.more = 2.0
    numbers = {name: value for name, value in inspect.getmembers(config) if isinstance(value, (int, float))}
    functions = [name for name, _ in inspect.getmembers(Config, inspect.isfunction)]
    return x * sum(numbers.values()), numbers, functions, [name for name in dir(config) if name[0] != "_"]


def by_subclass(x):
    for cls in Base.__subclasses__():
        x = cls().apply(x)
    return x, len(Plus.__subclasses__())


def getters(x):
    made = operator.methodcaller("reshape", 4, 3)
    return FIRST(x), SHAPE(x), TOTAL(x), made(x), sorted([(2, 1), (1, 2)], key=operator.itemgetter(1)), FIRST([1, 2])


def paths(x):
    path = pathlib.PurePosixPath("a") / "b.txt"
    return x + 1, str(path), os.fspath(path), os.path.join("a", "b"), os.path.basename("a/b"), os.path.splitext("a.b")


@pytest.mark.parametrize(
    "function",
    [known_arguments, bound, bound_partially, not_bound, members, by_subclass, getters, paths],
    ids=lambda function: function.__name__,
)
def test_in_one_graph(function):
    fast = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    for x in (X, X + 1):
        assert repr(fast(x)) == repr(function(x))


def test_what_changes_is_noticed():
    class Local(Base):
        def apply(self, x):
            return x - 3

    class Asked:
        def __init__(self, a, b=1):
            self.a = a

    def ask(x):
        return by_subclass(x), list(inspect.signature(Asked).parameters), [n for n in dir(Asked) if n[0] != "_"]

    fast = optimize(lambda gm, inputs: gm.forward)(ask)
    assert repr(fast(X)) == repr(ask(X))

    class Another(Base):
        def apply(self, x):
            return x * 5

    Asked.__init__ = lambda self, other: None
    Asked.added = 3
    assert repr(fast(X)) == repr(ask(X))
    del Local, Another


def test_a_signature_of_what_the_program_computed_breaks():
    def ask(x):
        def function(a, b=x + 1):
            return a

        return x * len(inspect.signature(function).parameters)

    found = explain(ask)(X)
    assert {stop.reason_id for stop in found.breaks} == {"builtin_unsupported"} and torch.equal(found.result, ask(X))


def test_notes_of_an_exception():
    def ask(x):
        try:
            raise ValueError("a", 1)
        except ValueError as error:
            error.add_note("first")
            error.add_note(f"of {tuple(x.shape)}")
            try:
                error.add_note(3)
            except TypeError as refused:
                return x + 1, error.__notes__, str(refused), error

    found, expected = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(ask)(X), ask(X)
    assert repr(found[:3]) == repr(expected[:3]) and found[3].__notes__ == expected[3].__notes__


def test_a_number_that_is_left_of_a_text_or_a_list_of_data():
    def ask(x):
        return [0] + x.long()[0].tolist(), "n" * x.long()[0, 1].item()

    assert explain(ask)(X).result == ask(X)


class Answers:
    __subclasses__ = staticmethod(lambda: ["none"])


def test_subclasses_that_a_class_answers_itself():
    assert optimize(lambda gm, inputs: gm.forward, fullgraph=True)(lambda x: (x + 1, Answers.__subclasses__()))(X)[1] == ["none"]


def with_two(a, b, *, c=3):
    return a + b + c


PARTIAL = functools.partial(with_two, 1, c=2)


def test_signatures_of_partials():
    def asked(x):
        made = functools.partial(with_two, x, c=4)
        texts = [str(inspect.signature(f)) for f in (made, PARTIAL, functools.partial(with_two, b=5), functools.partial(made, 2))]
        return x + len(texts), texts, list(inspect.signature(made).parameters), inspect.signature(PARTIAL).parameters["c"].default

    def does_not_fit(x):
        try:
            inspect.signature(functools.partial(with_two, 1, 2, 3))
        except ValueError as error:
            return x + 1, str(error)

    x = torch.ones(2)
    check(asked, x)
    compiled = optimize(lambda gm, inputs: gm.forward)(does_not_fit)
    assert compiled(x)[1] == does_not_fit(x)[1]
