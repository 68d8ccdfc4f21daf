"""Extremes along rows and columns, and their places: a NaN before all else, of equal elements the first."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims
from tracework_runtime import load

SIZES = ((4, 17), (5, 200), (70, 33))
"""Not in lanes, in lanes with a rest, several columns at a time."""
KINDS = (prims.amax, prims.amin, prims.argmax, prims.argmin)
EAGER = (torch.amax, torch.amin, torch.argmax, torch.argmin)


def places(x, axis):
    """What of each kind reduces an axis."""
    return tuple(kind(x, (axis,) if kind in KINDS[:2] else axis, False) for kind in KINDS)


def values(dtype, special):
    torch.manual_seed(0)
    made = [torch.randint(-3, 4, size).to(dtype) for size in SIZES]
    if special is not None:
        for x in made:
            x.view(-1)[7::29] = special
            x[0] = special
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_extremes_and_their_places(dtype) -> None:
    graph = lambda *xs: tuple(r for x in xs for axis in (0, len(x.shape) - 1) for r in places(x, axis))
    compiled = load(compile_graph(build(graph, values(dtype, None))))
    specials = (None, float("nan"), float("inf"), -float("inf")) if dtype.is_floating_point else (None, 9, -9)
    for special in specials:
        xs = values(dtype, special)
        expected = [kind(x, axis) for x in xs for axis in (0, x.ndim - 1) for kind in EAGER]
        for actual, wanted in zip(compiled(list(xs)), expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=0, atol=0, equal_nan=True)
