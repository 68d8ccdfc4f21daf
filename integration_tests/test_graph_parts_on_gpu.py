"""Models in which something cannot be recorded as a CUDA graph: what is around it is, and every value is eager's."""

import pytest
import torch
import tracework
from tracework_runtime.cudagraph import record

from benchmarks.micro import graph_parts

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
ROUTED = graph_parts.Routed


@pytest.fixture(autouse=True)
def every_recording_pays(monkeypatch):
    tracework.compiler.reset()
    monkeypatch.setattr(record.GraphEngine, "time", lambda self, call, device: (call(), 1.0, 1.0))


@pytest.mark.filterwarnings("ignore:.*cannot be recorded as a CUDA graph")
@pytest.mark.parametrize("program", graph_parts.PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
def test_values(program, train):
    if train and program in graph_parts.INFERENCE:
        pytest.skip("the operator has no backward")
    model, inputs = graph_parts.made(program)
    model.requires_grad_(train)
    call, kept = tracework.compile(model, mode="reduce-overhead"), []
    with graph_parts.Recorded() as recorded:
        for step in range(12):
            x = inputs()
            found, expected = call(x), model(x)
            kept = [*kept[-2:], (found, expected)]
            if train:
                for value in (found, expected):
                    model.zero_grad()
                    value.square().mean().backward()
                    kept.append(([p.grad.clone() for p in model.parameters() if p.grad is not None],))
                mine, eager = kept.pop()[0], kept.pop()[0]
                torch.testing.assert_close(mine, eager, rtol=2e-3, atol=2e-4)
            for found, expected in kept:
                torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
            if step % 4 == 3:
                tracework.compiler.cudagraph_mark_step_begin()
    assert recorded.parts() >= program.parts + train, [(g, g.reasons()) for g in recorded.functions]
    assert sum(g.replays for g in recorded.functions) >= 8


@pytest.mark.parametrize("program", [graph_parts.CpuTensor, graph_parts.Cholesky, graph_parts.Unsafe], ids=lambda p: p.__name__)
def test_what_is_said_of_the_parts(program):
    model, inputs = graph_parts.made(program)
    report = tracework.explain(model)(inputs())
    assert not report.unrecorded and report.parts == program.parts
    assert any("graph_parts.py" in reason for reason in report.between), report.between
    with pytest.raises(Exception, match="is not recorded"):
        tracework.compile(model, options={"cudagraphs": True, "cudagraph_or_error": True})(inputs())


def test_peak_memory_of_a_call():
    """What parts give each other ends with its last reader: a replay needs no more than the recordings keep."""
    model, inputs = graph_parts.made(graph_parts.CpuTensor)
    peaks = {}
    for mode in ("default", "reduce-overhead"):
        call, x = tracework.compile(model, mode=mode), inputs()
        for _ in range(6):
            call(x)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(6):
            call(x)
        peaks[mode] = torch.cuda.max_memory_allocated() - before
    assert peaks["reduce-overhead"] <= 1.1 * peaks["default"], peaks
