"""Views: ATen's argument conventions (negative dims, -1 sizes, None bounds) made explicit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from .._torch import OpOverload, OpOverloadPacket
from ..aten_meta.rows import slice_bounds, wrap_index
from ..op import PrimValue, active_builder, prims
from ..spec import TensorSpec
from ..symbols import Size, active, floordiv
from .table import R, aten, decomposition, dim_of, to

T = TypeVar("T")


def expected() -> Any:
    """The spec that the fake of the op being decomposed has; None where only shapes are asked for."""
    return getattr(active_builder(), "expected", None)


def full_sizes(x: PrimValue, sizes: Sequence[Size]) -> tuple[Size, ...]:
    """`sizes` with -1 replaced by what is left of x's elements."""
    sizes = tuple(sizes)
    if not any(s.__class__ is int and s == -1 for s in sizes):
        return sizes
    known: Size = 1
    for s in sizes:
        if not (s.__class__ is int and s == -1):
            known = known * s
    rest = expected()
    at = next(i for i, s in enumerate(sizes) if s.__class__ is int and s == -1)
    missing = rest.sizes[at] if rest.__class__ is TensorSpec else floordiv(x.numel(), known)
    return (*sizes[:at], missing, *sizes[at + 1 :])


def copying(*overloads: OpOverload | OpOverloadPacket) -> Callable[[R], R]:
    """File a view's function under overloads that give what it shows in memory of its own."""

    def file(view: R) -> R:
        @functools.wraps(view)
        def copy(*args: Any, **kwargs: Any) -> Any:
            shown = view(*args, **kwargs)
            if shown is NotImplemented:
                return NotImplemented
            return tuple(prims.clone(piece) for piece in shown) if isinstance(shown, tuple) else prims.clone(shown)

        decomposition(*overloads)(copy)
        return view

    return file


@decomposition(aten.view, aten._unsafe_view, aten.reshape)
@copying(aten.view_copy, aten._reshape_copy)
def view(x: PrimValue, sizes: Sequence[Size]) -> PrimValue:
    return prims.reshape(x, full_sizes(x, sizes))


@decomposition(aten._reshape_alias)
def _reshape_alias(x: PrimValue, sizes: Sequence[Size], strides: Sequence[Size]) -> PrimValue:
    return prims.reshape(x, tuple(sizes))


@decomposition(aten.alias, aten.detach, aten.lift_fresh, aten.lift)
@copying(aten.alias_copy, aten.detach_copy)
def alias(x: PrimValue) -> PrimValue:
    return x


@decomposition(aten.lift_fresh_copy)
def lift_fresh_copy(x: PrimValue) -> PrimValue:
    return prims.clone(x)


@decomposition(aten.permute)
@copying(aten.permute_copy)
def permute(x: PrimValue, dims: Sequence[int]) -> PrimValue:
    return prims.permute(x, tuple(dim_of(x, d) for d in dims))


@decomposition(aten.transpose.int)
@copying(aten.transpose_copy.int)
def transpose(x: PrimValue, dim0: int, dim1: int) -> PrimValue:
    dims = list(range(x.ndim))
    a, b = dim_of(x, dim0), dim_of(x, dim1)
    if not dims:
        return x
    dims[a], dims[b] = dims[b], dims[a]
    return prims.permute(x, tuple(dims))


@decomposition(aten.t)
@copying(aten.t_copy)
def t(x: PrimValue) -> PrimValue:
    return prims.permute(x, (1, 0)) if x.ndim == 2 else x


@decomposition(aten.expand)
@copying(aten.expand_copy)
def expand(x: PrimValue, sizes: Sequence[Size], *, implicit: bool = False) -> PrimValue:
    lead = len(sizes) - x.ndim
    full = tuple(x.sizes[i - lead] if s.__class__ is int and s == -1 else s for i, s in enumerate(sizes))
    return x if full == tuple(x.sizes) else prims.expand(x, full)


def decided(rule: Callable[..., T], *args: Any) -> T:
    """`rule(*args)`, with sizes compared by the table of the graph that is decomposed: it decided the same when the fake was made."""
    table = getattr(active_builder(), "table", None)
    if table is None:
        return rule(*args)
    outer = active.swap(table)
    try:
        return rule(*args)
    finally:
        active.swap(outer)


@decomposition(aten.slice.Tensor)
@copying(aten.slice_copy.Tensor)
def slice(x: PrimValue, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1) -> PrimValue:
    dim = dim_of(x, dim)
    first, last = decided(slice_bounds, start, end, x.sizes[dim])
    return x if first == 0 and last == x.sizes[dim] and step == 1 else prims.slice(x, dim, first, last, step)


