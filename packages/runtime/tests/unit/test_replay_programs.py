"""Programs of recorded functions on the engine double: no wrong value, and bounded numbers of recordings."""

import contextlib
import gc
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tracework_runtime import Artifact, RuntimeOptions
from tracework_runtime.cudagraph import record, recording
from tracework_runtime.cudagraph.step import STEPS
from tracework_runtime.load import CompiledFn

slow_engine = pytest.importorskip("slow_engine")
programs = pytest.importorskip("replay_programs")
steps = st.tuples(st.sampled_from(programs.WORDS), st.integers(0, 99), st.integers(0, 99))


def functions(engine):
    made = {}
    for name, host in programs.HOSTS.items():
        artifact = Artifact(name, host, devices={"cuda:0"}, static_inputs={0}, mutated_inputs=programs.WRITTEN.get(name, ()))
        namespace = {"torch": torch}
        exec(host, namespace)
        made[name] = record.GraphedFn(CompiledFn(artifact, namespace), RuntimeOptions(), engine)
    return made


def machine(seed=0):
    engine = slow_engine.SlowEngine()
    return programs.Machine(functions(engine), programs.streams(engine), seed=seed)


def bounded(made):
    return all(f.made <= f.most_recordings() for f in made.functions.values())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(steps, min_size=20, max_size=120))
def test_programs(program):
    STEPS.number, made = 0, machine()
    made.run(program)
    assert bounded(made)


@pytest.mark.parametrize("seed", range(3))
def test_long_programs(seed):
    before = sum(recording._MEMORY.values())
    STEPS.number, made = 0, machine(seed)
    made.run(programs.random_program(seed, 1500))
    assert bounded(made) and sum(f.replays for f in made.functions.values()) > 200
    del made
    gc.collect()
    assert sum(recording._MEMORY.values()) == before


def test_programs_of_two_threads():
    STEPS.number, made, failures = 0, machine(), []
    others = [programs.Machine(made.functions, [contextlib.nullcontext], seed=seed) for seed in (1, 2)]

    def work(one, seed):
        try:
            one.run(programs.random_program(seed, 700))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(one, seed)) for seed, one in enumerate(others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and bounded(made)
