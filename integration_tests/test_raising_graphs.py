"""A compiled graph that raises, of inputs that it reads and writes: effects before the raise, data and versions are plain Python's."""

import random
import traceback

import numpy as np
import pytest
import torch
import tracework

SIZE = 1 << 15


class Counter:
    count = 0


def updated(x, w, index, counter):
    counter.count = 1
    x.add_(1)
    y = x[index]
    counter.count = 2
    return y


def updated_twice(x, w, index, counter):
    x.mul_(2).add_(w)
    counter.count = 1
    z = w[index]
    w.add_(z.sum())
    counter.count = 2
    return w[index + 1] * x[:2]


def filled_from_a_lookup(x, w, index, counter):
    counter.count = 1
    x.copy_(w[index].sum() + x)
    counter.count = 2
    return x[:2]


def handled(x, w, index, counter):
    try:
        x.add_(1)
        counter.count = 1
        y = (x * 2)[index]
        w.mul_(y.sum())
        return y
    except IndexError:
        counter.count += 10
        return x[:3] * 3
    finally:
        counter.count += 100


def factorised(x, w, index, counter):
    counter.count = 1
    x.sub_(1)
    y = torch.linalg.cholesky(torch.eye(2) * (100 - index))
    counter.count = 2
    w.mul_(2)
    return y + x[:2]


def checked(x, w, index, counter):
    """Nobody reads the result."""
    counter.count = 1
    x.sub_(1)
    torch.linalg.inv(torch.eye(2) * (index < 100))
    return x[:2]


def drawn(x, w, index, counter):
    counter.count = random.randint(2, 9) if x.size(0) == 1 else 1
    random.random()
    scale = random.uniform(1, 2) * np.random.rand()
    counter.count = 2
    return x[index] * scale


@torch.library.custom_op("test_raising_graphs::row", mutates_args=())
def row(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    if index.item() > SIZE:
        raise ValueError("no such row")
    return x[index].clone()


@row.register_fake
def _(x, index):
    return x.new_empty(1)


def looked_up(x, w, index, counter):
    """By an operator of the program's own."""
    counter.count = 1
    x.add_(1)
    return row(x * 2, index) + 1


def seen(function, index, program):
    random.seed(index)
    np.random.seed(index)
    x, w, counter = torch.arange(float(SIZE)), torch.arange(float(SIZE)) / SIZE, Counter()
    try:
        outcome = function(x, w, torch.tensor([index]), counter)
    except Exception as error:
        names = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.name == program.__name__]
        return [type(error).__name__, names[-1:], counter.count, x._version, w._version, random.random(), np.random.rand()], [
            x,
            w,
        ]
    return ["", counter.count, x._version, w._version, random.random(), np.random.rand()], [outcome, x, w]


@pytest.mark.parametrize(
    "program", [updated, updated_twice, filled_from_a_lookup, handled, factorised, checked, drawn, looked_up]
)
def test_what_is_seen_after_a_raise(program):
    compiled = tracework.compile(program)
    for index in (1, 1 << 20, 0, 1 << 20):
        (facts, tensors), (wanted, expected) = seen(compiled, index, program), seen(program, index, program)
        assert facts == wanted
        assert bool(facts[0]) == (index > SIZE and program is not handled)
        torch.testing.assert_close(tensors, expected)
