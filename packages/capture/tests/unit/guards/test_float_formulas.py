"""Floats that change: what Python computes from them stays open, and so do the numbers of activations, matrix products and ranges."""

import math

import pytest
import torch
import torch.nn.functional as F
from tracework_capture import optimize

USUAL = (0.5, 0.25, 0.75, 0.125, 0.9, 0.3)
UNUSUAL = (0.0, -0.7, math.inf, math.nan, 2, 1e200)
X = torch.linspace(-2, 2.3, 12).reshape(3, 4)
SPECIAL = X.clone().index_fill_(0, torch.tensor(0), 0.0)
SPECIAL[1] = torch.tensor([math.nan, -math.inf, 120.0, 0.5])


def outcome(function, x, s):
    """What it gives and its gradient, or the class of what it raises."""
    x = x.clone().requires_grad_()
    try:
        result = function(x, s)
    except (RuntimeError, ValueError, ArithmeticError, TypeError, AttributeError) as error:
        return [type(error)]
    found = list(result) if isinstance(result, tuple) else [result]
    tensors = [t for t in found if isinstance(t, torch.Tensor) and t.requires_grad]
    gradients = torch.autograd.grad(tensors, x, [torch.ones_like(t) for t in tensors], allow_unused=True) if tensors else []
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in [*found, *gradients]]


