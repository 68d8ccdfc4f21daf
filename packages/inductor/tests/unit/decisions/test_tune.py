"""A plan's kernels and the candidates that are timed for them."""

import dataclasses
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
import triton_programs as programs
from tracework_inductor import InductorOptions, compile_graph, lower, pipeline, schedule
from tracework_inductor.autotune.book import Book, Row, triton_version
from tracework_inductor.codegen.triton import TritonRenderer
from tracework_inductor.decisions import tune
from tracework_inductor.pipeline import plan_graph
from tracework_inductor.schedule.plan import LoopKernel
from tracework_primops import GraphBuilder, PrimValue, TensorSpec, prims
from tracework_primops.graph import PrimGraph
from tracework_primops.symbols.table import SymbolTable
from tracework_runtime import RuntimeOptions
from tracework_runtime.cache.store import MemoryStore

GPU = torch.device("cuda", 0)
ROWS = torch.empty(8192, 512)


def plan_of(program, *inputs):
    return plan_graph(programs.graph_of(program, *inputs, device=GPU), InductorOptions())


def ask(kernel, device):
    return TritonRenderer().question(kernel, None, "default", device)


def by_elements(groups):
    """A block of 1024 elements is the quickest, then those that differ little from it."""
    return [[10.0 + abs(_elements(c) - 1024) / 100 for _, c in group] for group in groups]


def _elements(candidate):
    return candidate.constants["XBLOCK"] * candidate.constants.get("RBLOCK", 1)


def two_alike(x, y):
    return prims.exp(prims.neg(x)), prims.sum(y, (1,), False), prims.exp(prims.neg(y))


def test_kernels_get_what_was_quickest_and_the_plan_says_so():
    plan = plan_of(programs.softmax, ROWS)
    store = MemoryStore()
    found = tune.tuned(plan, ask, Book({}, store), by_elements)
    (kernel,) = found.kernels
    first = ask(plan.kernels[0], "H200").candidates[0]
    assert first.constants == {"XBLOCK": 4, "RBLOCK": 512} and kernel.config["constants"] == {"XBLOCK": 2, "RBLOCK": 512}
    assert kernel.config["num_warps"] == first.config["num_warps"]
    text = found.text()
    assert "takes persistent XBLOCK=2 RBLOCK=512 warps=8 stages=1, predicted" in text and "measured 10.0 us" in text
    assert "not persistent XBLOCK=4" in text
    again = tune.tuned(plan, ask, Book({}, store), lambda groups: pytest.fail("it was measured before"))
    assert again.kernels[0].config == kernel.config and "from the book" in again.text()


def test_default_mode_asks_nobody_and_changes_nothing():
    plan = plan_of(programs.softmax, ROWS)
    assert tune.tuned(plan, lambda *a: pytest.fail("asked"), Book({})) is plan and not plan.choices


def test_a_row_that_shipped_is_taken_in_default_mode():
    plan = plan_of(programs.softmax, ROWS)
    question = ask(plan.kernels[0], "H200")
    row = Row(question.problem.facts(), (question.candidates[1].replace(measured_us=3.0),), triton_version())
    found = tune.tuned(plan, ask, Book({row.key: row}))
    assert found.kernels[0].config == question.candidates[1].config and "from the book" in found.text()


def test_equal_kernels_are_one_question():
    x = torch.empty(4096, 4096)
    plan = plan_of(two_alike, x, x)
    rounds = []

    def timing(groups):
        rounds.append(len(groups))
        return by_elements(groups)

    found = tune.tuned(plan, ask, Book({}), timing)
    loops = [k for k in found.kernels if isinstance(k, LoopKernel)]
    kinds = {ask(k, "H200").problem.key for k in loops}
    assert rounds[0] == len(kinds) and len(found.choices) == len(loops)
    for kernel in loops:
        alike = [k for k in loops if ask(k, "H200").problem == ask(kernel, "H200").problem]
        assert all(k.config == kernel.config for k in alike)


def test_names_of_buffers_are_no_part_of_a_problem():
    a, b = (plan_of(programs.softmax, ROWS).kernels[0], plan_of(lambda y, x: (programs.softmax(x), y), ROWS[:1], ROWS).kernels[0])
    assert a.buffers != b.buffers and ask(a, "H200").problem == ask(b, "H200").problem
    other = plan_of(programs.softmax, torch.empty(8192, 511)).kernels[0]
    maximum = plan_of(lambda x: prims.amax(x, (1,), False), ROWS).kernels[0]
    total = plan_of(lambda x: prims.sum(x, (1,), False), ROWS).kernels[0]
    keys = {ask(k, device).problem.key for k in (a, other, maximum, total) for device in ("H200", "H100")}
    assert len(keys) == 8


