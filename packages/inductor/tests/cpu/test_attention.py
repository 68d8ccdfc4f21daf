"""Attention with bodies: Triton's interpreter against float64, what is skipped, what lies in memory, golden text, compiled for Hopper and Ampere."""

import math
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from attention_forms import SLOPES, causal, everything, forms  # noqa: E402
from prim_programs import OTHER_PRODUCTS, build, check, product, turned, weights  # noqa: E402
from tracework_inductor import InductorOptions  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.codegen.triton.config import LIMITS  # noqa: E402
from tracework_inductor.codegen.triton.cores import attention as core  # noqa: E402
from tracework_inductor.ir.index import symbol  # noqa: E402
from tracework_inductor.passes.long_attention import long_attention  # noqa: E402
from tracework_inductor.pipeline import plan_graph  # noqa: E402
from tracework_primops import FakeMode, SymbolTable, TensorSpec, prims, trace_bodies  # noqa: E402
from tracework_primops.attention import backward_reference, forward_reference, sums_reference  # noqa: E402
from tracework_primops.written_attention import written_attention  # noqa: E402
from tracework_primops.written_bodies import StepBodies  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

TESTS = Path(__file__).parent.parent
CUDA = torch.device("cuda", 0)
BF16, F32 = torch.bfloat16, torch.float32
SCALE = 0.3


SHARED = forms(100, 30, [20, 70])
(DOCUMENTS,), (TABLE,) = (SHARED[name][2] for name in ("documents", "relative"))
UNSURE = frozenset({"not a band", "shifted", "documents"})
# functions of (score, b, h, i, j, *captured) for score and mask, what they capture, whether bounds know all of the mask
CASES = {
    **{name: (*form, name not in UNSURE) for name, form in SHARED.items()},
    "a low number": (lambda s, b, h, i, j: torch.where(i >= j, s, -1e9), everything, [], True),
    "a low number on the left": (lambda s, b, h, i, j: torch.where(i > j, -3e38, s), everything, [], True),
    "a low number outside of a window": (
        lambda s, b, h, i, j: torch.where((i >= j) & (i - j < 40), s, -65504.0),
        everything,
        [],
        True,
    ),
    "a low number in some rows": (lambda s, b, h, i, j: torch.where(i - 40 >= j, s, -3e38), everything, [], True),
    "scores as low as the number": (
        lambda s, b, h, i, j: torch.where(i >= j, (i - j) * 0.125 - 10016.0, -1e4),
        everything,
        [],
        True,
    ),
    "a bias, then a low number": (lambda s, b, h, i, j, x: torch.where(i >= j, s + x[h] * j, -3e38), everything, [SLOPES], True),
    "a low number by what is read": (
        lambda s, b, h, i, j, x: torch.where(x[i] == x[j], s, -3e38),
        everything,
        [DOCUMENTS],
        True,
    ),
}

# functions that change scores and hide some, and what they read
READ_BY_BODIES = {
    "a slope of each head": (lambda s, b, h, i, j, x: s + x[h] * (j - i), causal, [torch.empty(4)]),
    "a bias of each head": (lambda s, b, h, i, j, x: s + x[h, i, j], causal, [torch.empty(4, 256, 256, dtype=BF16)]),
    "a mask, within a cap": (
        lambda s, b, h, i, j, x: 5 * torch.tanh(s / 5) + x[i, j],
        causal,
        [torch.empty(256, 256, dtype=BF16)],
    ),
    "a bias, then a low number": (
        lambda s, b, h, i, j, x: torch.where(i >= j, s + x[h, j], torch.finfo(F32).min),
        everything,
        [torch.empty(4, 256, dtype=BF16)],
    ),
}


def texts(name):
    score, keep, captured, _ = CASES[name]
    mode = FakeMode(SymbolTable())
    return trace_bodies(score, keep, [mode.from_real(t) for t in captured], F32, torch.device("cpu"), None)[:3]


