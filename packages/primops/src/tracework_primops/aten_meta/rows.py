"""The tables of ATen ops, how they are filled, and the shape arithmetic that rows of several families share.

A row is called with the arguments of the overload, tensors replaced by their TensorSpec and symbolic sizes by Expr. It gives
the exact sizes, strides, offset, dtype and device that eager gives, and raises RuntimeError where eager does.
NotImplemented leaves the case to torch's meta kernel, also what a refusal gives. Sizes are compared through symbols.active, which
records what was decided.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _torch, broadcasting
from ..elementwise import contiguous, elementwise, same_layout
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Size

Rule = Callable[..., Any]
Given = TensorSpec | None
Results = tuple[Any, ...]
PLACES = (torch.int64, torch.int32)
"""Dtypes of an index that most operators take."""
ATEN_META: dict[Any, Rule] = {}
SYMBOLIC: dict[Any, list[Rule]] = {}  # overload -> rules for symbolic sizes; plain ones are left to torch's meta kernel
REFUSALS: dict[Any, Rule] = {}  # overload -> what raises where eager does; the decomposition says the rest
LAYOUTS: dict[Any, Rule] = {}
"""Overload -> the spec of a result as eager lays it out, from the one that the decomposition gives and the arguments."""
BY_META_KERNEL = frozenset(
    """
    polygamma polar linalg_cross norm.Scalar norm.ScalarOpt_dtype norm.ScalarOpt_dim_dtype median nanmedian mode kthvalue trace histc
    _reshape_copy lift_fresh lift_fresh_copy view_as_real view_as_real_copy view_as_complex view_as_complex_copy view_copy.dtype
    as_strided_scatter cudnn_batch_norm miopen_batch_norm batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward
    convolution_overrideable convolution_backward_overrideable _efficientzerotensor linspace take unfold_backward searchsorted _scaled_mm
    _int_mm addbmm randint randperm topk grid_sampler_2d_backward grid_sampler_3d_backward im2col col2im
    max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool3d avg_pool3d_backward _adaptive_avg_pool3d
    _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward reflection_pad1d reflection_pad1d_backward
    reflection_pad2d_backward reflection_pad3d_backward replication_pad1d replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward _fused_rms_norm_backward _fused_adam.default _fused_adamw.default
    """.split()
)
"""Operators with a decomposition of which torch's meta kernel is asked all the same: it refuses what eager does, and never loads torch's
compiler."""
WHOLE: set[Any] = set()  # composites of torch's that are an op of their own here


def overload(name: str) -> Any:
    """`"mm.default"` -> torch.ops.aten.mm.default, or None when this torch does not have it."""
    packet, _, suffix = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), suffix or "default", None)


def row(*names: str, reads: str = "") -> Callable[[Rule], Rule]:
    """Registers the rule for these overloads. It gets the arguments that it reads, by the names of the schema; without such names all."""
    return _filing(ATEN_META, names, reads)


def _reading(func: Any, names: list[str], rule: Rule) -> Rule:
    arguments = {a.name: (place, a.default_value) for place, a in enumerate(func._schema.arguments)}
    wanted = [(name, *arguments[name]) for name in names]

    @functools.wraps(rule)
    def read(*args: Any, **kwargs: Any) -> Any:
        return rule(*[args[i] if i < len(args) else kwargs.get(name, default) for name, i, default in wanted])

    return read


def refuses(*names: str) -> Callable[[Rule], Rule]:
    """Registers what raises for these overloads where eager does. It is called with the arguments of a row."""

    def file(rule: Rule) -> Rule:
        for found in filter(None, map(overload, names)):
            REFUSALS[found] = _both(REFUSALS[found], rule) if found in REFUSALS else rule
        return rule

    return file


def _both(first: Rule, second: Rule) -> Rule:
    @functools.wraps(first)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented if NotImplemented in (first(*args, **kwargs), second(*args, **kwargs)) else None

    return refuse


def demand(holds: Callable[..., Any], *names: str, error: type[Exception] = RuntimeError) -> None:
    """Registers what must hold of the arguments of these overloads, which eager refuses otherwise."""

    @functools.wraps(holds)
    def refuse(*args: Any, **kwargs: Any) -> None:
        check(holds(*args, **kwargs), error)

    refuses(*names)(refuse)


def laid_out(layout: Rule, *names: str) -> None:
    """Registers how eager lays out the results of these overloads."""
    _filing(LAYOUTS, names)(layout)


def names(text: str, *suffixes: str) -> list[str]:
    """Overloads of these operators with these names."""
    return [f"{name}.{suffix}" for name in text.split() for suffix in suffixes]


def row_major(spec: TensorSpec, *arguments: Any, **options: Any) -> TensorSpec:
    """Row-major in the same sizes; for `laid_out`, whatever the arguments are."""
    return fresh(spec, spec.sizes)


def like_first(spec: TensorSpec, x: TensorSpec, *arguments: Any, **options: Any) -> TensorSpec:
    """For `laid_out`: as `empty_like` of the first argument."""
    return TensorSpec(spec.dtype, spec.device, x.sizes, same_layout(x), 0)


def like_operands(spec: TensorSpec, *arguments: Any, **options: Any) -> TensorSpec:
    """For `laid_out`: as one elementwise op over all tensors that were given."""
    return elementwise(spec.dtype, [x for x in arguments if x.__class__ is TensorSpec])


def like_operands_and_numbers(spec: TensorSpec, *arguments: Any, **options: Any) -> TensorSpec:
    """For `laid_out`: as one elementwise op over all arguments."""
    specs = [x for x in arguments if x.__class__ is TensorSpec]
    return elementwise(spec.dtype, specs, with_number=len(specs) < len(arguments))


class Refused(RuntimeError):
    """Raised by a rule for arguments that eager refuses with an `error`; who asked the rule names them."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__("eager refuses such arguments")
        self.error = error


