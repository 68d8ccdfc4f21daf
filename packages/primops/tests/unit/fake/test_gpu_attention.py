"""GPU attention kernels with symbolic batch and length: rules that agree with torch's meta kernels, and no conditions."""

import pytest
import torch
from tracework_primops import FakeMode, SymbolTable, TensorSpec

aten = torch.ops.aten


def operands(batch, length, layout):
    sizes = (batch, 4, length, 64)
    dense = (4 * length * 64, length * 64, 64, 1)
    strides = dense if layout == "dense" else (4 * length * 64, 64, 4 * 64, 1)
    return sizes, strides


FORWARD = {
    "flash": (aten._scaled_dot_product_flash_attention.default, ()),
    "flash causal": (aten._scaled_dot_product_flash_attention.default, (0.0, True)),
    "efficient": (aten._scaled_dot_product_efficient_attention.default, (None, True)),
    "efficient, inference": (aten._scaled_dot_product_efficient_attention.default, (None, False)),
    "cudnn": (aten._scaled_dot_product_cudnn_attention.default, (None, True)),
}


@pytest.mark.parametrize("layout", ["dense", "heads inside"])
@pytest.mark.parametrize("name", FORWARD)
def test_forward(name, layout):
    func, rest = FORWARD[name]
    table = SymbolTable()
    mode = FakeMode(table)
    batch, length = table.new(3, "x.size(0)"), table.new(33, "x.size(2)")
    plain, strides = operands(3, 33, layout)
    real = torch.empty_strided(plain, strides, dtype=torch.bfloat16)
    fake = mode.from_real(real, *operands(batch, length, layout))
    before = len(table.conditions)
    with mode:
        got = func(fake, fake, fake, *rest)
    expected = func(*(real.to("meta"),) * 3, *rest)
    for g, e in zip(got, expected, strict=True):
        if isinstance(e, torch.Tensor):
            assert tuple(map(table.hint, g.spec.sizes)) == tuple(e.shape)
            assert tuple(map(table.hint, g.spec.strides)) == e.stride()
            assert g.dtype == e.dtype
    assert got[0].spec.sizes[0] is batch and got[0].spec.sizes[2] is length
    assert len(table.conditions) == before


BACKWARD = {
    "flash": (aten._scaled_dot_product_flash_attention_backward.default, (None, None, 33, 33, 0.0, False)),
    "cudnn": (aten._scaled_dot_product_cudnn_attention_backward.default, None),
    "efficient": (aten._scaled_dot_product_efficient_attention_backward.default, None),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name):
    func, _ = BACKWARD[name]
    table = SymbolTable()
    mode = FakeMode(table)
    batch, length = table.new(3, "x.size(0)"), table.new(33, "x.size(2)")
    plain, strides = operands(3, 33, "heads inside")
    real = torch.empty_strided(plain, strides, dtype=torch.bfloat16)
    fake = mode.from_real(real, *operands(batch, length, "heads inside"))
    lse, state = mode.from_real(torch.empty(3, 4, 64)), mode.from_real(torch.empty((), dtype=torch.int64))
    arguments = {
        "flash": (lse, None, None, length, length, 0.0, False, state, state),
        "cudnn": (lse, state, state, None, None, None, length, length, 0.0, False),
        "efficient": (lse, state, state, 0.0, [True, True, True, False]),
    }[name]
    bias = (None,) if name == "efficient" else ()
    arguments = tuple(table.to_symint(a) if a is length else a for a in arguments)
    with mode:
        got = func(fake, fake, fake, fake, *bias, fake, *arguments)
    for g in got[:3]:
        assert isinstance(g.spec, TensorSpec)
        assert g.spec.sizes[0] is batch and g.spec.sizes[2] is length
        assert tuple(map(table.hint, g.spec.strides)) == strides
