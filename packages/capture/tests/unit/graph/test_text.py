"""Captured graphs as text: what is read back prints the same and computes the same."""

import pytest
import torch
import tracework_capture as capture
from torch.nn import functional as F
from tracework_capture.graph.text import parse_captured, print_captured
from tracework_primops import ParseError


def sizes_and_slices(x, y):
    rows = F.layer_norm(x @ y, (4,), eps=1e-3)[..., 1:, None]
    return rows.view(3, -1).to(torch.float64), rows.sum(dim=(0, 1), keepdim=True)


def writes(x, y):
    x.mul_(2)
    z = torch.zeros(2, 2, dtype=torch.complex64, device=x.device) + 2j
    return torch.cat([x, y]), z, torch.einsum("ij,kj->ik", x, y)


def indices_and_settings(x, y):
    with torch.no_grad():
        z = x[torch.arange(2), :2]
    top = torch.topk(y, 2, dim=-1, largest=False)
    return z, top.values.clamp(min=-float("inf")), F.pad(x, (1, 1), value=0.5)


class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, first, second):
        return first * ctx.saved_tensors[0].cos() + second


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return Inner.apply(gradient)[0]


def functions(x, y):
    x = x.detach().requires_grad_()
    first, second = Inner.apply(x)
    return (*torch.autograd.grad((Outer.apply(first) * second).sum(), x), Inner.apply(y)[0])


def attributes(x, y):
    return x.mT @ x, y.T + y.data, y.to(torch.complex64).mH.real


PROGRAMS = (sizes_and_slices, writes, indices_and_settings, functions, attributes)


def graph_of(function, *inputs):
    found = []

    def backend(gm, example_inputs):
        found.append(gm)
        return gm.forward

    capture.optimize(backend, fullgraph=True)(function)(*inputs)
    return found[0]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_round_trip(function):
    x, y = torch.arange(12.0).reshape(3, 4), torch.arange(16.0).reshape(4, 4)
    gm = graph_of(function, x.clone(), y)
    text = print_captured(gm.graph)
    again = parse_captured(text)
    assert print_captured(again.graph) == text
    for before, after in zip(gm(x.clone(), y), again(x.clone(), y), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_parameters_are_static():
    gm = graph_of(torch.nn.Linear(2, 2), torch.ones(1, 2))
    flags = [line.endswith("input static") for line in print_captured(gm.graph).splitlines() if "= input" in line]
    assert flags == [False, True, True]
    inputs = [n for n in parse_captured(print_captured(gm.graph)).graph.nodes if n.op == "placeholder"]
    assert [n.meta["binding"].is_static for n in inputs] == flags


def test_what_has_no_name_is_refused():
    graph = torch.fx.Graph()
    graph.output(graph.call_function(lambda x: x, (graph.placeholder("x"),)))
    with pytest.raises(ParseError, match="under the name"):
        print_captured(graph)
    with pytest.raises(ParseError, match="begins with"):
        parse_captured("inference graph\nreturn \n")
