"""Attention that is written out: what becomes one kernel, and its values and gradients by Triton's interpreter."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_kernels import BF16, CUDA, F32, SCALE, operands, run  # noqa: E402
from prim_programs import OTHER_PRODUCTS, product, turned, weights  # noqa: E402
from tracework_inductor.passes.long_attention import long_attention  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_primops.written_attention import written_attention  # noqa: E402
from tracework_primops.written_bodies import StepBodies  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402


def repeated(x, times):
    batch, heads, length, width = x.sizes
    wide = prims.expand(prims.unsqueeze(x, 2), (batch, heads, times, length, width))
    return prims.reshape(wide, (batch, heads * times, length, width))


def triangle(q, k):
    rows, columns = (prims.iota(x.sizes[2], 0, 1, torch.int64, q.device) for x in (q, k))
    return prims.ge(prims.unsqueeze(rows, 1), prims.unsqueeze(columns, 0))


def as_llama(q, k, v, mask):
    """A mask that is added, heads repeated, the result with heads inside."""
    k, v = repeated(k, 2), repeated(v, 2)
    scores = prims.convert(prims.add(prims.mul(product(q, turned(k)), SCALE), mask), F32)
    found = product(prims.convert(weights(scores), q.dtype), v)
    return prims.reshape(prims.permute(found, (0, 2, 1, 3)), (2, 60, 2 * 16))


def as_gpt2(q, k, v, mask):
    """A triangle of positions that fills, after the scale."""
    scores = prims.mul(product(q, turned(repeated(k, 2))), SCALE)
    scores = prims.where(triangle(q, k), scores, -math.inf)
    return product(weights(scores), repeated(v, 2))


def as_nano(q, k, v, mask):
    """A triangle of ones that is compared with 0."""
    ones = prims.full((60, 60), 1.0, F32, q.device)
    hidden = prims.eq(prims.tril(ones, 0), 0.0)
    scores = prims.where(hidden, -math.inf, prims.mul(product(q, turned(repeated(k, 2))), SCALE))
    return product(weights(scores), repeated(v, 2))


def as_bloom(q, k, v, mask):
    """A product that adds to what it is scaled to, and a triangle of bools."""
    bias, k = prims.full((4, 1, 60), 0.5, q.dtype, q.device), turned(repeated(k, 2))
    flat = [prims.reshape(x, (4, *x.sizes[2:])) for x in (q, k)]
    scores = prims.convert(prims.reshape(prims.baddbmm(bias, *flat, 1.0, SCALE), (2, 2, 60, 60)), F32)
    hidden = prims.triu(prims.full((60, 60), True, torch.bool, q.device), 1)
    scores = prims.where(hidden, torch.finfo(F32).min, scores)
    return product(prims.convert(weights(scores), q.dtype), repeated(v, 2))


def filled(q, k, v, mask):
    """A number in the place of scores that the mask hides, and queries that are scaled."""
    scores = prims.where(mask, -60000.0, product(prims.mul(q, SCALE), turned(repeated(k, 2))))
    return product(weights(scores), repeated(v, 2))


def padded(q, k, v, mask):
    """Rows that see nothing are NaN."""
    scores = prims.where(mask, -math.inf, prims.mul(product(q, turned(repeated(k, 2))), SCALE))
    return product(weights(scores), repeated(v, 2))


@pytest.mark.parametrize("program", [as_llama, as_gpt2, as_nano, as_bloom, filled, padded], ids=lambda f: f.__name__)
def test_written_out(program, tmp_path, monkeypatch):
    monkeypatch.setattr("tracework_primops.written_attention.LEAST_BYTES", 0)
    q, k, v, _ = operands(60, 60, dtype=torch.float16)
    hidden = torch.ones(60, 60, dtype=torch.bool).triu(1)
    hidden[7] |= program is padded
    mask = torch.zeros(1, 1, 60, 60, dtype=torch.float16).masked_fill(hidden, -math.inf) if program is as_llama else hidden
    graph = long_attention(graph_of(program, q, k, v, mask, device=CUDA))
    assert [n.target for n in graph.calls].count(prims.bmm) == 0
    host, kernels = rendered(graph)
    (core_kernel,) = [kernel for kernel in kernels.values() if "tl.dot" in kernel.source]
    assert ("unsure" in core_kernel.source) == (program is not padded)
    assert ("end = tl.minimum" in core_kernel.source) == (program in (as_gpt2, as_nano, as_bloom))
    (found,) = triton_interpreter.host_call(host, kernels, tmp_path)([q, k, v, mask])
    k, v = (x.double().repeat_interleave(2, 1) for x in (k, v))
    wanted = (q.double() @ k.transpose(2, 3) * SCALE).masked_fill(hidden, -math.inf).softmax(-1) @ v
    wanted = wanted.transpose(1, 2).flatten(2) if program is as_llama else wanted
    torch.testing.assert_close(
        found.double(), wanted, rtol=0, atol=4e-3, equal_nan=True
    )  # weights and result are rounded to 2**-11


@pytest.mark.parametrize("masked", [torch.bfloat16, torch.float32], ids=str)
def test_rows_hidden_by_the_lowest_number_are_means(masked, tmp_path, monkeypatch):
    """As a row of equal scores is, however low."""
    monkeypatch.setattr("tracework_primops.written_attention.LEAST_BYTES", 0)

    def program(q, k, v, mask):
        scores = prims.convert(prims.mul(product(q, turned(repeated(k, 2))), SCALE), masked)
        return product(prims.convert(weights(prims.add(scores, mask)), q.dtype), repeated(v, 2))

    q, k, v, _ = operands(60, 60, dtype=torch.bfloat16)
    hidden = torch.ones(60, 60, dtype=torch.bool).triu(1)
    hidden[7] = True
    mask = torch.zeros(1, 1, 60, 60, dtype=masked).masked_fill(hidden, torch.finfo(masked).min)
    graph = long_attention(graph_of(program, q, k, v, mask, device=CUDA))
    assert [n.target for n in graph.calls].count(prims.bmm) == 0
    host, kernels = rendered(graph)
    (found,) = triton_interpreter.host_call(host, kernels, tmp_path)([q, k, v, mask])
    k, v = (x.double().repeat_interleave(2, 1) for x in (k, v))
    scores = (q.double() @ k.transpose(2, 3) * SCALE).masked_fill(hidden, -math.inf)
    scores[:, :, 7] = 0
    # weights and result are rounded to 2**-9, scores as well where the mask is bfloat16
    torch.testing.assert_close(found.double(), scores.softmax(-1) @ v, rtol=0, atol=4e-2)


def with_a_sum(q, k, v, x, mask):
    scores = prims.add(product(q, turned(repeated(k, 2))), prims.add(x, mask))
    return product(prims.convert(weights(prims.convert(scores, F32)), q.dtype), repeated(v, 2))


@pytest.mark.parametrize(("bias", "parts"), [((1, 2, 60, 60), 2), ((2, 2, 60, 60), 1), ((2, 1, 1, 1), 1)])
def test_parts_of_a_sum_are_read_where_they_are_smaller(bias, parts, monkeypatch):
    monkeypatch.setattr("tracework_primops.written_attention.LEAST_BYTES", 0)
    q, k, v, _ = operands(60, 60, dtype=BF16)
    given = torch.zeros(bias, dtype=BF16), torch.zeros(2, 1, 1, 60, dtype=BF16)
    graph = long_attention(graph_of(with_a_sum, q, k, v, *given, device=CUDA))
    (call,) = [n for n in graph.calls if n.target is prims.attention]
    assert len(call.args[3]) == parts


def test_values_of_parts_of_a_sum(tmp_path, monkeypatch):
    monkeypatch.setattr("tracework_primops.written_attention.LEAST_BYTES", 0)
    q, k, v, _ = operands(60, 60, dtype=BF16)
    x, hidden = torch.randn(1, 2, 60, 60).to(BF16), torch.arange(60) >= torch.tensor([40, 60])[:, None, None, None]
    mask = torch.zeros(2, 1, 1, 60, dtype=BF16).masked_fill(hidden, torch.finfo(BF16).min)
    host, kernels = rendered(long_attention(graph_of(with_a_sum, q, k, v, x, mask, device=CUDA)))
    (found,) = triton_interpreter.host_call(host, kernels, tmp_path)([q, k, v, x, mask])
    k, v = (y.double().repeat_interleave(2, 1) for y in (k, v))
    scores = (q.double() @ k.transpose(2, 3) + x.double()).masked_fill(hidden, -math.inf)
    torch.testing.assert_close(found.double(), scores.softmax(-1) @ v, rtol=0, atol=6e-2)


def steps_of(change):
    """A program of scores that are changed by prims, of operands and of what is read."""

    def program(q, k, v, x):
        return product(weights(change(prims.mul(product(q, turned(k)), SCALE), x, triangle(q, k))), v)

    return program


LENGTH_OF_STEPS = 50


# by prims and by torch, of (scores, read, triangle): what is done; sizes of what is read, its axes if it has gradients, else None
STEPS = {
    "a bias of keys": (
        lambda s, x, t: prims.where(t, prims.add(s, x), -math.inf),
        lambda s, x, t: (s + x).masked_fill(~t, -math.inf),
        (1, 2, 1, LENGTH_OF_STEPS),
        "hj",
    ),
    "a bias of distances": (
        lambda s, x, t: prims.where(t, prims.sub(s, x), -math.inf),
        lambda s, x, t: (s - x).masked_fill(~t, -math.inf),
        (1, 2, LENGTH_OF_STEPS, LENGTH_OF_STEPS),
        "hd",
    ),
    "within a cap": (
        lambda s, x, t: prims.add(
            prims.mul(prims.tanh(prims.mul(prims.add(s, x), 0.5)), 2.0), prims.where(t, prims.full((), 0.0, F32, s.device), -1e4)
        ),
        lambda s, x, t: ((s + x) * 0.5).tanh() * 2.0 + torch.where(t, 0.0, -1e4),
        (2, 1, LENGTH_OF_STEPS, 1),
        "bi",
    ),
    "a number in the place of scores": (
        lambda s, x, t: prims.mul(prims.where(t, prims.add(s, x), -3.0), 0.5),
        lambda s, x, t: (s + x).masked_fill(~t, -3.0) * 0.5,
        (1, 2, 1, 1),
        "h",
    ),
    "a mask": (
        lambda s, x, t: prims.tanh(prims.add(s, x)),
        lambda s, x, t: (s + x).tanh(),
        (2, 1, LENGTH_OF_STEPS, LENGTH_OF_STEPS),
        None,
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_gradients_of_what_is_written_out(name, tmp_path):
    by_prims, by_torch, sizes, axes = STEPS[name]
    n = LENGTH_OF_STEPS
    q, k, v, grad = operands(n, n, key_heads=2)
    x = torch.randn(sizes)
    if axes == "hd":  # the same along each diagonal
        strip = torch.randn(2, 2 * n - 1)
        x = strip[:, torch.arange(n)[:, None] - torch.arange(n) + n - 1][None]
    graph = graph_of(steps_of(by_prims), q, k, v, x, device=CUDA)
    found = written_attention(graph.outputs[0].args[0])
    assert found.has_one_mask == name.startswith("a bias")
    steps = StepBodies(found)
    (node,) = steps.read
    read = strip if axes == "hd" else x if axes is None else x.squeeze()
    specs = [TensorSpec(F32, CUDA, tuple(read.shape))]
    score, keep, slope, factors = steps.bodies(specs, {} if axes is None else {node: axes})

    leaves = [t.double().requires_grad_() for t in (q, k, v, x)]
    scores = by_torch(leaves[0] @ leaves[1].mT * SCALE, leaves[3], torch.ones(n, n, dtype=torch.bool).tril())
    out = scores.softmax(-1) @ leaves[2]
    wanted = torch.autograd.grad(out, leaves, grad.double())

    def forward(q, k, v, x):
        return prims.attention(q, k, v, (x,), (), (), score, keep, 1.0, ())

    def backward(grad, q, k, v, logs, highest, delta, x):
        given = grad, q, k, v, logs, highest, delta, (x,), (), ()
        sums = [prims.attention_sums(*given, score, f.factor, keep, 1.0, (), f.along) for f in factors]
        return *prims.attention_backward(*given, score, slope, keep, 1.0, ()), *sums

    (result, logs, highest), _ = run(forward, [q, k, v, read], tmp_path)
    torch.testing.assert_close(result.double(), out.detach(), rtol=0, atol=1e-5)
    (dq, dk, dv, *sums), kernels = run(backward, [grad, q, k, v, logs, highest, (grad * result).sum(-1), read], tmp_path)
    assert not any("atomic" in kernel.source for kernel in kernels.values())
    torch.testing.assert_close([t.double() for t in (dq, dk, dv)], list(wanted[:3]), rtol=0, atol=2e-5)
    if axes is not None:
        rest = [dim for dim, axis in enumerate(("b", "h")) if axis not in axes] + ([2] if not set("ijd") & set(axes) else [])
        (dx,) = sums
        dx = dx.sum(rest) if rest else dx
        want = wanted[3].squeeze()
        if axes == "hd":
            places = (torch.arange(n)[:, None] - torch.arange(n) + n - 1).flatten()
            want = torch.zeros(2, 2 * n - 1, dtype=torch.float64).index_add(1, places, want.flatten(1))
        torch.testing.assert_close(dx.double(), want, rtol=0, atol=2e-5)


def test_written_out_stays_where_scores_fit_caches_or_somebody_reads_them():
    def read(q, k, v, mask):
        scores = prims.mul(product(q, turned(repeated(k, 2))), SCALE)
        return product(weights(scores), repeated(v, 2)), scores

    inputs = [torch.empty(1, heads, 4096, 64, dtype=BF16, device="meta") for heads in (4, 2, 2)]
    small = [x[:, :, :256] for x in inputs]
    for program, given, is_one in ((as_gpt2, inputs, True), (as_gpt2, small, False), (read, inputs, False)):
        graph = graph_of(lambda q, k, v, program=program: program(q, k, v, None), *given, device=CUDA)
        assert (long_attention(graph) is not graph) == is_one


@pytest.mark.parametrize("name", OTHER_PRODUCTS)
def test_other_products_of_weights_stay(name, monkeypatch):
    monkeypatch.setattr("tracework_primops.written_attention.LEAST_BYTES", 0)

    def program(q, k, v):
        return OTHER_PRODUCTS[name](weights(prims.mul(product(q, turned(k)), SCALE)), v)

    graph = graph_of(program, *operands(60, 60, key_heads=2, dtype=BF16)[:3], device=CUDA)
    assert long_attention(graph) is graph


def test_one_tensor_is_read_by_two_views(tmp_path, monkeypatch):
    """For each item of the batch, then for each head."""
    monkeypatch.setattr("tracework_primops.written_attention.LEAST_BYTES", 0)

    def program(q, k, v, x):
        scores = prims.add(prims.mul(product(q, turned(k)), SCALE), x)
        scores = prims.reshape(prims.add(prims.reshape(scores, (2, 2, 1, 60, 60)), x), (2, 2, 60, 60))
        return product(weights(scores), v)

    q, k, v, _ = operands(60, 60, key_heads=2, dtype=torch.float16)
    x = torch.randn(2, 1, 1, 60).half()
    graph = long_attention(graph_of(program, q, k, v, x, device=CUDA))
    assert [n.target for n in graph.calls].count(prims.bmm) == 0
    host, kernels = rendered(graph)
    (found,) = triton_interpreter.host_call(host, kernels, tmp_path)([q, k, v, x])
    q, k, v, x = (t.double() for t in (q, k, v, x))
    wanted = (q @ k.mT * SCALE + x + x.transpose(0, 1)).softmax(-1) @ v
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=4e-3)
