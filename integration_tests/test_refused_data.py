"""Functions that look at their data and refuse some: kind and text of the exception are eager's. Indices are in indices.py."""

import math

import pytest
import torch
import torch.nn.functional as F
import tracework

NAN = math.nan
ROWS = torch.arange(12.0).reshape(3, 4) / 12
ALL_NAN = torch.full((3, 3), NAN)
UNITS = ([0.5, 1.5], [0.5, -0.5], [0.5, NAN], [math.inf, 0.5], [1.0, 0.0])

PROBABILITIES = {
    "mean": lambda p, t: F.binary_cross_entropy(p, t),
    "none": lambda p, t: F.binary_cross_entropy(p, t, reduction="none") * 2,
    "weighted": lambda p, t: F.binary_cross_entropy(p, t, weight=t + 1),
    "a module": lambda p, t: torch.nn.BCELoss(reduction="sum")(p, t),
    "of a result": lambda p, t: F.binary_cross_entropy(p * 1, t.neg().neg()),
    "with gradients": lambda p, t: F.binary_cross_entropy((p * 1).requires_grad_(), t),
    "unused": lambda p, t: (F.binary_cross_entropy(p, t), p + t)[1],
}

CASES = {
    "multinomial, negative": (lambda x: torch.multinomial(x, 1), [0.5, -0.5]),
    "multinomial, nan": (lambda x: torch.multinomial(x, 1), [0.5, NAN]),
    "multinomial, zeros": (lambda x: torch.multinomial(x, 1), [0.0, 0.0]),
    "bernoulli": (lambda x: torch.bernoulli(x), [0.5, 1.5]),
    "bernoulli_": (lambda x: torch.empty(2).bernoulli_(x), [0.5, NAN]),
    "normal": (lambda x: torch.normal(0.0, x), [1.0, -1.0]),
    "poisson": (lambda x: torch.poisson(x), [0.5, -1.5]),
    "bincount": (lambda x: torch.bincount(x), [-1, 2]),
    "one_hot": (lambda x: F.one_hot(x), [-1, 2]),
    "embedding_bag, offsets": (lambda x: F.embedding_bag(torch.tensor([0, 1]), ROWS, x), [0, 5]),
    "repeat_interleave": (lambda x: torch.repeat_interleave(x), [1, -1]),
    "floor_divide": (lambda x: x // (x - x), [1, 2]),
    "remainder": (lambda x: x % (x - x), [1, 2]),
    "fmod": (lambda x: torch.fmod(x, x - x), [1, 2]),
    "cholesky": (lambda x: torch.linalg.cholesky(x), [[-1.0, 0.0], [0.0, 1.0]]),
    "inv": (lambda x: torch.linalg.inv(x), [[0.0, 0.0], [0.0, 1.0]]),
    "solve": (lambda x: torch.linalg.solve(x, x), [[0.0, 0.0], [0.0, 1.0]]),
    "eigh": (lambda x: torch.linalg.eigh(ALL_NAN + x), 1.0),
    "histc": (lambda x: torch.histc(x, 3), [1.0, NAN]),
    "quantile": (lambda x: torch.quantile(torch.ones(3), x), 1.5),
    "segment_reduce": (lambda x: torch.segment_reduce(torch.ones(3), "sum", lengths=x), [1, 9]),
    "assert_async": (lambda x: (torch._assert_async(x == 0), x + 1)[1], 5.0),
    "gaussian_nll_loss": (lambda x: F.gaussian_nll_loss(x, x, x), [-1.0, 1.0]),
    "a distribution": (lambda x: torch.distributions.Bernoulli(x, validate_args=True).entropy(), [0.5, 1.5]),
}


def outcome(call, *args):
    torch.manual_seed(0)
    try:
        return call(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("program", PROBABILITIES.values(), ids=PROBABILITIES)
def test_probabilities(program, dtype):
    compiled = tracework.compile(program)
    fits = torch.tensor([0.25, 0.75], dtype=dtype)
    for values in UNITS:
        other = torch.tensor(values, dtype=dtype)
        for args in ((fits, other), (other, fits)):
            found, expected = outcome(compiled, *args), outcome(program, *args)
            assert found == expected if isinstance(expected, tuple) else found.allclose(expected)


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    program, data = CASES[name]
    expected = outcome(program, torch.tensor(data))
    assert isinstance(expected, tuple)
    assert outcome(tracework.compile(program), torch.tensor(data)) == expected
