"""What a recorder keeps, and what it leaves as it is."""

import pytest
import torch
import tracework
from tracework.reports.recorder import Recorder


@pytest.mark.parametrize("profile", [False, True])
def test_what_runs_in_the_place_of_a_loaded_graph(profile):
    recorder = Recorder(profile)
    recorder.start()
    call = tracework.compile(lambda x: (x @ x).exp(), options={"cache": False})
    x = torch.rand(8, 8)
    wanted = (x @ x).exp()
    torch.testing.assert_close(call(x), wanted)
    recorder.stop()
    (own,) = recorder.compiled
    assert len(recorder.captured) == 1 and own.role == "inference" and own.prims is not None and own.artifact.notes["steps"]
    assert {span.stage for span in recorder.spans} >= {"capture", "aotautograd", "primops", "inductor", "runtime"}
    assert (own.times is not None) == profile
    call(x)
    assert not profile or own.times.calls == 2
    recorder.stop()


def test_a_backend_without_graphs_of_its_own_tells_of_capture_alone():
    recorder = Recorder()
    recorder.start()
    for backend in ("eager", "aot_eager_decomp_partition"):
        tracework.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    recorder.stop()
    assert len(recorder.captured) == 2 and recorder.compiled == []


def test_ranges_of_kernels_in_the_profiler():
    def program(x):
        return (x @ x).exp()

    x, line = torch.rand(8, 8), program.__code__.co_firstlineno + 1
    call = tracework.compile(program, options={"kernel_ranges": True})
    call(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        call(x)
    names = {event.key for event in found.key_averages()}
    assert any(name.startswith("inference of program") for name in names)
    assert f"exp_0 (test_recorder.py:{line})" in names
    assert {f"{product} (test_recorder.py:{line})" for product in ("mm", "gemm")} & names