@decomposition(aten.select.int)
@copying(aten.select_copy.int)
def select(x: PrimValue, dim: int, index: Size) -> PrimValue:
    dim = dim_of(x, dim)
    return prims.select(x, dim, decided(wrap_index, index, x.sizes[dim]))


def is_one(size: Size) -> bool:
    """Whether a size is the number 1."""
    return size.__class__ is int and size == 1


@decomposition(aten.squeeze)
@copying(aten.squeeze_copy)
def squeeze(x: PrimValue) -> PrimValue:
    return _squeezed(x, range(x.ndim))


@decomposition(aten.squeeze.dim, aten.squeeze.dims)
@copying(aten.squeeze_copy.dim, aten.squeeze_copy.dims)
def squeeze_dims(x: PrimValue, dims: int | Sequence[int]) -> PrimValue:
    dims = (dims,) if isinstance(dims, int) else dims
    return _squeezed(x, sorted({dim_of(x, d) for d in dims} if x.ndim else ()))


def _squeezed(x: PrimValue, among: Sequence[int]) -> PrimValue:
    """Without those of the dims that are one. Of a size that is computed from open ones the fake has decided whether it is."""
    ones, rest = [d for d in among if is_one(x.sizes[d])], expected()
    if rest.__class__ is TensorSpec and x.ndim - len(ones) > len(rest.sizes):
        kept = iter(rest.sizes)
        left = next(kept, None)
        ones = []
        for d, size in enumerate(x.sizes):
            if left is not None and (d not in among or size == left):
                left = next(kept, None)
            else:
                ones.append(d)
    return prims.squeeze(x, tuple(ones)) if ones else x


@decomposition(aten.unsqueeze)
@copying(aten.unsqueeze_copy)
def unsqueeze(x: PrimValue, dim: int) -> PrimValue:
    return prims.unsqueeze(x, dim + x.ndim + 1 if dim < 0 else dim)


@decomposition(aten.as_strided)
@copying(aten.as_strided_copy)
def as_strided(x: PrimValue, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None) -> PrimValue:
    return prims.as_strided(x, tuple(sizes), tuple(strides), x.spec.offset if offset is None else offset)


