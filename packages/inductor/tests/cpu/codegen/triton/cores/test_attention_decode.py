"""Attention of a few queries over many keys: Triton's interpreter against float64, what is left to the library, compiled for Hopper."""

import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from few_queries import (  # noqa: E402
    BF16,
    CUDA,
    F16,
    F32,
    PROBLEMS,
    ROUNDING,
    WRITTEN,
    aten,
    attention,
    exact,
    keys,
    mask_of,
    repeated,
    spec_of,
    written,
)
from prim_programs import OTHER_PRODUCTS, build, product, turned, weights  # noqa: E402
from tracework_inductor import InductorOptions, compile_graph  # noqa: E402
from tracework_inductor.codegen.triton.cores import attention_decode  # noqa: E402
from tracework_inductor.ir.index import symbol  # noqa: E402
from tracework_inductor.passes.fuse_attention import fuse_attention  # noqa: E402
from tracework_inductor.pipeline import plan_graph  # noqa: E402
from tracework_inductor.schedule.plan import CoreKernel  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_primops.op import active_builder  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from triton_programs import rendered  # noqa: E402


def run(graph, inputs, folder):
    """The values of a graph for a GPU, through the interpreter."""
    host, kernels = rendered(fuse_attention(graph))
    return triton_interpreter.host_call(host, kernels, folder)(list(inputs)), host, kernels


@pytest.mark.parametrize(("problem", "masked", "layout"), PROBLEMS)
def test_values(problem, masked, layout, tmp_path):
    check_values(problem, masked, layout, tmp_path)


def check_values(problem, masked, layout, folder):
    """Of the compiled program against float64."""
    dtype, batch, heads, groups, queries, length, width = problem
    causal = masked == "causal"
    kernel = "flash" if masked in (None, "causal") else "cudnn" if dtype == BF16 else "efficient"
    torch.manual_seed(0)
    q = torch.randn(batch, queries, heads, width).to(dtype).transpose(1, 2)
    k, v = (keys(batch, groups, length, width, dtype, layout) for _ in range(2))
    mask = None if causal else mask_of(masked, batch, heads, queries, length, dtype)
    inputs = [t for t in (q, k, v, mask) if t is not None]
    program = attention(kernel, causal=causal, scale=0.25 if width == 96 else None, repeats=heads // groups)
    graph = build(program, inputs, [spec_of(t) for t in inputs])
    (value,), host, _ = run(graph, inputs, folder)
    assert "core" in host and "torch.ops" not in host
    assert value.stride() == (queries * heads * width, width, heads * width, 1)
    wanted = exact(q, k, v, mask, causal, 0.25 if width == 96 else None)
    # Weights are rounded to the dtype of the values before they are multiplied, and the result is rounded: each by half a unit.
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=float(4 * ROUNDING[dtype] * v.abs().max()))


@given(
    st.tuples(
        st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 200), st.integers(1, 40)
    ),
    st.sampled_from([None, "filled", "queries", "heads", "nothing"]),
    st.sampled_from(["plain", "heads inside", "longer"]),
    st.sampled_from([1, 2, 8]),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_shapes(sizes, masked, layout, multiprocessors):
    batch, groups, members, queries, length, width = sizes
    before = attention_decode.MULTIPROCESSORS
    attention_decode.MULTIPROCESSORS = multiprocessors
    try:
        with tempfile.TemporaryDirectory() as folder:
            problem = F32, batch, groups * members, groups, queries, length, width
            check_values(problem, masked if length > 7 else None, layout, Path(folder))
    finally:
        attention_decode.MULTIPROCESSORS = before


