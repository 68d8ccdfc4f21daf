"""Gathers as indirect loads, joins and pads as masked loads, scatters as stores to computed positions."""

from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops import prims

from ..ir.buffer import BufferLayout
from ..ir.index import Size, constant_product, contiguous_strides, flatten, mod, product, same, same_all
from ..ir.scalar_ops import as_held, ops
from ..schedule.graph import alias_root
from .layout import is_dense, is_row_major, meet, strides_equal
from .pointwise import broadcast_sizes, elementwise
from .registry import Refused, lowers
from .value import Lazy, Strided, TensorValue, pointwise, settled
from .view import reshape
from .written_inputs import apart, input_of, is_whole, joined, rotated, scatter_into, write_into, write_part


def _at(value: Size, dtype: torch.dtype = torch.int64) -> Any:
    return ops.index_expr(value, dtype)


FEW_PARTS = 8
"""So many are chosen from for each element, at most."""
MOST_PARTS = 32
"""That have a loop each, at most."""
LEAST_STEPS = 16
"""Of a loop over a part."""
LEAST_STEPS_AROUND = 64
"""Of the loops around those over the parts."""


@lowers("cat")
def cat(low: Any, xs: Sequence[Any], dim: int) -> Any:
    """Joined along dim: each part is read where the index falls into it."""
    parts = [settled(x) for x in xs if not same(x.sizes[dim] if x.ndim else 1, 0)]
    parts = [p for p in parts if p.ndim == len(low.spec.sizes)]
    if not parts:
        raise Refused("a cat of nothing")
    if len(parts) == 1:
        return parts[0]
    many = len(parts) > FEW_PARTS
    if many and not _go_in_segments(parts, dim):
        raise Refused(f"a cat of more than {FEW_PARTS} parts")
    dtype = low.spec.dtype
    starts: list[Size] = [0]
    for p in parts:
        starts.append(starts[-1] + p.sizes[dim])

    def inner(index: list[Size]) -> Any:
        position = _at(index[dim])
        value: Any = None
        for k in range(len(parts) - 1, -1, -1):
            inside = ops.ge(position, _at(starts[k]))
            if k < len(parts) - 1:
                inside = ops.logical_and(inside, ops.lt(position, _at(starts[k + 1])))
            at = [*index[:dim], index[dim] - starts[k], *index[dim + 1 :]]
            here = ops.masked(inside, lambda p=parts[k], at=at: ops.to_dtype(p.load(at), dtype), 0)
            value = here if value is None else ops.where(inside, here, value)
        return value

    joined = pointwise(low.spec.sizes, dtype, parts[0].device, inner, parts, 3 * len(parts))
    return low.realize(joined) if many else joined


def _go_in_segments(parts: Sequence[TensorValue], dim: int) -> bool:
    """Whether a loop over many parts is one for each of them, side by side: on a CPU, with rows of it for all threads and vectors in each."""
    sizes = [p.sizes[dim] for p in parts]
    before, after = parts[0].sizes[:dim], parts[0].sizes[dim + 1 :]
    if len(parts) > MOST_PARTS or parts[0].device.type != "cpu" or not all(isinstance(s, int) for s in (*sizes, *before, *after)):
        return False
    steps = constant_product(after) if constant_product(after) > 1 else min(constant_product([size]) for size in sizes)
    return constant_product(before) >= LEAST_STEPS_AROUND and steps >= LEAST_STEPS


@lowers("pad")
def pad(low: Any, x: Any, low_high_pairs: Sequence[tuple[Size, Size]], value: Any) -> Any:
    """Constant padding; negative numbers crop."""
    lows = [p[0] for p in low_high_pairs]
    value = as_held(value, x.dtype)
    padded = [d for d, p in enumerate(low_high_pairs) if not (same(p[0], 0) and same(p[1], 0))]

    def inner(index: list[Size]) -> Any:
        mask: Any = None
        for d in padded:
            position = _at(index[d] - lows[d])
            inside = ops.logical_and(ops.ge(position, _at(0)), ops.lt(position, _at(x.sizes[d])))
            mask = inside if mask is None else ops.logical_and(mask, inside)
        at = [i - first for i, first in zip(index, lows, strict=True)]
        return x.load(at) if mask is None else ops.masked(mask, lambda: x.load(at), value)

    return pointwise(low.spec.sizes, x.dtype, x.device, inner, [x], 2 + 3 * len(padded))


