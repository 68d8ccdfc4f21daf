"""Strides on fakes are eager's, those of dimensions of size one and of tensors without elements included."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import FakeMode

SHAPES = [
    (3,),
    (1,),
    (2, 1),
    (1, 3),
    (1, 1),
    (1, 3, 1),
    (0, 3),
    (2, 0, 1),
    (2, 1, 3, 3),
    (1, 4, 2, 2),
    (2, 3, 1, 1),
    (1, 1, 1, 1),
    (2, 1, 1, 4),
]
PAIRS = 40
"""Layouts of two operands of one shape that are drawn for each operator."""

OPERATORS = {
    "add": lambda x, y: x + y,
    "add a number": lambda x, y: x + 1,
    "of another dtype": lambda x, y: x + y.double(),
    "of another dtype, second": lambda x, y: x.double() + y,
    "of an integer": lambda x, y: x.int() + y,
    "compared with another dtype": lambda x, y: x.double() > y,
    "divided integers": lambda x, y: x.int() / y.int(),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "broadcast": lambda x, y: x + y[:1],
    "in place": lambda x, y: (x + 1).mul_(y),
    "to": lambda x, y: x.to(torch.float64),
    "zeros_like": lambda x, y: torch.zeros_like(x),
    "clone": lambda x, y: x.clone(),
    "relu": lambda x, y: x.relu(),
    "gelu": lambda x, y: F.gelu(x),
    "prelu": lambda x, y: F.prelu(x, torch.ones_like(x.sum()).reshape(1)),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "frexp": lambda x, y: torch.frexp(x),
    "softmax": lambda x, y: x.softmax(-1),
    "sum": lambda x, y: x.sum(0),
    "mean": lambda x, y: x.mean(-1, keepdim=True),
    "cumsum": lambda x, y: x.cumsum(0),
    "sort": lambda x, y: x.sort(0),
    "flip": lambda x, y: x.flip(0),
    "rot90": lambda x, y: x.rot90(1, (0, 1)),
    "rot90, half": lambda x, y: x.rot90(2, (0, 1)),
    "roll": lambda x, y: x.roll(1, 0),
    "cat": lambda x, y: torch.cat([x, y], 0),
    "stack": lambda x, y: torch.stack([x, y]),
    "pad": lambda x, y: F.pad(x, (1, 1)),
    "squeeze": lambda x, y: x.squeeze() * 2,
    "tril": lambda x, y: x.tril(),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[-1:]),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True),
    "avg_pool2d": lambda x, y: F.avg_pool2d(x, 1),
    "interpolate": lambda x, y: F.interpolate(x, scale_factor=2),
    "channels_last": lambda x, y: x.contiguous(memory_format=torch.channels_last),
}


def layouts(shape):
    """Tensors of a shape in all orders of dimensions, with other strides of dimensions of size one, with gaps, and expanded."""
    places = range(len(shape))
    for order in itertools.permutations(places):
        yield torch.rand([shape[p] for p in order]).permute([order.index(p) for p in places])
    whole = torch.rand(shape)
    for place, stride in itertools.product(places, (0, 1, 7)):
        if shape[place] == 1:
            strides = [stride if p == place else s for p, s in enumerate(whole.stride())]
            yield torch.rand(whole.numel() + 1).as_strided(shape, strides)
    for place in places:
        yield torch.rand([1 if p == place else n for p, n in enumerate(shape)]).expand(shape)
    yield torch.rand(*shape[:-1], shape[-1] + 1)[..., :-1]


def described(results):
    return [(tuple(t.shape), t.stride(), t.dtype) for t in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("name", OPERATORS)
def test_as_eager(name):
    operator, draw, differ, compared = OPERATORS[name], random.Random(name), [], 0
    torch.manual_seed(0)
    tables = [[*layouts(shape)] for shape in SHAPES]
    for _ in range(PAIRS):
        x, y = (draw.choice(table) for table in [draw.choice(tables)] * 2)
        try:
            expected = described(operator(x, y))
        except (RuntimeError, ValueError, IndexError):  # it takes no such shape
            continue
        mode = FakeMode(None)
        with mode:
            found = described(operator(mode.from_real(x), mode.from_real(y)))
        compared += 1
        if found != expected:
            differ.append((x.shape, x.stride(), y.stride(), expected, found))
    assert differ == []
    assert compared
