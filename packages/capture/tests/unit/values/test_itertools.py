"""Iterators of itertools that a program asks for some items, and returns: what is left is eager's, in one graph."""

import itertools
import operator

import pytest
import torch
import tracework_capture as capture

X = torch.arange(3.0) + 1
MAKERS = {
    "accumulate": lambda x: itertools.accumulate([x, 2, x]),
    "accumulate_from": lambda x: itertools.accumulate([1, 2], operator.mul, initial=x),
    "batched": lambda x: itertools.batched([x, 1, 2], 2),
    "call": lambda x: iter([3, x.shape[0], 1, 2].pop, 3),
    "chain": lambda x: itertools.chain([x, 1], (), "ab"),
    "combinations": lambda x: itertools.combinations([x, 1, 2], 2),
    "compress": lambda x: itertools.compress([x, 1, 2, 3], [1, 0, 1, 1]),
    "count": lambda x: itertools.count(x.shape[0], 2),
    "cycle": lambda x: itertools.cycle([x, 1, 2]),
    "filterfalse": lambda x: itertools.filterfalse(None, [0, 1, 0.0, x.shape[0] - 3]),
    "islice": lambda x: itertools.islice([x, 1, 2, 3, 4, 5], 1, 6, 3),
    "pairwise": lambda x: itertools.pairwise([x, 1, 2]),
    "permutations": lambda x: itertools.permutations([x, 1]),
    "product": lambda x: itertools.product([x, 1], repeat=2),
    "repeat": lambda x: itertools.repeat(x, 3),
    "starmap": lambda x: itertools.starmap(operator.add, [(x, 1), (2, 3)]),
    "takewhile": lambda x: itertools.takewhile(bool, [1, 2, 0, 3]),
    "zip_longest": lambda x: itertools.zip_longest([1, 2, 3], [x], fillvalue=0),
}
ENDS_FOR_GOOD = {"call"}  # one that has ended cannot be made again


def plain(value):
    """A value with its tensors as lists, and the items of iterators in place of them."""
    if hasattr(value, "__next__"):
        return type(value).__name__, [plain(item) for item in itertools.islice(value, 7)]
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("taken", range(6))
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "batched" or hasattr(itertools, "batched")])
def test_what_is_left(name, taken, fresh):
    make = MAKERS[name]

    def program(x):
        iterator = make(x)
        return x * 2, [next(iterator, None) for _ in range(taken)], iterator

    ended = name in ENDS_FOR_GOOD and taken > 2
    compiled = capture.optimize(lambda graph, inputs: graph, fullgraph=not ended)(program)
    assert plain(compiled(X)) == plain(program(X))


def raises_once():
    """A function that raises when it is called the second time."""
    calls = []

    def function(item):
        calls.append(item)
        if len(calls) == 2:
            raise KeyError(item)
        return item

    return function


GO_ON = {
    "accumulate": lambda f: itertools.accumulate([1, 2, 3, 4], lambda total, item: total + f(item)),
    "chain": lambda f: itertools.chain([0], map(f, [1, 2, 3, 4])),
    "compress": lambda f: itertools.compress("abcd", map(f, [1, 2, 3, 4])),
    "cycle": lambda f: itertools.cycle(map(f, [1, 2, 3])),
    "dropwhile": lambda f: itertools.dropwhile(lambda n: f(n) < 3, [1, 2, 3, 4]),
    "filterfalse": lambda f: itertools.filterfalse(lambda n: f(n) == 4, [1, 2, 3, 4]),
    "islice": lambda f: itertools.islice(map(f, [1, 2, 3, 4, 5, 6]), 0, 6, 2),
    "pairwise": lambda f: itertools.pairwise(map(f, [1, 2, 3, 4])),
    "starmap": lambda f: itertools.starmap(f, [(1,), (2,), (3,)]),
    "takewhile": lambda f: itertools.takewhile(f, [1, 2, 3, 0, 4]),
    "zip_longest": lambda f: itertools.zip_longest("ab", map(f, [1, 2, 3])),
}


@pytest.mark.parametrize("name", GO_ON)
def test_after_an_exception(name, fresh):
    make = GO_ON[name]

    def program(x):
        iterator, found = make(raises_once()), []
        for _ in range(6):
            try:
                found.append(next(iterator, "end"))
            except KeyError as error:
                found.append(error.args)
        return x * 2, found

    assert plain(capture.optimize(lambda graph, inputs: graph)(program)(X)) == plain(program(X))
