"""torch.distributions with their validation: parameters checked, samples, log_prob and entropy in one graph."""

import pytest
import torch
import tracework
from torch import distributions as dist
from tracework_capture import Unsupported
from training import check, same


@pytest.fixture(autouse=True)
def validated(monkeypatch):
    """torch.compile, where it was used in the process, leaves the validation off."""
    monkeypatch.setattr(dist.Distribution, "_validate_args", True)


MAKE = {
    "normal": lambda x: dist.Normal(x, x.exp()),
    "categorical": lambda x: dist.Categorical(logits=x),
    "bernoulli": lambda x: dist.Bernoulli(logits=x),
    "beta": lambda x: dist.Beta(x.exp(), x.exp() + 1),
    "gamma": lambda x: dist.Gamma(x.exp(), 2.0),
    "dirichlet": lambda x: dist.Dirichlet(x.exp()),
    "multivariate normal": lambda x: dist.MultivariateNormal(x, torch.eye(4) * 2),
    "exponential": lambda x: dist.Exponential(x.exp()),
    "laplace": lambda x: dist.Laplace(x, 1.0),
    "cauchy": lambda x: dist.Cauchy(x, 1.0),
    "geometric": lambda x: dist.Geometric(logits=x),
    "independent": lambda x: dist.Independent(dist.Normal(x, 1.0), 1),
    "one hot": lambda x: dist.OneHotCategorical(logits=x),
}


@pytest.mark.parametrize("name", MAKE)
def test_samples_and_densities(name):
    def program(x):
        made = MAKE[name](x)
        drawn = made.rsample() if made.has_rsample else made.sample()
        return drawn, made.log_prob(drawn.detach()), made.entropy()

    check(program, torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(), backend="eager")


@pytest.mark.parametrize("name", ["beta", "binomial"])
def test_the_whole_stack(name):
    make = MAKE.get(name) or (lambda x: dist.Binomial(5, logits=x))
    fast = tracework.compile(lambda x: make(x).log_prob(make(x).sample()), fullgraph=True)
    assert torch.isfinite(fast(torch.zeros(3, 4))).all()


def test_matrices_that_are_not_definite_are_refused():
    def program(x, covariance):
        return dist.MultivariateNormal(x, covariance).log_prob(x)

    x, wrong = torch.ones(4), torch.eye(4) - 2 * torch.eye(4)
    fast = tracework.compile(program, backend="eager")
    same(fast(x, torch.eye(4)), program(x, torch.eye(4)))
    for covariance in (wrong, torch.eye(4).index_fill(0, torch.tensor(0), 1.0)):
        with pytest.raises(ValueError, match="to satisfy the constraint PositiveDefinite"):
            fast(x, covariance)
    with pytest.raises((ValueError, Unsupported)):
        tracework.compile(program, backend="eager", fullgraph=True)(x, torch.ones(4, 3))


def test_a_loss_that_looks_at_its_variances():
    program = torch.nn.functional.gaussian_nll_loss
    x = torch.randn(3, 4, requires_grad=True)
    check(program, x, torch.zeros(3, 4), torch.ones(3, 4), backend="aot_eager")
    with pytest.raises(ValueError, match="negative"):
        tracework.compile(program, backend="eager")(x, torch.zeros(3, 4), -torch.ones(3, 4))
