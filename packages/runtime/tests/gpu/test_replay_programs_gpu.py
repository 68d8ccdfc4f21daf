"""Programs of recorded functions on a GPU: 10,000 calls in which inputs, parameters, caches, sizes and streams change and results are held."""

import contextlib
import functools
import gc

import pytest
import torch
from tracework_runtime import Artifact, PartitionedFn, RuntimeOptions
from tracework_runtime.cudagraph import partition, record
from tracework_runtime.cudagraph.engine import GraphEngine
from tracework_runtime.cudagraph.partition import parts_of
from tracework_runtime.cudagraph.step import STEPS
from tracework_runtime.load import CompiledFn

programs = pytest.importorskip("replay_programs")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


KEPT = 64 << 20


class RecordingEngine(GraphEngine):
    """Takes it that every recording pays."""

    def time(self, call, device):
        return call(), 1.0, 1.0


def functions(engine):
    share = KEPT / torch.cuda.get_device_properties(0).total_memory
    made, options = {}, RuntimeOptions(cudagraph_memory_share=share)
    for name, host in programs.HOSTS.items():
        artifact = Artifact(
            name,
            host,
            devices={"cuda:0"},
            externs={"aten::mul"},
            static_inputs={0},
            mutated_inputs=programs.WRITTEN.get(name, ()),
        )
        namespace = {"torch": torch}
        exec(host, namespace)
        made[name] = record.GraphedFn(CompiledFn(artifact, namespace), options, engine)
    return made


def partitioned(engine):
    """The same functions with what cannot be recorded between."""
    share = KEPT / torch.cuda.get_device_properties(0).total_memory
    names = {"torch": torch, "there_and_back": programs.there_and_back, "wait_for": programs.wait_for, "call": None}
    made = {}
    for name, lines in programs.LINES.items():
        artifact = Artifact(
            name * 3,
            "",
            devices={"cuda:0", "cpu"},
            externs={operator for line in lines for operator in getattr(line, "operators", ())},
            static_inputs={0},
            mutated_inputs=programs.WRITTEN.get(name, ()),
            host_lines=lines,
        )
        options = RuntimeOptions(cudagraph_memory_share=share)
        made[name] = PartitionedFn(CompiledFn(artifact, dict(names)), parts_of(artifact), options, engine)
    return made


@contextlib.contextmanager
def on(stream):
    here = torch.cuda.current_stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        yield
    here.wait_stream(stream)


@pytest.mark.parametrize("make", [functions, partitioned])
@pytest.mark.parametrize("seed", range(2))
def test_programs(seed, make, monkeypatch):
    monkeypatch.setattr(partition, "LEAST_WORK", 1)
    STEPS.number = 0
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    engine = RecordingEngine()
    streams = [contextlib.nullcontext, functools.partial(on, torch.cuda.Stream())]
    made = programs.Machine(make(engine), streams, "cuda", seed)
    made.run(programs.random_program(seed, 7000))
    assert all(f.made <= f.most_recordings() for f in made.functions.values())
    assert sum(f.replays for f in made.functions.values()) > 1000
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before < 2 * KEPT
    del made
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before < 32 << 20
