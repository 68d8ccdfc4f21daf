"""Texts of dataclasses, and of what reprlib.recursive_repr decorates: an object inside of itself is shown as dots."""

import collections
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


class Named:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


class Grows(Named):
    def __repr__(self):
        self.name.append(0)
        return "grows"


class GivesANumber(Named):
    def __repr__(self):
        return 3


EXISTING = [Named("a"), {Named("k").name: Named("v"), 2: (Named("t"),)}, (), [[]], X]


PERCENT, BRACES = "%s", "{}"


def all_texts(held):
    return str(held), repr(held), f"{held}", f"{held!r:>90}", PERCENT % (held,), BRACES.format(held)


def of_what_existing_containers_hold(x):
    return x + 1, all_texts(EXISTING[:4]), all_texts(EXISTING[1]), all_texts((EXISTING[0],))


def of_what_new_containers_hold(x):
    held = [Named("a"), {"k": Named(1.5), ("t", 2): (Named("t"),)}, x.shape[0]]
    return x + 1, all_texts(held), all_texts(held[1]), str({}), str([(Named(()), Named([]))])


def of_containers_inside_of_themselves(x):
    row, table = [Named("a")], {"b": Named("b")}
    row.append(row)
    table["self"] = (row, table)
    return x + 1, str(row), str(table)


def of_tensors_in_containers(x):
    return x + 1, f"{[Named('a'), x * 2]}", str({"loss": (x.sum(), Named("b"))})


@pytest.mark.parametrize(
    "function",
    [
        of_what_existing_containers_hold,
        of_what_new_containers_hold,
        of_containers_inside_of_themselves,
        of_tensors_in_containers,
    ],
)
def test_texts_of_containers_ask_what_they_hold(function):
    compiled = optimize(lambda gm, example_inputs: gm.forward, fullgraph=True)(function)
    for x in (X, X * 2):
        assert compiled(x)[1:] == function(x)[1:]


def of_a_list_that_grows_meanwhile(x):
    row = []
    row += [Grows(row), Named("b")]
    return x + 1, str(row), len(row)


def of_what_gives_no_text(x):
    try:
        return x + 1, str([Named("a"), GivesANumber("b")])
    except TypeError as error:
        return x + 2, str(error)


@pytest.mark.parametrize("function", [of_a_list_that_grows_meanwhile, of_what_gives_no_text])
def test_texts_of_containers_are_eagers_where_an_item_has_its_own_way(function):
    compiled = optimize(lambda gm, example_inputs: gm.forward)(function)
    for _ in range(2):
        found, expected = compiled(X), function(X)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


EPOCH, LOSS, NAME, NUMBER = "%(epoch)d %(lr)8.1e 100%% %(epoch)s", "%(name)s of %(size)d: %(loss).2f", "%(name)s", "%(name)d"


def by_names(x):
    given = {"epoch": 3, "rows": [Named("a"), x], "lr": 1e-3, "name": Named("b"), "size": x.shape[0], "loss": x.sum()}
    return x + 1, EPOCH % given, LOSS % given


def by_names_of_a_default(x):
    given = collections.defaultdict(lambda: Named("made"), n=[Named("a")])
    return x + 1, NAME % given, list(given), NAME % given


def by_a_name_that_is_missing(x):
    try:
        return x + 1, NAME % {"other": Named("a")}
    except KeyError as error:
        return x + 2, error.args


def by_names_and_without(x):
    try:
        return x + 1, (NAME + "%s") % {"name": Named("a")}
    except TypeError as error:
        return x + 2, error.args


def by_a_name_for_another_kind(x):
    try:
        return x + 1, NUMBER % {"name": "a", "other": Named("b")}
    except TypeError as error:
        return x + 2, error.args


@pytest.mark.parametrize(
    "function", [by_names, by_names_of_a_default, by_a_name_that_is_missing, by_names_and_without, by_a_name_for_another_kind]
)
def test_percent_with_a_dict_looks_up_what_it_names(function):
    compiled = optimize(lambda gm, example_inputs: gm.forward, fullgraph=function is not by_names_and_without)(function)
    for _ in range(2):
        found, expected = compiled(X), function(X)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
