"""Result specs of gathers, scatters, pads and concatenation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from ..broadcasting import broadcast_sizes
from ..errors import PrimError
from ..op import Op, Scalar
from ..spec import TensorSpec
from ..symbols import Size
from ..tables import rules_into
from .pointwise import elementwise

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


@rule()
def cat(xs: Sequence[TensorSpec], dim: int) -> TensorSpec:
    first = xs[0]
    total: Size = 0
    for x in xs:
        total = total + x.sizes[dim]
    return TensorSpec(first.dtype, first.device, (*first.sizes[:dim], total, *first.sizes[dim + 1 :]))


@rule()
def pad(x: TensorSpec, low_high_pairs: Sequence[tuple[Size, Size]], value: Scalar) -> TensorSpec:
    sizes = tuple([s + low + high for s, (low, high) in zip(x.sizes, low_high_pairs, strict=True)])
    return TensorSpec(x.dtype, x.device, sizes)


@rule()
def gather(x: TensorSpec, dim: int, index: TensorSpec) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, index.sizes)


@rule()
def index_select(x: TensorSpec, dim: int, index: TensorSpec) -> TensorSpec:
    if not x.sizes:
        return TensorSpec(x.dtype, x.device, ())
    return TensorSpec(x.dtype, x.device, (*x.sizes[:dim], index.numel(), *x.sizes[dim + 1 :]))


def indexed_sizes(sizes: tuple[Size, ...], indices: Sequence[TensorSpec | None]) -> tuple[Size, ...]:
    """Sizes of x[indices]: the broadcast index sizes take the place of the indexed dims, or lead if those are not adjacent."""
    shapes = {i: index.sizes for i, index in enumerate(indices) if index is not None}
    at = list(shapes)
    if not at:
        return sizes
    picked = broadcast_sizes(*shapes.values())
    rest = [s for i, s in enumerate(sizes) if i not in at]
    if at[-1] - at[0] + 1 == len(at):
        return (*rest[: at[0]], *picked, *rest[at[0] :])
    return (*picked, *rest)


@rule()
def index(x: TensorSpec, indices: Sequence[TensorSpec | None], wrap: bool) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, indexed_sizes(x.sizes, indices))


@rule(
    "index_put", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce", "slice_scatter",
    "select_scatter", "diagonal_scatter", "as_strided_scatter", "put", "roll", "tril", "triu",
)  # fmt: skip
def index_put(x: TensorSpec, *rest: object) -> TensorSpec:
    return elementwise(None, x)


@rule()
def masked_scatter(x: TensorSpec, mask: TensorSpec, src: TensorSpec) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, broadcast_sizes(x.sizes, mask.sizes))


@rule()
def take(x: TensorSpec, index: TensorSpec) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, index.sizes)


@rule()
def searchsorted(
    sorted: TensorSpec, values: TensorSpec | Scalar, right: bool, out_int32: bool, sorter: TensorSpec | None
) -> TensorSpec:
    sizes = values.sizes if values.__class__ is TensorSpec else ()
    return TensorSpec(torch.int32 if out_int32 else torch.int64, sorted.device, sizes)


@rule()
def bucketize(x: TensorSpec | Scalar, boundaries: TensorSpec, right: bool, out_int32: bool) -> TensorSpec:
    sizes = x.sizes if x.__class__ is TensorSpec else ()
    return TensorSpec(torch.int32 if out_int32 else torch.int64, boundaries.device, sizes)


@rule("nonzero", "masked_select", "repeat_interleave", "unique", "bincount")
def nonzero(*arguments: object) -> NoReturn:
    raise PrimError(
        "nonzero, masked_select, repeat_interleave, unique, bincount: sizes depend on data; keep the ATen op as an extern"
    )
