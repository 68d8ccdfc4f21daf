"""The result of an elementwise op, and of a copy: sizes, strides and device as eager chooses them.

Sizes are compared through symbols.active, which records what was decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from . import broadcasting
from .broadcasting import broadcast_sizes, elementwise_strides
from .spec import TensorSpec
from .symbols import active
from .symbols.expr import Expr, Size

Sizes = tuple[Size, ...]
Layout = tuple[Sizes, Sizes]
"""Sizes and strides."""
NUMBER: tuple[Layout, ...] = (((), ()),)
MOST = 1 << 14  # layouts that are remembered
contiguous = lru_cache(maxsize=MOST)(broadcasting.contiguous)


def common_device(specs: Sequence[TensorSpec]) -> torch.device:
    """Where the result lives: 0-dim CPU tensors join any device. Raises RuntimeError for a mixture."""
    device = None
    for spec in specs:
        if spec.sizes or spec.device.type != "cpu":
            if device is None:
                device = spec.device
            elif device != spec.device and (spec.sizes or spec.device.type != "cpu"):
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {device} and {spec.device}!"
                )
    return device if device is not None else specs[0].device


def elementwise(dtype: torch.dtype, specs: Sequence[TensorSpec], with_number: bool = False) -> TensorSpec:
    """The result of an elementwise op over these tensors and, where said so, a number.

    Eager broadcasts a number as a tensor without dimensions: only strides of dimensions of size one differ for it.
    """
    first = specs[0]
    sizes, strides = first.sizes, first.strides
    if len(specs) > 1 and any([s.sizes != sizes or s.strides != strides for s in specs]):
        return _of_different(dtype, specs)
    device = first.device if len(specs) == 1 else common_device(specs)
    layouts = ((sizes, strides), *NUMBER) if with_number else ((sizes, strides),)
    return TensorSpec(dtype, device, sizes, _settled(layouts, sizes, _strides(layouts, sizes)), 0)


def _of_different(dtype: torch.dtype, specs: Sequence[TensorSpec]) -> TensorSpec:
    layouts = tuple([(s.sizes, s.strides) for s in specs])
    if active.table() is None:
        sizes, strides = _broadcast_cached(layouts)
    else:
        sizes, strides = broadcast(layouts)
        strides = _settled(layouts, sizes, strides)
    return TensorSpec(dtype, common_device(specs), sizes, strides, 0)


def _settled(layouts: Sequence[Layout], sizes: Sizes, strides: Sizes) -> Sizes:
    """Strides of an elementwise result: these where they are row-major, or no size is 1. An open one that is, is fixed: a size that is
    computed from others may be 1 for some of them, where dims lie in another order. Sizes that depend on data are not asked."""
    table = active.table()
    if table is None or strides == contiguous(sizes):
        return strides
    opened = {s for shape, _ in layouts for s in shape if isinstance(s, Expr) and table.has_hint(s)}
    fixed: dict[Expr, Size] = {symbol: table.hint(symbol) for s in opened if active.is_fixed_one(s) for symbol in s.free_symbols}
    if not fixed:
        return strides

    def written(numbers: Sizes) -> Sizes:
        return tuple([n.substitute(fixed) if isinstance(n, Expr) else n for n in numbers])

    return elementwise_strides([(written(shape), written(t)) for shape, t in layouts], written(sizes))


def broadcast(layouts: Sequence[Layout]) -> Layout:
    """Sizes and strides of an elementwise result over tensors of these layouts."""
    sizes = broadcast_sizes(*[sizes for sizes, _ in layouts])
    aligned = [(_known_as(s, sizes), t) for s, t in layouts]
    return sizes, elementwise_strides(aligned, sizes)


def _known_as(shape: Sizes, sizes: Sizes) -> Sizes:
    """Sizes that were found equal written alike, so that strides compare structurally; what is broadcast is a 1."""
    joined = sizes[len(sizes) - len(shape) :]
    shape = tuple(1 if a is not b and a.__class__ is not int and active.is_one(a) else a for a, b in zip(shape, joined))
    if len(shape) != len(sizes):
        return shape
    return tuple(a if a.__class__ is int and (a == 1 or b.__class__ is int) else b for a, b in zip(shape, sizes))


def same_layout(spec: TensorSpec) -> Sizes:
    """The strides of `empty_like`: kept when dense, as what has no elements is, else made dense in the same order."""
    if spec.strides == contiguous(spec.sizes) or 0 in spec.sizes or _dense(spec.sizes, spec.strides):
        return spec.strides
    return broadcast([(spec.sizes, spec.strides)])[1]


_dense = lru_cache(maxsize=MOST)(broadcasting.is_dense)
_strides = lru_cache(maxsize=MOST)(elementwise_strides)
_broadcast_cached = lru_cache(maxsize=MOST)(broadcast)
