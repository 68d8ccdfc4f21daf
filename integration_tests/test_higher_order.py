"""Programs that differentiate gradients, their networks compiled as one graph: the same losses and gradients as plain PyTorch."""

import copy

import pytest
import torch
import tracework
from torch import nn

BACKENDS = ("aot_eager", "inductor")


def mlp(*sizes):
    torch.manual_seed(0)
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def grad(value, at):
    return torch.autograd.grad(value.sum(), at, create_graph=True)[0]


def burgers(net):
    """A physics-informed network: u_t + u u_x = 0.01 u_xx at random points."""
    x, t = (torch.rand(16, 1, requires_grad=True) for _ in range(2))
    u = net(torch.cat((x, t), 1))
    u_x = grad(u, x)
    return (grad(u, t) + u * u_x - 0.01 * grad(u_x, x)).square().mean()


def third_order(net):
    """Korteweg-de Vries: u_xxx."""
    x = torch.rand(8, 2, requires_grad=True)
    u = net(x)
    for _ in range(3):
        u = grad(u, x)[:, :1]
    return u.square().mean()


def gradient_penalty(net):
    """The penalty of WGAN-GP on points between real and made ones."""
    real, made, at = torch.randn(8, 2), torch.randn(8, 2), torch.rand(8, 1)
    between = (at * real + (1 - at) * made).requires_grad_()
    return (net(made) - net(real)).mean() + 10 * (grad(net(between), between).norm(dim=1) - 1).square().mean()


def hessian_vector_product(net):
    """The gradient of a product of the parameters' gradients with fixed vectors."""
    first = torch.autograd.grad(net(torch.randn(4, 2)).square().mean(), list(net.parameters()), create_graph=True)
    return sum((g * torch.linspace(-1, 1, g.numel()).reshape(g.shape)).sum() for g in first)


class ForceField(nn.Module):
    """Energy from distances of atoms; forces are its gradient, and the loss is of the forces."""

    def __init__(self):
        super().__init__()
        self.net = mlp(8, 16, 1)
        self.register_buffer("centers", torch.linspace(0, 3, 8))

    def forward(self, positions):
        away = positions[:, None] - positions[None]
        distance = (away.square().sum(-1) + torch.eye(len(positions))).sqrt()
        features = torch.exp(-((distance[..., None] - self.centers) ** 2)) * (1 - torch.eye(len(positions)))[..., None]
        return self.net(features).sum()


def forces(net):
    positions = torch.randn(5, 3, requires_grad=True)
    return grad(net(positions), positions).square().mean()


def regularised_by_dropout(net):
    """A gradient penalty through dropout."""
    x = torch.randn(8, 2, requires_grad=True)
    return grad(net(x).exp(), x).square().mean()


CASES = {
    burgers: lambda: mlp(2, 16, 16, 1),
    third_order: lambda: mlp(2, 8, 1),
    gradient_penalty: lambda: mlp(2, 16, 1),
    hessian_vector_product: lambda: mlp(2, 16, 1),
    forces: ForceField,
    regularised_by_dropout: lambda: nn.Sequential(mlp(2, 16), nn.Dropout(0.5), nn.Linear(16, 1)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", CASES, ids=lambda f: f.__name__)
def test_loss_and_gradients(program, backend):
    plain = CASES[program]().double()
    compiled = copy.deepcopy(plain)
    results = []
    torch.set_default_dtype(torch.float64)
    try:
        for net, call in ((plain, plain), (compiled, tracework.compile(compiled, backend=backend, fullgraph=True))):
            for step in range(2):
                torch.manual_seed(step)
                loss = program(call if net is plain else WithParameters(call, net))
                loss.backward()
            results.append([loss.detach(), *[p.grad for p in net.parameters()]])
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(results[1], results[0])


class WithParameters:
    """A compiled module with the parameters of the module."""

    def __init__(self, call, net):
        self.call, self.parameters = call, net.parameters

    def __call__(self, x):
        return self.call(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_zeros_without_memory(backend):
    """The gradient of the gradient of abs is such a tensor: as a gradient that comes into a graph, and as its input."""

    def product(x, y):
        return x * y + x

    compiled, found = tracework.compile(product, backend=backend), []
    for fn in (product, compiled):
        torch.manual_seed(0)
        x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
        first = torch.autograd.grad(fn(x, y).abs().sum(), [x, y], create_graph=True)
        second = torch.autograd.grad([g.square().sum() for g in first], [x, y])
        (zeros,) = torch.autograd.grad(grad(x.abs(), x).sum(), x)
        assert zeros._is_zerotensor()
        found.append((first, second, fn(zeros, y), fn(y, zeros), fn(x, y)))
    torch.testing.assert_close(*found)
