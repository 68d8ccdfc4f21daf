"""Products of a few rows on a CPU: which are read once by kernels of ours, and their values, against float64."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import prim_programs
import pytest
import torch
import tracework_runtime as runtime
from product_programs import BF16, F16, F32, PROGRAMS, check, linear, matrix, turned, wide
from tracework_inductor import compile_graph
from tracework_inductor.lowering import vector_products
from tracework_primops import prims


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(vector_products, "LEAST_ON_CPU", 0)


CALLS = re.compile(r"(tw_in_rows|tw_in_columns)<(\d+), .*>\(&")


def compiled(program, inputs):
    """Results, and (how the large matrix is read, rows) of each product."""
    artifact = compile_graph(prim_programs.build(program, inputs))
    source = "".join({k.source for k in artifact.kernels})
    assert "torch.mm" not in artifact.host_source and "torch.bmm" not in artifact.host_source
    named = any(k.launch.get("matrices") for k in artifact.kernels)
    assert named != ("float piece[" in source), "which matrix is read whole, where one is in memory"
    results = runtime.load(artifact)([prim_programs.copied(x) for x in inputs])
    return results, [(name, int(rows)) for name, rows in CALLS.findall(source)]


NAMES = (
    "linear, float16", "strided", "few columns", "bias", "bias, scaled", "gate and up", "residual", "norm", "int8", "int8, scale from a table",
    "int8, zero point, few columns", "int8, scale along the sum", "int8 query, key and value", "int4", "int4, halves", "vector", "batches",
    "batches, columns, bias", "batches of the same rows",
)  # fmt: skip
"""Programs that differ on a CPU."""


@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    torch.manual_seed(0)
    program, make, reference, steps = PROGRAMS[name]
    given = make(1), make(5)

    def both(*values):
        found = [program(*values[: len(given[0])]), program(*values[len(given[0]) :])]
        return tuple(v for part in found for v in (part if isinstance(part, tuple) else (part,)))

    results, calls = compiled(both, [*given[0], *given[1]])
    assert {rows for _, rows in calls} == ({1} if name == "vector" else {1, 5})
    wanted = [reference(*wide(inputs)) for inputs in given]
    for a, b in zip(results, [v for part in wanted for v in (part if isinstance(part, tuple) else (part,))], strict=True):
        check(a, b, given[0][0].dtype, steps)


@pytest.mark.parametrize(
    ("dtype", "stored"), [(F32, None), (F32, torch.uint8), (BF16, None), (BF16, torch.int8), (BF16, torch.uint8), (F16, None)]
)
def test_all_numbers_of_rows_and_odd_sizes(dtype, stored):
    """Parts of larger matrices, which begin and end at odd places, in both layouts."""
    torch.manual_seed(0)
    numbers, inner, columns = (1, 3, 8), 139, 75
    w, v = matrix(columns + 1, inner + 4, dtype=stored or dtype), matrix(inner + 1, columns + 3, dtype=stored or dtype)
    xs = [matrix(n, inner + 2, dtype=dtype) for n in numbers]

    def part(m, first, *sizes):
        rows = prims.slice(m, 0, m.sizes[0] - sizes[0], m.sizes[0], 1)
        return prims.slice(rows, 1, first, first + sizes[1], 1)

    def program(w, v, *xs):
        w, v = part(w, 3, columns, inner), part(v, 2, inner, columns)
        w, v = (prims.convert(m, dtype) if stored else m for m in (w, v))
        rows = [part(x, 1, x.sizes[0], inner) for x in xs]
        return tuple(y for x in rows for y in (linear(x, w), prims.mm(x, v)))

    results, calls = compiled(program, [w, v, *xs])
    assert sorted(calls) == sorted((name, n) for n in numbers for name in ("tw_in_rows", "tw_in_columns"))
    for n, x in enumerate(xs):
        for found, other in zip(results[2 * n : 2 * n + 2], (w[1:, 3 : inner + 3].T, v[1:, 2 : columns + 2]), strict=True):
            check(found, x[:, 1 : inner + 1].double() @ other.double(), dtype, 4 if dtype == F32 else 2)


def test_long_sums():
    """No accumulator takes part in thousands of additions."""
    inner = 20000
    x, w, v = torch.rand(2, inner), torch.rand(18, inner), torch.rand(inner, 18)
    results, _ = compiled(lambda x, w, v: (linear(x, w), prims.mm(x, v)), [x, w, v])
    for found, other in zip(results, (w.T, v), strict=True):
        wanted = x.double() @ other.double()
        assert ((found - wanted).abs() / wanted).max() < 1e-6


@pytest.mark.parametrize("dtype", (F32, BF16), ids=str)
def test_threads_do_not_change_the_bits(dtype):
    x, w, v = matrix(2, 200, dtype=dtype), matrix(1250, 200, dtype=dtype), matrix(200, 1250, dtype=dtype)
    artifact = compile_graph(prim_programs.build(lambda x, w, v: (linear(x, w), prims.mm(x, v)), [x, w, v]))
    threads, results = torch.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            results.append(runtime.load(artifact)([x, w, v]))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_terms_that_are_not_finite():
    x, w = torch.ones(3, 40), torch.ones(30, 40)
    w[0, 5], w[1, 39], w[2, 0], w[2, 1] = float("nan"), float("inf"), float("inf"), -float("inf")
    (found,), _ = compiled(linear, [x, w])
    assert torch.equal(found.isnan(), (x @ w.T).isnan()) and bool((found[:, 1] == float("inf")).all())


ROWS = {
    "of one size": lambda x: x,
    "of many sizes": lambda x: x * torch.logspace(-9, 0, x.shape[1], 2).to(x.dtype),
    "zeros": torch.zeros_like,
    "small": lambda x: x * 2.0**-95,
    "nearly nothing": lambda x: x * 2.0**-120,
    "large": lambda x: x * 2.0**100,
    "one large": lambda x: x.index_fill(1, torch.tensor(5), 2.0**40),
    "infinite": lambda x: x.index_fill(1, torch.tensor(5), float("inf")),
    "no number": lambda x: x.index_fill(1, torch.tensor(5), float("nan")),
}
"""Rows of which some are multiples of a number, and some are not."""


@pytest.mark.parametrize("stored", (torch.int8, torch.uint8), ids=str)
def test_a_row_times_bytes(stored):
    """Integers add up the products of some rows: as exactly as floats do, whatever the weights of what is large."""
    torch.manual_seed(0)
    w = matrix(40, 203, dtype=stored)
    w[:20, 5] = 0
    given = [row(matrix(1, 203, dtype=BF16)) for row in ROWS.values()]
    artifact = compile_graph(prim_programs.build(lambda w, x: linear(x, prims.convert(w, BF16)), [w, given[0]]))
    run = runtime.load(artifact)
    for name, x in zip(ROWS, given, strict=True):
        (found,) = run([w, x])
        wanted = x.double() @ w.double().T
        for part in (slice(None, 20), slice(20, None)):
            a, b = found[:, part].double(), wanted[:, part]
            assert torch.allclose(a, b, rtol=2**-8, atol=float(b.abs().mean().nan_to_num(0, 0)) / 1000, equal_nan=True), name


@pytest.mark.parametrize(("rows", "columns", "least"), [(9, 80, 0), (2, 80, 64 * 80 + 1)], ids=["more rows", "small"])
def test_what_is_the_librarys(rows, columns, least, monkeypatch):
    monkeypatch.setattr(vector_products, "LEAST_ON_CPU", least)
    x, w = matrix(rows, 64), matrix(columns, 64)
    artifact = compile_graph(prim_programs.build(lambda x, w: prims.mm(x, turned(w)), [x, w]))
    assert "torch.mm" in artifact.host_source
