"""Small kernels that are launched together: planned from specs alone, without a GPU."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.schedule import batch
from tracework_inductor.schedule.plan import ExternKernel, KernelBatch, LoopKernel
from tracework_primops import prims
from tracework_primops.spec import TensorSpec


def plan_of(program, *sizes, device="cuda"):
    inputs = [torch.empty(s, device="meta") for s in sizes]
    specs = [TensorSpec(t.dtype, torch.device(device), tuple(t.shape), tuple(t.stride())) for t in inputs]
    options = InductorOptions()
    return schedule(lower(build(program, inputs, specs), options), options, TritonRenderer().capabilities)


def parts(plan):
    return [len(k.parts) if isinstance(k, KernelBatch) else 1 for k in plan.kernels if not isinstance(k, ExternKernel)]


def each_alone(*xs):
    return tuple(prims.exp(x) for x in xs)


def test_independent_ones_are_one_launch():
    assert parts(plan_of(each_alone, (3,), (5, 7), (64, 64))) == [3]


def test_large_ones_stay_alone():
    assert parts(plan_of(each_alone, (3,), (4096, 4096), (5,))) == [2, 1]


def test_what_is_made_of_inputs_comes_first_and_is_one_launch():
    """As weights are that are laid out anew, each for a call of the library further down."""

    def program(x, *weights):
        for w in weights:
            x = prims.mm(x, prims.exp(w))
        return x

    plan = plan_of(program, (64, 64), *[(64, 64)] * 5)
    assert [isinstance(k, ExternKernel) for k in plan.kernels] == [False, *[True] * 5] and parts(plan) == [5]
    large = plan_of(program, (512, 512), *[(512, 512)] * 3)
    assert [isinstance(k, ExternKernel) for k in large.kernels] == [False, True] * 3, "kept too long otherwise"


def test_a_launch_has_a_limit():
    assert parts(plan_of(each_alone, *[(n,) for n in range(2, 2 + batch.MOST_PARTS + 3)])) == [batch.MOST_PARTS, 3]


def test_what_reads_a_result_waits_for_it():
    def program(x, y, z):
        a = prims.exp(x)
        return a, prims.sin(z), prims.neg(prims.add(prims.slice(a, 0, 1, 33, 1), y))

    plan = plan_of(program, (33, 32), (32, 32), (5,))
    assert parts(plan) == [2, 1]


@pytest.mark.parametrize("also_read", [False, True])
def test_memory_of_an_operand_is_overwritten_only_where_no_other_part_reads_it(also_read):
    def program(x, w):
        product = prims.mm(x, w)
        part = prims.slice(product, 0, 0, 8, 1) if also_read else x
        return prims.exp(product), prims.sin(part)

    plan = plan_of(program, (32, 16), (16, 32))
    batches = [k for k in plan.kernels if isinstance(k, KernelBatch)]
    assert [len(k.parts) for k in batches] == [2]
    (step,) = [s for k, s in zip(plan.kernels, plan.memory.steps, strict=True) if k is batches[0]]
    assert bool(step.reuse) is not also_read


def test_sizes_that_change_and_reductions_stay_alone():
    def program(x, y):
        return prims.sum(x, (1,), False), prims.exp(y), prims.sum(y, (0,), False)

    plan = plan_of(program, (40, 30), (9, 5))
    assert all(isinstance(k, LoopKernel) for k in plan.kernels)
