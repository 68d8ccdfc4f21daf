"""The ATEN_META table, how rows are registered, and the shape arithmetic that rows of several families share.

A row is called with the arguments of the overload, tensors replaced by their TensorSpec and symbolic sizes by Expr. It gives
the exact sizes, strides, offset, dtype and device that eager gives, and raises RuntimeError where eager does.
NotImplemented leaves the case to torch's meta kernel. Sizes are compared through symbols.active, which records what was decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from .. import _torch, broadcasting
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Size

Rule = Callable[..., Any]
ATEN_META: dict[Any, Rule] = {}
SYMBOLIC: dict[Any, list[Rule]] = {}  # overload -> rules for symbolic sizes; plain ones are left to torch's meta kernel


def overload(name: str) -> Any:
    """`"mm.default"` -> torch.ops.aten.mm.default, or None when this torch does not have it."""
    packet, _, suffix = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), suffix or "default", None)


def row(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule for these overloads."""

    def register(rule: Rule) -> Rule:
        for name in names:
            found = overload(name)
            if found is not None:
                ATEN_META[found] = rule
        return rule

    return register


def symbolic(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule in SYMBOLIC for these overloads.

    It counts only if it agrees with torch's meta kernel at the example's sizes; several for one overload are tried in order.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            found = overload(name)
            if found is not None:
                SYMBOLIC.setdefault(found, []).append(rule)
        return rule

    return register


contiguous = lru_cache(maxsize=8192)(broadcasting.contiguous)


def fresh(like: TensorSpec, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorSpec:
    """Row-major, on the same device."""
    sizes = tuple(sizes)
    return TensorSpec(dtype or like.dtype, like.device, sizes, contiguous(sizes), 0)


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front. Raises IndexError as eager does."""
    span = ndim or 1
    if not -span <= dim < span:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim + span if dim < 0 else dim


def at_least(least: int, size: Size) -> bool:
    """Whether a size is no smaller; of an open one it is decided, and holds for the graph from then on."""
    return least <= size if size.__class__ is int else active.table() is None or active.decide("<=", least, size)


HALVES = frozenset((torch.float16, torch.bfloat16))


def check_number(value: Any, dtype: torch.dtype) -> None:
    """A number that fills a tensor must be one that the dtype can hold. Raises RuntimeError as eager does.

    What a dtype holds is decided without rounding: 127.5 is more than an int8 holds. Bools take everything, complex dtypes what their
    parts can hold, and unsigned integers take integers that are the negatives of what they hold, which wrap around.
    """
    if value.__class__ not in (int, float, complex) or dtype is torch.bool:
        return
    has_infinity = dtype.is_floating_point or dtype.is_complex
    info = torch.finfo(dtype) if has_infinity else torch.iinfo(dtype)
    lowest = -info.max if not dtype.is_signed and value.__class__ is int else info.min
    fits = dtype.is_complex or value.imag == 0
    for part in (value.real, value.imag):
        highest = float(info.max) if part.__class__ is float else info.max
        fits = fits and (lowest <= part <= highest or has_infinity and not math.isfinite(part))
    if not fits:
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow")


def clamp_bound(bound: Any, dtype: torch.dtype, upper: bool) -> Any:
    """The number that eager's clamp compares the elements of this dtype with. Raises RuntimeError as eager does."""
    whole = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    if not (_torch.CLAMPS_AT_LIMITS and whole and bound.__class__ in (int, float)):
        check_number(bound, dtype)
        return bound
    check_number(bound, torch.int64)
    limits, value = torch.iinfo(dtype), int(bound)
    if value < limits.min if upper else value > limits.max:
        raise RuntimeError(f"Clamp {'max' if upper else 'min'} value {bound} is outside the representable range of {dtype}")
    return min(value, limits.max) if upper else max(value, limits.min)


def slice_bounds(start: Size | None, end: Size | None, size: Size) -> tuple[Size, Size]:
    """The first place of a slice and the one behind its last, counted from the front: 0 <= first <= last <= size, or both the same."""
    first = 0 if start is None else _clamped(start, size)
    last = size if end is None or end.__class__ is int and end >= 2**62 else _clamped(end, size)
    if first.__class__ is int and first == 0:
        return 0, last
    return first, first if active.decide("<", last, first) else last


def _clamped(index: Size, size: Size) -> Size:
    if index.__class__ is int and size.__class__ is int:
        return min(max(index + size if index < 0 else index, 0), size)
    if index.__class__ is int and index == 0:
        return 0
    if active.decide("<", index, 0):
        index = index + size
        if active.decide("<", index, 0):
            return 0
    if index is size:
        return size
    return index if active.decide("<=", index, size) else size


def wrap_index(index: Size, size: Size) -> Size | None:
    """A place counted from the front; None where it is outside of 0..size - 1."""
    if active.decide("<", index, 0):
        index = index + size
    return None if active.decide("<", index, 0) or active.decide(">=", index, size) else index


def common_device(specs: list[TensorSpec]) -> torch.device:
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


def elementwise(dtype: torch.dtype, specs: list[TensorSpec]) -> TensorSpec:
    """The result of an elementwise op over these tensors."""
    first = specs[0]
    sizes, strides = first.sizes, first.strides
    for other in specs:
        if other is not first and (other.sizes != sizes or other.strides != strides):
            break
    else:
        device = first.device if len(specs) == 1 else common_device(specs)
        return TensorSpec(dtype, device, sizes, _settled([(sizes, strides)], sizes, _alike(sizes, strides)), 0)
    if active.table() is None:
        sizes, strides = _broadcast_cached(tuple([(s.sizes, s.strides) for s in specs]))
    else:
        layouts = [(s.sizes, s.strides) for s in specs]
        sizes, strides = _broadcast(layouts)
        strides = _settled(layouts, sizes, strides)
    return TensorSpec(dtype, common_device(specs), sizes, strides, 0)


def elementwise_with_number(dtype: torch.dtype, x: TensorSpec) -> TensorSpec:
    """The result of an elementwise op over a tensor and a number, which eager broadcasts as a tensor without dimensions.

    Only the strides of dimensions of size one differ from those of an op of one operand.
    """
    strides = _settled([(x.sizes, x.strides), ((), ())], x.sizes, _with_number(x.sizes, x.strides))
    return TensorSpec(dtype, x.device, x.sizes, strides, 0)


def _settled(layouts: list[tuple[Any, Any]], sizes: tuple, strides: tuple) -> tuple:
    """Strides of an elementwise result: these where they are row-major, or no size is 1. An open one that is, is fixed: a size that is
    computed from others may be 1 for some of them, where dims lie in another order. Sizes that depend on data are not asked."""
    table = active.table()
    if table is None or strides == contiguous(sizes):
        return strides
    opened = {s for shape, _ in layouts for s in shape if s.__class__ is not int and table.has_hint(s)}
    fixed = {symbol: table.hint(symbol) for s in opened if active.is_fixed_one(s) for symbol in s.free_symbols}
    if not fixed:
        return strides

    def written(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([n if n.__class__ is int else n.substitute(fixed) for n in numbers])

    return broadcasting.elementwise_strides([(written(shape), written(t)) for shape, t in layouts], written(sizes))


@lru_cache(maxsize=8192)
def _with_number(sizes: tuple, strides: tuple) -> tuple:
    return broadcasting.elementwise_strides([(sizes, strides), ((), ())], sizes)


def _broadcast(layouts: Any) -> tuple:
    sizes = broadcasting.broadcast_sizes(*[sizes for sizes, _ in layouts])
    aligned = [(_known_as(s, sizes), t) for s, t in layouts]
    return sizes, broadcasting.elementwise_strides(aligned, sizes)


def _known_as(shape: tuple, sizes: tuple) -> tuple:
    """Sizes that were found equal written alike, so that strides compare structurally; what is broadcast is a 1."""
    joined = sizes[len(sizes) - len(shape) :]
    shape = tuple(1 if a is not b and a.__class__ is not int and active.is_one(a) else a for a, b in zip(shape, joined))
    if len(shape) != len(sizes):
        return shape
    return tuple(a if a.__class__ is int and (a == 1 or b.__class__ is int) else b for a, b in zip(shape, sizes))


@lru_cache(maxsize=8192)
def _alike(sizes: tuple, strides: tuple) -> tuple:
    """The strides of an elementwise result when all operands have these."""
    return broadcasting.elementwise_strides([(sizes, strides)], sizes)


_broadcast_cached = lru_cache(maxsize=8192)(_broadcast)
dense = lru_cache(maxsize=8192)(broadcasting.is_dense)


def same_layout(spec: TensorSpec) -> tuple[Size, ...]:
    """The strides of `empty_like`: kept when dense, as what has no elements is, else made dense in the same order."""
    if spec.strides == contiguous(spec.sizes) or 0 in spec.sizes or dense(spec.sizes, spec.strides):
        return spec.strides
    return _broadcast([(spec.sizes, spec.strides)])[1]


def with_format(sizes: tuple[Size, ...], memory_format: Any, like: TensorSpec | None = None) -> tuple[Size, ...]:
    """The strides of a new tensor in this memory format; None means preserve when `like` is given."""
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        return broadcasting.channels_last(sizes)
    if like is not None and memory_format in (None, torch.preserve_format):
        return same_layout(like)
    return contiguous(tuple(sizes))


def suggests_channels_last(spec: TensorSpec) -> bool:
    """What eager's suggest_memory_format says: strides ordered with dim 1 innermost, sizes of 1 included."""
    sizes, strides = spec.sizes, spec.strides
    if len(sizes) not in (4, 5):
        return False
    least: Size = 0
    order = (1, *range(len(sizes) - 1, 1, -1), 0)
    if broadcasting.magnitude(strides[1]) == 0:
        return False
    for dim in order:
        if sizes[dim].__class__ is int and sizes[dim] == 0:
            return False
        if broadcasting.magnitude(strides[dim]) < broadcasting.magnitude(least):
            return False
        if dim == 0 and broadcasting.magnitude(least) == broadcasting.magnitude(strides[1]):
            return False
        least = strides[dim]
        if not (sizes[dim].__class__ is int and sizes[dim] == 1):
            least = least * sizes[dim]
    return True
