"""Memory on the CPU while a network is trained: a workspace takes no more than each buffer by itself would."""

import dataclasses

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_inductor.schedule import workspace
from tracework_inductor.schedule.memory import SMALLEST_LIMIT, MemoryPlanner, plan_memory
from tracework_primops import prims


def grows(x, w, v):
    """Most of its memory is in use at the end, and its largest buffers are gone then."""
    small = prims.mm(prims.tanh(prims.mm(x, v)), prims.permute(v, (1, 0)))
    outputs = []
    for _ in range(10):
        small = prims.mm(prims.tanh(prims.mm(prims.tanh(small), w)), w)
        outputs.append(prims.sum(prims.mm(prims.sin(small), v), (1,)))
        outputs.append(prims.mm(small, w))
    return tuple(outputs)


def shrinks(x, w, v):
    """The other way round."""
    first = x
    for _ in range(10):
        first = prims.mm(prims.tanh(first), w)
    return prims.sum(prims.mm(prims.cos(prims.mm(first, v)), prims.permute(v, (1, 0))), (0,)), prims.mm(x, w)


def planned(program, role):
    sizes = (2048, 64), (64, 64), (64, 1024)
    lowered = lower(build(program, [torch.empty(size) for size in sizes]), InductorOptions())
    found = schedule(dataclasses.replace(lowered, role=role), InductorOptions(), CppRenderer().capabilities)
    return found, plan_memory(found.program, found.kernels, True)


def peaks(found, memory):
    return workspace.peaks(found.program, found.kernels, memory.steps, memory.workspace)


@pytest.mark.parametrize("role", ["forward", "backward"])
@pytest.mark.parametrize("program", [grows, shrinks])
def test_only_small_buffers_may_take_more_than_each_by_itself(program, role):
    found, memory = planned(program, role)
    plain = MemoryPlanner(found.program, found.kernels, True).run()
    layouts = [found.program.buffers[name].layout for name in memory.workspace.offsets]
    small = all(layout.elements() * layout.dtype.itemsize <= SMALLEST_LIMIT["cpu"] for layout in layouts)
    assert layouts
    assert small or all(mine <= other for mine, other in zip(peaks(found, memory), peaks(found, plain), strict=True))


def test_large_buffers_of_an_early_time_stay_outside():
    (_, trained), (_, inference) = (planned(grows, role) for role in ("forward", "inference"))
    assert 0 < trained.workspace.size < inference.workspace.size
    assert {*trained.workspace.offsets} < {*inference.workspace.offsets}


def test_nothing_large_is_held_over_an_allocation():
    found, _ = planned(shrinks, "backward")
    trained, inference = (
        MemoryPlanner(dataclasses.replace(found.program, role=role), found.kernels, True).run()
        for role in ("backward", "inference")
    )
    (mine, _), (held, _) = (peaks(found, memory) for memory in (trained, inference))
    assert mine <= held
