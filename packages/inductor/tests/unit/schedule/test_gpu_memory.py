"""What a GPU keeps in memory: planned from specs alone, without a GPU."""

from types import SimpleNamespace

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.schedule import memory, workspace
from tracework_inductor.schedule.memory import MemoryPlanner
from tracework_inductor.schedule.plan import LoopKernel, Workspace
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
def test_large_memory_is_not_held_over_an_allocation(scale, device, reused, monkeypatch):
    monkeypatch.setitem(workspace.LEAST_BUFFERS, "cuda", 100)
    plan = plan_of(grows_and_shrinks, (2 * scale, scale), (scale, scale), (scale, 4 * scale), device=device)
    first_large = next(n for n, step in enumerate(plan.memory.steps) if plan_size(plan, step) == 8 * scale**2)
    held = {old for step in plan.memory.steps[:first_large] for old in step.free}
    later = {old for step in plan.memory.steps[first_large + 1 :] for _, old in step.reuse}
    assert bool(held & later) is reused


def plan_size(plan, step):
    return max((plan.program.buffers[b].layout.elements() for b in step.allocate), default=0)


def small_and_large(x, w, v):
    """Outputs are made while less and less of the rest is needed."""
    first = prims.mm(x, w)
    outputs = []
    for _ in range(4):
        first = prims.mm(prims.tanh(first), w)
        outputs.append(prims.mm(prims.sin(first), v))
    return tuple(outputs)


@pytest.mark.parametrize("program", [grows_and_shrinks, small_and_large], ids=lambda p: p.__name__)
@pytest.mark.parametrize("scale", [16, 128, 1024, 4096])
def test_a_workspace_takes_no_more_than_the_allocator_would(program, scale, monkeypatch):
    sizes = (2 * scale, scale), (scale, scale), (scale, 4 * scale)
    placed = plan_of(program, *sizes)
    monkeypatch.setitem(workspace.LEAST_BUFFERS, "cuda", 100)
    plain = plan_of(program, *sizes)
    assert not plain.memory.workspace.size and (placed.memory.workspace.size or scale > 128)
    assert placed.memory.workspace.size <= workspace.ROOM["cuda"]
    found, wanted = (workspace.peaks(p.program, p.kernels, p.memory.steps, p.memory.workspace) for p in (placed, plain))
    assert all(mine <= other + workspace.ROUNDING["cuda"] for mine, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("program", [grows_and_shrinks, small_and_large], ids=lambda p: p.__name__)
def test_what_is_placed_does_not_overlap_while_it_lives(program):
    plan = plan_of(program, (256, 128), (128, 128), (128, 512))
    offsets = plan.memory.workspace.offsets
    assert len(offsets) >= 3 and not {o.buffer for o in plan.program.outputs} & set(offsets)
    ends = {n: offsets[n] + 2 * plan.program.buffers[n].layout.elements() for n in offsets}
    touched = {name: [n for n, k in enumerate(plan.kernels) if name in k.reads | k.writes] for name in offsets}
    renamed = {new: old for step in plan.memory.steps for new, old in step.reuse}
    assert max(ends.values()) <= plan.memory.workspace.size and all(offset % 256 == 0 for offset in offsets.values())
    for a in offsets:
        for b in offsets:
            if touched[a][0] < touched[b][0] <= touched[a][-1] and renamed.get(b) != a:
                assert ends[a] <= offsets[b] or ends[b] <= offsets[a], (a, b)


def test_a_workspace_that_would_take_more_is_made_of_smaller_buffers():
    """Large values end before large results begin: as a workspace they would stay beside them."""

    def program(x, w, v, narrow):
        large = prims.mm(prims.tanh(prims.mm(x, v)), prims.permute(v, (1, 0)))
        small = prims.mm(large, narrow)
        for _ in range(4):
            small = prims.mm(prims.sin(small), w)
        return prims.mm(small, prims.permute(narrow, (1, 0)))

    plan = plan_of(program, (2048, 2048), (16, 16), (2048, 2048), (2048, 16))
    sizes = {n: 2 * plan.program.buffers[n].layout.elements() for n in plan.memory.workspace.offsets}
    assert sizes and max(sizes.values()) < 1 << 20
    everything = MemoryPlanner(plan.program, plan.kernels, True, workspace.ROOM["cuda"]).run()
    assert everything.workspace.size > 8 << 20


def test_peaks():
    """Bytes of what is alive at one time: 32 KiB each, and the inputs that end."""
    plan = plan_of(lambda x, w: prims.mm(prims.mm(prims.mm(prims.neg(x), w), w), w), (128, 128), (128, 128))
    plain = MemoryPlanner(plan.program, plan.kernels, False).run()
    ended_first, kept = workspace.peaks(plan.program, plan.kernels, plain.steps, Workspace())
    assert (ended_first, kept) == (1 << 15, 1 << 16)


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


def test_what_a_kernel_takes_in_place_is_made_before(monkeypatch):
    """A kernel that takes an operand's memory for what it makes and reads again, and that for a result whose name comes first."""
    layout = SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32, elements=lambda: 8)
    buffers = {name: SimpleNamespace(kind="computed", layout=layout) for name in ("buf7", "buf9", "buf10")}
    monkeypatch.setattr(memory, "alias_root", lambda known, name: name)
    monkeypatch.setattr(memory, "output_buffers", lambda program: ["buf10"])
    monkeypatch.setattr(memory, "read_buffers", lambda program, kernels: {*buffers})
    monkeypatch.setattr(memory, "in_place", lambda kernel, new, old: (new, old) in {("buf9", "buf7"), ("buf10", "buf9")})
    kernels = [
        SimpleNamespace(reads=frozenset(), writes=frozenset({"buf7"})),
        SimpleNamespace(reads=frozenset({"buf7", "buf9"}), writes=frozenset({"buf9", "buf10"})),
    ]
    plan = MemoryPlanner(SimpleNamespace(role="inference", buffers=buffers), kernels, True).run()
    assert plan.steps[1].reuse == (("buf9", "buf7"), ("buf10", "buf9"))
