"""Attention with bodies on a CPU: against float64, what is skipped, what lies in memory, indices out of range."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

import pytest
import torch
import tracework_runtime as runtime
from attention_forms import block_mask, causal, everything, forms, itself
from prim_programs import build, copied, product, weights
from tracework_inductor import InductorOptions, compile_graph
from tracework_inductor.ir.index import symbol
from tracework_inductor.pipeline import plan_graph
from tracework_primops import FakeMode, SymbolTable, TensorSpec, prims, trace_bodies
from tracework_primops.attention import forward_reference
from tracework_runtime.device import cpu

CPU = torch.device("cpu")
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
SCALE = 0.3
TOLERANCES = {F32: 2e-5, F16: 2e-3, BF16: 1.6e-2}


BIAS = torch.randn(300, 300)
# functions of (score, b, h, i, j, *captured) for score and mask, and what they capture
CASES = {
    **forms(300, 70, [20, 150]),
    "one head": (itself, lambda s, b, h, i, j: (h != 1) & (i >= j), []),
    "bias of all heads": (lambda s, b, h, i, j, x: s + x[i, j], everything, [BIAS]),
}


def texts(name):
    score, keep, captured = CASES[name]
    mode = FakeMode(SymbolTable())
    return trace_bodies(score, keep, [mode.from_real(t) for t in captured], F32, CPU, None)[:2]


def forward_program(score, keep, extents=(), count=0, zeroed=True):
    def program(q, k, v, *others):
        return prims.attention(q, k, v, others[count:], others[:count], (), score, keep, SCALE, extents, zeroed)

    return program


def operands(queries=200, keys=200, heads=4, key_heads=2, width=16, out_width=16, dtype=F32, inside=False):
    torch.manual_seed(0)
    sizes = [(heads, queries, width), (key_heads, keys, width), (key_heads, keys, out_width)]
    if inside:
        return [torch.randn(2, length, count, w).to(dtype).transpose(1, 2) for count, length, w in sizes]
    return [torch.randn(2, *s).to(dtype) for s in sizes]


def run(program, inputs):
    """Results of a kernel and its text."""
    artifact = compile_graph(build(program, inputs), InductorOptions())
    assert "prims." not in artifact.host_source
    (kernel,) = artifact.kernels
    return runtime.load(artifact)([copied(x) for x in inputs]), kernel.source


def check_values(name, blocks=(), extents=(), **sizes):
    q, k, v = operands(**sizes)
    (score, keep), captured = texts(name), CASES[name][2]
    found, text = run(forward_program(score, keep, extents, len(blocks)), [q, k, v, *blocks, *captured])
    wanted = forward_reference(q.double(), k.double(), v.double(), captured, [], [], score, keep, SCALE, [])
    assert [x.dtype for x in found] == [q.dtype, F32, F32]
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=2e-5 if n else TOLERANCES[q.dtype])
    return text


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    check_values(name)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", ["causal", "soft-cap", "bias of all heads"])
def test_halves(name, dtype):
    check_values(name, dtype=dtype)


SHAPES = {
    "more keys": {"queries": 40, "keys": 300},
    "more queries": {"queries": 300, "keys": 33},
    "one query": {"queries": 1, "keys": 190},
    "one key": {"queries": 20, "keys": 1},
    "whole blocks": {"queries": 128, "keys": 256},
    "odd widths": {"queries": 70, "keys": 50, "width": 7, "out_width": 33},
    "wide": {"queries": 100, "keys": 140, "width": 256, "out_width": 256},
    "heads inside": {"queries": 130, "keys": 150, "inside": True},
    "halves inside": {"queries": 130, "keys": 150, "inside": True, "dtype": BF16, "width": 40},
    "one key head": {"queries": 130, "keys": 150, "key_heads": 1},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["causal", "alibi", "not a band"])
def test_shapes(name, shape):
    check_values(name, **SHAPES[shape])


def test_elements_of_rows_that_lie_apart():
    q, k, v = (x.transpose(2, 3).contiguous().transpose(2, 3) for x in operands())
    found, _ = run(forward_program(*texts("causal")), [q, k, v])
    wanted = forward_reference(q.double(), k.double(), v.double(), [], [], [], *texts("causal"), SCALE, [])
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("columns", [32, 128, 192])
def test_a_block_mask_is_read_where_bounds_know_too_little(columns, monkeypatch):
    length, documents = 384, torch.arange(384) // 70
    i = torch.arange(length)
    monkeypatch.setitem(CASES, "documents", (*CASES["documents"][:2], [documents]))
    blocks = block_mask((documents[:, None] == documents) & (i[:, None] >= i), 64, columns)
    sizes = {"queries": length, "keys": length}
    assert "partial_at" in check_values("documents", blocks, (64, columns), **sizes)
    assert "partial_at" not in check_values("causal", blocks, (64, columns), **sizes)
    assert "partial_at" not in check_values("documents", blocks, (48, columns), **sizes)  # no whole number of the kernel's blocks


def test_what_a_mask_hides_from_a_block_is_not_read():
    """Keys and values far behind the diagonal and before the window may be NaN."""
    q, k, v = operands(keys=300)
    for x in (k, v):
        x[:, :, 200:] = math.nan
    found, _ = run(forward_program(*texts("causal")), [q, k, v])
    assert not found[0].isnan().any()


@pytest.mark.parametrize("zeroed", [True, False])
def test_rows_that_see_nothing(zeroed):
    q, k, v = operands()
    bodies = texts("rows and keys")
    (out, logs, highest), _ = run(forward_program(*bodies, zeroed=zeroed), [q, k, v])
    wanted = forward_reference(q, k, v, [], [], [], *bodies, SCALE, [], zeroed)
    torch.testing.assert_close((out, logs, highest), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert (out[:, :, :41] == 0).all() if zeroed else out[:, :, :41].isnan().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite(bad):
    q, k, v = operands()
    q[0, 1, 70, 3] = bad
    (out, *_), _ = run(forward_program(*texts("causal")), [q, k, v])
    wanted = forward_reference(q, k, v, [], [], [], *texts("causal"), SCALE, [])[0]
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert out[0, 1, 70].isnan().all() and out.isnan().sum() == out.shape[-1]


def test_a_row_of_the_lowest_number_is_a_mean(monkeypatch):
    lowest = torch.finfo(F32).min
    monkeypatch.setitem(CASES, "lowest", (lambda s, b, h, i, j: torch.where(i == 5, lowest, s), everything, []))
    q, k, v = operands()
    (out, logs, highest), _ = run(forward_program(*texts("lowest")), [q, k, v])
    torch.testing.assert_close(out[:, ::2, 5], v.mean(2), rtol=0, atol=1e-5)
    assert logs.isfinite().all() and (highest[:, :, 5] == lowest).all()


def test_indices_out_of_range():
    """Of what bodies read, where they are evaluated."""
    mode = FakeMode(SymbolTable())
    places, table = torch.arange(200), torch.randn(200)
    given = [mode.from_real(places), mode.from_real(table)]
    bodies = trace_bodies(lambda s, b, h, i, j, x, y: s + y[x[j]], causal, given, F32, CPU, None)[:2]
    q, k, v = operands()
    found, _ = run(forward_program(*bodies), [q, k, v, places, table])
    wanted = forward_reference(q, k, v, [places, table], [], [], *bodies, SCALE, [])
    torch.testing.assert_close(found, list(wanted), rtol=1e-5, atol=1e-5)
    places[150] = 200
    with pytest.raises(IndexError, match="out of range|out of bounds"):
        run(forward_program(*bodies), [q, k, v, places, table])


def test_results_lie_as_the_graph_says():
    q, k, v = operands(30, 50, out_width=24, inside=True)
    graph = build(forward_program(*texts("causal")), [q, k, v])
    (call,) = (n for n in graph.calls if n.target is prims.attention)
    like = torch.empty(2, 30, 4, 24).transpose(1, 2)
    spec = call.meta["spec"][0].replace(strides=like.stride())
    call.meta["spec"] = (spec, *call.meta["spec"][1:])
    next(iter(call.users)).meta["spec"] = spec
    found = runtime.load(compile_graph(graph, InductorOptions()))([q, k, v])
    assert found[0].stride() == like.stride()
    torch.testing.assert_close(found, list(graph.run(q, k, v)), rtol=1e-5, atol=1e-5)


LENGTH, BATCH = symbol("s0", 2, None), symbol("s1", 1, None)


@pytest.mark.parametrize("length", [2, 90, 200])
def test_sizes_that_change(length):
    """Of operands, of what bodies read, and as numbers in bodies."""
    mode = FakeMode(table := SymbolTable())
    size, number = table.new(9), table.new(3, number=True)
    captured = [mode.from_real(torch.zeros(9), sizes=[size], strides=[1]), table.to_symint(number)]
    score = lambda s, b, h, i, j, x, n: s + x[j]
    score, keep, *_ = trace_bodies(score, lambda s, b, h, i, j, x, n: i + n >= 2 * j - j, captured, F32, CPU, table)

    def program(q, k, v, x):
        return prims.attention(q, k, v, (x,), (), (LENGTH // 2,), score, keep, SCALE, ())

    specs = [TensorSpec(F32, CPU, s) for s in (*[(BATCH, heads, LENGTH, 16) for heads in (4, 2, 2)], (LENGTH,))]
    q, k, v = operands(length, length)
    x = torch.randn(length)
    artifact = compile_graph(build(program, [None] * 4, specs), InductorOptions())
    found = runtime.load(artifact)([q, k, v, x])
    wanted = forward_reference(*(t.double() for t in (q, k, v)), [x.double()], [], [length // 2], score, keep, SCALE, [])
    torch.testing.assert_close([t.double() for t in found], list(wanted), rtol=0, atol=1e-5)


def written_out(q, k, v, mask):
    scores = prims.add(prims.mul(product(q, prims.permute(k, (0, 1, 3, 2))), 0.25), mask)
    return product(weights(scores), v)


@pytest.mark.parametrize("length, dtype, taken", [(16, F32, False), (200, F32, True), (200, BF16, cpu.multiplies_bfloat16())])
def test_written_out(length, dtype, taken):
    """In inference, where the kernel is quicker than the products."""
    q, k, v = operands(length, length, key_heads=4, dtype=dtype)
    mask = torch.where(torch.rand(2, 1, length, length) < 0.1, -1e4, 0.0).to(dtype)
    graph = build(written_out, [q, k, v, mask])
    artifact = compile_graph(graph, InductorOptions())
    assert any("tw_block_product" in kernel.source for kernel in artifact.kernels) == taken
    (found,) = runtime.load(artifact)([q, k, v, mask])
    scores = q.double() @ k.double().mT * 0.25 + mask.double()
    torch.testing.assert_close(found.double(), scores.softmax(-1) @ v.double(), rtol=0, atol=4 * TOLERANCES[dtype])


@pytest.mark.parametrize("numerics", ["strict_pointwise", "strict_reduction", "strict"])
def test_written_out_with_the_bits_of_eager(numerics):
    q, k, v = operands(key_heads=4)
    plan = plan_graph(build(written_out, [q, k, v, torch.zeros(2, 1, 200, 200)]), InductorOptions(numerics=numerics))
    assert not any(kernel.text().count("attention") for kernel in plan.kernels)


def test_no_scores_in_memory():
    """Bytes of all buffers grow with the length, not with its square."""

    def all_bytes(length):
        q = torch.empty(1, 2, length, 16)
        plan = plan_graph(build(forward_program(*texts("soft-cap")), [q, q, q]), InductorOptions())
        return sum(b.layout.elements() * b.layout.dtype.itemsize for b in plan.program.buffers.values())

    assert all_bytes(4096) == 4 * all_bytes(1024)


def test_threads_do_not_change_the_bits():
    q, k, v = operands(queries=300, keys=300)
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            results.append(run(forward_program(*texts("soft-cap")), [q, k, v])[0])
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, *results))