@pytest.mark.parametrize("multiprocessors", [1, 4])
@pytest.mark.parametrize("queries", [1, 2])
def test_what_is_hidden_is_not_read(queries, multiprocessors, tmp_path, monkeypatch):
    """Blocks before and after what the mask shows, and keys between."""
    monkeypatch.setattr(attention_decode, "MULTIPROCESSORS", multiprocessors)
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, queries, 64), torch.randn(1, 2, 700, 64), torch.randn(1, 2, 700, 64)
    hidden = torch.rand(1, 1, queries, 700) < 0.3
    hidden[..., :200], hidden[..., 600:] = True, True
    for x in (k, v):
        x.masked_fill_(hidden.all(2)[..., None], math.nan)
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf)
    inputs = q, k, v, mask
    (value,), _, kernels = run(build(attention("efficient"), inputs, [spec_of(t) for t in inputs]), inputs, tmp_path)
    assert any("begin" in kernel.source for kernel in kernels.values()) == (queries == 1 or multiprocessors == 4)
    wanted = exact(q, k.nan_to_num(), v.nan_to_num(), mask)
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=4e-6)


@pytest.mark.parametrize("low", [-65504.0, -65536.0, -math.inf])
def test_what_a_boolean_mask_excludes_is_not_read(low, tmp_path):
    """torch writes a number for False, and -inf."""

    def program(q, k, v, keep):
        mask = prims.where(prims.gt(keep, 0.0), 0.0, prims.full((), low, q.dtype, q.device))
        return attention("efficient")(q, k, v, mask)

    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 1, 16), torch.randn(1, 2, 200, 16), torch.randn(1, 2, 200, 16)
    keep = (torch.rand(1, 1, 1, 200) < 0.3).float()
    hidden = keep[0, 0, 0] == 0
    k[:, :, hidden] = math.nan
    inputs = q, k, v, keep
    (value,), _, _ = run(build(program, inputs, [spec_of(t) for t in inputs]), inputs, tmp_path)
    wanted = exact(q, k[:, :, ~hidden], v[:, :, ~hidden])
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=4e-6)


def test_a_number_that_is_added_excludes_nothing(tmp_path):
    """Where scores are farther apart, it does not matter."""
    torch.manual_seed(0)
    q, k, v = torch.full((1, 1, 1, 16), 100.0), torch.randn(1, 1, 200, 16), torch.randn(1, 1, 200, 16)
    mask = torch.zeros(1, 1, 1, 200)
    mask[..., ::2] = -65536.0
    k[:, :, 50] = 400.0
    inputs = q, k, v, mask
    (value,), _, _ = run(build(attention("efficient"), inputs, [spec_of(t) for t in inputs]), inputs, tmp_path)
    torch.testing.assert_close(value.double(), exact(q, k, v, mask), rtol=0, atol=4e-6)
    torch.testing.assert_close(value[0, 0, 0], v[0, 0, 50])


def test_rows_that_see_nothing(tmp_path):
    """As torch's fused kernels: 0 where the mask is infinite or that times log2(e) is, all keys alike where it is -65536 for all."""
    torch.manual_seed(0)
    q, k, v = torch.randn(4, 2, 1, 16), torch.randn(4, 2, 200, 16), torch.randn(4, 2, 200, 16)
    fills = -math.inf, torch.finfo(F32).min, -65536.0, math.nan
    mask = torch.tensor(fills)[:, None, None, None].expand(4, 1, 1, 200).contiguous()
    inputs = q, k, v, mask
    (value,), _, _ = run(build(attention("efficient"), inputs, [spec_of(t) for t in inputs]), inputs, tmp_path)
    assert value[:2].eq(0).all() and value[3].isnan().all()
    torch.testing.assert_close(value[2].double(), exact(q, k, v)[2], rtol=0, atol=0.02)  # 65536 + s keeps s to 2**-8


LENGTH, BATCH = symbol("s0", 2, None), symbol("s1", 1, None)


def symbolic(sizes, dtype=F32):
    return TensorSpec(dtype, CUDA, sizes)


