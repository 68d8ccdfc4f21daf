"""Candidates are timed on memory of their own; what cannot run is a reason, and no error."""

import ctypes
import functools
import time

import pytest
import torch
from tracework_runtime import BuildError, KernelSource, LaunchError, RuntimeOptions
from tracework_runtime.build import triton as build
from tracework_runtime.cache.store import MemoryStore
from tracework_runtime.launch import timing
from tracework_runtime.launch.timing import NOT_NOW, Trial, time_trials

COUNT = 64
SHARED = 1000


class Writer:
    """A driver whose functions write what their number says: the second tensor is the first one times the blocks' size over 128."""

    def __init__(self) -> None:
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(self.launch)
        self.launch_address = ctypes.cast(self.function, ctypes.c_void_p).value
        self.inputs, self.written, self.timed, self.loaded, self.last = [], set(), [], [], 0
        self.records = False
        self.fails = ()

    def load(self, code, symbol, shared, device):
        self.loaded.append((int(code), device))
        return int(code)

    def launch(self, config, function, parameters, extra):
        self.last = function
        if function in self.fails:
            return 1
        a, b = (ctypes.c_void_p.from_address(p).value for p in (ctypes.c_void_p * 2).from_address(parameters))
        given = (ctypes.c_float * COUNT).from_address(a)
        result = (ctypes.c_float * COUNT).from_address(b)
        self.inputs.append(tuple(given))
        self.written.add(b)
        for n in range(COUNT):
            result[n] = given[n] + (1.0 if function == 4096 and n == COUNT - 1 else 0.0)
        return 0

    def capturing(self):
        return self.records

    def current_stream(self, device):
        return 5

    def most_shared(self, device):
        return SHARED

    def check(self, status, doing):
        if status:
            raise LaunchError(f"CUDA error {status} while {doing}")

    def microseconds(self, runs, rounds, device):
        self.timed.append((len(runs), rounds, device))
        found = []
        for run in runs:
            run()
            found.append(float(self.last))
        return found


@pytest.fixture
def built(monkeypatch):
    """Binaries that are the size of the blocks as text; blocks of 32 cannot be compiled, those of 64 take too much shared memory. Of devices
    that the machine may not have."""
    asked = []

    def build_each(jobs, options, store, anew=False):
        if len(jobs) > 1:  # else it is what a launch asks for, which the store would have
            asked.append(len(jobs))
        return [_built(job["constants"]["XBLOCK"], job) for job in jobs]

    monkeypatch.setattr(build, "build_each", build_each)
    monkeypatch.setattr(timing, "_tensors", functools.partial(_on_cpu, timing._tensors))
    monkeypatch.setattr(timing.cuda, "capability", lambda index=0: timing.cuda.DEFAULT_CAPABILITY)
    return asked


def _built(size, job):
    if size == 32:
        return BuildError("Triton cannot compile", excerpt="Traceback\nOutOfResources: registers")
    return build.Cubin(b"%d" % size, "kernel", SHARED + 1 if size == 64 else 0, job["num_warps"], 2)


def _on_cpu(make, trial, device):
    return make(trial, torch.device("cpu"))


def trial(size, device=0):
    record = {
        "entries": ["kernel"],
        "grids": ["1"],
        "configs": [{"constants": {"XBLOCK": size}, "num_warps": 4, "num_stages": 1}],
        "device": device,
    }
    return Trial(KernelSource("candidate", "triton", "source", ("*fp32", "*fp32"), record), (COUNT, COUNT), frozenset({1}))


def times(groups, driver, until=None, workers=2):
    options = RuntimeOptions(disk_cache=False, triton_workers=workers)
    return time_trials(groups, options, MemoryStore(), driver, time.monotonic() + 100 if until is None else until)


def test_times_and_reasons_in_the_order_of_what_was_asked(built):
    driver = Writer()
    found = times([[trial(n) for n in (128, 32, 256, 64, 4096)], [trial(512, device=1)]], driver)
    assert found == [
        [
            128.0,
            "Triton cannot compile it: OutOfResources: registers",
            256.0,
            f"it takes {SHARED + 1} bytes of shared memory, and there are {SHARED}",
            "its bits differ from those of the first",
        ],
        [512.0],
    ]
    assert driver.timed == [(2, timing.ROUNDS, 0), (1, timing.ROUNDS, 1)]


def test_all_candidates_of_a_group_read_and_write_the_same_memory(built):
    driver = Writer()
    times([[trial(n) for n in (128, 256, 512)]], driver)
    assert len(driver.written) == 1 and len(set(driver.inputs)) == 1 and len(set(driver.inputs[0])) > COUNT // 2


def test_generators_of_the_program_are_not_asked(built):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    times([[trial(128), trial(256)]], Writer())
    assert torch.equal(before, torch.get_rng_state())


def test_a_launch_that_fails_is_a_reason(built):
    driver = Writer()
    driver.fails = (256,)
    first, second = times([[trial(256), trial(128)]], driver)[0]
    assert first.startswith("it cannot be launched: CUDA error 1") and second == 128.0
    driver.fails = (256, 128)
    assert all("cannot be launched" in reason for reason in times([[trial(256), trial(128)]], driver)[0])


def test_nothing_is_timed_while_a_graph_is_recorded(built):
    driver = Writer()
    driver.records = True
    found = times([[trial(128), trial(256)], [trial(128)]], driver)
    assert [len(group) for group in found] == [2, 1] and {us[: len(NOT_NOW)] for group in found for us in group} == {NOT_NOW}
    assert not built and not driver.loaded


def test_what_is_not_begun_in_time_is_left_out(built, monkeypatch):
    driver = Writer()
    clock = iter(range(100))
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(clock))
    found = times([[trial(n) for n in (128, 256)] for _ in range(6)], driver, until=1, workers=1)
    assert built == [2, 2] and found[:2] == [[128.0, 256.0]] * 2
    assert found[2:] == [[NOT_NOW + "no time was left"] * 2] * 4


def test_kernels_are_compiled_together(built):
    times([[trial(n) for n in (128, 256)] for _ in range(5)], Writer(), workers=2)
    assert built == [4, 4, 2]


def test_too_little_memory_is_a_reason(built, monkeypatch):
    def none_left(trial, device):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(timing, "_tensors", none_left)
    assert times([[trial(32), trial(128)]], Writer()) == [
        ["Triton cannot compile it: OutOfResources: registers", NOT_NOW + "there is too little memory"]
    ]


@pytest.mark.parametrize("text", sorted(set(timing._DTYPES)))
def test_tensors_of_each_type(text):
    one = Trial(KernelSource("candidate", "triton", "", (text, "i64", "*bf16"), {}), (5, 7), frozenset({1}), (3,))
    first, second = timing._tensors(one, torch.device("cpu"))
    assert (first.numel(), second.numel()) == (5, 7) and first.dtype == timing._DTYPES[text] and second.dtype == torch.bfloat16
    assert bool(first.any()) == first.is_floating_point()
