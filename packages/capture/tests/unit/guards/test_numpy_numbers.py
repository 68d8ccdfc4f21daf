"""Numbers of NumPy as arguments: inputs of the graph where tensors are computed with them, with NumPy's own types and texts elsewhere."""

import math

import numpy as np
import pytest
import torch
from tracework_capture import optimize

X = torch.arange(12.0).reshape(3, 4) - 5.5
OPEN = {
    "product": lambda x, s: x * s,
    "difference": lambda x, s: s - x,
    "multiple": lambda x, s: x.clone().add_(x, alpha=s),
    "halves": lambda x, s: x.half() * s,
    "whole numbers": lambda x, s: x.int() * s,
    "one number": lambda x, s: x.sum() * s,
    "comparison": lambda x, s: x > s,
    "choice": lambda x, s: torch.where(x > 0, x, s),
    "filled": lambda x, s: torch.full((2,), s),
    "given back": lambda x, s: (x * s, s, [s]),
    "as a float": lambda x, s: (x * float(s), type(float(s)), float(s), 1.1 * float(s) + 1, float(s) ** 2, f"{float(s)}", s * x),
    "texts": lambda x, s: (x * s, f"{s}", repr(s), str(s), f"{s:.3f}"),
    "type": lambda x, s: (x * s, type(s), isinstance(s, float), isinstance(s, np.floating)),
    "tensor": lambda x, s: torch.tensor(s).reshape(1).sin(),
}
KNOWN = {
    "arithmetic of NumPy": lambda x, s: (x * (s * 2), s + 1, 2.0 - s, np.square(s)),
    "arithmetic with a float that changes": lambda x, s, t=0.5: (x * (t * s), t * s, s / 3),
    "arithmetic with an int that changes": lambda x, s: (x * (len(x) * s), s + len(x)),
    "math": lambda x, s: x * math.exp(min(s, 1.0)),
    "condition": lambda x, s: x * s if s > 0.2 else x,
    "list": lambda x, s: x + torch.as_tensor([s, 1.0, 2.0, 3.0]),
    "item": lambda x, s: (lambda y: (y.__setitem__(0, s), y)[1])(x.clone()),
    "rounded": lambda x, s: x * round(s, 2) + abs(-s),
    "identity": lambda x, s: (x * s, s == 0.5, s != s),
}


def shown(function, *args):
    try:
        found = function(*args)
    except (TypeError, ValueError, OverflowError, IndexError, RuntimeError, AttributeError) as error:
        return type(error)
    parts = found if isinstance(found, tuple) else (found,)
    return [(p.dtype, p.tolist()) if isinstance(p, torch.Tensor) else repr(p) for p in parts]


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("function", [*OPEN.values(), *KNOWN.values()], ids=[*OPEN, *KNOWN])
def test_floats(function, kind):
    graphs = []
    compiled = optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1], recompile_limit=20)(function)
    for number in (0.5, 0.25, 0.75, 0.125, 0.625):
        assert shown(compiled, X, kind(number)) == shown(function, X, kind(number))
    assert len(graphs) == 1 or function in KNOWN.values()
    for number in (0.0, -0.0, -1.0, math.inf, math.nan):
        assert repr(shown(compiled, X, kind(number))) == repr(shown(function, X, kind(number)))
    assert shown(compiled, X, 0.5) == shown(function, X, 0.5)  # no float of NumPy


