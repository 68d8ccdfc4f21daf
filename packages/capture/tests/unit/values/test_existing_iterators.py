"""Iterators that are there before: what they give next is read where they stand, and they have moved on when the call is over."""

import itertools

import pytest
import torch
import tracework_capture as capture
from harness import assert_same

X = torch.arange(3.0) + 1
pytestmark = pytest.mark.usefixtures("fresh")


def one(x, it):
    return x * next(it) + 1


def two_and_the_end(x, it):
    return x + next(it, 7), next(it, None), it.__next__() if x.shape[0] > 3 else None


def all_of_them(x, it):
    found = x.sin()
    for item in it:
        found = found * item
    return found, next(it, "end")


def left_in_the_middle(x, it):
    for item in it:
        x = x + item
        if item == 2:
            break
    return x


def many_at_once(x, it):
    first, *rest = it
    return x + first, rest, x * sum(rest)


def a_list_that_grows(x, it, items):
    first = next(it)
    items.append(first + 5)
    return x + first, list(it), len(items)


def items_exchanged_before(x, it, items):
    items[-1] = 9
    return x * next(it), next(it, None)


def two_names(x, it, other):
    return x + next(it), x - next(other)


def an_error_at_the_end(x, it):
    try:
        return x + next(it)
    except StopIteration:
        return x * 2


def texts(x, it):
    return x + len(next(it)), "".join(it)


def advanced(it, count):
    for _ in itertools.islice(it, count):
        pass
    return it


def over_list(count, items=(1, 2, 3, 4)):
    items = list(items)
    return advanced(iter(items), count), items


CALLS = [
    (one, lambda at: (advanced(iter(range(3, 50, 7)), at),)),
    (one, lambda at: (advanced(iter((X, X + 1, X + 2, X + 3, X + 4)), at),)),
    (one, lambda at: (over_list(at, (2.5, 3.5, 4.5, 5.5, 6.5))[0],)),
    (one, lambda at: (advanced(iter(range(1 << 40, (1 << 40) + 9)), at),)),
    (two_and_the_end, lambda at: (advanced(iter((1, 2, 3)), at),)),
    (two_and_the_end, lambda at: (advanced(iter(range(3)), at),)),
    (all_of_them, lambda at: (advanced(iter(range(1, 5)), at),)),
    (all_of_them, lambda at: (over_list(at)[0],)),
    (left_in_the_middle, lambda at: (advanced(iter([0, 1, 2, 3, 4]), at),)),
    (left_in_the_middle, lambda at: (advanced(iter(range(5)), at),)),
    (many_at_once, lambda at: (advanced(iter((4, 5, 6, 7, 8)), at),)),
    (a_list_that_grows, lambda at: over_list(min(at, 3))),
    (items_exchanged_before, lambda at: over_list(min(at, 3))),
    (two_names, lambda at: (advanced(iter(range(6)), at),) * 2),
    (two_names, lambda at: (advanced(iter(range(6)), at), iter(range(6)))),
    (an_error_at_the_end, lambda at: (advanced(iter((4, 5)), at),)),
    (texts, lambda at: (advanced(iter("abcdef"), at),)),
    (texts, lambda at: (advanced(iter("ab\xe9def"), at),)),
]


COUNTS = [
    (one, lambda at: (itertools.count(at, 3),)),
    (one, lambda at: (itertools.count(1 << 40, -at - 1),)),
    (left_in_the_middle, lambda at: (itertools.count(at - 2),)),
    (two_names, lambda at: (itertools.count(at),) * 2),
]


@pytest.mark.parametrize("function,arguments", COUNTS, ids=[f"{f.__name__}{i}" for i, (f, _) in enumerate(COUNTS)])
def test_a_count_among_the_arguments(function, arguments):
    run = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    for at in (0, 1, 2, 1, 4):
        ours, plain = arguments(at), arguments(at)
        assert_same(run(X, *ours), function(X, *plain))
        assert [repr(counter) for counter in ours] == [repr(counter) for counter in plain]


def test_numbers_that_a_class_gives_out():
    class Numbered:
        numbers = itertools.count(1)

        def __init__(self):
            self.number = next(Numbered.numbers)

    def made(x):
        return x * Numbered().number, Numbered().number

    run, graphs = counted(made)
    for call in range(5):
        assert_same(run(X), (X * (2 * call + 1), 2 * call + 2))
    assert len(graphs) == 2


