"""What sees the launches and calls of a host program: nothing changes for them, and times and ranges are those of the lines."""

import threading
import time

import pytest
import torch
from tracework_runtime import Artifact, CompiledFn, Ranges, StepTimes, watched
from tracework_runtime.host.lines import Allocate, Call, Free, Inputs, Return
from tracework_runtime.host.program import host_program

LINES = (
    Inputs(("x",)),
    Allocate("a", "cpu", "float32", (2,), (1,)),
    Call(("b = work(x)",), ("x",), ("b",)),
    Free(("a",)),
    Call(("c = work(b)", "sleep(0.004)"), ("b",), ("c",)),
    Return(("c",), ("c",)),
)
NAMES = {2: "first", 4: "second"}


def compiled(work):
    artifact = Artifact("k" * 8, "", host_lines=LINES)
    namespace = {"work": work, "sleep": time.sleep}
    return CompiledFn(artifact, {**namespace, "call": host_program(artifact, namespace)})


def test_times_of_lines():
    times = StepTimes(False, Ranges("graph", NAMES))
    call = watched(compiled(lambda x: x + 1), times)
    for _ in range(3):
        args = [torch.zeros(2)]
        assert call(args)[0].tolist() == [2, 2] and args == []
    whole, lines = times.microseconds()
    assert times.calls == 3 and lines.keys() == NAMES.keys()
    assert lines[2] < 4000 < lines[4] and sum(lines.values()) < whole


def test_ranges_only_while_the_profiler_is_on():
    call = watched(compiled(lambda x: x + 1), Ranges("graph", NAMES))
    call([torch.zeros(2)])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        call([torch.zeros(2)])
    counts = {event.key: event.count for event in found.key_averages()}
    assert [counts[name] for name in ("graph", "first", "second", "aten::add")] == [1, 1, 1, 2]


def test_a_line_that_raises_leaves_no_range_open():
    call = watched(compiled(lambda x: 1 // 0), Ranges("graph", NAMES))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        with pytest.raises(ZeroDivisionError):
            call([torch.zeros(2)])
    assert {event.key for event in found.key_averages()} >= {"graph", "first"}


def test_a_call_within_a_call_and_calls_of_threads():
    times = StepTimes(False, Ranges("graph", NAMES))
    depth = threading.local()

    def work(x):
        depth.n = getattr(depth, "n", 0) + 1
        inner = call([x])[0] if depth.n < 3 else x + 1
        depth.n -= 1
        return inner

    call = watched(compiled(work), times)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        threads = [threading.Thread(target=call, args=([torch.zeros(2)],)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert times.calls >= 4 and all(len(spans) == 2 for _, spans in times._calls)


def test_a_function_without_lines_is_left_as_it_is():
    plain = CompiledFn(Artifact("k" * 8, ""), {"call": lambda inputs: (1,)})
    assert watched(plain, Ranges("graph", {})) is plain
