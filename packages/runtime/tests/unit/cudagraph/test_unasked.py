"""Recordings that nobody asked for: where they are made, and that a program cannot tell."""

import gc
import logging
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from tracework_runtime import Artifact, SymbolBinding, TensorCheck, recorded_where_it_pays
from tracework_runtime.cudagraph import gate, record, recording, unasked
from tracework_runtime.cudagraph.budget import BUDGET
from tracework_runtime.host.lines import Call, Inputs, Number, Return
from tracework_runtime.load import CompiledFn
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

slow_engine = pytest.importorskip("slow_engine")
HOST, SlowEngine = slow_engine.HOST, slow_engine.SlowEngine
LINES = (Inputs(("w", "x")), *[Call(("y = w * x",), ("w", "x"), ("y",))] * unasked.LEAST_LAUNCHES, Return(("y",), ("y",)))
FIRST = unasked.WARMUP - 1 + gate.MEASURED_UNASKED
"""Plain calls before the first replay."""
CHECKS = tuple(TensorCheck(n, name, "float32", "cuda:0", (4,), (1,)) for n, name in enumerate("wx"))


def compiled(host=HOST, lines=LINES, namespace=None, **facts):
    facts = {"devices": {"cuda:0"}, "static_inputs": frozenset({0}), "externs": frozenset({"aten::mul"}), **facts}
    artifact = Artifact("k" * 8, host, host_lines=lines, **facts)
    names = {"torch": torch, **(namespace or {})}
    exec(host, names)
    return CompiledFn(artifact, names)


def calls(made, w, count):
    """Results of so many calls, each checked."""
    found = []
    for _ in range(count):
        x = torch.randn(4)
        out = made([w, x])
        assert torch.equal(out[0], w * x) and torch.equal(out[1], w + x)
        found.append(out)
    return found


def test_what_waits_for_the_host_is_replayed():
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.1))
    calls(made, torch.randn(4), 12)
    assert made.graphed.engine.recorded == 1 and made.graphed.engine.replayed == 12 - FIRST


def test_what_saves_the_host_its_time_is_replayed():
    """Though the device takes as long, by a few percent: the host launches the next of the step in that time."""
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.1, replay=(0.1, 1.05)))
    calls(made, torch.randn(4), 12)
    assert made.graphed.engine.replayed == 12 - FIRST


def test_results_are_the_programs_own():
    """So that they may be read on another stream after the program let go of them, as the allocator then knows."""
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    w = torch.randn(4)
    found = calls(made, w, 12)
    assert made.graphed.engine.replayed
    addresses = [out.untyped_storage().data_ptr() for outs in found for out in outs]
    assert len(set(addresses)) == len(addresses)
    (recording,) = made.graphed.recordings
    assert not recording._lent and recording._copied_together


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (SlowEngine(host=1.0, device=1.7), "nothing is won"),
        (SlowEngine(host=1.0, device=1.0, replay=0.95), "a replay takes"),
        (SlowEngine(host=1.0, device=1.0, replay=(0.1, 1.1)), "a replay takes"),
        (SlowEngine(host=1.0, device=1.0, size=1 << 10), "more than 5%"),
    ],
)
def test_what_does_not_pay_is_called_as_if_nothing_had_been(engine, why):
    made = recorded_where_it_pays(compiled(), engine=engine)
    graphed = made.graphed
    calls(made, torch.randn(4), 24)
    assert made.graphed is None and why in graphed.reasons()[0]
    plain = graphed.plain
    calls(made, torch.randn(4), 3)
    assert graphed.plain == plain and not graphed.recordings


