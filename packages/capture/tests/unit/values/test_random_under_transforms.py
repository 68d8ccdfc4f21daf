"""torch.func.vjp runs the function again for the gradients: what draws random numbers is left to eager, by what operators do, not by their names."""

import pytest
import torch
import torch.nn.functional as F
import tracework_capture as capture

X = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LSTM = torch.nn.LSTM(4, 4, num_layers=2, dropout=0.5, dtype=torch.float64)


def inner(x):
    return torch.vmap(lambda a: a * torch.rand_like(a), randomness="different")(x)


DRAW = {
    "dropout": lambda x: F.dropout(x),
    "dropout1d": lambda x: F.dropout1d(x),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.5, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "rand_like": lambda x: x * torch.rand_like(x),
    "randn": lambda x: x + torch.randn(4),
    "randperm": lambda x: x[..., torch.randperm(4)],
    "bernoulli": lambda x: x * torch.bernoulli(x.detach()),
    "normal": lambda x: x + torch.normal(torch.zeros(4)),
    "normal_": lambda x: x + torch.empty(4).normal_(),
    "cauchy_": lambda x: x + torch.empty(4).cauchy_(),
    "geometric_": lambda x: x + torch.empty(4).geometric_(0.5),
    "binomial": lambda x: x + torch.binomial(torch.full((4,), 9.0), torch.full((4,), 0.5)),
    "poisson": lambda x: x + torch.poisson(torch.ones(4)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "lstm": lambda x: LSTM(x)[0],
    "nested vmap": inner,
}
DRAW_NOTHING = {
    "normalize": lambda x: F.normalize(x),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, x.detach()),
    "dropout in eval": lambda x: F.dropout(x, training=False),
    "alpha_dropout in eval": lambda x: F.alpha_dropout(x, 0.5, False),
    "rrelu in eval": lambda x: F.rrelu(x - 0.5),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}


def program(function):
    def fn(x):
        value, pull_back = torch.func.vjp(function, x)
        return value, pull_back(torch.ones_like(value))[0]

    return fn


@pytest.mark.parametrize("name", DRAW)
def test_what_draws_is_the_same_in_value_and_gradient(fresh, name):
    fn = program(DRAW[name])
    torch.manual_seed(1)
    expected = fn(X)
    torch.manual_seed(1)
    found = capture.optimize(lambda gm, inputs: gm.forward)(fn)(X)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", DRAW_NOTHING)
def test_what_draws_nothing_is_part_of_the_graph(fresh, name):
    fn = program(DRAW_NOTHING[name])
    torch.testing.assert_close(capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(fn)(X), fn(X))