def forward_program(score, keep, _, extents=(), count=0):
    def program(q, k, v, *others):
        return prims.attention(q, k, v, others[count:], others[:count], (), score, keep, SCALE, extents)

    return program


def backward_program(score, keep, slope, extents=(), count=0):
    def program(grad, q, k, v, logs, highest, delta, *others):
        given = others[count:], others[:count], ()
        return prims.attention_backward(grad, q, k, v, logs, highest, delta, *given, score, slope, keep, SCALE, extents)

    return program


def run(program, inputs, folder):
    host, kernels = rendered(graph_of(program, *inputs, device=CUDA))
    assert "prims." not in host
    return triton_interpreter.host_call(host, kernels, folder)(list(inputs)), kernels


def operands(queries=100, keys=100, heads=2, key_heads=1, width=16, out_width=16, dtype=F32, inside=False):
    torch.manual_seed(0)
    sizes = [(heads, queries, width), (key_heads, keys, width), (key_heads, keys, out_width), (heads, queries, out_width)]
    if inside:
        return [torch.randn(2, length, count, w).to(dtype).transpose(1, 2) for count, length, w in sizes]
    return [torch.randn(2, *s).to(dtype) for s in sizes]


def check_values(name, folder, tolerance, blocks=(), extents=(), **sizes):
    q, k, v, grad = operands(**sizes)
    bodies, captured = texts(name), CASES[name][2]
    found, kernels = run(forward_program(*bodies, extents, len(blocks)), [q, k, v, *blocks, *captured], folder)
    score, keep, slope = bodies
    wide = [x.double() for x in (q, k, v, grad)]
    wanted = forward_reference(*wide[:3], captured, [], [], score, keep, SCALE, [])
    close = {"rtol": 0, "atol": tolerance}
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)
    rows = [wanted[1].float(), wanted[2].float(), (wide[3] * wanted[0]).sum(-1).float()]
    given = [grad, q, k, v, *rows, *blocks, *captured]
    found, more = run(backward_program(*bodies, extents, len(blocks)), given, folder)
    wanted = backward_reference(wide[3], *wide[:3], *(x.double() for x in rows), captured, [], [], score, slope, keep, SCALE, [])
    torch.testing.assert_close([x.double() for x in found], [x.double() for x in wanted], **close)
    return [*kernels.values(), *more.values()]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, tmp_path):
    kernels = check_values(name, tmp_path, 1e-5)
    assert all(("unsure" in kernel.source) == CASES[name][3] for kernel in kernels if name != "not a band")


SHAPES = {
    "more keys": {"queries": 40, "keys": 100},
    "more queries": {"queries": 100, "keys": 33},
    "one query": {"queries": 1, "keys": 90},
    "one key": {"queries": 20, "keys": 1},
    "whole blocks": {"queries": 128, "keys": 128},
    "other width of values": {"queries": 40, "keys": 50, "width": 24, "out_width": 40},
    "wide": {"queries": 20, "keys": 20, "width": 160, "out_width": 130, "key_heads": 2},
    "heads inside": {"queries": 30, "keys": 50, "heads": 4, "key_heads": 2, "inside": True},
    "halves": {"queries": 60, "keys": 90, "dtype": BF16},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, tmp_path):
    check_values("causal", tmp_path, 0.06 if shape == "halves" else 1e-5, **SHAPES[shape])