def test_nothing_is_recorded_where_memory_runs_out(monkeypatch):
    monkeypatch.setattr(SlowEngine, "free", lambda self, device: self.size // 5)
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    graphed = made.graphed
    calls(made, torch.randn(4), 24)
    assert made.graphed is None and "is free" in graphed.reasons()[0]


def test_an_error_while_recording_is_a_line_in_the_log(monkeypatch, caplog):
    def refuse(self, *given):
        raise RuntimeError("not while it is recorded")

    monkeypatch.setattr(SlowEngine, "record", refuse)
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    with warnings.catch_warnings(), caplog.at_level(logging.INFO, "tracework.runtime.cudagraph"):
        warnings.simplefilter("error")
        calls(made, torch.randn(4), 24)
    assert made.graphed is None and "not while it is recorded" in caplog.text


def test_other_sizes_are_looked_at_after_one_did_not_pay():
    facts = dict(symbols=(SymbolBinding("s0", "size", 1),), inputs=("w", "x"), checks=CHECKS)
    made = recorded_where_it_pays(compiled(**facts), engine=SlowEngine(host=1.0, device=3.0))
    graphed = made.graphed
    for n in range(1, unasked.MOST_SIZES + 1):
        assert made.graphed is graphed
        for _ in range(8):
            w, x = torch.randn(n), torch.randn(n)
            assert torch.equal(made([w, x])[0], w * x)
    calls(made, torch.randn(4), unasked.LOOK_EVERY + 1)
    assert made.graphed is None


def test_what_a_backward_reads_stays_where_it_is_and_calls_are_plain_while_it_is_held():
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0), visible=1)
    w = torch.randn(4)
    calls(made, w, 6)
    engine, graphed = made.graphed.engine, made.graphed
    (recording,) = graphed.recordings
    assert [slot.outputs for slot in recording._lent] == [[1]]
    before = engine.replayed
    (held,) = calls(made, w, 1)
    (plain,) = calls(made, w, 1)
    assert engine.replayed == before + 1 and engine.recorded == 1
    assert held[1].data_ptr() == recording._lent[0].address != plain[1].data_ptr()
    del held, plain
    for _ in range(3):
        calls(made, w, 1)
    assert engine.replayed == before + 4


MANY = """
def call(args):
    w, x = args
    args.clear()
    both = torch.stack([w, x])
    few = torch.zeros(6)[::2], torch.ones(3).to(torch.uint32)
    return (w * x, w + x, (w * x).double(), both[0], both[1], torch.outer(w, x).T, (w * x).to(torch.int64), few[0], x, 3, few[1])
"""


def test_copies_are_like_what_is_copied():
    made = recorded_where_it_pays(compiled(MANY), engine=SlowEngine(host=1.0, device=1.0))
    w, plain = torch.randn(3), compiled(MANY)
    for _ in range(8):
        x = torch.randn(3)
        found, expected = made([w, x]), plain([w, x])
        assert found[8] is x and found[9] == 3
        assert found[3].untyped_storage().data_ptr() == found[4].untyped_storage().data_ptr()
        for a, b in zip(found[:9] + found[10:], expected[:9] + expected[10:], strict=True):
            assert torch.equal(a, b) and (a.dtype, a.stride(), a.storage_offset()) == (b.dtype, b.stride(), b.storage_offset())
    assert made.graphed.engine.replayed


def test_sizes_that_never_come_again_are_given_up():
    facts = dict(symbols=(SymbolBinding("s0", "size", 1),), inputs=("w", "x"), checks=CHECKS)
    made = recorded_where_it_pays(compiled(**facts), engine=SlowEngine(host=1.0, device=1.0))
    graphed = made.graphed
    for n in range(unasked.MOST_PLAIN + 2 * unasked.LOOK_EVERY):
        w, x = torch.randn(n + 1), torch.randn(n + 1)
        assert torch.equal(made([w, x])[0], w * x)
    assert made.graphed is None and len(graphed.calls) <= unasked.MOST_PLAIN + 2 * unasked.LOOK_EVERY


def test_a_helper_of_many_layers_is_not_recorded_again_and_again():
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    engine, weights = made.graphed.engine, [torch.randn(4) for _ in range(12)]
    for _ in range(40):
        for w in weights:
            x = torch.randn(4)
            assert torch.equal(made([w, x])[0], w * x)
    assert engine.recorded <= record.MOST_UNASKED