@pytest.mark.parametrize("length", [2, 300])
def test_sizes_that_change(length, tmp_path, monkeypatch):
    monkeypatch.setattr(attention_decode, "MULTIPROCESSORS", 8)
    specs = [symbolic((BATCH, 4, 1, 16)), *[symbolic((BATCH, 2, LENGTH, 16))] * 2, symbolic((BATCH, 1, 1, LENGTH))]
    graph = build(attention("efficient", repeats=2), [None] * 4, specs)
    torch.manual_seed(0)
    q, k, v, mask = (torch.randn(2, *s) for s in ((4, 1, 16), (2, length, 16), (2, length, 16), (1, 1, length)))
    (value,), host, kernels = run(graph, (q, k, v, mask), tmp_path)
    assert "core" in host and any("split" in dict(kernel.launch)["kind"] for kernel in kernels.values())
    torch.testing.assert_close(value.double(), exact(q, k, v, mask), rtol=0, atol=1e-6)
    fits = next(
        launch["fits32"] for kernel in kernels.values() if (launch := dict(kernel.launch))["kind"].startswith("attention")
    )
    assert eval(fits, {}, {"ks0": 1000, "ks1": 4}) and not eval(fits, {}, {"ks0": 1 << 25, "ks1": 4})


def test_a_cache_that_grows_is_written_once(tmp_path):
    """Keys that are joined and given out are read where they are given out."""

    def program(q, past, new, v):
        k = prims.cat((past, new), 2)
        return attention("flash", repeats=2)(q, k, v), k

    q, past, new, v = torch.randn(1, 4, 1, 16), torch.randn(1, 2, 40, 16), torch.randn(1, 2, 1, 16), torch.randn(1, 2, 41, 16)
    inputs = q, past, new, v
    (value, k), host, kernels = run(build(program, inputs, [spec_of(t) for t in inputs]), inputs, tmp_path)
    assert len(kernels) == 2 and torch.equal(k, torch.cat((past, new), 2))
    torch.testing.assert_close(value.double(), exact(q, k, v), rtol=0, atol=1e-6)


def test_repeated_heads_of_an_input_that_is_written_before(tmp_path):
    def program(q, cache, new):
        k = repeated(cache, 2)
        written = prims.copy_into(cache, new)
        return written, attention("flash")(q, k, k)

    inputs = torch.randn(1, 4, 1, 16), torch.randn(1, 2, 40, 16), torch.randn(1, 2, 40, 16)
    wanted = exact(inputs[0], inputs[1], inputs[1])
    (_, value), _, _ = run(build(program, inputs, [spec_of(t) for t in inputs]), inputs, tmp_path)
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("hidden", ["some", "all"])
@pytest.mark.parametrize("case", WRITTEN)
def test_attention_that_is_written_out(case, hidden, tmp_path):
    """One kernel, whose values are as near float64's as those of the program, hidden rows included."""
    program, inputs, wanted, atol = written(case, hidden)
    (value,), host, kernels = run(build(program, inputs, [spec_of(t) for t in inputs]), inputs, tmp_path)
    assert "core" in host and "bmm" not in host and value.shape == wanted.shape
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=atol, equal_nan=True, check_stride=True)


def with_weights(q, k, v, mask):
    """The weights are given out, too."""
    found = weights(product(q, turned(k)))
    return product(found, v), found


def of_the_largest(q, k, v, mask):
    """What is hidden depends on the scores."""
    scores = product(q, turned(k))
    return product(weights(prims.where(prims.lt(scores, 1.0), -math.inf, scores)), v)


def of_other_axis(q, k, v, mask):
    """The softmax is over the queries."""
    scores = product(q, turned(k))
    e = prims.exp(prims.sub(scores, prims.amax(scores, (2,), True)))
    return product(prims.div(e, prims.sum(e, (2,), True)), v)


def capped(q, k, v, mask):
    """Scores are no sum of products and masks."""
    return product(weights(prims.tanh(product(q, turned(k)))), v)


def weighed(q, k, v, mask):
    """Each score by a factor of its own."""
    return product(weights(prims.mul(product(q, turned(k)), mask)), v)


def filled_before(q, k, v, mask):
    """A finite number replaces scores, and something is added to it then."""
    scores = prims.where(prims.ge(mask, 0.0), product(q, turned(k)), -5.0)
    return product(weights(prims.add(scores, mask)), v)


def with_other(name):
    def program(q, k, v, mask):
        return OTHER_PRODUCTS[name](weights(product(q, turned(k))), v)

    program.__name__ = name
    return program


with_other_products = [with_other(name) for name in OTHER_PRODUCTS]


