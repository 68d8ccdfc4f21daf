"""What a GPU cannot add to memory in one step is left to the library; reductions to nothing still render."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.schedule.plan import ExternKernel, LoopKernel
from tracework_primops import SymbolTable, TensorSpec, prims

CUDA = torch.device("cuda", 0)


def kernels_of(program, *specs):
    renderer, options = TritonRenderer(), InductorOptions()
    plan = schedule(lower(build(program, [None] * len(specs), list(specs)), options), options, renderer.capabilities)
    for kernel in plan.kernels:
        if isinstance(kernel, LoopKernel):
            renderer.render(kernel)
    return plan.kernels


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.bool, torch.int32, torch.float32], ids=str)
def test_accumulation(dtype):
    x, index = TensorSpec(dtype, CUDA, (8, 4)), TensorSpec(torch.int64, CUDA, (5,))
    rows = TensorSpec(dtype, CUDA, (5, 4))
    found = kernels_of(lambda x, index, rows: prims.index_add(x, 0, index, rows), x, index, rows)
    by_library = any(isinstance(k, ExternKernel) for k in found)
    assert by_library == (dtype not in (torch.int32, torch.float32))


def test_sums_that_give_nothing():
    n = SymbolTable().new(5, "rows", 2, None)
    x = TensorSpec(torch.float32, CUDA, (n, 0), (1, 1))
    (kernel,) = kernels_of(lambda x: prims.sum(prims.mul(x, x), (0,), False, None), x)
    assert isinstance(kernel, LoopKernel)
