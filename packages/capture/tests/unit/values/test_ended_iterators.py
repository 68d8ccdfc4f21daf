"""An iterator that came to its end stays there, also when what it was over grows: in the frame, behind a break, and as a result."""

import collections
import itertools

import pytest
import torch
from tracework_capture.hook.context import optimize


class Own:
    """Has items by their numbers alone."""

    def __init__(self, count):
        self.numbers = list(range(count))

    def __getitem__(self, place):
        return self.numbers[place]

    def __len__(self):
        return len(self.numbers)

    def append(self, number):
        self.numbers.append(number)


class Counted(collections.UserList):
    def __call__(self):
        self.append(9)
        return len(self) % 6


GROWING = {"list": list, "own": lambda items: Own(len(items)), "user list": collections.UserList}
ITERATORS = {
    "iter": iter,
    "reversed": reversed,
    "enumerate": enumerate,
    "zip": lambda made: zip(made, itertools.count()),
    "zip behind another": lambda made: zip(iter([1, 2, 3, 4, 5]), made),
    "map": lambda made: map(lambda i: i + 1, made),
    "filter": lambda made: filter(lambda i: i != 1, made),
    "islice": lambda made: itertools.islice(made, 9),
    "chain": lambda made: itertools.chain([5], made),
    "takewhile": lambda made: itertools.takewhile(lambda i: i < 2, made),
    "dropwhile": lambda made: itertools.dropwhile(lambda i: i < 1, made),
    "accumulate": itertools.accumulate,
    "pairwise": itertools.pairwise,
    "zip_longest": lambda made: itertools.zip_longest(made, [1]),
    "starmap": lambda made: itertools.starmap(max, zip(made, made)),
    "compress": lambda made: itertools.compress(made, [1, 1, 1, 1, 1, 1]),
    "batches": lambda made: zip(*[iter(made)] * 2),
    "generator": lambda made: (i for i in made),
}


def in_the_frame(x, make, start):
    made = make([0, 1, 2])
    iterator = start(made)
    first = [*iterator]
    made.append(1)
    return x + 1, first, [*iterator], next(iterator, "end")


def behind_a_break(x, make, start):
    made = make([0, 1, 2])
    iterator = start(made)
    for _ in iterator:
        x = x + 1
    print(end="")
    made.append(1)
    return x + 1, [*iterator], next(iterator, "end")


def as_a_result(x, make, start):
    made = make([0, 1, 2])
    iterator = start(made)
    first = [*iterator]
    return x + 1, first, made, iterator


@pytest.mark.parametrize("function", [in_the_frame, behind_a_break, as_a_result])
@pytest.mark.parametrize("make", GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("start", ITERATORS.values(), ids=ITERATORS)
def test_the_end_of_an_iterator_stays(start, make, function):
    def outcome(call):
        x, *rest = call(torch.ones(2), make, start)
        if function is as_a_result:
            first, made, iterator = rest
            made.append(1)
            rest = [first, type(iterator), [*iterator], next(iterator, "end")]
        return x.tolist(), rest

    assert outcome(optimize(lambda gm, _: gm.forward)(function)) == outcome(function)


def test_the_end_of_an_iterator_that_calls_stays():
    def until(x):
        calls = Counted()
        iterator = iter(calls, 4)
        return x + 1, [*iterator], [*iterator], len(calls)

    x = torch.ones(2)
    assert optimize(lambda gm, _: gm.forward)(until)(x)[1:] == until(x)[1:]
