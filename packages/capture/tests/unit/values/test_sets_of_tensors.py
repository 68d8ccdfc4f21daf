"""New sets of input tensors: which tensors they are is guarded where the order of a set, or another container, is asked for, not before."""

import pytest
import torch
import tracework_capture as capture

TENSORS = [torch.randn(3) for _ in range(7)]
KNOWN = {TENSORS[0], TENSORS[1]}
PAIRS = [(TENSORS[i], TENSORS[i + 1]) for i in range(4)]


def one(x, y):
    made = {x}
    return x + len(made), x in made, y in made


def without_repeats(x, y):
    seen, kept = set(), []
    for each in (x, y, x):
        if each not in seen:
            seen.add(each)
            kept.append(each)
    return kept, x + 1


def given_back(x, y):
    made = {x, y, TENSORS[6]}
    made.discard(y)
    made.add(y)
    return list_of(made), x + y


@capture.disable
def list_of(made):
    return list(made)


def ordered(x, y):
    return list({x, y}), x + y


def popped(x, y):
    made = {x, y}
    made.discard(x)
    made.add(x)
    return made.pop(), made, x + y


def beside_others(x, y):
    return {x} <= {x, y}, {x} == {y}, len({x, y} & KNOWN), x in KNOWN, {x, y} - KNOWN, x + y


def inside(x, y):
    table = {frozenset((x, y)): 1}
    return table[frozenset((y, x))], {frozenset((x,))} == {frozenset((y,))}, x + y


def shown(value):
    """Tensors by identity, containers by what is in them, in their order."""
    if isinstance(value, torch.Tensor):
        known = [i for i, each in enumerate(TENSORS) if each is value]
        return ("input", *known) if known else value.tolist()
    return [shown(each) for each in value] if isinstance(value, (list, tuple, set)) else value


@pytest.mark.parametrize(
    "function,entries",
    [(one, 1), (without_repeats, 1), (given_back, None), (ordered, 4), (popped, 4), (beside_others, 4), (inside, 4)],
)
def test_new_sets(function, entries):
    capture.reset()
    graphs = []
    run = capture.optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(function)
    for pair in PAIRS:
        assert shown(run(*pair)) == shown(function(*pair))
    assert entries is None or len(graphs) == entries
    for pair in [(TENSORS[2],) * 2, *PAIRS]:
        assert shown(run(*pair)) == shown(function(*pair))
