"""Result specs of elementwise prims, with the strides eager's iterator would choose."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ..broadcasting import broadcast_sizes, elementwise_strides
from ..op import OPS, Op, Scalar, Tag
from ..promotion import complex_of, real_of
from ..spec import TensorSpec
from ..symbols import Size
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


@lru_cache(maxsize=1 << 16)
def layout1(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> tuple[Size, ...]:
    """Strides of a one-operand result."""
    return elementwise_strides([(sizes, strides)], sizes)


@lru_cache(maxsize=1 << 16)
def layout2(
    a: tuple[Size, ...], sa: tuple[Size, ...], b: tuple[Size, ...], sb: tuple[Size, ...]
) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Sizes and strides of a two-operand result."""
    sizes = broadcast_sizes(a, b)
    return sizes, elementwise_strides([(a, sa), (b, sb)], sizes)


def elementwise(dtype: torch.dtype | None, *operands: object) -> TensorSpec:
    """The result of an elementwise op over specs and numbers; dtype None means the first operand's."""
    specs = [x for x in operands if x.__class__ is TensorSpec]
    first = specs[0]
    dtype = first.dtype if dtype is None else dtype
    if len(specs) == 1:
        return TensorSpec(dtype, first.device, first.sizes, layout1(first.sizes, first.strides))
    device = first.device
    if len(specs) == 2:
        second = specs[1]
        if second.device is not device and not first.sizes and device.type == "cpu":
            device = second.device
        sizes, strides = layout2(first.sizes, first.strides, second.sizes, second.strides)
        return TensorSpec(dtype, device, sizes, strides)
    for spec in specs:
        if spec.sizes or spec.device.type != "cpu":
            device = spec.device
            break
    sizes = broadcast_sizes(*[s.sizes for s in specs])
    return TensorSpec(dtype, device, sizes, elementwise_strides([(s.sizes, s.strides) for s in specs], sizes))


def _same(*operands: object) -> TensorSpec:
    return elementwise(None, *operands)


def _bool(*operands: object) -> TensorSpec:
    return elementwise(torch.bool, *operands)


def _real(x: TensorSpec) -> TensorSpec:
    return elementwise(real_of(x.dtype), x)


@rule("convert", "bitcast")
def convert(x: TensorSpec, dtype: torch.dtype) -> TensorSpec:
    return TensorSpec(dtype, x.device, x.sizes, layout1(x.sizes, x.strides))


@rule()
def round(x: TensorSpec, decimals: int) -> TensorSpec:
    return elementwise(None, x)


@rule()
def polygamma(n: int, x: TensorSpec) -> TensorSpec:
    return elementwise(None, x)


@rule()
def complex(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    return elementwise(complex_of(a.dtype), a, b)


@rule()
def frexp(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return elementwise(None, x), elementwise(torch.int32, x)


@rule()
def where(cond: TensorSpec, a: TensorSpec | Scalar, b: TensorSpec | Scalar) -> TensorSpec:
    specs = [x for x in (a, b) if x.__class__ is TensorSpec]
    if not specs:
        raise TypeError("prims.where: give at least one of a, b as a tensor (prims.full makes one)")
    return elementwise(specs[0].dtype, cond, *specs)


for _op in OPS.values():
    if _op.family == "pointwise" and _op not in META:
        META[_op] = _bool if Tag.BOOL_RESULT in _op.tags else _real if Tag.REAL_RESULT in _op.tags else _same