def check(holds: bool, error: type[Exception] = RuntimeError) -> None:
    """For rules: eager refuses the call unless this holds."""
    if not holds:
        raise Refused(error)


def _filing(table: dict[Any, Rule], names: tuple[str, ...], reads: str = "") -> Callable[[Rule], Rule]:
    def file(rule: Rule) -> Rule:
        for found in filter(None, map(overload, names)):
            table[found] = _reading(found, reads.split(), rule) if reads else rule
        return rule

    return file


def symbolic(*names: str, reads: str = "") -> Callable[[Rule], Rule]:
    """Registers the rule in SYMBOLIC for these overloads, as `row` does.

    It counts only if it agrees with torch's meta kernel at the example's sizes; several for one overload are tried in order.
    """

    def file(rule: Rule) -> Rule:
        for found in filter(None, map(overload, names)):
            SYMBOLIC.setdefault(found, []).append(_reading(found, reads.split(), rule) if reads else rule)
        return rule

    return file


def fresh(like: TensorSpec, sizes: tuple[Size, ...], dtype: torch.dtype | None = None) -> TensorSpec:
    """Row-major, on the same device."""
    sizes = tuple(sizes)
    return TensorSpec(dtype or like.dtype, like.device, sizes, contiguous(sizes), 0)


def like_self(x: TensorSpec) -> TensorSpec:
    """What `empty_like` gives."""
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x), 0)


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front. Raises IndexError as eager does."""
    span = ndim or 1
    if not -span <= dim < span:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim + span if dim < 0 else dim


def same_sizes(a: Sequence[Size], b: Sequence[Size], beside: int | None = None) -> bool:
    """Whether two shapes are the same, beside one dim; of open sizes it is decided."""
    return len(a) == len(b) and all(d == beside or active.equal(x, y) for d, (x, y) in enumerate(zip(a, b)))


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
