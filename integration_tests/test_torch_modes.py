"""Modes, settings and random state of torch through all of the stack: values, gradients and what is left afterwards."""

import random

import pytest
import torch
import torch.nn.functional as F
import tracework
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from training import BACKENDS, same


class Precise(TorchFunctionMode):
    """Matrix products in double precision; counts them."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in (torch.Tensor.matmul, F.linear):
            return func(*args, **(kwargs or {}))
        self.count += 1
        return func(*(a.double() if isinstance(a, torch.Tensor) else a for a in args), **(kwargs or {})).float()


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.projection = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.projection(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.MATH):
            found = F.scaled_dot_product_attention(q, k, v)
        return self.out(found.transpose(1, 2).flatten(2))


def mode_inside(m, x):
    with Precise() as mode:
        found = m(x)
    return found.sin() @ found.mT, mode.count


def mode_outside(m, x):
    with Precise() as mode:
        found = m(x)
    return found, mode.count


def kernels_of_attention(m, x):
    return m(x), torch.backends.cuda.flash_sdp_enabled()


def autocast_nested(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = m(x)
        with torch.autocast("cpu", enabled=False):
            second = m(x + first.detach().float())
    return second, first, torch.get_autocast_dtype("cpu")


def random_state(m, x):
    if torch.initial_seed() != 5:
        torch.manual_seed(5)
    return F.dropout(m(x), 0.5) * random.random(), torch.rand(2)


PROGRAMS = (mode_inside, kernels_of_attention, autocast_nested, random_state)


def step(function, m, x):
    m.zero_grad()
    random.seed(0)
    torch.manual_seed(0)
    found = function(m, x)
    found[0].float().square().sum().backward()
    return found, x.grad, [p.grad for p in m.parameters()], torch.get_rng_state(), random.random()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_plainly(program, backend):
    def x():
        return torch.linspace(-1, 1, 2 * 3 * 8).reshape(2, 3, 8).requires_grad_()

    plain, m = Attention(), Attention()
    fast = tracework.compile(program, backend=backend)
    for _ in range(2):
        same(step(fast, m, x()), step(program, plain, x()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mode_around_the_compiled_module(backend):
    x = torch.linspace(-1, 1, 2 * 3 * 8).reshape(2, 3, 8)
    plain = Attention()
    fast = tracework.compile(Attention(), backend=backend)
    for _ in range(2):
        same(mode_outside(fast, x), mode_outside(plain, x))
        same(fast(x), plain(x))