@lowers("gather")
def gather(low: Any, x: Any, dim: int, index: Any) -> Any:
    """x at index along dim."""
    if x.ndim == 0:
        raise Refused("a gather from a scalar")
    row = low.checked(index, x.sizes[dim])

    def inner(at: list[Size]) -> Any:
        return x.load([*at[:dim], row(at), *at[dim + 1 :]])

    return pointwise(index.sizes, x.dtype, x.device, inner, [_table(low, x, index.sizes), index], 3)


FEW_ACCESSES = 1 / 8
"""Of a table's elements: of so many, each is computed where it is read, in less time than all of them are written to memory."""


def _table(low: Any, x: Any, accessed: Sequence[Size]) -> Any:
    """Random access wants a buffer, unless it is to few elements: computing x anew for each access would cost more than once for each
    element. accessed: the sizes of what is read, which has one access for each of its elements."""
    x = settled(x)
    if not isinstance(x, Lazy) or x.cost <= 4 or not x.reads:
        return x
    return x if few_accesses(x.sizes, accessed) else low.realize(x)


def few_accesses(table: Sequence[Size], accessed: Sequence[Size]) -> bool:
    """Whether so many accesses are known to be few of a table's elements."""
    known = all(isinstance(s, int) for s in (*table, *accessed))
    return known and constant_product(accessed) <= FEW_ACCESSES * constant_product(table)


@lowers("index_select")
def index_select(low: Any, x: Any, dim: int, index: Any) -> Any:
    """Rows of x."""
    table = _table(low, x, low.spec.sizes)
    row = low.checked(index, x.sizes[dim], False, _looked_at(x, low.spec.sizes))

    def inner(at: list[Size]) -> Any:
        return table.load([*at[:dim], row([at[dim]] if index.ndim else []), *at[dim + 1 :]])

    return pointwise(low.spec.sizes, x.dtype, x.device, inner, [table, index], 3)


def _looked_at(x: Any, sizes: Sequence[Size]) -> Sequence[Size]:
    """What `checked` is to know of the rows that index_select and embedding give: on a CPU these look at the index of rows of nothing, too."""
    return () if x.device.type == "cpu" else sizes


@lowers("take")
def take(low: Any, x: Any, index: Any) -> Any:
    """x flattened, at index."""
    flat = reshape(low, low.realize(x), (x.numel(),))
    position = low.checked(index, x.numel(), wrap=True)
    return pointwise(index.sizes, x.dtype, x.device, lambda at: flat.load([position(at)]), [flat, index], 3)


def _indexing(low: Any, x_sizes: Sequence[Size], indices: Sequence[Any], wrap: bool) -> tuple[tuple[Size, ...], Any]:
    """Result sizes of x[indices] and how an index of it becomes one of x."""
    full = [*indices, *[None] * (len(x_sizes) - len(indices))]
    used = [d for d, i in enumerate(full) if i is not None]
    if any(full[d].dtype in (torch.bool, torch.uint8) for d in used):
        raise Refused("a mask as index")
    shape = broadcast_sizes(*[full[d] for d in used])
    adjacent = used == list(range(used[0], used[-1] + 1))
    first = used[0] if adjacent else 0
    kept = [d for d in range(len(x_sizes)) if d not in used]
    before = [d for d in kept if d < first]
    after = [d for d in kept if d >= first]
    sizes = (*[x_sizes[d] for d in before], *shape, *[x_sizes[d] for d in after])
    looked_at = sizes if wrap else _looked_at(full[used[0]], sizes)
    positions = {d: low.checked(full[d], x_sizes[d], wrap, looked_at) for d in used}

    def back(index: list[Size]) -> list[Size]:
        middle = index[len(before) : len(before) + len(shape)]
        plain = dict(zip([*before, *after], [*index[: len(before)], *index[len(before) + len(shape) :]], strict=True))
        result: list[Size] = []
        for d in range(len(x_sizes)):
            if full[d] is None:
                result.append(plain[d])
                continue
            own = middle[len(shape) - full[d].ndim :]
            at = [0 if same(s, 1) else i for s, i in zip(full[d].sizes, own, strict=True)]
            result.append(positions[d](at))
        return result

    return sizes, back


