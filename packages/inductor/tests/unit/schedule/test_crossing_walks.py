"""Reductions over axes of equal sizes that read the same: one kernel where both walk it alike, two where one would walk it across."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_primops import TensorSpec, prims

SIDE = 64
RENDERERS = {"cpu": CppRenderer, "cuda": TritonRenderer}


def softmax(x, dim):
    e = prims.exp(prims.sub(x, prims.amax(x, (dim,), True)))
    return prims.div(e, prims.sum(e, (dim,), True))


def turned(x):
    return prims.permute(x, (1, 0))


# name -> what is computed, and whether in one kernel
PROGRAMS = {
    "softmax of rows and of columns": (lambda x, y, w: (softmax(x, 1), softmax(x, 0)), False),
    "softmax and log of sums of rows": (lambda x, y, w: (softmax(x, 1), prims.log(prims.sum(prims.exp(x), (1,), False))), True),
    "sums of rows and of columns": (lambda x, y, w: (prims.sum(x, (1,), False), prims.sum(x, (0,), False)), False),
    "sums and largest of rows": (lambda x, y, w: (prims.sum(x, (1,), False), prims.amax(x, (1,), False)), True),
    "sums and largest of columns": (lambda x, y, w: (prims.sum(x, (0,), False), prims.amax(x, (0,), False)), True),
    "rows of a matrix and of its transpose": (
        lambda x, y, w: (prims.sum(x, (1,), False), prims.amax(turned(x), (1,), False)),
        False,
    ),
    "columns of a matrix, rows of its transpose": (
        lambda x, y, w: (prims.sum(x, (0,), False), prims.amax(turned(x), (1,), False)),
        True,
    ),
    "rows of two matrices, one vector": (
        lambda x, y, w: (prims.sum(prims.mul(x, w), (1,), False), prims.amax(prims.mul(y, w), (1,), False)),
        True,
    ),
    "a product by a vector, and columns": (
        lambda x, y, w: (prims.sum(prims.mul(x, y), (1,), False), prims.sum(x, (0,), False)),
        False,
    ),
    "shifted rows": (
        lambda x, y, w: (prims.sum(prims.flip(x, (0,)), (1,), False), prims.amax(x, (1,), False)),
        True,
    ),
}


@pytest.mark.parametrize("device", RENDERERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(name, device):
    program, alike = PROGRAMS[name]
    specs = [TensorSpec(torch.float32, torch.device(device), sizes) for sizes in ((SIDE, SIDE), (SIDE, SIDE), (SIDE,))]
    options = InductorOptions()
    graph = build(program, [torch.empty(s.sizes, device="meta") for s in specs], specs)
    plan = schedule(lower(graph, options), options, RENDERERS[device]().capabilities)
    assert (len(plan.kernels) == 1) is alike