TABLE = torch.arange(120.0).reshape(30, 4)
OPEN_INTS = {
    "product": lambda x, n: x * n,
    "difference": lambda x, n: n - x,
    "power": lambda x, n: x**n,
    "multiple": lambda x, n: x.clone().add_(x, alpha=n),
    "written": lambda x, n: x.clone().mul_(n),
    "small ints": lambda x, n: x.to(torch.int8) * n,
    "comparison": lambda x, n: (n > x, x == n),
    "choice": lambda x, n: torch.where(x > 0, x, n),
    "given back": lambda x, n: (x * n, n, [n], type(n), isinstance(n, int), n is None),
    "texts": lambda x, n: (x * n, f"{n}", repr(n), str(n), f"{n:03d}", f"step {n}: {n!r}"),
    "index": lambda x, n: TABLE[n] * 2,
    "slice": lambda x, n: TABLE[:n] * 2,
    "sizes": lambda x, n: (torch.ones(n, 2), torch.arange(n), x.repeat(n, 1)),
    "as an int": lambda x, n: x * int(n) + n.item() + torch.ones(int(n)).sum(),
    "item": lambda x, n: (lambda y: (y.__setitem__(0, n), y)[1])(x.clone()),
    "arithmetic of NumPy": lambda x, n: (
        x * (n * 2 + 1),
        n + 1,
        100 - n,
        n - 3,
        n * n,
        n // 2,
        n % 5,
        n & 6,
        n | 8,
        n ^ 3,
        n >> 1,
    ),
    "sizes that NumPy computes": lambda x, n: (torch.ones(n * 2), torch.arange(n + 1) + n, x.repeat(n - 1, 1), TABLE[n + 1]),
    "results of NumPy": lambda x, n: (x, type(n + 1), f"{n + 1} {n * 2:03d}", [n + 1], int(n + 1), (n + 0) is n, divmod(n, 3)),
}
KNOWN_INTS = {
    "other arithmetic of NumPy": lambda x, n: (x * (n / 2), n**2, 2**n, -n, ~n, n << 1, n + 0.5, n + np.uint8(3), np.square(n)),
    "comparisons": lambda x, n: (x * 2 if n + 1 > 6 else x, n == 7, n != 7, 3 < n, n <= type(n)(6), min(n, 7), not n - 7),
    "arithmetic that leaves the type": lambda x, n: (x * (n * 20), n - 6, 3 - n),
    "arithmetic with an int that changes": lambda x, n: (x * (len(x) * n), n + len(x)),
    "dtypes": lambda x, n: (torch.tensor(n), torch.tensor([n, 2]), torch.as_tensor(n), n.dtype),
    "builtins": lambda x, n: (x * abs(n), divmod(n, 3), min(n, 6), round(n), hash(n), math.sqrt(n)),
    "condition": lambda x, n: x * 2 if n > 5 else x,
    "sequences": lambda x, n: (x, [1] * n, [*range(20)][n], sum(range(n)), {4: 1}.get(n)),
    "texts that steer": lambda x, n: (x * {"7": 2, "4": 3}.get(str(n), 4), f"{n}" == "5", len(repr(n))),
    "power of a negative": lambda x, n: (-n) ** x,
}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("function", [*OPEN_INTS.values(), *KNOWN_INTS.values()], ids=[*OPEN_INTS, *KNOWN_INTS])
def test_ints(function, kind):
    graphs = []
    compiled = optimize(lambda gm, inputs: (graphs.append(gm), gm.forward)[1], recompile_limit=20)(function)
    for number in (4, 7, 5, 9, 6, 12):
        assert repr(shown(compiled, X, kind(number))) == repr(shown(function, X, kind(number)))
    assert len(graphs) <= 2 or function in KNOWN_INTS.values()
    for number in (2, 1, 0, 100) if kind is np.uint8 else (2, 1, 0, -1, 100):
        assert repr(shown(compiled, X, kind(number))) == repr(shown(function, X, kind(number)))
    assert repr(shown(compiled, X, 4)) == repr(shown(function, X, 4))  # no int of NumPy


@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: (x.int() * s, (x > 0) * s, torch.full((2,), s), x.long().add_(1, alpha=s)),
        lambda x, s: (x.sum(0, keepdim=s), x[s], torch.tensor(s), x if s else x + 1),
    ],
    ids=["numbers", "flags"],
)
def test_truths_are_floats_to_arithmetic(function):
    compiled = optimize(lambda gm, inputs: gm.forward)(function)
    for truth in (True, False, True):
        assert shown(compiled, X, np.bool_(truth)) == shown(function, X, np.bool_(truth))


class Asked:
    """Says what it is asked with: NumPy gives it numbers of Python."""

    def __radd__(self, other):
        return type(other)

    __gt__ = __eq__ = __rmul__ = __radd__
    __hash__ = object.__hash__

    def __mul__(self, other):
        return NotImplemented


def tried(function):
    try:
        return function()
    except TypeError as error:
        return str(error)


TAKEN_OVER = {
    "by objects": lambda x, s: (x + 1, s + Asked(), s < Asked(), s == Asked(), Asked() > s),
    "by an object that leaves it to the number": lambda x, s: (x + 1, tried(lambda: Asked() * s)),
    "by a sequence": lambda x, s: (x + 1, tried(lambda: s + x.shape), tried(lambda: s < [len(x), 2.0])),
}


@pytest.mark.parametrize("function", TAKEN_OVER.values(), ids=TAKEN_OVER)
def test_operators_that_others_take_over(function):
    def program(x):
        return function(x, np.float32(1.5))

    compiled = optimize(lambda gm, inputs: gm.forward)(program)
    for x in (X, X[:2]):
        assert shown(compiled, x) == shown(program, x)