def test_of_recordings_for_addresses_that_move_one_is_kept():
    """Where saved values lie elsewhere at each step, each one had a recording, with a copy of most of them."""
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    w, stays = torch.randn(4), torch.randn(4)
    for _ in range(FIRST + 2):
        made([w, stays])
    calls(made, w, 6)
    assert made.graphed.made == 2 and len(made.graphed.recordings) == 1 and made.graphed.replays >= 6


def test_threads_may_call_it_with_sizes_of_their_own():
    facts = dict(symbols=(SymbolBinding("s0", "size", 1),), inputs=("w", "x"), checks=CHECKS)
    made = recorded_where_it_pays(compiled(**facts), engine=SlowEngine(host=1.0, device=1.0))

    def serve(first):
        for n in range(first, first + 60):
            w, x = torch.randn(n), torch.randn(n)
            assert torch.equal(made([w, x])[0], w * x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(serve, range(1, 400, 100)))


def test_what_was_asked_for_does_not_go_for_what_was_not():
    engine = SlowEngine(host=1.0, device=1.0, size=64 << 20)
    asked = record.GraphedFn(compiled(), DEFAULT_OPTIONS, engine)
    w, x = torch.randn(4), torch.randn(4)
    for _ in range(6):
        asked([w, x])
    assert asked.recordings and BUDGET.bytes(0)
    calls(recorded_where_it_pays(compiled(), engine=engine), torch.randn(4), 12)
    assert asked.recordings


def test_memory_is_given_back_where_it_runs_out(monkeypatch):
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    w = torch.randn(4)
    calls(made, w, 8)
    kept = weakref.ref(made.graphed)

    def fail(slots):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(recording, "_copies", fail)
    with pytest.raises(torch.OutOfMemoryError):
        made([w, torch.randn(4)])
    gc.collect()
    assert kept() is None
    calls(made, torch.randn(4), 2)


def test_a_process_group_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    calls(made, torch.randn(4), 1)
    assert made.graphed is None


def test_modes_are_told_of_each_operator():
    class Counting(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counting.count += 1
            return func(*args, **(kwargs or {}))

    made = recorded_where_it_pays(compiled(), engine=SlowEngine(host=1.0, device=1.0))
    calls(made, torch.randn(4), 12)
    replayed = made.graphed.engine.replayed
    with Counting():
        made([torch.randn(4), torch.randn(4)])
    assert replayed and made.graphed.engine.replayed == replayed and Counting.count == 4


NOT_LOOKED_AT = {
    "few launches": dict(lines=LINES[2:]),
    "another's operator": dict(externs=frozenset({"aten::mul", "mine::counted"})),
    "a CPU": dict(devices={"cpu"}),
    "two devices": dict(devices={"cuda:0", "cuda:1"}),
    "a number in memory": dict(lines=(LINES[0], Number("n", "x", "cuda:0"), *LINES[1:])),
    "a number": dict(inputs=("w", "x"), checks=()),
    "a written input that is no buffer": dict(mutated_inputs=frozenset({1})),
    "the host waits": dict(externs=frozenset({"prims::nonzero"})),
}


@pytest.mark.parametrize("facts", NOT_LOOKED_AT.values(), ids=NOT_LOOKED_AT)
def test_what_is_not_looked_at(facts):
    given = compiled(**facts)
    assert recorded_where_it_pays(given, engine=SlowEngine()) is given


def test_blocking_launches_and_a_policy_leave_it_out(monkeypatch):
    given = compiled()
    assert recorded_where_it_pays(given, RuntimeOptions(cudagraph_policy=lambda fn: False), SlowEngine()) is given
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert recorded_where_it_pays(given, engine=SlowEngine()) is given


def test_random_numbers_are_not_recorded():
    made = recorded_where_it_pays(compiled(externs=frozenset({"aten::rand"})), engine=SlowEngine())
    assert made.graphed is None
