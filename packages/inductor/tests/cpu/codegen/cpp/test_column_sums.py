"""Sums of columns beside rows, beside elements, and alone: of a few rows for each block, added up behind the kernel."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from prim_programs import check
from tracework_inductor.codegen.cpp import streams
from tracework_inductor.schedule import mixed_orders
from tracework_primops import prims


def norm_backward(g, x, w):
    """The norm is computed again; the gradient of what was added before is a sum of columns of dx."""
    last = x.spec.ndim - 1
    along = lambda v: prims.mul(prims.sum(v, (last,), True), 1.0 / x.shape[last])
    scale = prims.rsqrt(prims.add(along(prims.mul(x, x)), 1e-5))
    scaled, normal = prims.mul(g, w), prims.mul(x, scale)
    dx = prims.mul(prims.sub(scaled, prims.mul(normal, along(prims.mul(scaled, normal)))), scale)
    return dx, *(prims.sum(v, tuple(range(last)), False) for v in (prims.mul(g, normal), dx))


def mask_backward(g, x, w):
    """The gradient of a bias, beside what has no rows of its own."""
    dx = prims.where(prims.gt(x, 0.0), prims.mul(g, w), 0.0)
    return dx, prims.sum(dx, (0, 1), False)


def sum_alone(g, x, w):
    return (prims.sum(prims.sin(g), (0,), False),)


CASES = [
    (sum_alone, torch.float32, (70, 40)),
    (norm_backward, torch.float32, (3, 31, 70)),
    (norm_backward, torch.float64, (64, 33)),
    (mask_backward, torch.float32, (5, 40, 37)),
    (mask_backward, torch.float64, (2, 50, 64)),
]


def test_sums_of_rows_that_blocks_have(monkeypatch) -> None:
    """The last rows are fewer, and results go past the caches, whose next rows are asked for, or do not."""
    monkeypatch.setattr(mixed_orders, "BLOCKS_ON_CPU", 2)
    monkeypatch.setattr(mixed_orders, "LEAST_SAVED", {"cpu": 1})
    monkeypatch.setattr(mixed_orders, "LEAST_ALONE", 1)
    monkeypatch.setattr(streams, "LEAST_BYTES", 20000)
    torch.manual_seed(0)
    given = [torch.randn(s, dtype=dtype) for _, dtype, sizes in CASES for s in (sizes, sizes, sizes[-1:])]

    def fn(*given):
        return tuple(v for n, (program, *_) in enumerate(CASES) for v in program(*given[3 * n : 3 * n + 3]))

    source = check(fn, *given, rtol=1e-5, atol=1e-5).kernels[0].source
    assert source.count("for (int64_t kb = 0;") == len(CASES)
    assert source.count("tw_ahead(&") == 2, "two arrays that one norm reads again"
