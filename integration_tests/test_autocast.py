"""Autocast around and inside of compiled modules, with the backward in and outside of it: dtypes and values as eager's."""

import contextlib
import itertools

import pytest
import torch
import tracework
import tracework_capture
from torch import nn
from training import BACKENDS, check


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.norm, self.narrow, self.conv = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4), nn.Conv2d(1, 3, 3)

    def forward(self, x):
        hidden = self.norm(nn.functional.gelu(self.wide(x)))
        product = self.narrow(hidden) @ self.narrow(hidden).t()
        return product.softmax(-1), self.conv(hidden.view(1, 1, *hidden.shape)).float().mean(), product


class Inside(Net):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results = super().forward(x)
        with torch.autocast("cpu", enabled=False):
            return *results, self.narrow.weight.sum() * x.sum()


def step(net, call, around, backward_inside, dtype=torch.float32):
    """Outputs and gradients of one training step."""
    x = torch.linspace(-1, 1.5, 48, dtype=dtype).reshape(6, 8).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16) if around else contextlib.nullcontext():
        outputs = call(x)
        loss = sum(o.to(dtype).square().sum() for o in outputs)
        if backward_inside:
            loss.backward()
    if not backward_inside:
        loss.backward()
    return [t.detach() for t in (*outputs, x.grad, *(p.grad for p in net.parameters()))]


class Exact(Net):
    """The same in float64 without casts."""

    def forward(self, x):
        hidden = self.norm(nn.functional.gelu(self.wide(x)))
        product = self.narrow(hidden) @ self.narrow(hidden).t()
        return (
            product.softmax(-1),
            self.conv(hidden.view(1, 1, *hidden.shape)).mean(),
            product,
            self.narrow.weight.sum() * x.sum(),
        )


class ExactNet(Exact):
    def forward(self, x):
        return super().forward(x)[:3]


def distance(tensor, truth):
    return float((tensor.double() - truth).norm())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("cls", "exact"), [(Net, ExactNet), (Inside, Exact)])
def test_autocast(cls, exact, backend):
    double = exact().double()
    truths = step(double, double, False, False, torch.float64)
    for around, backward_inside in itertools.product((True, False), (True, False)):
        plain, module = cls(), cls()
        expected = step(plain, plain, around, backward_inside)
        found = step(module, tracework.compile(module, backend=backend, fullgraph=True), around, backward_inside)
        epsilon = 2**-9 if around or cls is Inside else 2**-24
        for mine, theirs, truth in zip(found, expected, truths, strict=True):
            assert mine.dtype is theirs.dtype
            # no further from the truth than twice what eager is, or a few roundings
            assert distance(mine, truth) <= 2 * distance(theirs, truth) + 8 * epsilon * float(truth.norm())


def ends_after_a_break(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
                a = x @ x
                torch._dynamo.graph_break()
                b = x @ x
            c = x @ x
            asked = torch.is_autocast_cache_enabled(), torch.get_autocast_dtype("cpu")
        d = x @ x
        torch._dynamo.graph_break()
        e = x @ x
    return a, b, c, d, e, x @ x, asked, torch.is_autocast_enabled("cpu")


def raises_after_a_break(x):
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ x
            torch._dynamo.graph_break()
            raise ValueError(str(a.dtype))
    except ValueError as error:
        return x @ x, str(error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [ends_after_a_break, raises_after_a_break])
def test_blocks_that_end_after_a_break(fn, backend):
    """They end in the graph that goes on, without a break of their own, and leave what held before them."""
    numbers = torch.arange(9.0).view(3, 3)  # products and gradients that all dtypes hold exactly
    before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()
    for _ in range(2):
        check(fn, numbers.clone().requires_grad_(), backend=backend, fullgraph=False)
        assert (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()) == before
    breaks = tracework_capture.explain(fn)(numbers).breaks
    assert {stop.reason_id for stop in breaks} == {"explicit"}