UNASKED = {
    "a gather": (
        lambda table, ids: prims.index(table, (ids,)),
        lambda: (torch.empty(50, 1200), torch.empty(3000, dtype=torch.int64)),
    ),
    "a scatter": (
        lambda x, ids, g: prims.index_put(x, (ids,), g, True),
        lambda: (torch.empty(50, 1200), torch.empty(3000, dtype=torch.int64), torch.empty(3000, 1200)),
    ),
}


@pytest.mark.parametrize("name", UNASKED)
def test_what_may_not_run_on_any_numbers_is_not_timed(name):
    program, inputs = UNASKED[name]
    loops = [k for k in plan_of(program, *inputs()).kernels if isinstance(k, LoopKernel)]
    computed = [k for k in loops if any(i.op == "indirect" for p in k.passes for i in p.body.instructions)]
    assert computed and all(ask(k, "H200") is None for k in computed)


def test_open_sizes_are_buckets_and_those_that_data_decides_are_not_timed():
    symbols = SymbolTable()
    rows, counted = symbols.new(5000), symbols.new(None, unbacked=True)

    def kernels(size):
        graph = torch.fx.Graph()
        node = graph.placeholder("x")
        node.meta["spec"] = TensorSpec(torch.float32, GPU, (size, 512), (512, 1))
        builder = GraphBuilder(graph)
        with builder:
            result = prims.exp(PrimValue(node.meta["spec"], node))
        graph.output((result.node,))
        options = InductorOptions()
        plan = schedule(lower(PrimGraph.from_fx(graph, symbols=symbols), options), options, TritonRenderer.capabilities)
        return [TritonRenderer().question(k, symbols, "default", "H200") for k in plan.kernels]

    (question,) = kernels(rows)
    assert dict(question.problem.sizes)["x"] & (dict(question.problem.sizes)["x"] - 1) == 0
    assert question.problem.bytes == 2 * 4 * 5000 * 512
    assert kernels(counted) == [None]


def test_a_trial_is_told_what_the_kernel_takes(monkeypatch):
    seen = []

    def time_trials(groups, options, store, driver, until):
        seen.extend(groups)
        return [[1.0] * len(group) for group in groups]

    monkeypatch.setattr(tune, "time_trials", time_trials)
    monkeypatch.setattr(tune.driver, "driver", lambda: None)
    plan = plan_of(programs.softmax, ROWS)
    options = RuntimeOptions(disk_cache=False)
    found = tune.tuned(plan, ask, Book({}), tune.Timing(TritonRenderer(), None, options))
    (group,) = seen
    assert {t.elements for t in group} == {(8192 * 512, 8192 * 512)} and {t.written for t in group} == {frozenset({1})}
    assert [t.kernel.launch["configs"][0] for t in group][0] == found.choices[plan.kernels[0].name][0].config
    assert len({t.kernel.source for t in group}) == 1 and {t.kernel.launch["device"] for t in group} == {0}


def test_the_budget_is_a_time_on_the_clock(monkeypatch):
    untils = []
    monkeypatch.setattr(tune, "time_trials", lambda *a: untils.append(a[-1]) or [[1.0] * len(g) for g in a[0]])
    monkeypatch.setattr(tune.driver, "driver", lambda: None)
    before = time.monotonic()
    tune.tuned(
        plan_of(programs.softmax, ROWS),
        ask,
        Book({}),
        tune.Timing(TritonRenderer(), None, RuntimeOptions(disk_cache=False)),
    )
    assert untils and all(before < until - tune.BUDGET_S < before + 60 for until in untils)


def test_max_autotune_reaches_the_artifact_and_without_a_gpu_changes_nothing(monkeypatch):
    graph = programs.graph_of(programs.softmax, ROWS, device=GPU)
    tuning = InductorOptions(max_autotune=True)
    assert tuning.fingerprint() != InductorOptions().fingerprint()
    plain = compile_graph(graph)
    assert compile_graph(graph, tuning).kernels == plain.kernels and "choices" not in plain.notes
    monkeypatch.setattr(pipeline.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(tune.cost, "device", lambda index: tune.cost.ABSENT)
    monkeypatch.setattr(pipeline, "Timing", lambda *a: by_elements)
    made = compile_graph(graph, tuning, runtime=RuntimeOptions(disk_cache=False))
    (kernel,) = made.kernels
    assert kernel.launch["configs"][0]["constants"] == {"XBLOCK": 2, "RBLOCK": 512}
    assert made.notes["choices"][kernel.name][0].startswith("takes persistent XBLOCK=2")
    assert "#   takes persistent XBLOCK=2" in made.text()
    host = [line for line in made.host_source.splitlines() if kernel.name in line]
    assert host and dataclasses.replace(made, notes={}).host_source == plain.host_source