@pytest.mark.parametrize("function,arguments", CALLS, ids=[f"{f.__name__}{i}" for i, (f, _) in enumerate(CALLS)])
def test_an_iterator_among_the_arguments(function, arguments):
    run = capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(function)
    for at in (0, 1, 2, 1, 4):
        ours, plain = arguments(at), arguments(at)
        assert_same(run(X, *ours), function(X, *plain))
        for moved, expected in zip(ours, plain):
            assert_same(list(moved), list(expected))


def counted(function):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    return capture.optimize(backend, fullgraph=True)(function), graphs


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = iter(range(2, 100, 3))

    def forward(self, x):
        return x * next(self.steps)


def test_an_attribute_that_counts_is_compiled_twice():
    model = Counts()
    run, graphs = counted(model.forward)
    for step in range(5):
        assert_same(run(X), X * (2 + 3 * step))
    assert len(graphs) == 2


def test_tensors_that_an_iterator_gives_share_an_entry():
    run, graphs = counted(one)
    items = [X + 1, X * 2, X - 1, X * 3]
    it = iter(items)
    for expected in items:
        assert_same(run(X, it), X * expected + 1)
    assert len(graphs) == 1


def test_the_error_at_the_end_is_the_programs():
    run, it = capture.optimize(lambda gm, inputs: gm.forward)(one), iter((1, 2))
    for _ in range(2):
        run(X, it)
    for _ in range(2):
        with pytest.raises(StopIteration):
            run(X, it)


class Reversed(list):
    def __getitem__(self, place):
        return list.__getitem__(self, -1 - place)


def test_a_class_with_items_of_its_own():
    run = capture.optimize(lambda gm, inputs: gm.forward)(one)
    for items in ([1, 2], Reversed([1, 2]), [3, 4], Reversed([])):
        ours, plain = iter(items), iter(items)
        if items:
            assert_same(run(X, ours), one(X, plain))
        assert list(ours) == list(plain)


class ByItems:
    """What has no `__iter__`, and ends where an operator refuses an index."""

    def __init__(self, rows, item):
        self.rows, self.item = rows, item

    def __getitem__(self, position):
        return self.item(self.rows, position)


ITEMS = {
    "a number": lambda rows, n: rows[n],
    "a tensor of a number": lambda rows, n: rows[torch.tensor(n)],
    "selected": lambda rows, n: rows.index_select(0, torch.tensor([n])),
    "embedded": lambda rows, n: torch.embedding(rows, torch.full((1,), n)),
    "from a place": lambda rows, n: rows[rows.new_ones((), dtype=torch.int64) + n - 1],
    "the end is stopped": lambda rows, n: rows.index_select(0, torch.tensor([n])) if n < 2 else next(iter(())),
}


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
@pytest.mark.parametrize(
    "asked", [list, lambda items: [*zip(items, "ab")], lambda items: next(iter(items))], ids=["list", "zip", "next"]
)
def test_items_that_end_where_an_operator_refuses_an_index(item, asked):
    """The error of the operator is the end of the loop, which no graph can have."""

    def program(rows):
        total = rows.exp().sum()
        for row in ByItems(rows, item):
            total = total + row.sum()
        return total * 2, asked(ByItems(rows, item))

    rows = torch.randn(3, 2)
    compiled = capture.optimize(lambda gm, given: gm.forward)(program)
    for _ in range(2):
        found, wanted = compiled(rows), program(rows)
        assert torch.equal(found[0], wanted[0]) and str(found[1]) == str(wanted[1])


def test_items_without_an_end_are_not_unrolled_for_ever(monkeypatch):
    """Nothing says while tracing that the program leaves the loop."""

    def program(rows):
        for n, row in enumerate(ByItems(rows, lambda rows, n: rows * n)):
            rows = rows + row
            if n == 30:
                return rows

    rows = torch.randn(2, dtype=torch.float64) / 10**6
    monkeypatch.setattr("tracework_capture.values.plain.iterators.MOST_ITEMS", 10)
    compiled = capture.optimize(lambda gm, given: gm.forward)(program)
    assert torch.equal(compiled(rows), program(rows))