@lowers("index")
def index(low: Any, x: Any, indices: Sequence[Any], wrap: bool = True) -> Any:
    """Advanced indexing."""
    indices = [None if i is None else settled(i) for i in indices]
    if all(i is None for i in indices):
        return x
    table = _table(low, x, low.spec.sizes)
    sizes, back = _indexing(low, table.sizes, indices, wrap)
    return pointwise(
        sizes, x.dtype, x.device, lambda at: table.load(back(at)), [table, *[i for i in indices if i is not None]], 4
    )


# scatters


def start_from(low: Any, x: Any, *read: Any) -> Strided:
    """What to scatter into: the input that holds x, if that is where the result ends, what x alone is in, or a fresh buffer. read: values
    that are scattered."""
    if (at := input_of(low, x, read)) is not None or (at := _read_here_alone(low, x, read)) is not None:
        return at
    return low.realize(Lazy(x.sizes, x.dtype, x.device, x.load, 1, frozenset()), low.spec.strides)


def _read_here_alone(low: Any, x: Any, read: Sequence[Any]) -> Strided | None:
    """x in memory of its own that only this node reads, on a CPU; None where there is none as the result is to lie."""
    made, at = low.node.args[0], settled(x)
    if made.target not in MADE_ANEW or len(made.users) != 1 or not isinstance(at, Strided) or at.device.type != "cpu":
        return None
    root = alias_root(low.buffers, at.buffer)
    if low.buffers[root].kind not in ("computed", "extern") or at.offset != 0:
        return None
    if any(alias_root(low.buffers, name) == root for value in read for name in getattr(settled(value), "reads", ())):
        return None
    return at if strides_equal(at.sizes, at.strides, low.spec.strides) else None


MADE_ANEW = frozenset({prims.mm, prims.addmm, prims.index_put})
"""What gives a value that is no other one's."""


@lowers("index_put")
def index_put(low: Any, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, wrap: bool = True) -> Any:
    """x with values written at indices."""
    mode = "add" if accumulate else "set"
    _refuse_without_atomics(x, mode)
    indices = [None if i is None else low.realize(i) for i in indices]
    sizes, back = _indexing(low, x.sizes, indices, wrap)
    values = apart(low, x, values)
    source = elementwise(low, (values,), x.dtype, lambda v: v, 0, None, sizes)
    return scatter_into(low, start_from(low, x, source, *indices), sizes, source.load, back, mode)


ATOMIC = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32})
"""What a GPU can add to memory in one step."""


def _refuse_without_atomics(x: TensorValue, mode: str) -> None:
    if mode == "add" and x.device.type != "cpu" and x.dtype not in ATOMIC:
        raise Refused(f"adding to one element from several places, in {x.dtype}")


def _along(low: Any, dim: int, index: Any, sizes: Sequence[Size]) -> Any:
    row = low.checked(index, sizes[dim])
    return lambda at: [*at[:dim], row(at), *at[dim + 1 :]]


