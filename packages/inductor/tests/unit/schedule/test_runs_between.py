"""What no CUDA graph records is put together: as few parts as the dependencies allow, and nothing else changes its place."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prim_programs import build, overload
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.pipeline import plan_graph
from tracework_inductor.schedule.operators import operators_of, runs_between
from tracework_inductor.schedule.order import launch_order
from tracework_inductor.schedule.plan import ExternKernel
from tracework_primops import TensorSpec, prims
from tracework_runtime.cudagraph.partition import partition, parts_of
from tracework_runtime.host.lines import Call, Launch, Take

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
SPECS = [TensorSpec(torch.float32, CUDA, (8, 8)), TensorSpec(torch.float32, CPU, (8, 8)), TensorSpec(torch.float32, CUDA, (8, 8))]


def changes(order, between):
    return sum((a in between) != (b in between) for a, b in itertools.pairwise(order))


def ordered(predecessors, between):
    member = SimpleNamespace(node=SimpleNamespace(device=CPU))
    groups = [SimpleNamespace(number=n, outer=[], inner=[], members=[member]) for n in range(len(predecessors))]
    found = launch_order(groups, [set(p) for p in predecessors], dict(enumerate(groups)), between)
    return [group.number for group in found]


def allowed(order, predecessors):
    place = {n: k for k, n in enumerate(order)}
    return all(place[p] < place[n] for n, before in enumerate(predecessors) for p in before)


nodes = st.integers(1, 6).flatmap(
    lambda count: st.tuples(
        st.tuples(*[st.sets(st.integers(0, max(n - 1, 0)), max_size=2) if n else st.just(set()) for n in range(count)]),
        st.sets(st.integers(0, count - 1)),
    )
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(nodes)
def test_no_order_has_fewer_changes(nodes):
    predecessors, between = nodes
    found = ordered(predecessors, between)
    orders = [order for order in itertools.permutations(range(len(predecessors))) if allowed(order, predecessors)]
    assert allowed(found, predecessors)
    assert changes(found, between) == min(changes(order, between) for order in orders)
    if not between or len(between) == len(predecessors):
        assert found == list(range(len(predecessors)))


def work(plan):
    """Whether each kernel runs between, in order."""
    return [runs_between(plan.program, k.node) if isinstance(k, ExternKernel) else k.device.type == "cpu" for k in plan.kernels]


def scattered(x, host, y):
    """Work for the CPU and for the GPU in turns, which do not need each other until the end."""
    found, other = x, host
    for _ in range(4):
        found = prims.mm(found, y)
        other = prims.device_put(prims.exp(prims.device_put(prims.device_put(other, CUDA), CPU)), CPU)
    return prims.mm(prims.device_put(other, CUDA), found)


def test_work_between_goes_together():
    plan = plan_graph(build(scattered, [None] * 3, SPECS), InductorOptions())
    assert len([1 for a, b in itertools.pairwise(work(plan)) if a != b]) <= 2


def written(x, host, y):
    """An input is read by what runs between before it is written, and after."""
    before = prims.device_put(x, CPU)
    new = prims.mm(prims.add(x, 1.0), y)
    changed = prims.copy_into(x, new)
    return changed, prims.exp(before), prims.mm(y, y), prims.device_put(prims.mul(changed, 2.0), CPU)


def test_writes_stay_behind_reads():
    plan = plan_graph(build(written, [None] * 3, SPECS), InductorOptions())
    reads = [n for n, k in enumerate(plan.kernels) if "arg0" in k.reads]
    (write,) = (n for n, k in enumerate(plan.kernels) if k.writes & plan.program.mutated.keys())
    assert len(reads) == 2 and max(reads) < write


@pytest.mark.parametrize("program", [scattered, written])
def test_the_facts_of_lines(program):
    """Each line that computes says what it writes to and where it runs; the parts are those of the order."""
    artifact = compile_graph(build(program, [None] * 3, SPECS))
    for line in artifact.host_lines:
        if isinstance(line, Launch):
            assert line.writes and set(line.writes) <= {o.name for o in line.operands if hasattr(o, "name")}
        elif isinstance(line, Call) and line.operators:
            assert line.devices == ("cpu", "cuda:0") or line.devices in (("cpu",), ("cuda:0",))
    parts = parts_of(artifact)
    assert any(part.recordable for part in parts) and any(part.reasons for part in parts)


def waiting(x, host, y):
    """On one device, with something that the host waits for."""
    for _ in range(3):
        x = prims.mm(prims.sin(x), y)
    x = overload(torch.ops.aten.linalg_matrix_exp.default, (x,), x.spec)
    for _ in range(3):
        x = prims.mm(prims.sin(x), y)
    return x


def test_parts_share_no_workspace():
    specs = [SPECS[0], SPECS[2], SPECS[2]]
    assert not any(isinstance(line, Take) for line in compile_graph(build(waiting, [None] * 3, specs)).host_lines)
    assert [part.recordable for part in parts_of(compile_graph(build(waiting, [None] * 3, specs)))] == [True, False, True, False]


def test_what_a_custom_operator_is_called_beside_shares_no_workspace():
    """Its recording may fail, and then parts around it are recorded."""
    with torch.library._scoped_library("tracework_order_tests", "DEF") as library:
        library.define("own(Tensor x) -> Tensor")

        def custom(x, y):
            for _ in range(3):
                x = prims.mm(prims.sin(x), y)
            x = overload(torch.ops.tracework_order_tests.own.default, (x,), x.spec)
            for _ in range(3):
                x = prims.mm(prims.sin(x), y)
            return x

        artifact = compile_graph(build(custom, [None] * 2, [SPECS[0], SPECS[2]]))
    assert "tracework_order_tests::own" in artifact.externs and not parts_of(artifact)
    assert not any(isinstance(line, Take) for line in artifact.host_lines)
    parts = partition(artifact, frozenset({"tracework_order_tests::own"}))
    assert [part.recordable for part in parts] == [True, False, True, False]


def test_operators_by_their_names():
    plan = plan_graph(build(waiting, [None] * 3, [SPECS[0], SPECS[2], SPECS[2]]), InductorOptions())
    names = {name for k in plan.kernels if isinstance(k, ExternKernel) for name in operators_of(plan.program, k.node)}
    assert names == {"aten::mm", "aten::linalg_matrix_exp"}
