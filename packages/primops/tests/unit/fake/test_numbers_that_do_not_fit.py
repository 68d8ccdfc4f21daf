"""Numbers that a dtype cannot hold: refused on fakes where eager's operator refuses them, and nowhere else."""

import math

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import FakeMode

DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.bool,
    torch.complex64,
]
NUMBERS = [256, -1, -300, 2**31, 2**40, 2**63 - 1, 2.5, -2.5, -0.5, 7e4, 1e40, 1e300, math.nan, math.inf, True, 1j, 1e40j]


def first(x):
    return torch.zeros_like(x[:1], dtype=torch.int64)


OPERATORS = {
    "full": lambda x, n: torch.full((3,), n, dtype=x.dtype),
    "full of one": lambda x, n: torch.full((), n, dtype=x.dtype),
    "full_like": lambda x, n: torch.full_like(x, n),
    "new_full": lambda x, n: x.new_full((2,), n),
    "scalar_tensor": lambda x, n: torch.scalar_tensor(n, dtype=x.dtype),
    "fill": lambda x, n: torch.fill(x, n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "masked_fill": lambda x, n: x.masked_fill(x == 1, n),
    "index_fill": lambda x, n: x.index_fill(0, first(x), n),
    "where": lambda x, n: torch.where(x == 1, n, x),
    "scatter": lambda x, n: x.scatter(0, first(x), n),
    "add": lambda x, n: x + n,
    "add_": lambda x, n: x.clone().add_(n),
    "mul": lambda x, n: x * n,
    "eq": lambda x, n: x == n,
    "sub, alpha": lambda x, n: torch.sub(x, x, alpha=n) if n.__class__ is not bool and n != 2**31 else x,
    "clamp": lambda x, n: x.clamp(min=n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n) if n != 2**63 - 1 else x,  # as a double too large for torch 2.15 alone
    "pad by nothing": lambda x, n: F.pad(x, (-1, 0), value=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "threshold": lambda x, n: F.threshold(x, 0, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n),
    "celu": lambda x, n: F.celu(x, n),
    "softplus": lambda x, n: F.softplus(x, n),
    "hardshrink": lambda x, n: F.hardshrink(x, n),
    "lerp": lambda x, n: x.lerp(x, n),
    "addmm, alpha": lambda x, n: torch.addmm(x, x.expand(3, 3), x.expand(3, 3), alpha=n),
    "addmm, beta": lambda x, n: torch.addmm(x, x.expand(3, 3), x.expand(3, 3), beta=n),
    "addmv": lambda x, n: torch.addmv(x, x.expand(3, 3), x, alpha=n),
    "baddbmm": lambda x, n: torch.baddbmm(x, x.expand(1, 3, 3), x.expand(1, 3, 3), alpha=n),
    "index_add": lambda x, n: x.index_add(0, first(x), x[:1], alpha=n),
    "pow": lambda x, n: x**n,
}
LEFT = {("index_fill", torch.bool), ("clamp", torch.float16), ("clamp", torch.bfloat16), ("clamp", torch.float32)}
"""What eager refuses of complex numbers alone."""


def refusal(call):
    try:
        call()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", OPERATORS)
def test_as_eager(name):
    operator, differ = OPERATORS[name], []
    for dtype in DTYPES:
        for number in NUMBERS:
            x = torch.tensor([1, 0, 2]).to(dtype)
            expected = refusal(lambda: operator(x, number))
            mode = FakeMode(None)
            with mode:
                found = refusal(lambda: operator(mode.from_real(x), number))
            if isinstance(expected, NotImplementedError) or number.__class__ is complex and (name, dtype) in LEFT:
                continue
            if (expected is None) != (found is None):
                differ.append((dtype, number, expected, found))
    assert differ == []