def written_between(q, k, v, mask):
    """The keys are written to before the values are read."""
    found = weights(product(q, turned(k)))
    written = prims.copy_into(k, v)
    return product(found, v), written


@pytest.mark.parametrize(
    "program",
    [with_weights, of_the_largest, of_other_axis, capped, weighed, filled_before, written_between, *with_other_products],
    ids=lambda program: program.__name__,
)
def test_products_that_stay(program):
    """What is like attention and is none, or needs what the kernel does not keep."""
    sizes = (1, 2, 4, 16), (1, 2, 70, 16), (1, 2, 70, 16), (1, 1, 1, 70)
    graph = build(program, [None] * 4, [TensorSpec(F32, CUDA, s) for s in sizes])
    assert fuse_attention(graph) is graph


def left_to_library(graph, **options):
    plan = plan_graph(graph, InductorOptions(**options))
    return not any(isinstance(kernel, CoreKernel) for kernel in plan.kernels)


def specs(dtype=BF16, device=CUDA, heads=(8, 2), queries=1, width=64):
    sizes = (1, heads[0], queries, width), *[(1, heads[1], 512, width)] * 2, (1, 1, queries, 512)
    return [TensorSpec(dtype, device, s) for s in sizes]


@pytest.mark.parametrize(
    ("case", "options", "program"),
    [
        ({}, {"numerics": "strict"}, {}),
        ({"queries": 9}, {}, {}),
        ({"width": 264}, {}, {}),
        ({"dtype": torch.float64}, {}, {}),
        ({}, {}, {"dropout": 0.1}),
    ],
    ids=["strict", "many queries", "wide", "float64", "dropout"],
)
def test_what_the_library_keeps(case, options, program):
    assert left_to_library(build(attention("efficient", **{"repeats": 4} | program), [None] * 4, specs(**case)), **options)
    assert not left_to_library(build(attention("efficient", repeats=4), [None] * 4, specs()))


def test_what_a_backward_reads_is_left_to_the_library():
    def program(q, k, v, mask):
        rows = TensorSpec(torch.float32, CUDA, (1, 8, 1))
        seed = TensorSpec(torch.int64, CUDA, ())
        call = aten._scaled_dot_product_efficient_attention.default
        mask = prims.expand(mask, (1, 8, 1, 512))
        node = active_builder().append(call, (q.node, k.node, v.node, mask.node, True), [q.spec, rows, seed, seed], {})
        return tuple(active_builder().wrap(node, [q.spec, rows, seed, seed])[:2])

    assert left_to_library(build(program, [None] * 4, specs(heads=(8, 8))))


def test_the_mask_is_converted_once_for_all_layers():
    """And not for each head."""

    def program(q, k, v, mask):
        nothing, hidden = (prims.full((), value, torch.float32, CUDA) for value in (0.0, -math.inf))
        bias = prims.where(prims.gt(mask, 0.0), nothing, hidden)
        return tuple(attention("efficient", repeats=4)(prims.mul(q, n), k, v, bias) for n in (1.0, 2.0))

    plan = plan_graph(build(program, [None] * 4, specs(dtype=F32)), InductorOptions())
    assert plan.text().count(" = attention_decode(") == 2
    masks = [kernel.node.operands[3] for kernel in plan.kernels if isinstance(kernel, CoreKernel)]
    assert len(masks) == 2 and len({m.buffer for m in masks}) == 1 and plan.program.buffers[masks[0].buffer].layout.numel() == 512


def test_compiles_for_hopper(tmp_path):
    jobs = []
    for dtype, width, shared in ((BF16, 64, True), (F16, 80, False), (F32, 128, True), (BF16, 256, True)):
        graph = build(
            attention("efficient", repeats=4 if shared else 1),
            [None] * 4,
            specs(dtype, heads=(8, 2 if shared else 8), width=width),
        )
        for kernel in compile_graph(graph).kernels:
            jobs += [
                build_triton.request(kernel, entry, kernel.launch["configs"][0], build_triton.Variant(), 90)
                for entry in kernel.launch["entries"]
            ]
    cubins = build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    assert len(cubins) == len(jobs) == 12 and all(cubin.shared < 228 << 10 for cubin in cubins)
