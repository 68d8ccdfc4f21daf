"""What a GPU keeps in memory: planned from specs alone, without a GPU."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.schedule.plan import LoopKernel
from tracework_primops import prims
from tracework_primops.spec import TensorSpec


def plan_of(program, *sizes, dtype=torch.bfloat16, device="cuda"):
    inputs = [torch.empty(s, dtype=dtype, device="meta") for s in sizes]
    specs = [TensorSpec(dtype, torch.device(device), tuple(t.shape), tuple(t.stride())) for t in inputs]
    options = InductorOptions()
    return schedule(lower(build(program, inputs, specs), options), options, TritonRenderer().capabilities)


def grows_and_shrinks(x, w, v):
    """Products of 4 MB, then of 16 MB, then of 4 MB again."""
    small = prims.mm(prims.mm(x, w), w)
    large = prims.mm(small, v)
    return prims.mm(prims.mm(large, prims.permute(v, (1, 0))), w)


@pytest.mark.parametrize(("scale", "device", "reused"), [(1024, "cuda", False), (128, "cuda", True), (128, "cpu", True)])
def test_large_memory_is_not_held_over_an_allocation(scale, device, reused):
    plan = plan_of(grows_and_shrinks, (2 * scale, scale), (scale, scale), (scale, 4 * scale), device=device)
    first_large = next(n for n, step in enumerate(plan.memory.steps) if plan_size(plan, step) == 8 * scale**2)
    held = {old for step in plan.memory.steps[:first_large] for old in step.free}
    later = {old for step in plan.memory.steps[first_large + 1 :] for _, old in step.reuse}
    assert bool(held & later) is reused


def plan_size(plan, step):
    return max((plan.program.buffers[b].layout.elements() for b in step.allocate), default=0)


def residual_stream(x, *weights):
    """Every sum is read by a product, and by the next sum."""
    for w in weights:
        x = prims.add(x, prims.mm(prims.neg(x), w))
    return x


def test_sums_of_few_halves_are_not_rounded_in_between():
    """Up to four tensors are read again by each user; then their sum is stored, and the next ones start from it."""
    plan = plan_of(residual_stream, *[(256, 256)] * 8)
    reads = [len(k.reads) for k in plan.kernels if isinstance(k, LoopKernel)]
    assert reads == [1, 2, 3, 4, 5, 2, 3, 4]


def test_shared_values_of_many_tensors_are_stored():
    """Read twice: three tensors are read once and written once for less than reading them twice takes."""

    def program(x, y, z, w):
        shared = prims.mul(prims.mul(x, y), z)
        return prims.mm(prims.neg(shared), w), prims.mm(prims.abs(shared), w)

    stored = plan_of(program, *[(256, 256)] * 4, dtype=torch.float32)
    sizes = [len(k.reads) for k in stored.kernels if isinstance(k, LoopKernel)]
    assert max(sizes) == 3 and sum(sizes) <= 5
