"""Gradients of what bodies of attention read: Triton's interpreter against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[5]))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_forms import block_mask, causal  # noqa: E402
from attention_kernels import BATCH, BF16, CUDA, F32, LENGTH, SCALE, SUMS, operands, run, sums_program, trained  # noqa: E402
from prim_programs import build  # noqa: E402
from tracework_inductor.codegen.triton.cores.attention import config as core  # noqa: E402
from tracework_primops import FakeMode, SymbolTable, TensorSpec, trace_bodies  # noqa: E402
from tracework_primops.attention import forward_reference, sums_reference  # noqa: E402
from triton_programs import rendered  # noqa: E402

SUMS_SHAPES = {
    "odd": {"queries": 75, "keys": 90},
    "more queries": {"queries": 100, "keys": 33, "inside": True},
    "one query": {"queries": 1, "keys": 50},
    "whole blocks": {"queries": 64, "keys": 128, "width": 24, "out_width": 40},
    "halves": {"queries": 60, "keys": 90, "dtype": BF16},
}


def run_sums(name, shape, folder, blocks=(), extents=()):
    """What the kernel of a case gives, what all scores give in float64, and its text."""
    q, k, v, grad = operands(heads=4, key_heads=2, **SUMS_SHAPES[shape])
    axes, sizes, function = SUMS[name]
    x = torch.rand(sizes(q.shape[2], k.shape[2]))
    score, keep, slope, ((place, _, factor),) = texts = trained(function, axes, x.shape)
    wide = [t.double() for t in (grad, q, k, v)]
    out, *rows = forward_reference(*wide[1:], [x], [], [], score, keep, SCALE, [])
    rows = [x.float() for x in (*rows, (wide[0] * out).sum(-1))]
    given = [grad, q, k, v, *rows, *blocks, x]
    along = texts.trained[0].along
    (found,), kernels = run(sums_program(score, keep, factor, along, extents, len(blocks)), given, folder)
    wanted = sums_reference(*wide, *(t.double() for t in rows), [x.double()], [], [], score, factor, keep, SCALE, [], along)
    (kernel,) = kernels.values()
    return found, wanted, kernel


@pytest.mark.parametrize("shape", SUMS_SHAPES)
@pytest.mark.parametrize("name", SUMS)
def test_gradients_of_what_bodies_read(name, shape, tmp_path):
    found, wanted, kernel = run_sums(name, shape, tmp_path)
    assert found.dtype == F32 and "atomic" not in kernel.source
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=0.06 if shape == "halves" else 2e-5)


@pytest.mark.parametrize("name", ["of each head", "of each key"])
def test_gradients_of_what_bodies_read_under_a_block_mask(name, tmp_path, monkeypatch):
    monkeypatch.setitem(core.WIDE_BACKWARD, 64, (16, 16, 4, 1))
    monkeypatch.setitem(SUMS_SHAPES, "blocks", {"queries": 96, "keys": 96})
    documents = torch.arange(96) // 30
    monkeypatch.setattr("attention_kernels.causal", lambda s, b, h, i, j, x: ((i // 30) == (j // 30)) & (i >= j))
    i = torch.arange(96)
    blocks = block_mask((documents[:, None] == documents) & (i[:, None] >= i), 16, 32)
    found, wanted, kernel = run_sums(name, "blocks", tmp_path, blocks, (16, 32))
    assert "partial" in kernel.source
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("length", [2, 45])
def test_sums_over_sizes_that_change(length, tmp_path):
    """For each distance, where queries are twice as many as keys."""
    _, _, function = SUMS["of each distance"]
    mode = FakeMode(table := SymbolTable())
    x = mode.from_real(torch.zeros(4, 9), sizes=[4, table.new(9)], strides=[9, 1])
    score, keep, _, ((_, _, factor),) = trace_bodies(function, causal, [x], F32, torch.device("cpu"), table, {0: "hd"})
    sizes = [(BATCH, heads, n, 16) for heads, n in ((4, 2 * LENGTH), (4, 2 * LENGTH), (2, LENGTH), (2, LENGTH))]
    rows = (BATCH, 4, 2 * LENGTH)
    specs = [TensorSpec(F32, CUDA, s) for s in (*sizes, rows, rows, rows, (4, 3 * LENGTH - 1))]
    host, kernels = rendered(build(sums_program(score, keep, factor, "distances"), [None] * 8, specs))
    q, k, v, grad = operands(2 * length, length, heads=4, key_heads=2)
    bias = torch.randn(4, 3 * length - 1)
    out, *rows = forward_reference(q, k, v, [bias], [], [], score, keep, SCALE, [])
    given = [grad, q, k, v, *rows, (grad * out).sum(-1)]
    (found,) = triton_interpreter.host_call(host, kernels, tmp_path)([*given, bias])
    wanted = sums_reference(*(t.double() for t in given), [bias.double()], [], [], score, factor, keep, SCALE, [], "distances")
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-5)
