"""What a GPU cannot add to memory in one step is left to the library, and all writes to computed positions where algorithms are to be
deterministic; reductions to nothing still render."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.lowering.fallback import SCATTERS
from tracework_inductor.schedule.plan import ExternKernel, LoopKernel
from tracework_primops import SymbolTable, TensorSpec, prims

CUDA = torch.device("cuda", 0)


def kernels_of(program, *specs, **chosen):
    renderer, options = TritonRenderer(), InductorOptions(**chosen)
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


SCATTERING = {
    "index_put": lambda x, index, rows: prims.index_put(x, (index,), rows, False),
    "index_put, adding": lambda x, index, rows: prims.index_put(x, (index,), rows, True),
    "index_add": lambda x, index, rows: prims.index_add(x, 0, index, rows),
    "index_copy": lambda x, index, rows: prims.index_copy(x, 0, index, rows),
    "put": lambda x, index, rows: prims.put(x, index, prims.select(rows, 1, 0), True),
    "scatter": lambda x, index, rows: prims.scatter(x, 0, prims.expand(prims.unsqueeze(index, 1), (5, 4)), rows),
    "scatter_add": lambda x, index, rows: prims.scatter_add(x, 0, prims.expand(prims.unsqueeze(index, 1), (5, 4)), rows),
    "scatter_reduce": lambda x, index, rows: prims.scatter_reduce(
        x, 0, prims.expand(prims.unsqueeze(index, 1), (5, 4)), rows, "sum", True
    ),
}


def scatters(kernels):
    """Whether a kernel of ours writes to a position that it has read."""
    loops = [i for k in kernels if isinstance(k, LoopKernel) for p in k.passes for i in p.body.instructions]
    return any(i.op == "indirect" for i in loops) or any(i.op == "store" and i.args[3] != "set" for i in loops)


@pytest.mark.parametrize("name", SCATTERING)
def test_nothing_is_scattered_where_algorithms_are_to_be_deterministic(name):
    x, index = TensorSpec(torch.float32, CUDA, (8, 4)), TensorSpec(torch.int64, CUDA, (5,))
    rows = TensorSpec(torch.float32, CUDA, (5, 4))
    assert not scatters(kernels_of(SCATTERING[name], x, index, rows, deterministic=True))
    assert scatters(kernels_of(SCATTERING[name], x, index, rows))


def test_every_scatter_is_tried():
    assert {name.partition(",")[0] for name in SCATTERING} == set(SCATTERS)
