"""Our matrix product: float64's values at all rims and layouts, NaNs kept, and where it is chosen."""

import itertools

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.lowering import cpu_products
from tracework_primops import SymbolTable
from tracework_primops import prims as p
from tracework_primops.spec import SizeSpec, TensorSpec

SHAPES = [(16, 1, 16), (17, 9, 31), (48, 16, 16), (49, 383, 17), (23, 385, 33), (100, 800, 64), (1030, 40, 24), (96, 24, 1100),
          (300, 800, 40)]  # fmt: skip
"""Around tiles of 6 x 16, groups of 48 rows, slivers 384 deep, blocks of 252 rows."""


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    """Whatever the processor, and however small the product."""
    monkeypatch.setattr(cpu_products, "has_own_products", lambda: True)
    monkeypatch.setattr(cpu_products, "LEAST_WORK", 1)
    monkeypatch.setattr(cpu_products, "DEEPEST", 1 << 20)


def matrix(rows: int, columns: int, turned: bool, seed: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(columns, rows, generator=made).t() if turned else torch.randn(rows, columns, generator=made)


def run(fn, *args):
    artifact = compile_graph(build(fn, args))
    assert "if gemm(" in artifact.host_source
    return runtime.load(artifact)(list(args))[0]


def close(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | float = 0.0) -> None:
    """Within the bound of a sum of k products in any order: k times the rounding unit, times the sum of their sizes."""
    exact = a.double() @ b.double() + addend
    unit = torch.finfo(torch.float32).eps / 2
    bound = (a.shape[1] + 2) * unit * (a.double().abs() @ b.double().abs() + abs(addend))
    assert ((got.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("turned", list(itertools.product((False, True), repeat=2)), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, turned) -> None:
    m, k, n = shape
    a, b = matrix(m, k, turned[0], 1), matrix(k, n, turned[1], 2)
    close(run(p.mm, a, b), a, b)


@pytest.mark.parametrize("shape", [(33,), (1, 33), (50, 33)], ids=str)
@pytest.mark.parametrize("k", [40, 500])
def test_addends(shape, k) -> None:
    a, b, addend = matrix(50, k, False, 1), matrix(k, 33, True, 2), torch.randn(shape, generator=torch.Generator().manual_seed(3))
    close(run(lambda x, y, z: p.addmm(z, x, y), a, b, addend), a, b, addend)


def test_windows_on_larger_tensors() -> None:
    whole, b = matrix(40, 200, False, 1), matrix(64, 32, False, 2)
    a = whole[3:35, 8:200:3]
    close(run(lambda x, y: p.mm(p.slice(p.slice(x, 0, 3, 35, 1), 1, 8, 200, 3), y), whole, b), a, b)


def test_nans_and_infinities_stay_where_they_are() -> None:
    a, b = matrix(50, 40, False, 1), matrix(40, 50, False, 2)
    a[49, 3], a[7, 5] = float("nan"), float("inf")
    got, expected = run(p.mm, a, b), a @ b
    assert torch.equal(got.isnan(), expected.isnan()) and torch.equal(got.isinf(), expected.isinf())


def test_equal_bits_on_any_number_of_threads() -> None:
    a, b = matrix(97, 700, False, 1), matrix(700, 90, True, 2)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            found.append(run(p.mm, a, b))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(other, found[0]) for other in found[1:])


def test_any_number_of_rows() -> None:
    """A kernel that is chosen for the rows of the example computes fewer, and none."""
    table = SymbolTable()
    rows = table.new(40, "rows", 0, None)
    specs = SizeSpec(rows), *(TensorSpec(torch.float32, torch.device("cpu"), s, (s[1], 1)) for s in ((rows, 30), (30, 20)))
    b = matrix(30, 20, False, 2)
    graph = build(lambda n, x, y: p.mm(x, y), [40, matrix(40, 30, False, 1), b], specs)
    artifact = compile_graph(graph.replace(symbols=table))
    assert "if gemm(" in artifact.host_source
    for count in (40, 100, 3, 1, 0):
        a = matrix(count, 30, False, 1)
        close(runtime.load(artifact)([count, a, b])[0], a, b)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ((64, 64), (64, 64), "another processor"),
        ((4, 64), (64, 64), "few rows"),
        ((64, 64), (64, 4), "few columns"),
        ((64, 64), (64, 64), "doubles"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_library_has_the_rest(monkeypatch, a, b, why) -> None:
    if why == "another processor":
        monkeypatch.setattr(cpu_products, "has_own_products", lambda: False)
    dtype = torch.float64 if why == "doubles" else torch.float32
    args = torch.zeros(a, dtype=dtype), torch.zeros(b, dtype=dtype)
    assert "gemm(" not in compile_graph(build(p.mm, args)).host_source
