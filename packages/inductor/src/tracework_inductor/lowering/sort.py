"""Sorting, and choosing by rank, in short rows; longer ones are the library's."""

import operator
from collections.abc import Callable
from typing import Any

import torch

from ..ir.buffer import Buffer, BufferLayout
from ..ir.index import Size
from ..ir.scalar_ops import ops
from .layout import dense_strides
from .pointwise import elementwise
from .reduction import reduce
from .registry import Refused, lowers
from .value import settled

LONGEST = {1: 1024, 2: 1024, 4: 512, 8: 256}
"""Bytes of an element -> elements of the longest row that a block sorts: a network's steps grow faster than what it saves, which are the
library's copy of the row and its positions."""
SORTED_ON = frozenset({"cuda"})


def _row(x: Any, dim: int) -> tuple[Any, int, int]:
    """What is sorted, along which dimension, of how many elements."""
    x = settled(x)
    if x.device.type not in SORTED_ON:
        raise Refused(f"the kernels for {x.device.type} do not sort")
    size = x.sizes[dim % x.ndim] if x.ndim else 1
    if not isinstance(size, int) or not 1 < size <= LONGEST[x.dtype.itemsize]:
        raise Refused(f"rows of {size} elements of {x.dtype} are not sorted by a kernel")
    if any(isinstance(s, int) and s == 0 for s in x.sizes):
        raise Refused("a sort of nothing")
    return x, dim % x.ndim, size


def _sorted(low: Any, x: Any, dim: int, descending: bool) -> Any:
    """Values and positions as the specs of the node have them, the first of each row if these have fewer; what nobody reads is not stored."""
    x, dim, size = _row(x, dim)
    read = {user.args[1] if user.target is operator.getitem else None for user in low.node.users} or {None}

    def made(number: int, spec: Any) -> Buffer | None:
        if not read & {number, None}:
            return None
        buffer: Buffer = low.new_buffer(
            BufferLayout(spec.dtype, x.device, tuple(spec.sizes), dense_strides(spec.sizes, spec.strides))
        )
        return buffer

    results = [made(number, spec) for number, spec in enumerate(low.spec)]
    low.sort_node(results, dim, size, x.load, descending)
    return tuple(None if buffer is None else low.whole(buffer) for buffer in results)


@lowers("sort")
def sort(low: Any, x: Any, dim: int, descending: bool = False, stable: Any = False) -> Any:
    """Stable, with NaN above all numbers."""
    return _sorted(low, x, dim, descending)


@lowers("topk")
def topk(low: Any, x: Any, k: Size, dim: int, largest: bool = True, sorted: bool = True) -> Any:
    """The begin of a sorted row."""
    if not isinstance(k, int) or k == 0:
        raise Refused("an open number of elements, or none")
    return _sorted(low, x, dim, largest)


Chosen = Callable[[Any, Any], Any]


def _chosen(low: Any, x: Any, dim: int, keepdim: bool, kind: str, dtype: torch.dtype, other: Any, pick: Chosen) -> Any:
    """An extreme of what pick(value, position) takes of a sorted row, and of `other` in the places where it takes nothing.

    pick gives the condition and the value."""

    def element(value: Any, inside: list[Size]) -> Any:
        place = ops.argsort(value, False)
        condition, found = pick(ops.take_along(value, place), (place, inside[0]))
        return ops.where(condition, found, ops.constant(other, dtype))

    return reduce(low, x, [dim], keepdim, kind, dtype, element)


def _lowest(dtype: torch.dtype) -> tuple[str, Any]:
    """The reduction that finds the one value among lowest ones, and those."""
    if dtype == torch.bool:
        return "any", False
    return "max", float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _rank(at: Size, number: int) -> Any:
    return ops.eq(ops.index_expr(at, torch.int64), ops.constant(number, torch.int64))


@lowers("kthvalue")
def kthvalue(low: Any, x: Any, k: Size, dim: int, keepdim: bool = False) -> Any:
    """One element of a sorted row."""
    x, dim, _ = _row(x, dim)
    if not isinstance(k, int):
        raise Refused("an open rank")
    kind, lowest = _lowest(x.dtype)
    value = _chosen(low, x, dim, keepdim, kind, x.dtype, lowest, lambda v, at: (_rank(at[1], k - 1), v))
    place = _chosen(low, x, dim, keepdim, "max", torch.int64, -1, lambda v, at: (_rank(at[1], k - 1), at[0]))
    return value, place


@lowers("median")
def median(low: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The lower one of the middle; the first NaN if there are any."""
    x, dim, size = _row(x, dim)
    kind, lowest = _lowest(x.dtype)
    floating = x.dtype.is_floating_point

    def value_of(v: Any, at: Any) -> Any:
        middle = _rank(at[1], (size - 1) // 2)
        return (ops.logical_or(middle, ops.isnan(v)) if floating else middle), v

    def place_of(v: Any, at: Any) -> Any:
        """Places of NaN are below all others."""
        condition, _ = value_of(v, at)
        if not floating:
            return condition, at[0]
        return condition, ops.where(ops.isnan(v), ops.sub(at[0], ops.constant(size, torch.int64)), at[0])

    value = _chosen(low, x, dim, keepdim, kind, x.dtype, lowest, value_of)
    place = _chosen(low, x, dim, keepdim, "min", torch.int64, size, place_of)

    def from_start(p: Any) -> Any:
        return ops.where(ops.lt(p, ops.constant(0, torch.int64)), ops.add(p, ops.constant(size, torch.int64)), p)

    return value, elementwise(low, (place,), torch.int64, from_start) if floating else place