@decomposition(aten.diagonal)
@copying(aten.diagonal_copy)
def diagonal(x: PrimValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> PrimValue:
    return prims.diagonal(x, offset, dim_of(x, dim1), dim_of(x, dim2))


@decomposition(aten.unfold)
@copying(aten.unfold_copy)
def unfold(x: PrimValue, dim: int, size: int, step: int) -> PrimValue:
    return prims.unfold(x, dim_of(x, dim), size, step) if x.ndim else NotImplemented


@decomposition(aten.flip)
def flip(x: PrimValue, dims: Sequence[int]) -> PrimValue:
    dims = tuple(sorted({dim_of(x, d) for d in dims})) if x.ndim else ()
    return prims.flip(x, dims) if dims else prims.clone(x)


@decomposition(aten.view_as_real)
@copying(aten.view_as_real_copy)
def view_as_real(x: PrimValue) -> PrimValue:
    return prims.view_as_real(x)


@decomposition(aten.view_as_complex)
@copying(aten.view_as_complex_copy)
def view_as_complex(x: PrimValue) -> PrimValue:
    return prims.view_as_complex(x)


@decomposition(aten.view.dtype)
@copying(aten.view_copy.dtype)
def view_dtype(x: PrimValue, dtype: torch.dtype) -> PrimValue:
    if dtype is x.dtype:
        return x
    return prims.bitcast(x, dtype) if dtype.itemsize == x.dtype.itemsize else prims.view_dtype(x, dtype)


def pieces(x: PrimValue, lengths: Sequence[Size], dim: int) -> tuple[PrimValue, ...]:
    """Slices of these lengths one after the other along dim."""
    out: list[PrimValue] = []
    start: Size = 0
    for length in lengths:
        out.append(prims.slice(x, dim, start, start + length, 1))
        start = start + length
    return tuple(out)


@decomposition(aten.split.Tensor, aten.unsafe_split.Tensor)
@copying(aten.split_copy.Tensor)
def split(x: PrimValue, size: Size, dim: int = 0) -> Sequence[PrimValue]:
    dim = dim_of(x, dim)
    total = x.sizes[dim]
    if total.__class__ is int and size.__class__ is int:
        if size == 0:
            return (x,)
        lengths = [size] * (total // size) + ([total % size] if total % size else [])
        return pieces(x, lengths or [0], dim)
    wanted = expected()
    if wanted is None:
        return NotImplemented
    return pieces(x, [s.sizes[dim] for s in wanted], dim)


@decomposition(aten.split_with_sizes, aten.unsafe_split_with_sizes)
@copying(aten.split_with_sizes_copy)
def split_with_sizes(x: PrimValue, sizes: Sequence[Size], dim: int = 0) -> Sequence[PrimValue]:
    return pieces(x, sizes, dim_of(x, dim))


@decomposition(aten.unbind.int)
@copying(aten.unbind_copy.int)
def unbind(x: PrimValue, dim: int = 0) -> Sequence[PrimValue]:
    dim = dim_of(x, dim)
    wanted = expected()
    size = x.sizes[dim]
    count = size if isinstance(size, int) else len(wanted) if wanted is not None else None
    return NotImplemented if count is None else tuple(prims.select(x, dim, i) for i in range(count))


@decomposition(aten.slice_backward)
def slice_backward(grad: PrimValue, sizes: Sequence[Size], dim: int, start: Size, end: Size, step: Size) -> PrimValue:
    zeros = prims.full(tuple(sizes), 0, grad.dtype, grad.device)
    return slice_scatter(zeros, grad, dim, start, end, step)


@decomposition(aten.slice_scatter)
def slice_scatter(
    x: PrimValue, src: PrimValue, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1
) -> PrimValue:
    dim = dim_of(x, dim)
    first, last = decided(slice_bounds, start, end, x.sizes[dim])
    if first == 0 and last == x.sizes[dim] and step == 1:
        return prims.clone(to(src, x.dtype))
    if any(size.__class__ is int and size == 0 for size in src.sizes):  # g++ 12 may read at its address, which is 0
        return prims.clone(x)
    return prims.slice_scatter(x, src, dim, first, last, step)


@decomposition(aten.select_backward)
def select_backward(grad: PrimValue, sizes: Sequence[Size], dim: int, index: Size) -> PrimValue:
    return select_scatter(prims.full(tuple(sizes), 0, grad.dtype, grad.device), grad, dim, index)


@decomposition(aten.select_scatter)
def select_scatter(x: PrimValue, src: PrimValue, dim: int, index: Size) -> PrimValue:
    dim = dim_of(x, dim)
    return prims.select_scatter(x, src, dim, decided(wrap_index, index, x.sizes[dim]))


@decomposition(aten.diagonal_backward)
def diagonal_backward(grad: PrimValue, sizes: Sequence[Size], offset: int, dim1: int, dim2: int) -> PrimValue:
    zeros = prims.full(tuple(sizes), 0, grad.dtype, grad.device)
    return diagonal_scatter(zeros, grad, offset, dim1, dim2)


@decomposition(aten.diagonal_scatter)
def diagonal_scatter(x: PrimValue, src: PrimValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> PrimValue:
    return prims.diagonal_scatter(x, src, offset, dim_of(x, dim1), dim_of(x, dim2))


@decomposition(aten.as_strided_scatter)
def as_strided_scatter(
    x: PrimValue, src: PrimValue, sizes: Sequence[Size], strides: Sequence[Size], offset: Size | None = None
) -> PrimValue:
    offset = x.spec.offset if offset is None else offset
    return prims.as_strided_scatter(x, src, tuple(sizes), tuple(strides), offset)


@decomposition(aten.repeat)
def repeat(x: PrimValue, repeats: Sequence[Size]) -> PrimValue:
    lead = len(repeats) - x.ndim
    sizes = (1,) * lead + tuple(x.sizes)
    if all(is_one(r) for r in repeats):
        return prims.clone(prims.reshape(x, sizes) if lead else x)
    result = tuple(r * s for r, s in zip(repeats, sizes, strict=True))
    mixed = tuple(v for s in sizes for v in (1, s))
    full = tuple(v for r, s in zip(repeats, sizes, strict=True) for v in (r, s))
    return prims.clone(prims.reshape(prims.expand(prims.reshape(x, mixed), full), result))


@decomposition(aten.rot90)
def rot90(x: PrimValue, k: int = 1, dims: Sequence[int] = (0, 1)) -> PrimValue:
    a, b = (dim_of(x, d) for d in dims)
    turns = k % 4
    if turns == 0:
        return prims.clone(x)
    if turns == 2:
        return prims.flip(x, tuple(sorted((a, b))))
    return prims.clone(transpose(prims.flip(x, (b if turns == 1 else a,)), a, b))


@decomposition(aten.narrow_copy)
def narrow_copy(x: PrimValue, dim: int, start: Size, length: Size) -> PrimValue:
    dim = dim_of(x, dim)
    first, _ = decided(slice_bounds, start, None, x.sizes[dim])
    return prims.clone(prims.slice(x, dim, first, first + length, 1))
