"""The rounding errors of long sums: their bound does not grow with the length but by its logarithm."""

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp.blocks import CHAIN
from tracework_inductor.lowering import reduction
from tracework_primops import SymbolTable
from tracework_primops import prims as p
from tracework_primops.spec import SizeSpec, TensorSpec

DEPTH = CHAIN + 5 * 15 + 32
"""Additions that a term takes part in at most: those of a block, 15 in each level of the cascade, and what joins lanes."""
BIASED = 1.8791199922561646
"""One of the values whose sums, one after the other, are off by the most."""


def beside(x):
    """A sum that shares its loop with another kind of reduction."""
    return p.sum(x, (1,)), p.amax(x, (1,))


def squared(x):
    return p.sum(p.mul(x, x), (0,)), p.sum(x, (0,))


PROGRAMS = {
    "all": (lambda x: p.sum(x, (0,)), (1 << 22,)),
    "all, an odd number": (lambda x: p.sum(x, (0,)), ((1 << 22) - 5,)),
    "rows": (lambda x: p.sum(x, (1,)), (4, 1 << 20)),
    "columns": (lambda x: p.sum(x, (0,)), (1 << 18, 20)),
    "columns of a block and a half": (squared, (5000, 192)),
    "channels": (lambda x: p.sum(x, (0, 2)), (60, 3, 7000)),
    "channels of small images": (lambda x: p.sum(x, (0, 2)), (9000, 3, 49)),
    "channels last": (lambda x: p.sum(x, (0, 2)), (300, 16, 300)),
    "beside a maximum": (beside, (2, 1 << 19)),
    "without vectors": (lambda x: p.sum(p.fmod(x, 4.0), (1,)), (2, 1 << 18)),
    "one column": (lambda x: p.sum(x, (0,)), (1 << 18, 1)),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def given(name, dtype):
    _, sizes = PROGRAMS[name]
    x = torch.full(sizes, BIASED, dtype=dtype)
    return x.permute(0, 2, 1).contiguous().permute(0, 2, 1) if name == "channels last" else x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_error_is_bounded(name, dtype) -> None:
    x = given(name, dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    fn = PROGRAMS[name][0]
    program = lambda x: fn(p.convert(x, wide))
    found = runtime.load(compile_graph(build(program, (x,))))([x])
    # Equal terms: the number of terms times one of them is exact to the last bit of a longer float.
    one = x.reshape(-1)[0].double()
    counts = x.numel() // found[0].numel()
    terms = {
        "columns of a block and a half": (one * one, one),
        "without vectors": (one,),
        "beside a maximum": (one, one / counts),
    }
    for value, term in zip(found, terms.get(name, (one,)), strict=True):
        error = (value.double() / (counts * term) - 1).abs().max()
        assert error <= (DEPTH + 1) * torch.finfo(wide).eps / 2, name


STEP = CHAIN * 32
LENGTHS = sorted({n + d for n in (16, 128, 512, STEP, 16 * STEP, 17 * STEP, 256 * STEP) for d in (-1, 0, 1, 5)})


@pytest.mark.parametrize("inner", (1, 3))
def test_every_term_is_taken_once(inner) -> None:
    """Sums of ones, which are exact, around the lengths at which something changes."""
    a = SymbolTable().new(100, "a", 2, None)
    f32, cpu = torch.float32, torch.device("cpu")
    rows = build(lambda a, x: p.sum(x, (0,)), (100, None), (SizeSpec(a), TensorSpec(f32, cpu, (a, inner), (inner, 1))))
    compiled = runtime.load(compile_graph(rows))
    for n in LENGTHS:
        x = torch.ones(n, inner)
        assert compiled([n, x])[0].tolist() == [n] * inner, n
        if n in LENGTHS[::4]:
            assert runtime.load(compile_graph(build(lambda x: p.sum(x, (0,)), (x,))))([x])[0].tolist() == [n] * inner, n


def test_special_values_stay() -> None:
    sizes = (4, 3000)
    x = torch.ones(sizes)
    x[0, 7], x[1, 2999], x[2, 5], x[2, 2000] = float("inf"), float("nan"), float("inf"), float("-inf")
    compiled = runtime.load(compile_graph(build(lambda x: p.sum(x, (1,)), (x,))))
    torch.testing.assert_close(compiled([x])[0], x.sum(1), equal_nan=True)
    zeros = torch.full(sizes, -0.0)
    assert not compiled([zeros])[0].signbit().any()


@pytest.mark.parametrize("mean", (0, 1e3, 1e5))
@pytest.mark.parametrize("sizes", ((1 << 20,), (1 << 16, 16)), ids=str)
def test_variance_around_a_mean(sizes, mean) -> None:
    x = torch.rand(sizes, generator=torch.Generator().manual_seed(0)) + mean
    var, found_mean = runtime.load(compile_graph(build(lambda x: p.var_mean(x, (0,), 1, False), (x,))))([x])
    torch.testing.assert_close(var.double(), x.double().var(0), rtol=1e-6, atol=0)
    torch.testing.assert_close(found_mean.double(), x.double().mean(0), rtol=1e-6, atol=0)


BLOCKS = [((1 << 15,), (0,)), ((4096, 24), (0,)), ((96, 5, 12, 11), (0, 2, 3)), ((1030, 24), (0,))]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("mean", (0, 1e3, 1e5))
def test_variance_by_blocks(mean, channels_last, monkeypatch) -> None:
    monkeypatch.setattr(reduction, "LARGE", 1 << 12)
    monkeypatch.setattr(reduction, "CACHED", 1 << 14)
    made = torch.Generator().manual_seed(0)
    xs = [torch.rand(sizes, generator=made) + mean for sizes, _ in BLOCKS]
    if channels_last:
        xs[2] = xs[2].contiguous(memory_format=torch.channels_last)
    artifact = compile_graph(build(lambda *xs: tuple(v for x, (_, d) in zip(xs, BLOCKS) for v in p.var_mean(x, d, 1, True)), xs))
    found = runtime.load(artifact)(list(xs))
    for n, (x, (_, dims)) in enumerate(zip(xs, BLOCKS)):
        for actual, expected in zip(found[2 * n : 2 * n + 2], torch.var_mean(x.double(), dims, correction=1, keepdim=True)):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", (0.1, 1e5 + 0.3, -7.7))
def test_equal_values_have_no_negative_variance(value) -> None:
    x = torch.full((7, 3000), value)
    var = runtime.load(compile_graph(build(lambda x: p.var_mean(x, (1,), 1, False), (x,))))([x])[0]
    assert (var >= 0).all()


@pytest.mark.parametrize(("scan", "term"), ((p.cumsum, BIASED), (p.cumprod, 1 + 2**-17)))
def test_scans_carry_more_than_they_store(scan, term) -> None:
    x = torch.full((1 << 20,), term)
    found = runtime.load(compile_graph(build(lambda x: scan(x, 0), (x,))))([x])[0].double()
    expected = {p.cumsum: torch.cumsum, p.cumprod: torch.cumprod}[scan](x.double(), 0)
    assert ((found / expected - 1).abs().max()) <= 2**-24 * (1 + 1e-3)


def softened(x):
    """Scans with work before and after, and two of them side by side."""
    return p.mul(p.cumsum(p.exp(x), 1), x), p.cumsum(x, 1), p.cumprod(p.sigmoid(x), 1)


def twice(x):
    """A scan over a scan."""
    return (p.cumsum(p.cumsum(x, 1), 1),)


SCANS = {
    "beside each other": (softened, torch.float32),
    "over a scan": (twice, torch.float32),
    "halves": (lambda x: (p.cumsum(x, 1),), torch.bfloat16),
    "doubles": (softened, torch.float64),
    "integers": (lambda x: (p.cumsum(x, 1), p.cumprod(x, 1)), torch.int64),
    "down columns": (lambda x: (p.cumsum(x, 0),), torch.float32),
    "a scan and a sum": (lambda x: (p.div(p.cumsum(x, 1), p.sum(x, (1,), True)),), torch.float32),
}


@pytest.mark.parametrize("length", (1, 15, 16, 33, 100))
@pytest.mark.parametrize("name", SCANS)
def test_scans(name, length) -> None:
    fn, dtype = SCANS[name]
    x = (torch.rand(5, length, generator=torch.Generator().manual_seed(0)) * 4 + 1).to(dtype)
    graph = build(fn, (x,))
    for found, wanted in zip(runtime.load(compile_graph(graph))([x]), graph.run(x), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_scans_after_nothing_and_too_much(dtype) -> None:
    x = torch.full((40,), 3e38, dtype=dtype)
    x[3], x[20] = 0, float("inf")
    for scan, eager in ((p.cumprod, torch.cumprod), (p.cumsum, torch.cumsum)):
        found = runtime.load(compile_graph(build(lambda x, scan=scan: scan(x, 0), (x,))))([x])[0]
        torch.testing.assert_close(found, eager(x, 0), equal_nan=True)


def test_scans_of_symbolic_length() -> None:
    a = SymbolTable().new(100, "a", 2, None)
    graph = build(
        lambda a, x: p.cumsum(x, 0), (100, None), (SizeSpec(a), TensorSpec(torch.float32, torch.device("cpu"), (a,), (1,)))
    )
    compiled = runtime.load(compile_graph(graph))
    for n in (2, 16, 17, 1000):
        assert compiled([n, torch.ones(n)])[0].tolist() == list(range(1, n + 1))
