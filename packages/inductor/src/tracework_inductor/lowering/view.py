"""Views: other windows on the same buffer where strides allow it, index rewrites elsewhere."""

from collections.abc import Sequence
from typing import Any

from ..ir.index import Size, same
from ..ir.views import (
    IndexMap,
    diagonal_map,
    expand_map,
    flip_map,
    numel_equal,
    permute_map,
    reshape_map,
    reshape_strides,
    size_of_slice,
    slice_map,
    squeeze_map,
    unfold_map,
    unsqueeze_map,
)
from .layout import strides_equal
from .registry import Refused, lowers
from .value import Lazy, Strided, TensorValue, settled


def rearranged(x: TensorValue, sizes: Sequence[Size], back: IndexMap, cost: int = 0) -> Lazy:
    """A lazy view: element `index` is x at back(index)."""
    of: Strided | Lazy = settled(x)
    base = of if isinstance(of, Lazy) and numel_equal(of.sizes, sizes) else None
    return Lazy(tuple(sizes), of.dtype, of.device, lambda index: of.load(back(index)), of.cost + cost, of.reads, None, None, base)


@lowers("expand", view=True)
def expand(low: Any, x: Any, sizes: Sequence[Size]) -> Any:
    """Broadcast."""
    if isinstance(x, Strided):
        lead = len(sizes) - x.ndim
        strides: list[Size] = [0] * lead
        for old, new, stride in zip(x.sizes, sizes[lead:], x.strides, strict=True):
            strides.append(0 if same(old, 1) and not same(new, 1) else stride)
        return x.window(sizes, strides, x.offset)
    return rearranged(x, sizes, expand_map(x.sizes, sizes))


@lowers("permute", view=True)
def permute(low: Any, x: Any, dims: Sequence[int]) -> Any:
    """Axes in another order."""
    sizes = [x.sizes[d] for d in dims]
    if isinstance(x, Strided):
        return x.window(sizes, [x.strides[d] for d in dims], x.offset)
    return rearranged(x, sizes, permute_map(dims))


@lowers("reshape", view=True)
def reshape(low: Any, x: Any, sizes: Sequence[Size]) -> Any:
    """The same elements in row-major order."""
    if len(sizes) == x.ndim and all(map(same, sizes, x.sizes)):
        return x
    if isinstance(x, Strided):
        strides = reshape_strides(x.sizes, x.strides, sizes)
        if strides is not None:
            return x.window(sizes, strides, x.offset)
    return rearranged(x, sizes, reshape_map(x.sizes, sizes))


@lowers("slice", view=True)
def slice(low: Any, x: Any, dim: int, start: Size, end: Size, step: int = 1) -> Any:
    """A part of one axis."""
    length = low.spec.sizes[dim] if hasattr(low.spec, "sizes") else size_of_slice(start, end, step)
    sizes = [*x.sizes[:dim], length, *x.sizes[dim + 1 :]]
    if isinstance(x, Strided):
        strides = [*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :]]
        return x.window(sizes, strides, x.offset + start * x.strides[dim])
    return rearranged(x, sizes, slice_map(dim, start, step))


@lowers("select", view=True)
def select(low: Any, x: Any, dim: int, index: Size) -> Any:
    """One index of one axis."""
    sizes = [*x.sizes[:dim], *x.sizes[dim + 1 :]]
    if isinstance(x, Strided):
        return x.window(sizes, [*x.strides[:dim], *x.strides[dim + 1 :]], x.offset + index * x.strides[dim])
    return rearranged(x, sizes, lambda at: [*at[:dim], index, *at[dim:]])


@lowers("squeeze", view=True)
def squeeze(low: Any, x: Any, dims: Sequence[int]) -> Any:
    """Without some axes of size 1."""
    kept = [d for d in range(x.ndim) if d not in dims]
    sizes = [x.sizes[d] for d in kept]
    if isinstance(x, Strided):
        return x.window(sizes, [x.strides[d] for d in kept], x.offset)
    return rearranged(x, sizes, squeeze_map(x.ndim, dims))


@lowers("unsqueeze", view=True)
def unsqueeze(low: Any, x: Any, dim: int) -> Any:
    """With an axis of size 1."""
    sizes = [*x.sizes[:dim], 1, *x.sizes[dim:]]
    if isinstance(x, Strided):
        inner = x.sizes[dim] * x.strides[dim] if dim < x.ndim else 1
        return x.window(sizes, [*x.strides[:dim], inner, *x.strides[dim:]], x.offset)
    return rearranged(x, sizes, unsqueeze_map(dim))


@lowers("diagonal", view=True)
def diagonal(low: Any, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal as the last axis."""
    return rearranged(x, low.spec.sizes, diagonal_map(x.ndim, offset, dim1, dim2))


@lowers("flip", view=True)
def flip(low: Any, x: Any, dims: Sequence[int]) -> Any:
    """Reversed axes."""
    return rearranged(x, x.sizes, flip_map(x.sizes, dims))


@lowers("unfold", view=True)
def unfold(low: Any, x: Any, dim: int, size: Size, step: int) -> Any:
    """Windows along an axis."""
    sizes = [*x.sizes, size]
    sizes[dim] = low.spec.sizes[dim]
    if isinstance(x, Strided):
        strides = [*x.strides, x.strides[dim]]
        strides[dim] = x.strides[dim] * step
        return x.window(sizes, strides, x.offset)
    return rearranged(x, sizes, unfold_map(dim, step))


@lowers("as_strided")
def as_strided(low: Any, x: Any, sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> Any:
    """Another window on the same memory, or the same with other strides where there is one element."""
    spec = low.node.args[0].meta["spec"]
    wanted = spec.strides
    if len(sizes) == len(spec.sizes) and all(map(same, sizes, spec.sizes)) and same(offset, spec.offset):
        if strides_equal(sizes, wanted, strides):
            return x
    at = low.realize_with(x, wanted)
    if not strides_equal(at.sizes, at.strides, wanted):
        at = low.strided_copy(at, wanted)
    base = low.buffers[at.buffer].offset
    layout = low.buffers[at.buffer].layout
    whole = at.offset == 0 and len(at.strides) == len(layout.strides)
    if not whole or not all(map(same, at.strides, layout.strides)):
        raise Refused("as_strided of a view")
    return at.window(sizes, strides, offset - base)
