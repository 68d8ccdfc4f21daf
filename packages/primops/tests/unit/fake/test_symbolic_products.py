"""Products with symbolic sizes as an older torch needs them: same results, same graph inputs, symbols kept."""

import pytest
import torch
import torch.nn.functional as F
from tracework_primops import FakeMode, SymbolTable
from tracework_primops.fake import products

CASES = {
    "linear": (lambda x, w: F.linear(x, w), (3, 5, 8), (7, 8)),
    "linear with bias": (lambda x, w: F.linear(x, w, w[:, 0]), (3, 5, 8), (7, 8)),
    "matrix": (lambda x, w: x @ w, (3, 5, 8), (8, 7)),
    "batches": (lambda x, w: torch.matmul(x, w), (3, 4, 5, 8), (4, 8, 7)),
    "vector": (lambda x, w: x.matmul(w), (3, 5, 8), (8,)),
    "from the left": (lambda x, w: torch.matmul(w, x), (3, 8, 5), (8,)),
    "matrices stay": (lambda x, w: x @ w, (3, 8), (8, 7)),
    "attention": (lambda x, w: F.scaled_dot_product_attention(x, x, x * 2, attn_mask=w), (3, 4, 5, 8), (4, 5, 5)),
    "causal attention": (lambda x, w: F.scaled_dot_product_attention(x, w.expand(x.shape), x, is_causal=True), (3, 5, 8), (5, 8)),
    "attention where a mask says": (
        lambda x, w: F.scaled_dot_product_attention(
            x, x, w.expand(x.shape[0], *w.shape), attn_mask=(w[:, :, :1] > 0).mT, scale=0.5
        ),
        (3, 4, 5, 8),
        (4, 5, 2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_eager(name, monkeypatch):
    monkeypatch.setattr(products, "needed", lambda: True)
    fn, sizes, other = CASES[name]
    table = SymbolTable()
    mode = FakeMode(table)
    x, w = torch.randn(sizes, requires_grad=True), torch.randn(other, requires_grad=True)
    batch = table.new(sizes[0], "x.size(0)", lower=2)
    fakes = mode.from_real(x, (batch, *sizes[1:])), mode.from_real(w)
    with mode:
        got = fn(*fakes)
        got.sum().backward()
    real = fn(x, w)
    assert tuple(map(table.hint, got.spec.sizes)) == real.shape
    assert tuple(map(table.hint, got.spec.strides)) == real.stride()
    assert any(s is batch for s in got.spec.sizes)
    assert fakes[1].grad.shape == w.shape
    assert not [c for c in table.conditions if "==" in str(c)]


@pytest.mark.parametrize(
    "fn",
    [lambda x: F.layer_norm(x, (8,)), lambda x: torch.conv1d(x, torch.ones(4, 5, 3))],
    ids=["layer_norm", "conv1d"],
)
def test_a_composite_is_taken_apart_once(fn, monkeypatch):
    """In inference mode it comes whole; torch asked the function mode for it again and again."""
    monkeypatch.setattr(products, "needed", lambda: True)
    table = SymbolTable()
    mode = FakeMode(table)
    x = torch.randn(3, 5, 8)
    fake = mode.from_real(x, (table.new(3, "x.size(0)", lower=2), 5, 8))
    with torch.inference_mode(), mode:
        got = fn(fake)
    assert tuple(map(table.hint, got.spec.sizes)) == fn(x).shape


@pytest.mark.parametrize("name", CASES)
def test_forms_compute_the_product(name, monkeypatch):
    monkeypatch.setattr(products, "_symbolic", lambda *values: True)
    fn, sizes, other = CASES[name]
    x, w = torch.randn(sizes), torch.randn(other)
    with products.Products():
        got = fn(x, w)
    torch.testing.assert_close(got, fn(x, w))


def test_a_size_asked_for_as_a_number_is_fixed():
    size = getattr(torch.ops.aten, "size", None)
    if size is None or not hasattr(size, "default"):
        pytest.skip("this torch has no such overload")
    table = SymbolTable()
    mode = FakeMode(table)
    batch = table.new(5, "x.size(0)")
    fake = mode.from_real(torch.empty(5, 3), (batch, 3))
    assert mode.dispatch(size.default, (fake,), {}) == [5, 3]
    assert table.conditions