@lowers("scatter")
def scatter(low: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
    """x with src written at index along dim."""
    return _scatter(low, x, dim, index, src, "set")


@lowers("scatter_add")
def scatter_add(low: Any, x: Any, dim: int, index: Any, src: Any) -> Any:
    """x with src added at index along dim."""
    return _scatter(low, x, dim, index, src, "add")


@lowers("scatter_reduce")
def scatter_reduce(low: Any, x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    """Sums; the rest is the library's."""
    if reduce != "sum" or not include_self:
        raise Refused(f"scatter_reduce {reduce}")
    return _scatter(low, x, dim, index, src, "add")


def _scatter(low: Any, x: Any, dim: int, index: Any, src: Any, mode: str) -> Any:
    if x.ndim == 0 or index.ndim == 0:
        raise Refused("a scatter of a scalar")
    _refuse_without_atomics(x, mode)
    dim %= x.ndim
    index = low.realize(index)
    if isinstance(src, TensorValue):
        source = src = apart(low, x, src)
        value = lambda at: ops.to_dtype(source.load(at), x.dtype)
    else:
        value = lambda at: ops.constant(src, x.dtype)
    target = start_from(low, x, src, index)
    return scatter_into(low, target, index.sizes, value, _along(low, dim, index, x.sizes), mode)


@lowers("index_add")
def index_add(low: Any, x: Any, dim: int, index: Any, src: Any, alpha: Any = 1) -> Any:
    """x with alpha*src added to rows index."""
    return _rows(low, x, dim, index, src, alpha, "add")


@lowers("index_copy")
def index_copy(low: Any, x: Any, dim: int, index: Any, src: Any, wrap: bool = False) -> Any:
    """x with rows index replaced by src."""
    return _rows(low, x, dim, index, src, 1, "set", wrap)


def _positions(low: Any, index: Any) -> Any:
    """Positions in memory, or computed where they are read, where that takes less than a launch."""
    index = settled(index)
    cheap = index.device.type == "cuda" and index.cost < low.options.inline_cost and len(index.reads) <= 1
    return index if cheap else low.realize(index)


def _rows(low: Any, x: Any, dim: int, index: Any, src: Any, alpha: Any, mode: str, wrap: bool = False) -> Any:
    if x.ndim == 0 or index.ndim != 1:
        raise Refused("rows of a scalar")
    _refuse_without_atomics(x, mode)
    dim %= x.ndim
    index, source = _positions(low, index), apart(low, x, src)
    row = low.checked(index, x.sizes[dim], wrap, source.sizes)

    def value(at: list[Size]) -> Any:
        v = source.load(at)
        return v if alpha == 1 else ops.mul(v, ops.constant(alpha, x.dtype))

    def position(at: list[Size]) -> list[Size]:
        return [*at[:dim], row([at[dim]]), *at[dim + 1 :]]

    target = start_from(low, x, source, index)
    return scatter_into(low, target, source.sizes, value, position, mode)


@lowers("put")
def put(low: Any, x: Any, index: Any, src: Any, accumulate: bool = False) -> Any:
    """x flattened, with src written or added at index."""
    mode = "add" if accumulate else "set"
    _refuse_without_atomics(x, mode)
    index, source = low.realize(index), reshape(low, low.realize(apart(low, x, src)), index.sizes)
    position = low.checked(index, x.numel(), wrap=True)
    target = start_from(low, x, source, index)
    if not is_row_major(target.sizes, target.strides):
        raise Refused("places in an order that is not memory's")
    flat = target.window((x.numel(),), (1,), target.offset)
    written = scatter_into(low, flat, index.sizes, source.load, lambda at: [position(at)], mode)
    return written.window(target.sizes, target.strides, target.offset)


@lowers("masked_scatter")
def masked_scatter(low: Any, x: Any, mask: Any, src: Any) -> Any:
    """Where the mask is true, the element of src that has as many before it as the mask has true ones before."""
    if not same_all(x.sizes, mask.sizes) or same(src.numel(), 0) or any(same(s, 0) for s in x.sizes):
        raise Refused("a mask that is broadcast, or a scatter of nothing")
    if x.device.type == "cpu":  # of random masks the loops take a fourth of the library's time, of whole rows a fourth more
        raise Refused("a CPU's library walks once, and fast where the mask is alike for long")
    mask = low.realize(mask)
    flat = reshape(low, mask, (x.numel(),))
    few = isinstance(x.numel(), int) and x.numel() < 1 << 31
    dtype = torch.int32 if few else torch.int64
    count = low.new_buffer(BufferLayout.dense(dtype, x.device, (x.numel(),)))
    low.scan_node(count, "sum", 0, lambda at: ops.to_dtype(flat.load(at), dtype))

    def last(number: Any) -> Any:
        """The place of the last element that was taken so far; the first one before that."""
        return ops.maximum(ops.sub(number, ops.constant(1, dtype)), ops.constant(0, dtype))

    place = elementwise(low, (low.whole(count),), dtype, last)
    position = low.checked(place, src.numel())
    source = reshape(low, low.realize(src), (src.numel(),))

    def inner(index: list[Size]) -> Any:
        return ops.where(mask.load(index), source.load([position([flatten(index, x.sizes)])]), x.load(index))

    return pointwise(x.sizes, x.dtype, x.device, inner, [x, mask, source, place], 6)


# searches


def _search(low: Any, x: Any, row: Any, right: bool, out_int32: bool) -> Any:
    """How many elements of a sorted row, the one with x's place but for the last dim, are below x; if `right`, also those equal to it.

    Where a row is not sorted, or ends with NaN, the elements that are looked at decide: they are eager's. There are as many steps as the
    length has binary digits."""
    row = low.realize(row)
    length = row.sizes[-1]
    if not isinstance(length, int):
        raise Refused("a search in a row of open length")
    dtype, i64 = torch.int32 if out_int32 else torch.int64, torch.int64
    value = settled(x) if isinstance(x, TensorValue) else None
    sizes = value.sizes if value is not None else ()

    def inner(index: list[Size]) -> Any:
        wanted = value.load(index) if value is not None else ops.constant(x, row.dtype)
        lead = index[: row.ndim - 1] if row.ndim > 1 else []
        first, end = ops.constant(0, i64), ops.constant(length, i64)
        for _ in range(length.bit_length()):
            middle = ops.shift_right(ops.add(first, end), ops.constant(1, i64))
            element = row.load([*lead, ops.indirect(ops.minimum(middle, ops.constant(length - 1, i64)), length)])
            behind = ops.logical_not(ops.gt(element, wanted) if right else ops.ge(element, wanted))
            left = ops.lt(first, end)
            first = ops.where(ops.logical_and(left, behind), ops.add(middle, ops.constant(1, i64)), first)
            end = ops.where(ops.logical_and(left, ops.logical_not(behind)), middle, end)
        return ops.to_dtype(first, dtype)

    return pointwise(sizes, dtype, row.device, inner, [row] if value is None else [row, value], 8 * max(1, length.bit_length()))


@lowers("bucketize")
def bucketize(low: Any, x: Any, boundaries: Any, right: bool = False, out_int32: bool = False) -> Any:
    """A binary search for each element."""
    return _search(low, x, boundaries, right, out_int32)


@lowers("searchsorted")
def searchsorted(low: Any, sorted: Any, values: Any, right: bool = False, out_int32: bool = False, sorter: Any = None) -> Any:
    """The same, in a row of its own for each row of values."""
    if sorter is not None:
        raise Refused("a search in a row that is sorted by its indices alone")
    return _search(low, values, sorted, right, out_int32)


# writes to fixed places


@lowers("slice_scatter")
def slice_scatter(low: Any, x: Any, src: Any, dim: int, start: Size, end: Size, step: int = 1) -> Any:
    """x with a slice replaced by src."""
    src = settled(src)
    written = write_part(low, x, src, lambda at: [*at[:dim], start + at[dim] * step, *at[dim + 1 :]])
    if written is not None:
        return written

    def inner(index: list[Size]) -> Any:
        position = _at(index[dim] - start)
        mask = ops.logical_and(ops.ge(position, _at(0)), ops.lt(_at(index[dim]), _at(end)))
        inside = index[dim] - start
        if step != 1:
            mask = ops.logical_and(mask, ops.eq(_at(mod(inside, step)), _at(0)))
            inside = inside // step
        at = [*index[:dim], inside, *index[dim + 1 :]]
        here = ops.masked(mask, lambda: ops.to_dtype(src.load(at), x.dtype), 0)
        return ops.where(mask, here, x.load(index))

    return pointwise(x.sizes, x.dtype, x.device, inner, [x, src], 6)


@lowers("select_scatter")
def select_scatter(low: Any, x: Any, src: Any, dim: int, index: Size) -> Any:
    """x with one index of dim replaced by src."""
    src = settled(src)
    dim %= x.ndim
    written = write_part(low, x, src, lambda at: [*at[:dim], index, *at[dim:]])
    if written is not None:
        return written

    def inner(at: list[Size]) -> Any:
        mask = ops.eq(_at(at[dim]), _at(index))
        here = ops.masked(mask, lambda: ops.to_dtype(src.load([*at[:dim], *at[dim + 1 :]]), x.dtype), 0)
        return ops.where(mask, here, x.load(at))

    return pointwise(x.sizes, x.dtype, x.device, inner, [x, src], 3)


@lowers("diagonal_scatter")
def diagonal_scatter(low: Any, x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """x with the diagonal replaced by src."""
    dim1, dim2, src = dim1 % x.ndim, dim2 % x.ndim, settled(src)
    first = max(-offset, 0), max(offset, 0)

    def place(at: list[Size]) -> list[Size]:
        rest = iter(at[:-1])
        return [at[-1] + first[(dim1, dim2).index(d)] if d in (dim1, dim2) else next(rest) for d in range(x.ndim)]

    written = write_part(low, x, src, place)
    if written is not None:
        return written

    def inner(at: list[Size]) -> Any:
        mask = ops.eq(_at(at[dim1] + offset), _at(at[dim2]))
        rest = [i for d, i in enumerate(at) if d not in (dim1, dim2)]
        along = at[dim1] - first[0]
        here = ops.masked(mask, lambda: ops.to_dtype(src.load([*rest, along]), x.dtype), 0)
        return ops.where(mask, here, x.load(at))

    return pointwise(x.sizes, x.dtype, x.device, inner, [x, src], 4)


@lowers("as_strided_scatter")
def as_strided_scatter(low: Any, x: Any, src: Any, sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> Any:
    """x with src written to these places of its memory, each once."""
    given = low.node.args[0].meta["spec"]
    known = all(isinstance(n, int) for n in (*x.sizes, *given.strides, *sizes, *strides, offset))
    if not known or meet(sizes, strides) or 0 in (*x.sizes, *sizes):
        raise Refused("a write to open places, to none, or twice to one")
    if not is_dense(x.sizes, given.strides) or not same_all(given.strides, low.spec.strides) or not same(given.offset, 0):
        raise Refused("a write to the memory that something is a part of")
    src = settled(src)
    if (written := joined(low, x, src)) is not None:
        return written
    src = apart(low, x, src)
    target = input_of(low, x, (src,))
    in_place = target is not None and is_whole(low, target, alias_root(low.buffers, target.buffer))
    if target is None or not in_place or not strides_equal(x.sizes, target.strides, given.strides):
        target = low.realize(Lazy(x.sizes, x.dtype, x.device, x.load, 1, frozenset()), low.spec.strides)
    view = target.window(tuple(sizes), tuple(strides), offset)
    written = write_into(low, view, src.sizes, src.load, lambda at: at, "set")
    return written.window(target.sizes, target.strides, target.offset)


_LONGEST_ROLL = 1 << 30


@lowers("roll")
def roll(low: Any, x: Any, shifts: Any, dims: Any) -> Any:
    """Rotated along dims."""
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if not dims:
        raise Refused("a roll of the flattened tensor")
    if (written := rotated(low, x)) is not None:
        return written
    if any(isinstance(n, int) and n > _LONGEST_ROLL for n in (x.sizes[d] for d in dims)):
        raise Refused("places of a roll, before they are brought back into the dimension, need more than 32 bits")

    def inner(index: list[Size]) -> Any:
        at = list(index)
        for shift, dim in ((s, d) for s, d in zip(shifts, dims, strict=True) if x.sizes[d] != 0):
            at[dim] = mod(at[dim] - shift, x.sizes[dim])
        return x.load(at)

    return pointwise(x.sizes, x.dtype, x.device, inner, [x], 2)


def _triangle(name: str, comparison: str) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, diagonal: Size = 0) -> Any:
        def inner(index: list[Size]) -> Any:
            keep = getattr(ops, comparison)(_at(index[-1] - index[-2]), _at(diagonal))
            return ops.where(keep, x.load(index), ops.constant(0, x.dtype))

        return pointwise(x.sizes, x.dtype, x.device, inner, [x], 3)


_triangle("tril", "le")
_triangle("triu", "ge")

__all__ = ["BufferLayout", "contiguous_strides", "product", "scatter_into", "start_from"]
