"""Programs that differentiate gradients, their networks compiled as one graph: the same losses and gradients as plain PyTorch."""

import copy

import pytest
import torch
import tracework
from torch import nn
from torch.utils.checkpoint import checkpoint

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


def product(x, w):
    return ((x * w).detach() * w * w).sum()


def outside_of_the_history(x, w):
    with torch.no_grad():
        scale = x * w
    return (scale * w * w).sum()


def through_data(x, w):
    return ((x * w).data.sin() * w.exp()).sum()


@torch.no_grad()
def best_action(x, w):
    return (x @ w).max(1).values


def dqn(x, w):
    """The target is a constant, as is the slow copy of the weights, which moves."""
    slow = w.detach() * 0.9
    return nn.functional.smooth_l1_loss((x @ w).max(1).values, best_action(x, slow) * 0.99 + 1)


def straight_through(x, w):
    y = x @ w
    return ((y + (y.round() - y).detach()) * w).square().sum()


def checkpointed(x, w):
    return (checkpoint(lambda a, b: (a @ b).tanh() * a.detach(), x, w, use_reentrant=False) * w).sum()


class Rounded(torch.autograd.Function):
    """Its gradient is not that of what it computes."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a.sin())
        return a.round()

    @staticmethod
    def backward(ctx, gradient):
        (middle,) = ctx.saved_tensors
        return gradient * middle


def by_a_function(x, w):
    return (Rounded.apply(x * w) * w).square().sum()


CONSTANTS = [product, outside_of_the_history, through_data, dqn, straight_through, checkpointed, by_a_function]


def second_order(loss, x, w):
    first = torch.autograd.grad(loss(x, w), [x, w], create_graph=True, materialize_grads=True)
    return torch.autograd.grad(sum(g.sin().sum() for g in first), [x, w], materialize_grads=True)


def maml(loss, x, w):
    """One step inside; the loss after it is differentiated with respect to the weights before it."""
    (inner,) = torch.autograd.grad(loss(x, w), w, create_graph=True)
    return torch.autograd.grad(loss(x, w - 0.1 * inner), [x, w], materialize_grads=True)


def hessian(loss, x, w):
    return (
        torch.autograd.functional.hessian(lambda w: loss(x, w), w),
        torch.autograd.functional.hvp(lambda w: loss(x, w), w, w)[1],
    )


@pytest.mark.parametrize("way", [second_order, maml, hessian], ids=lambda f: f.__name__)
@pytest.mark.parametrize("loss", CONSTANTS, ids=lambda f: f.__name__)
def test_what_is_a_constant_for_gradients_stays_one(loss, way):
    found = []
    for call in (loss, tracework.compile(loss, backend="aot_eager")):
        torch.manual_seed(0)
        x, w = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
        found.append(way(call, x, w))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("loss", [product, straight_through, by_a_function], ids=lambda f: f.__name__)
def test_gradients_of_gradients_are_compiled(loss):
    found = []
    for call in (loss, tracework.compile(loss)):
        torch.manual_seed(0)
        x, w = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
        found.append(second_order(call, x, w))
    torch.testing.assert_close(*found)


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