@pytest.mark.parametrize("name", ["causal", "documents", "soft-cap", "rows and keys", "a low number in some rows"])
def test_programs_share_the_keys_of_few_queries(name, tmp_path, monkeypatch):
    monkeypatch.setattr(core, "LEAST_STEPS", 1)
    monkeypatch.setitem(CASES, "documents", (*CASES["documents"][:2], [torch.arange(200) // 30], False))
    kernels = check_values(name, tmp_path, 1e-5, queries=44, keys=200, out_width=24)
    assert "keys in 4 parts" in dict(kernels[0].launch)["kind"]


def block_mask(mask, rows, columns):
    """The eight tensors of a BlockMask of a mask (queries, keys): counts and places of partial and of full blocks, of keys, then of queries."""
    queries, keys = mask.shape
    parts = mask.reshape(queries // rows, rows, keys // columns, columns).permute(0, 2, 1, 3).flatten(2)
    some, all_ = parts.any(2), parts.all(2)
    found = []
    for kind in (some & ~all_, all_), ((some & ~all_).T, all_.T):
        for shown in kind:
            order = shown.int().argsort(dim=1, descending=True, stable=True).int()
            found += [shown.sum(1).int()[None, None], order[None, None]]
    return found


def test_a_block_mask_is_read_where_bounds_know_too_little(tmp_path, monkeypatch):
    for table in (core.WIDE_FORWARD, core.WIDE_BACKWARD):
        monkeypatch.setitem(table, 64, (16, 16, 4, 1))
    i = torch.arange(96)
    monkeypatch.setitem(CASES, "documents", (*CASES["documents"][:2], [DOCUMENTS[:96]], False))
    mask = (DOCUMENTS[:96, None] == DOCUMENTS[:96]) & (i[:, None] >= i)
    blocks = block_mask(mask, 16, 32)
    kernels = check_values("documents", tmp_path, 1e-5, blocks, (16, 32), queries=96, keys=96)
    assert all("partial" in kernel.source and "full" in kernel.source for kernel in kernels)
    assert all("partial" not in k.source for k in check_values("causal", tmp_path, 1e-5, blocks, (16, 32), queries=96, keys=96))


def test_results_lie_as_the_graph_says(tmp_path):
    """Of a forward and a backward, with heads inside."""
    q, k, v, grad = operands(30, 50, heads=4, key_heads=2, out_width=24, inside=True)
    bodies, rows = texts("causal"), torch.zeros(q.shape[:3])
    for program, inputs, like in (
        (forward_program(*bodies), [q, k, v], [grad, rows, rows]),
        (backward_program(*bodies), [grad, q, k, v, rows, rows, rows], [q, k, v]),
    ):
        graph = graph_of(program, *inputs, device=CUDA)
        (call,) = (n for n in graph.calls if n.target in (prims.attention, prims.attention_backward))
        specs = [spec.replace(strides=x.stride()) for spec, x in zip(call.meta["spec"], like, strict=True)]
        call.meta["spec"] = tuple(specs)
        for user, spec in zip(call.users, specs, strict=True):
            user.meta["spec"] = spec
        host, kernels = rendered(graph)
        found = triton_interpreter.host_call(host, kernels, tmp_path)(list(inputs))
        assert [x.stride() for x in found] == [x.stride() for x in like]
        torch.testing.assert_close(found, list(graph.run(*inputs)), rtol=1e-5, atol=1e-5)


def trained(function, axes, sizes):
    """Bodies of a causal mask and a score function of (score, b, h, i, j, read), where read is what its own functions read of a tensor of
    these axes and sizes."""
    x = FakeMode(SymbolTable()).from_real(torch.empty(sizes))
    return trace_bodies(function, causal, [x], F32, torch.device("cpu"), None, {0: axes})


def sums_program(score, keep, factor, along, extents=(), count=0):
    def program(grad, q, k, v, logs, highest, delta, *others):
        given = others[count:], others[:count], ()
        return prims.attention_sums(grad, q, k, v, logs, highest, delta, *given, score, factor, keep, SCALE, extents, along)

    return program


# axes of what is captured, sizes by queries and keys, score function of what is read of it
SUMS = {
    "a number": ("", lambda n, m: (), lambda s, b, h, i, j, x: s * x),
    "of each head": ("h", lambda n, m: (4,), lambda s, b, h, i, j, x: s + x * (j - i) / 16),
    "of each query": ("hi", lambda n, m: (4, n), lambda s, b, h, i, j, x: s * x.sigmoid()),
    "of each key": ("bj", lambda n, m: (2, m), lambda s, b, h, i, j, x: s + x**2),
    "of each distance": ("hd", lambda n, m: (4, n + m - 1), lambda s, b, h, i, j, x: s + x),
    "of each distance, changed": ("d", lambda n, m: (n + m - 1,), lambda s, b, h, i, j, x: torch.tanh(s * x)),
}
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
    monkeypatch.setitem(globals(), "causal", lambda s, b, h, i, j, x: ((i // 30) == (j // 30)) & (i >= j))
    i = torch.arange(96)
    blocks = block_mask((documents[:, None] == documents) & (i[:, None] >= i), 16, 32)
    found, wanted, kernel = run_sums(name, "blocks", tmp_path, blocks, (16, 32))
    assert "partial" in kernel.source
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-5)


LENGTH, BATCH = symbol("s0", 2, None), symbol("s1", 1, None)


# what bodies read of (queries, keys, heads), or in that order
HEADS_INNERMOST = {
    "computed": lambda x: prims.permute(prims.mul(x, 2.0), (2, 0, 1)),
    "in memory": lambda x: prims.permute(x, (2, 0, 1)),
}


@pytest.mark.parametrize("name", HEADS_INNERMOST)
def test_kernels_read_rows_of_keys(name, tmp_path):
    q, k, v, _ = operands(100, 90)
    bias = torch.randn(100, 90, 2)
    given = HEADS_INNERMOST[name]
    mode = FakeMode(SymbolTable())
    read = bias.permute(2, 0, 1).contiguous()
    bodies = trace_bodies(
        lambda s, b, h, i, j, x: s + x[h, i, j], everything, [mode.from_real(read)], F32, torch.device("cpu"), None
    )

    def program(q, k, v, x):
        return prims.attention(q, k, v, (given(x),), (), (), *bodies[:2], SCALE, ())

    (out, *_), kernels = run(program, [q, k, v, bias], tmp_path)
    (kernel,) = [kernel for kernel in kernels.values() if "tl.dot" in kernel.source]
    assert re.search(r"p3 \+ \(9000 \* \w+ \+ 90 \* \w+ \+ \w+\)", kernel.source)
    wanted = forward_reference(q, k, v, [read * (2 if name == "computed" else 1)], [], [], *bodies[:2], SCALE, [])[0]
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [2, 90])
def test_sizes_that_change(length, tmp_path):
    """Of operands, of what bodies read, and as numbers in bodies."""
    mode = FakeMode(table := SymbolTable())
    size, number = table.new(9), table.new(3, number=True)
    captured = [mode.from_real(torch.zeros(9), sizes=[size], strides=[1]), table.to_symint(number)]
    score, keep, *_ = trace_bodies(
        lambda s, b, h, i, j, x, n: s + x[j],
        lambda s, b, h, i, j, x, n: i + n >= 2 * j - j,
        captured,
        F32,
        torch.device("cpu"),
        table,
    )

    def program(q, k, v, x):
        return prims.attention(q, k, v, (x,), (), (LENGTH // 2,), score, keep, SCALE, ())

    specs = [TensorSpec(F32, CUDA, s) for s in (*[(BATCH, heads, LENGTH, 16) for heads in (2, 1, 1)], (LENGTH,))]
    (q, k, v, _), x = operands(length, length), torch.randn(length)
    host, kernels = rendered(build(program, [None] * 4, specs))
    found = triton_interpreter.host_call(host, kernels, tmp_path)([q, k, v, x])
    wanted = forward_reference(*(t.double() for t in (q, k, v)), [x.double()], [], [length // 2], score, keep, SCALE, [])
    torch.testing.assert_close([t.double() for t in found], list(wanted), rtol=0, atol=1e-5)


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


def test_no_scores_in_memory():
    """Bytes of all buffers grow with the length, not with its square."""

    def all_bytes(length):
        like = [torch.empty(1, 2, length, 16, device="meta") for _ in range(3)]
        rows = torch.empty(1, 2, length, device="meta")
        bodies = texts("soft-cap")
        total = 0
        programs = [(forward_program(*bodies), like), (backward_program(*bodies), [like[0], *like, rows, rows, rows])]
        for axes, sizes, function in SUMS.values():
            x = torch.empty([2 if a == "h" else 1 if a == "b" else n for a, n in zip(axes, sizes(length, length))], device="meta")
            score, keep, _, ((_, _, factor),) = texts_of = trained(function, axes, x.shape)
            program = sums_program(score, keep, factor, texts_of.trained[0].along)
            programs.append((program, [like[0], *like, rows, rows, rows, x]))
        for program, inputs in programs:
            plan = plan_graph(graph_of(program, *inputs, device=CUDA), InductorOptions())
            layouts = [buffer.layout for buffer in plan.program.buffers.values()]
            total += sum(int(layout.elements()) * layout.dtype.itemsize for layout in layouts)
        return total

    assert all_bytes(8192) < 8.01 * all_bytes(1024)


def test_gradients_are_the_same_in_each_run(tmp_path):
    """Each is summed up by one program: nothing is added to memory."""
    q, k, v, grad = operands()
    rows = torch.zeros(q.shape[:3])
    _, kernels = run(backward_program(*texts("causal")), [grad, q, k, v, rows, rows, rows], tmp_path)
    assert len(kernels) == 2 and not any("atomic" in kernel.source for kernel in kernels.values())


@pytest.mark.parametrize("columns", [199, 150])
def test_an_index_that_may_be_out_of_range_is_checked(columns, monkeypatch):
    monkeypatch.setitem(CASES, "relative", (*CASES["relative"][:2], [TABLE[:, :columns]], True))
    graph = graph_of(forward_program(*texts("relative")), *operands()[:3], TABLE[:, :columns], device=CUDA)
    (kernel,) = rendered(graph)[1].values()
    assert ("device_assert" in kernel.source) == dict(kernel.launch).get("checks", False) == (columns == 150)


def test_on_a_cpu_and_for_other_dtypes_all_scores_are_computed():
    for dtype in (F32, torch.float64):
        check(forward_program(*texts("alibi")), *operands(20, 20, dtype=dtype)[:3], *CASES["alibi"][2])


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


@pytest.mark.parametrize("lowest", [torch.finfo(F32).min, torch.finfo(BF16).min, -1e30, -1e9])
def test_gradients_of_rows_hidden_by_a_low_number(lowest, tmp_path):
    """A row of which all is hidden, one of which a part is, and one of which all is, but one half as low."""
    n = 60
    mask = torch.zeros(n, n).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), lowest)
    mask[7] = mask[9] = lowest
    mask[9, 20] = lowest / 2
    bodies = trace_bodies(
        lambda s, b, h, i, j, x: s + x[i, j],
        everything,
        [FakeMode(SymbolTable()).from_real(mask)],
        F32,
        torch.device("cpu"),
        None,
    )[:3]
    q, k, v, grad = operands(n, n, key_heads=2)
    (out, logs, highest), _ = run(forward_program(*bodies), [q, k, v, mask], tmp_path)
    given = [grad, q, k, v, logs, highest, (grad * out).sum(-1), mask]
    found, _ = run(backward_program(*bodies), given, tmp_path)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    wanted = (leaves[0] @ leaves[1].mT * SCALE + mask).softmax(-1) @ leaves[2]
    torch.testing.assert_close(out, wanted.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(found, list(torch.autograd.grad(wanted, leaves, grad)), rtol=0, atol=1e-5)


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


def golden():
    like = [torch.empty(1, heads, 4096, 64, dtype=BF16, device="meta") for heads in (8, 2, 2)]
    (kernel,) = rendered(graph_of(forward_program(*texts("window")), *like, device=CUDA))[1].values()
    return kernel.source


def test_golden():
    assert golden() == (TESTS / "golden" / "triton" / "attention.txt").read_text()


@pytest.mark.parametrize(("capability", "name"), [(80, "documents"), (90, "soft-cap")])
def test_compiles(capability, name, tmp_path):
    like = [torch.empty(1, heads, 100, 64, dtype=BF16, device="meta") for heads in (8, 2, 2)]
    rows, captured, bodies = torch.empty(1, 8, 100, device="meta"), CASES[name][2], texts(name)
    jobs = []
    for program, inputs in ((forward_program(*bodies), like), (backward_program(*bodies), [like[0], *like, rows, rows, rows])):
        for kernel in rendered(graph_of(program, *inputs, *captured, device=CUDA))[1].values():
            (packed,) = TritonRenderer().pack([("attention", kernel)])
            jobs.append(build_triton.request(packed, "kernel", packed.launch["configs"][0], build_triton.Variant(), capability))
    for of in ("of each head", "of each key", "of each distance"):
        axes, sizes, function = SUMS[of]
        x = torch.empty([8 if a == "h" else n for a, n in zip(axes, sizes(100, 100))], device="meta")
        score, keep, _, ((_, _, factor),) = texts_of = trained(function, axes, x.shape)
        graph = graph_of(
            sums_program(score, keep, factor, texts_of.trained[0].along), like[0], *like, rows, rows, rows, x, device=CUDA
        )
        (kernel,) = rendered(graph)[1].values()
        (packed,) = TritonRenderer().pack([("attention", kernel)])
        jobs.append(build_triton.request(packed, "kernel", packed.launch["configs"][0], build_triton.Variant(), capability))
    cubins = build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    assert len(cubins) == len(jobs) == 6


@pytest.mark.parametrize("table", [core.FORWARD, core.OF_QUERIES, core.OF_KEYS], ids=["forward", "queries", "keys"])
def test_no_warp_computes_the_scores_of_another(table):
    """Each has 16 rows of a block or more, since warps stand below one another."""
    for width, (rows, _, warps, _) in table.items():
        assert rows >= 16 * warps or width > 128


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("capability", "most"), [(90, 0), (80, 104)], ids=str)
def test_no_register_spills(width, capability, most, tmp_path, monkeypatch):
    """Of kernels whose bodies read numbers of heads, masks and biases, and compute functions. On Ampere one of them has a few, as before."""
    monkeypatch.setattr(core, "has_warp_groups", lambda index: capability == 90)
    tool = Path(pytest.importorskip("triton").__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("triton brings no cuobjdump")
    like = [torch.empty(1, 4, 256, width, dtype=BF16, device="meta") for _ in range(3)]
    rows = torch.empty(1, 4, 256, device="meta")
    jobs, names = [], []
    for name, (score, keep, read) in READ_BY_BODIES.items():
        mode = FakeMode(SymbolTable())
        bodies = trace_bodies(score, keep, [mode.from_real(x) for x in read], F32, torch.device("cpu"), None)[:3]
        for program, inputs in (
            (forward_program(*bodies), like),
            (backward_program(*bodies), [like[0], *like, rows, rows, rows]),
        ):
            for kernel in rendered(graph_of(program, *inputs, *read, device=CUDA))[1].values():
                (packed,) = TritonRenderer().pack([("attention", kernel)])
                jobs.append(
                    build_triton.request(packed, "kernel", packed.launch["configs"][0], build_triton.Variant(), capability)
                )
                names.append((name, packed.launch["kind"]))
    cubins = build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    for name, cubin in zip(names, cubins, strict=True):
        path = tmp_path / "kernel.cubin"
        path.write_bytes(cubin.code)
        dump = [tool, "--dump-resource-usage", path]
        said = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=60).stdout
        assert int(re.search(r"\bSTACK:(\d+)", said)[1]) <= most, (name, said)
        assert cubin.shared <= LIMITS[capability][0]


if __name__ == "__main__":
    (TESTS / "golden" / "triton" / "attention.txt").write_text(golden())
