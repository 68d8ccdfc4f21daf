"""Halves that loops read and write: every value, ties, the ends of the range, NaN."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest
import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims
from tracework_runtime import load


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_conversions_are_exact(dtype) -> None:
    halves = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    wide = halves.float()
    near = [torch.nextafter(wide, torch.tensor(end)) for end in (float("inf"), -float("inf"))]
    ties = (wide + wide.roll(-1)) / 2
    floats = torch.cat([wide, *near, ties, *(torch.nextafter(ties, n) for n in near), torch.tensor([1e-45, -1e-45, 3e38])])
    graph = build(lambda h, f: (prims.convert(h, torch.float32), prims.convert(f, dtype)), [halves, floats])
    for actual, expected in zip(load(compile_graph(graph))([halves, floats]), (wide, floats.to(dtype)), strict=True):
        given = expected.isnan()
        assert torch.equal(actual.isnan(), given)
        bits = torch.int32 if expected.dtype == torch.float32 else torch.int16
        assert torch.equal(actual.view(bits)[~given], expected.view(bits)[~given])


@pytest.mark.parametrize("number", [-1e9, 0.1, 3], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_among_halves_are_halves(dtype, number) -> None:
    x, keep = torch.randn(5, 40).to(dtype), torch.arange(5)[:, None] > torch.arange(40)
    graph = build(lambda x, keep: prims.convert(prims.where(keep, x, number), torch.float32), [x, keep])
    expected = torch.where(keep, x, torch.tensor(number).to(dtype)).float()
    assert torch.equal(load(compile_graph(graph))([x, keep])[0], expected)
