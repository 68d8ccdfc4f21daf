"""Rows that lie across the order of axes: what reads and writes them point by point is in the kernel of their reductions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from prim_programs import check
from tracework_primops import prims

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from triton_programs import graph_of, rendered  # noqa: E402


def softmax(x, s):
    e = prims.exp(prims.sub(x, prims.amax(x, (1,), True)))
    return prims.div(e, prims.sum(e, (1,), True))


def log_softmax(x, s):
    low = prims.sub(x, prims.amax(x, (1,), True))
    return prims.sub(low, prims.log(prims.sum(prims.exp(low), (1,), True)))


def norm_of_channels(x, s):
    y = prims.add(x, prims.sin(x))
    var, mean = prims.var_mean(y, (1,), 0, True)
    return prims.mul(prims.mul(prims.sub(y, mean), prims.rsqrt(prims.add(var, 1e-5))), s), y


def two_axes(x, s):
    return prims.div(x, prims.add(prims.sum(prims.mul(x, x), (1, 3), True), 1.0))


def softmax_backward(x, s):
    y = prims.mul(x, s)
    return prims.sub(y, prims.mul(x, prims.sum(y, (1,), True)))


CUDA = torch.device("cuda", 0)
PROGRAMS = {f.__name__: f for f in (softmax, log_softmax, norm_of_channels, two_axes, softmax_backward)}
SHAPES = {"images": (3, 40, 5, 7), "volumes": (2, 24, 3, 4, 5), "rows": (6, 33, 20)}


def inputs(shape, last):
    made = torch.Generator().manual_seed(0)
    x = torch.randn(SHAPES[shape], generator=made)
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x, torch.randn((SHAPES[shape][1], *[1] * (x.ndim - 2)), generator=made)


CASES = [(p, s, last) for p in PROGRAMS for s in SHAPES for last in (False, True) if p != "two_axes" or s == "images"]


@pytest.mark.parametrize(("name", "shape", "last"), CASES)
def test_equals_eager(name, shape, last, tmp_path):
    args = inputs(shape, last)
    check(PROGRAMS[name], *args, rtol=1e-5, atol=1e-5)
    graph = graph_of(PROGRAMS[name], *args)
    host, kernels = rendered(graph_of(PROGRAMS[name], *args, device=CUDA))
    for before, after in (("empty_cuda", "empty_cpu as empty_cuda"), ("gpu_workspace", "workspace")):
        host = host.replace(before, after, 1)
    found = triton_interpreter.host_call(host, kernels, tmp_path)(list(args))
    for value, wanted in zip(found, graph.run(*args), strict=True):
        assert value.stride() == wanted.stride()
        torch.testing.assert_close(value, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "shape", "last"), [case for case in CASES if case[0] in ("softmax", "log_softmax")])
def test_one_kernel(name, shape, last):
    args = inputs(shape, last)
    assert len(rendered(graph_of(PROGRAMS[name], *args, device=CUDA))[1]) == 1
