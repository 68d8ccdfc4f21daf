"""Recording and replaying, with an engine that repeats the call into the recorded memory."""

import ctypes
import warnings

import pytest
import torch
from tracework_runtime import Artifact, KernelSource, RuntimeOptions, _torch
from tracework_runtime.cudagraph import record
from tracework_runtime.cudagraph.refusals import CUDAGRAPH_REFUSALS, refusals
from tracework_runtime.load import CompiledFn
from tracework_runtime.observe import counters, reset_counters


def memory(tensor):
    """The tensor's memory without a reference to it, as a graph has it."""
    address = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    return torch.frombuffer(address, dtype=tensor.dtype).reshape(tensor.shape)


class SlowEngine:
    device_type = "cpu"

    def __init__(self):
        self.recorded = self.replayed = 0

    def capturing(self):
        return False

    def record(self, call, inputs, device):
        self.recorded += 1
        kept = [memory(x) for x in inputs]
        outputs = call(list(inputs))
        written = [memory(o) for o in outputs]

        def replay():
            self.replayed += 1
            for view, new in zip(written, call(list(kept)), strict=True):
                view.copy_(new)

        return replay, outputs


HOST = """
def call(args):
    w, x = args
    args.clear()
    return (w * x, w + x)
"""


@pytest.fixture
def graphed():
    reset_counters()
    artifact = Artifact("k" * 8, HOST, devices={"cuda:0"}, static_inputs={0})
    namespace = {}
    exec(HOST, namespace)
    return record.GraphedFn(CompiledFn(artifact, namespace), RuntimeOptions(), SlowEngine())


def expect(out, w, x):
    assert torch.equal(out[0], w * x)
    assert torch.equal(out[1], w + x)


def test_warm_up_record_replay(graphed):
    w = torch.randn(4)
    for step in range(5):
        x = torch.randn(4)
        expect(graphed([w, x]), w, x)
        assert graphed.engine.replayed == step
    assert graphed.engine.recorded == 1


def test_output_alive_at_the_next_call_is_not_overwritten(graphed):
    w = torch.randn(4)
    kept = []
    for _ in range(6):
        x = torch.randn(4)
        kept.append((graphed([w, x])[0], w * x))
        for value, expected in kept:
            assert torch.equal(value, expected)
    assert graphed.engine.recorded == 2  # once more, with the first output as a copy
    assert [o.copied for o in next(iter(graphed.recordings.values())).outputs] == [True, False]


def test_memory_of_a_dead_function_is_anybodys(graphed):
    """It was taken for a recording's memory still, so every call that met it recorded anew."""
    w = torch.randn(4)
    for _ in range(3):
        graphed([w, torch.randn(4)])
    addresses = [o.value.data_ptr() for r in graphed.recordings.values() for o in r.outputs]
    assert set(addresses) <= set(record._POOL_MEMORY)
    graphed.recordings.clear()
    assert not set(addresses) & set(record._POOL_MEMORY)


def test_a_view_of_an_output_keeps_it(graphed):
    w = torch.randn(4)
    graphed([w, torch.randn(4)])
    x = torch.randn(4)
    view = graphed([w, x])[1][1:3]
    expected = (w + x)[1:3]
    graphed([w, torch.randn(4)])
    assert torch.equal(view, expected)


def test_new_parameter_memory_records_again(graphed):
    x = torch.randn(4)
    for _ in range(3):
        graphed([torch.ones(4), x])
    w = torch.full((4,), 3.0)
    expect(graphed([w, x]), w, x)


def test_new_size_has_its_own_recording(graphed):
    for n in (4, 5, 4, 5, 4, 5):
        w, x = torch.randn(n), torch.randn(n)
        expect(graphed([w, x]), w, x)


def test_saved_values_are_read_in_place(graphed):
    w = torch.randn(4)
    for _ in range(2):
        graphed([w, torch.randn(4)])
    second = record.GraphedFn(graphed.compiled, RuntimeOptions(), SlowEngine())
    for _ in range(4):
        x = torch.randn(4)
        out = graphed([w, x])[0]
        expect(second([w, out]), w, w * x)
        del out
    (recording,) = second.recordings.values()
    assert recording.copies == ()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("no gpu", {"devices": set()}),
        ("several gpus", {"devices": {"cuda:0", "cuda:1"}}),
        ("cpu work", {"kernels": (KernelSource("k", "cpp", ""),)}),
        ("cpu work", {"devices": {"cuda:0", "cpu"}}),
        ("waits", {"externs": {"aten::mm", "aten::_local_scalar_dense"}}),
        ("waits", {"externs": {"prims::nonzero"}}),
        ("mutated input", {"mutated_inputs": {1}}),
    ],
)
def test_refusals(graphed, name, change):
    artifact = graphed.artifact
    assert refusals(artifact) == ()
    assert refusals(artifact.replace(**change)) == (f"{name}: {CUDAGRAPH_REFUSALS[name][1]}",)


def test_refused_function_is_returned_as_it_is(graphed):
    plain = CompiledFn(graphed.artifact.replace(devices={"cpu"}), {"call": tuple})
    assert record.cudagraph(plain) is plain
    assert counters()["cudagraph.refused"] == 1


@pytest.mark.parametrize("held", [False, True])
def test_an_error_while_recording_is_a_warning_and_no_error_of_the_call(graphed, held, monkeypatch):
    w, kept = torch.randn(4), []
    for _ in range(2 if held else 0):
        kept.append(graphed([w, torch.randn(4)]))

    def fail(*args):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphed.engine, "record", fail)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for n in (4, 4, 4, 5, 5, 4):
            w, x = torch.randn(n), torch.randn(n)
            expect(graphed([w, x]), w, x)
    (warning,) = said
    assert "not permitted" in str(warning.message) and "reduce-overhead" in str(warning.message)
    assert not graphed.recordings
    assert counters()["cudagraph.plain.refused"] == (6 if held else 5)


@pytest.mark.parametrize("externs", [frozenset(), frozenset({"aten::mm"})])
def test_a_recording_for_each_of_the_settings_that_library_kernels_look_at(graphed, externs):
    graphed.artifact = graphed.artifact.replace(externs=externs)
    w = torch.randn(4)
    for setting in ({"benchmark": True}, {}, {"deterministic": True}, {}):
        with torch.backends.cudnn.flags(**setting):
            for _ in range(2):
                x = torch.randn(4)
                expect(graphed([w, x]), w, x)
    assert len(graphed.recordings) == (3 if externs else 1)


def test_precisions_in_the_newer_words_are_among_the_settings():
    products, images, found = torch.backends.cuda.matmul, torch.backends.cudnn.conv, []
    try:
        for products.fp32_precision, images.fp32_precision in (
            ("ieee", "ieee"),
            ("tf32", "ieee"),
            ("tf32", "tf32"),
            ("ieee", "tf32"),
        ):
            found.append(_torch.library_settings())
    finally:
        products.fp32_precision = images.fp32_precision = "none"
    assert len(set(found)) == 4
