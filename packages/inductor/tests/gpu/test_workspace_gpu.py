"""Intermediate values in a workspace on a GPU: right values with streams, threads, calls within calls and recordings, no more memory."""

import dataclasses
import gc
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
import tracework_runtime as runtime
from tracework_inductor import compile_graph
from tracework_inductor.schedule import workspace
from tracework_primops import prims
from tracework_runtime import gpu_workspace
from tracework_runtime.cudagraph import GraphedFn
from tracework_runtime.cudagraph.budget import BUDGET
from tracework_runtime.cudagraph.engine import GraphEngine
from tracework_runtime.cudagraph.segment import Segment
from triton_programs import graph_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
SIZE = 256


def products(x, w):
    """Values between library calls, one of them read twice, another an output."""
    a = prims.mm(x, w)
    for _ in range(4):
        b = prims.tanh(prims.mm(prims.sin(a), w))
        a = prims.mm(prims.add(b, a), w)
    return a, prims.sum(a, (0,)), prims.permute(b, (1, 0))


def inputs(seed):
    made = torch.Generator("cuda").manual_seed(seed)
    return [torch.randn(SIZE, SIZE, device="cuda", generator=made) / 16 for _ in range(2)]


@pytest.fixture(scope="module")
def compiled():
    found = runtime.load(compile_graph(graph_of(products, *inputs(0))))
    assert "gpu_workspace" in found.artifact.host_source and found.artifact.host_lines
    return found


def same(got, given):
    for mine, wanted in zip(got, graph_of(products, *given).run(*given), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-3)


def test_calls_in_turn(compiled):
    results = [(compiled(list(given)), given) for given in map(inputs, range(6))]
    for got, given in results:
        same(got, given)


def test_the_python_program(compiled):
    python = runtime.load(compiled.artifact.replace(host_lines=()))
    for given in map(inputs, range(3)):
        same(python(list(given)), given)


def test_a_call_within_a_call(compiled):
    held = gpu_workspace.take(1000)
    given = inputs(1)
    got = compiled(list(given))
    gpu_workspace.give(held)
    same(got, given)


@pytest.mark.parametrize("own_streams", [False, True])
def test_threads(compiled, own_streams):
    wrong = []

    def work(seed):
        given = inputs(seed)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream() if own_streams else torch.cuda.default_stream()):
            wanted = compiled(list(given))
            for _ in range(50):
                got = compiled(list(given))
            torch.cuda.current_stream().synchronize()
        wrong.extend(seed for a, b in zip(got, wanted, strict=True) if not torch.equal(a, b))
        same(wanted, given)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_recording_is_replayed_beside_other_calls(compiled):
    recorded, other = inputs(2), inputs(3)
    wanted = [value.clone() for value in compiled(list(recorded))]
    expected = [value.clone() for value in compiled(list(other))]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = compiled(list(recorded))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(50):
        with torch.cuda.stream(stream):
            graph.replay()
        got = compiled(list(other))
    torch.cuda.synchronize()
    for values, right in ((kept, wanted), (got, expected)):
        assert all(torch.equal(a, b) for a, b in zip(values, right, strict=True))


def wide(x, w):
    """Much between the results, by the library and by kernels, one of them made by the library and one a view."""
    a = prims.mm(x, w)
    for _ in range(3):
        a = prims.mm(prims.tanh(a), w)
    return prims.sum(a, (0,)), prims.mm(prims.sin(x), w), prims.permute(prims.mm(x, prims.cos(w)), (1, 0))


class Paying(GraphEngine):
    """Takes it that every recording pays."""

    def time(self, call, device):
        return call(), 1.0, 1.0


@pytest.mark.parametrize("draws", [False, True])
def test_recordings_share_what_they_do_not_hand_out(draws):
    """Memory of all recordings of a stream is what they hand out, and once the most that one needs; no result is written to by others."""
    size, given = 2048, torch.Generator("cuda").manual_seed(0)
    x, w = (torch.randn(size, size, device="cuda", generator=given) / 32 for _ in range(2))
    compiled = runtime.load(compile_graph(graph_of(wide, x, w)))
    assert compiled.artifact.host_lines and not Segment.of(compiled).draws
    functions = [GraphedFn(compiled, engine=Paying()) for _ in range(6)]
    for fn in functions:  # by the driver, or through torch
        fn.segment = dataclasses.replace(fn.segment, draws=draws)
    streams = [torch.cuda.default_stream(), torch.cuda.Stream()]
    kept = []
    for n in range(5):
        x = torch.randn(size, size, device="cuda", generator=given) / 32
        wanted = graph_of(wide, x, w).run(x, w)
        torch.cuda.synchronize()
        for number, fn in enumerate(functions):
            with torch.cuda.stream(streams[number % 2]):
                kept.append((fn([x, w]), wanted))
        torch.cuda.synchronize()
        for found, expected in kept[-len(functions) :]:
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
        if n < 4:
            del kept[:], found, a
    assert all(fn.replays and fn.made <= 2 for fn in functions)
    one = 4 * size * size
    libraries = 96 << 20  # what the matrix library takes for each stream
    assert len(BUDGET.arenas) == 2 and all(one <= size <= 6 * one + libraries for size in BUDGET.arenas.values())
    assert all(recording.bytes <= 2 * one + (64 << 20) for fn in functions for recording in fn.recordings)
    del kept, functions, fn, found, a
    gc.collect()
    assert not BUDGET.arenas


def test_no_more_memory_than_with_the_allocator_alone(compiled, monkeypatch):
    monkeypatch.setitem(workspace.LEAST_BUFFERS, "cuda", 100)
    given = inputs(4)
    plain = runtime.load(compile_graph(graph_of(products, *given)))
    assert "gpu_workspace" not in plain.artifact.host_source
    peaks = []
    for call in (plain, compiled):
        call(list(given))
        gpu_workspace.forget()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call(list(given))
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] <= peaks[0] + workspace.ROUNDING["cuda"]
    gpu_workspace.forget()
    assert torch.cuda.memory_allocated() == before
