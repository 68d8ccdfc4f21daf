"""Attention of a few queries over many keys on a CPU: values against float64, and what is left to the library."""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

import pytest
import torch
import tracework_runtime as runtime
from few_queries import F32, PROBLEMS, ROUNDING, WRITTEN, attention, exact, keys, mask_of, written
from prim_programs import build, copied, overload
from tracework_inductor import compile_graph
from tracework_primops import TensorSpec


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    module = importlib.import_module("tracework_inductor.passes.fuse_attention")  # its function has the same name
    monkeypatch.setattr(module, "LEAST_ON_CPU", 0)


def run(program, inputs):
    """The first value, and whether a kernel of ours computed it without the library."""
    artifact = compile_graph(build(program, inputs))
    (value, *_) = runtime.load(artifact)([copied(x) for x in inputs])
    return value, is_ours(artifact)


def is_ours(artifact):
    calls = ("torch.ops", "torch.bmm", "torch.baddbmm")
    in_core = any("highest[r]" in k.source for k in artifact.kernels)
    return in_core and not any(call in artifact.host_source for call in calls)


@pytest.mark.parametrize(("problem", "masked", "layout"), [p for p in PROBLEMS if p[0][2] <= 32])
def test_values(problem, masked, layout):
    dtype, batch, heads, groups, queries, length, width = problem
    torch.manual_seed(0)
    q = torch.randn(batch, queries, heads, width).to(dtype).transpose(1, 2)
    k, v = (keys(batch, groups, length, width, dtype, layout) for _ in range(2))
    mask = None if masked == "causal" else mask_of(masked, batch, heads, queries, length, dtype)
    inputs = [t for t in (q, k, v, mask) if t is not None]
    scale = 0.25 if width == 96 else None
    value, ours = run(attention("cpu", causal=masked == "causal", scale=scale, repeats=heads // groups), inputs)
    assert ours and value.stride() == (queries * heads * width, width, heads * width, 1)
    wanted = exact(q, k, v, mask, masked == "causal", scale)
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=float(4 * ROUNDING[dtype] * v.abs().max()))


@pytest.mark.parametrize("hidden", ["some", "all"])
@pytest.mark.parametrize("case", WRITTEN)
def test_attention_that_is_written_out(case, hidden):
    program, inputs, wanted, atol = written(case, hidden)
    value, ours = run(program, inputs)
    assert ours
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=atol, equal_nan=True, check_stride=True)


def test_elements_that_do_not_lie_side_by_side():
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 1, 16), *(torch.randn(1, 2, 24, 200)[:, :, :16].transpose(2, 3) for _ in range(2))
    value, _ = run(attention("cpu"), [q, k, v])
    torch.testing.assert_close(value.double(), exact(q, k, v), rtol=0, atol=4e-6)


@pytest.mark.parametrize(("heads", "queries", "dtype"), [(4, 9, F32), (17, 1, F32), (4, 1, torch.float64)])
def test_what_the_library_keeps(heads, queries, dtype):
    specs = [TensorSpec(dtype, torch.device("cpu"), s) for s in ((1, heads, queries, 64), (1, 1, 40, 64), (1, 1, 40, 64))]

    def program(q, k, v):  # whose heads are as the kernel takes them
        inner, rows = TensorSpec(dtype, q.device, q.sizes), TensorSpec(torch.float32, q.device, q.sizes[:3])
        return overload(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, (q, k, v), inner, rows)

    assert not is_ours(compile_graph(build(program, [None] * 3, specs)))
