"""Sets that are there before: which members they have, of which types and in which order, is guarded; iterators over them are the set's."""

import itertools
import operator
import types

import pytest
import torch
import tracework_capture as capture

X = torch.ones(2)
pytestmark = pytest.mark.usefixtures("fresh")


def compiled(function):
    return capture.optimize(lambda gm, inputs: gm.forward)(function)


def agree(function, *calls):
    run = compiled(function)
    for make in calls:
        for _ in range(2):
            assert str(run(make())) == str(function(make()))


def in_order(members):
    return list(members), str(members), next(iter(members)), (X + 1).sin() * 2


@pytest.mark.parametrize("cls", [set, frozenset, type("Mine", (set,), {})])
def test_equal_sets_in_another_order(cls):
    agree(in_order, lambda: cls([0, 8]), lambda: cls([8, 0]))


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: (v,)])
def test_members_of_other_types_that_are_equal(wrap):
    agree(in_order, *(lambda v=v: {wrap(v)} for v in (1, True, 1.0, 1 + 0j, 0.0, -0.0)))


def test_equal_sets_share_an_entry():
    counted = []
    run = capture.optimize(lambda gm, inputs: counted.append(gm) or gm.forward)(in_order)
    for _ in range(3):
        run({1, (2, 3)})
    assert len(counted) == 1


class OwnWay(set):
    def __iter__(self):
        return iter([7])

    def __len__(self):
        return 5


def test_a_class_that_goes_over_its_sets_in_its_own_way(recwarn):
    agree(lambda s: (list(s), len(s), bool(s), 1 in s, (X + 1).sin() * 2), lambda: OwnWay({1, 2}))
    assert not [w for w in recwarn if "does not hold" in str(w.message)]


def shrinks_while_it_is_gone_over(given):
    y = (X + 1).sin()
    members = set(given) if type(given) is list else given
    iterator, said = iter(members), []
    said += [operator.length_hint(iterator), next(iterator)]
    members.pop()
    capture.graph_break()
    for _ in range(2):
        try:
            said.append(next(iterator))
        except RuntimeError as error:
            said.append(str(error))
    return said, operator.length_hint(iterator), y * 2


def passed_on(given):
    y = (X + 1).sin()
    members = set(given) if type(given) is list else given
    iterator = iter(members)
    next(iterator)
    capture.graph_break()
    return type(iterator), operator.length_hint(iterator), list(iterator), type(iterator), list(iterator), y * 2


def changed_in_a_loop_that_breaks(given):
    y = (X + 1).sin()
    members = set(given) if type(given) is list else given
    found = []
    try:
        for member in members:
            capture.graph_break()
            found.append(member)
            members.add(len(members) + 10)
    except RuntimeError as error:
        found.append(str(error))
    return found, y * 2


@pytest.mark.parametrize("function", [shrinks_while_it_is_gone_over, passed_on, changed_in_a_loop_that_breaks])
def test_iterators_over_sets_are_theirs_after_a_break(function):
    agree(function, lambda: {1, 2, 3, 4}, lambda: [1, 2, 3, 4], lambda: {5, 6}, lambda: [5, 6])


MODULE = types.ModuleType("some_module")


def names_a_file(_):
    MODULE.__file__ = "some.py"
    found = repr(MODULE), f"{MODULE}", (X + 1).sin() * 2
    del MODULE.__file__
    return found


def test_texts_of_modules_tell_what_they_have_now():
    numbers = itertools.count()
    run = compiled(lambda _: (str(MODULE), (X + 1).sin() * 2))
    assert run(0)[0] == "<module 'some_module'>"
    MODULE.__name__ = f"other_{next(numbers)}"
    assert run(0)[0] == "<module 'other_0'>"
    MODULE.__name__ = "some_module"
    agree(names_a_file, lambda: 0)


def test_a_module_whose_getattr_cannot_be_called(caplog):
    broken = types.ModuleType("broken")
    broken.__getattr__ = "no function"

    def asks(_):
        try:
            return broken.missing
        except TypeError as error:
            return str(error), (X + 1).sin() * 2

    agree(asks, lambda: 0)
    assert not caplog.records


def asked(op):
    """What does not depend on the order of a set that is made of one which the program changed."""
    return lambda x, s, other: (
        x + len(op(s, other)),
        7 in op(s, other),
        bool(op(s, other)),
        op(s, other) == {3},
        s <= op(s, other),
    )


def unordered(change, question):
    def program(x, s, other):
        change(s)
        y = x + 1
        return question(y, s, other)

    return program


CHANGES = [lambda s: s.add(25), lambda s: s.discard(3), lambda s: s.__ior__({1, 2}), lambda s: s.clear()]
OPERATIONS = [
    lambda s, o: s | o, lambda s, o: o | s, lambda s, o: s & o, lambda s, o: o & s, lambda s, o: s - o, lambda s, o: o - s,
    lambda s, o: s ^ o, lambda s, o: s.union(o, [99]), lambda s, o: s.copy(), lambda s, o: set(s), lambda s, o: frozenset(s) | o,
    lambda s, o: {*()}.union(s),
]  # fmt: skip


@pytest.mark.parametrize("operation", range(len(OPERATIONS)))
@pytest.mark.parametrize("change", range(len(CHANGES)))
def test_a_changed_set_is_combined_in_the_graph(fresh, change, operation):
    program = unordered(CHANGES[change], asked(OPERATIONS[operation]))
    compiled = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    for _ in range(2):
        (x, s, other), again = [(torch.ones(3), {10, 3, 77, 1034}, {7, 19, 3}) for _ in range(2)]
        found, expected = compiled(x, s, other), program(*again)
        assert found[0].equal(expected[0])
        assert found[1:] == expected[1:]
        assert list(s) == list(again[1])


@pytest.mark.parametrize("operation", range(len(OPERATIONS)))
@pytest.mark.parametrize("change", range(len(CHANGES)))
@pytest.mark.parametrize("give", [lambda y, r: (y, r), lambda y, r: (y, *r)], ids=["the set", "its members"])
def test_the_order_is_pythons(fresh, change, operation, give):
    program = unordered(CHANGES[change], lambda y, s, other: give(y * 2, OPERATIONS[operation](s, other)))
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(program)
    for _ in range(2):
        (x, s, other), again = [(torch.ones(3), {10, 3, 77, 1034}, {7, 19, 3}) for _ in range(2)]
        (y, *found), (expected_y, *expected) = compiled(x, s, other), program(*again)
        assert y.equal(expected_y)
        assert repr(found) == repr(expected)
        assert list(s) == list(again[1])


@pytest.mark.parametrize("members", [{3, 77, 1034}, {"b", "a"}])
def test_a_changed_set_is_sorted_in_the_graph(members):
    def program(x, s):
        s.add(type(next(iter(s)))())
        return x + len(s), sorted(s), sorted(s | {*s}, reverse=True), sorted(s, key=None)

    run = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    for _ in range(2):
        found, expected = run(X, {*members}), program(X, {*members})
        assert found[0].equal(expected[0]) and found[1:] == expected[1:]


@pytest.mark.parametrize("members", [{3, 1.0, 2.5}, {(1, 2), (0,)}, {3, True, 7}, {1, "a"}])
@pytest.mark.parametrize("key", [None, lambda v: 0])
def test_what_may_be_sorted_alike_is_sorted_in_pythons_order(members, key):
    def program(x, s):
        s.discard(3)
        try:
            return x + 1, sorted(s, key=key)
        except TypeError as error:
            return x + 2, str(error)

    agree(lambda s: program(X, s), lambda: {*members})
