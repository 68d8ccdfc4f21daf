"""Random numbers of Python and NumPy inside a compiled function: drawn anew at each call, in the program's order."""

import random

import numpy
import pytest
import torch
import tracework
from training import BACKENDS, same


def scaled(x):
    y = x * random.random() + random.uniform(-1, 3)
    return y * numpy.random.rand() - numpy.random.normal(1.0, 2.0), random.gauss(0, 1) * 2 + 1


def unused(x):
    random.random()
    return x + 1, random.random()


def ints(x):
    n, m = random.randint(1, 5), numpy.random.randint(-3, 9)
    return x * n + m, torch.arange(4) * m - n, x > n, n, n + m * 2, n / 4


def needed(x):
    scale = random.random()
    if random.random() < 0.5:
        x = x + scale
    return x * random.randint(1, 5) * random.random()


def arrays(x):
    return x + torch.from_numpy(numpy.random.rand(3)) * numpy.random.rand()


def seeded(x):
    numpy.random.seed(7)
    drawn = numpy.random.sample(3) + numpy.random.dirichlet([1, 2, 3]) * numpy.random.rand()
    numpy.random.seed([1, 2])
    return x + torch.from_numpy(drawn), x * numpy.random.normal()


def of_items(x):
    numbers, table = x.numpy() + numpy.arange(3.0), numpy.arange(12.0).reshape(3, 4)
    view = table[::-1, 1:]
    numpy.random.shuffle(numbers)
    numpy.random.shuffle(view)
    chosen = numpy.random.choice(numbers, 2, replace=False), numpy.random.choice([1.5, 2.5], (2, 2))
    return [torch.from_numpy(a) for a in (numbers, table, numpy.random.permutation(table), *chosen)]


def runs(fn, times=3):
    """Results of some calls, and the state of the generators after them."""
    random.seed(3)
    numpy.random.seed(4)
    found = [fn(torch.ones(3)) for _ in range(times)]
    return [list(f) if isinstance(f, tuple) else f for f in found] + [random.random(), float(numpy.random.rand())]


@pytest.mark.parametrize("fn", [scaled, unused, ints, arrays, seeded, of_items], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_the_graph(fn, backend):
    same(runs(tracework.compile(fn, backend=backend, fullgraph=True)), runs(fn))


@pytest.mark.parametrize("fn", [needed], ids=lambda f: f.__name__)
def test_with_breaks(fn):
    same(runs(tracework.compile(fn, backend="eager")), runs(fn))
