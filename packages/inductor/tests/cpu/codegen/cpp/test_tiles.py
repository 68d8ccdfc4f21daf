"""Turned arrays of all sizes of elements, some of them whole blocks of registers: every element as in eager."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import prims
from tracework_runtime import load

DTYPES = (torch.uint8, torch.bool, torch.bfloat16, torch.float16, torch.int16, torch.int32, torch.float32, torch.int64)


def turned(*xs):
    return tuple(prims.contiguous(prims.permute(x, (1, 0)), (x.shape[0], 1)) for x in xs)


def test_every_dtype_is_turned() -> None:
    torch.manual_seed(0)
    xs = [torch.randint(0, 100, (83, 131)).to(dtype) for dtype in DTYPES]
    graph = build(turned, xs)
    artifact = compile_graph(graph)
    assert "tw_turn(&" in artifact.kernels[0].source
    for actual, expected in zip(load(artifact)(list(xs)), graph.run(*xs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