def graphs_of(function, inputs=(X, SPECIAL)):
    """How many graphs the usual numbers took; all numbers give what plain Python gives, also on other data."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = optimize(backend, recompile_limit=100)(function)

    def check(s):
        for x in inputs:
            for found, expected in zip(outcome(compiled, x, s), outcome(function, x, s), strict=True):
                if isinstance(expected, torch.Tensor):
                    torch.testing.assert_close(found, expected, equal_nan=True)
                else:
                    assert (type(found), repr(found)) == (type(expected), repr(expected))
        return len(graphs)

    count = [check(s) for s in USUAL][-1]
    for s in UNUSUAL:
        check(s)
    return count


FORMULAS = {
    "square": lambda x, s: x * s**2,
    "root": lambda x, s: x * s**0.5,
    "power": lambda x, s: x * 0.9**s + math.pow(s, 3),
    "reciprocal": lambda x, s: x * (1 / s),
    "digits": lambda x, s: x * round(s, 2),
    "quotient and rest": lambda x, s: (x * divmod(s, 4)[1], divmod(s, 0.25), divmod(1, s)),
    "rest": lambda x, s: x * (s % 0.4) + s // 0.25,
    "exponential": lambda x, s: x * math.exp(-s),
    "logarithm": lambda x, s: x * math.log(s),
    "cosine": lambda x, s: x * 0.5 * (1 + math.cos(math.pi * s)),
    "sigmoid": lambda x, s: x / (1 + math.exp(-s)),
    "absolute": lambda x, s: x * abs(s - 0.4),
    "a decision that holds": lambda x, s: x * s if math.isfinite(s * 2) and 1 - s > 0 else x,
    "of its square": lambda x, s: x * (s * s) if s * s < 1 else x,
    "given back": lambda x, s: (x * s, s**2, round(s, 1), -s * 2, 1 / (s + 3)),
    "a method": lambda x, s: x * s if not (s + 0.01).is_integer() else x,
    "a long one": lambda x, s: x * sum((s / k for k in range(1, 60)), s) ** 2,
}


@pytest.mark.parametrize("function", FORMULAS.values(), ids=FORMULAS)
def test_formulas(function):
    assert graphs_of(function, [X]) == (len(USUAL) if function is FORMULAS["a long one"] else 2)


def test_decisions_split_the_numbers():
    assert graphs_of(lambda x, s: x * 2 if 1 - s > 0.4 else x * 3, [X]) == 3
    assert graphs_of(lambda x, s: x * int(s * 4) + x * s, [X]) <= 5  # one for each int
    assert graphs_of(lambda x, s: (x * s, f"{s * 2}", {s: 1}[s]), [X]) == len(USUAL)


CURVES = {
    "elu": lambda x, s: F.elu(x, s),
    "celu": lambda x, s: F.celu(x, s) + torch.celu(x, alpha=s),
    "softplus": lambda x, s: (F.softplus(x, s), F.softplus(x, s, s * 3)),
    "softshrink": lambda x, s: F.softshrink(x, s),
    "hardshrink": lambda x, s: (F.hardshrink(x, s), x.hardshrink(s)),
    "threshold": lambda x, s: (F.threshold(x, s, 0.5), torch.threshold(x, 0.1, s)),
    "hardtanh": lambda x, s: (F.hardtanh(x, -s, s), F.hardtanh(x, max_val=s)),
    "normalize": lambda x, s: (F.normalize(x, eps=s), F.normalize(x, p=1, dim=-1, eps=s)),
    "renorm": lambda x, s: (torch.renorm(x.detach(), 2, 0, s), x.detach().clone().renorm_(1, -1, s)),
    "rsub": lambda x, s: (torch.rsub(x, x * 2, alpha=s), torch.rsub(x, s)),
    "sums": lambda x, s: (torch.add(x, x * 2, alpha=s), x.sub(x[0], alpha=s), torch.addcmul(x, x, x, value=s)),
    "subtract": lambda x, s: (torch.subtract(x, x * 2, alpha=s), x.subtract(x[0], alpha=s), (x * 1).subtract_(x, alpha=s)),
    "gradient": lambda x, s: (
        *torch.gradient(x, spacing=s),
        *torch.gradient(x, spacing=s, dim=-1, edge_order=2),
        *torch.gradient(x[0], spacing=s, dim=(0,)),
        *torch.gradient(x, spacing=[s, s * 2]),
        *torch.gradient(x, spacing=(0.5, s), dim=(1, 0), edge_order=2),
    ),
    "linspace": lambda x, s: (
        torch.linspace(0, s, 4),
        torch.linspace(-s, 1, 7, dtype=torch.float64),
        x * torch.linspace(s, s, 1),
    ),
    "addmm": lambda x, s: (torch.addmm(x, x @ x.T, x, alpha=s, beta=1 - s), x.clone().addmm_(x @ x.T, x, beta=s)),
    "batches": lambda x, s: (
        torch.baddbmm(x[None], (x @ x.T)[None], x[None], beta=s),
        x.addbmm((x @ x.T)[None], x[None], alpha=s),
    ),
    "clamps at what elements are": lambda x, s: (
        torch.where(x > 0, s, x).clamp(-s, s),
        (x * 0 + s).detach().requires_grad_().mul(x * 0 + 1).clamp_min(s),
        F.normalize(x.sign() * s, p=1, eps=4 * s),
        torch.where(x < 1, x, s).clamp(max=s),
        torch.where(x < 1, x, s).clamp_(-s, s),
    ),
    "vectors": lambda x, s: (x[:, 0].addmv(x, x[0], alpha=s), torch.addr(x, x[:, 0], x[0], beta=s, alpha=s)),
}


@pytest.mark.parametrize("function", CURVES.values(), ids=CURVES)
def test_operators(function):
    assert graphs_of(function) == (len(USUAL) if function is CURVES["linspace"] else 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["elu", "softplus", "hardshrink", "threshold"])
def test_other_dtypes(name, dtype):
    """Halves are computed with in float32 and rounded once, as eager's kernels do."""
    assert graphs_of(lambda x, s: CURVES[name](x.to(dtype), s), [X]) == 2


@pytest.mark.parametrize("op", ["%", "//", "**"])
@pytest.mark.parametrize("pair", ["x.numel() {} s", "s {} x.numel()"])
def test_an_open_size_and_an_open_float_in_a_try_block(op, pair):
    """What may raise there is no formula; the numbers are fixed."""
    namespace = {}
    exec(
        f"def f(x, s):\n    try:\n        x.bool()\n        return {pair.format(op)}\n    except TypeError:\n        return None",
        namespace,
    )
    captured = optimize(lambda gm, inputs: gm.forward)(namespace["f"])
    for rows, s in ((5, 5), (2, 3), (3, 2.5), (4, 1.25)):
        x = torch.ones(rows, 3)
        assert captured(x, s) == namespace["f"](x, s)


def test_keywords_of_functions_count():
    """`steps` is one of 3.12 and newer: before, a TypeError says so."""

    def stepped(x, s):
        return x * s, math.nextafter(s, 9.0, steps=3), math.isclose(s, 0.5, rel_tol=0.5)

    graphs_of(stepped, [X])
