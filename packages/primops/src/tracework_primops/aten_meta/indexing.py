"""ATen rows: cat, gather, embedding, index, losses over classes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import broadcasting
from ..elementwise import common_device, contiguous, same_layout
from ..errors import DataDependentError
from ..meta.view import view_strides
from ..promotion import result_dtype
from ..spec import TensorSpec
from ..symbols import active, mod
from ..symbols.expr import Size
from .rows import (
    PLACES,
    Given,
    Refused,
    Results,
    at_least,
    check,
    check_number,
    demand,
    fresh,
    laid_out,
    like_self,
    names,
    row,
    row_major,
    same_sizes,
    suggests_channels_last,
    wrap_dim,
)
from .view import diagonal, select, unsqueeze, view
from .view import slice as slice_


def _is_skipped(spec: TensorSpec) -> bool:
    return len(spec.sizes) == 1 and spec.sizes[0].__class__ is int and spec.sizes[0] == 0


@row("cat.default")
def cat(tensors: Sequence[TensorSpec], dim: int = 0) -> TensorSpec:
    check(len(tensors) > 0, ValueError)
    check(all(t.ndim for t in tensors))
    kept = [t for t in tensors if not _is_skipped(t)] or [tensors[0]]
    first = kept[0]
    dim = wrap_dim(dim, first.ndim)
    length = first.sizes[dim]
    for other in kept[1:]:
        check(same_sizes(first.sizes, other.sizes, beside=dim))
        length = length + other.sizes[dim]
    sizes = (*first.sizes[:dim], length, *first.sizes[dim + 1 :])
    strides = broadcasting.channels_last(sizes) if all(map(suggests_channels_last, tensors)) else contiguous(sizes)
    return TensorSpec(result_dtype(*tensors), common_device(kept), sizes, strides, 0)


@row("block_diag.default")
def block_diag(tensors: Sequence[TensorSpec]) -> TensorSpec:
    """Numbers in tensors count less for the dtype than vectors and matrices do; torch's meta kernel counts all alike."""
    if not tensors or any(t.ndim > 2 for t in tensors):
        return NotImplemented
    blocks = [(1,) * (2 - t.ndim) + tuple(t.sizes) for t in tensors]
    sizes = tuple(functools.reduce(operator.add, sides) for sides in zip(*blocks))
    return TensorSpec(result_dtype(*tensors), common_device(tensors), sizes, contiguous(sizes), 0)


@row("stack.default")
def stack(tensors: Sequence[TensorSpec], dim: int = 0) -> TensorSpec:
    first = tensors[0]
    dim = wrap_dim(dim, first.ndim + 1)
    check(all(same_sizes(first.sizes, other.sizes) for other in tensors[1:]))
    sizes = (*first.sizes[:dim], len(tensors), *first.sizes[dim:])
    if dim == first.ndim:
        return cat([unsqueeze(t, dim) for t in tensors], dim)
    return view(cat(tensors, dim), sizes)


@row("embedding.default")
def embedding(weight: TensorSpec, indices: TensorSpec, *rest: Any) -> TensorSpec:
    check(weight.ndim == 2 and indices.dtype in PLACES)
    return fresh(weight, (*indices.sizes, *weight.sizes[1:]))


def _is_empty(spec: TensorSpec) -> bool:
    return any(s.__class__ is int and s == 0 for s in spec.sizes)


def _fits(index: TensorSpec, x: TensorSpec, beside: int | None = None) -> bool:
    """Whether an index has x's number of dims and no size above x's, beside that of one dim."""
    sizes = zip(index.sizes, x.sizes or (1,))
    return max(index.ndim, 1) == max(x.ndim, 1) and not any(_is_larger(a, b) for d, (a, b) in enumerate(sizes) if d != beside)


def _is_larger(a: Size, b: Size) -> bool:
    fits = 0 if b.__class__ is int and b == 0 else 1  # sizes that are open are not zero
    return a is not b and not (a.__class__ is int and a <= fits) and active.decide(">", a, b)


@row("index_select.default")
def index_select(x: TensorSpec, dim: int, index: TensorSpec) -> TensorSpec:
    check(index.ndim < 2, IndexError)
    check(index.dtype in PLACES)
    dim, count = wrap_dim(dim, x.ndim), index.numel()
    if not x.ndim:
        check(active.equal(count, 1))
        return fresh(x, ())
    check(not (x.device.type == "cpu" and x.sizes[dim] == 0 and count.__class__ is int and count))  # also where nobody needs it
    return fresh(x, (*x.sizes[:dim], count, *x.sizes[dim + 1 :]))


@row("index_put.default", "_unsafe_index_put.default")
def index_put(x: TensorSpec, indices: Sequence[Given], values: TensorSpec, accumulate: bool = False) -> TensorSpec:
    _check_indices(x, indices)
    given = [i for i in indices if i is not None]
    masked = any(map(_is_mask, given))
    is_number = values.device.type == "cpu" and all(map(active.is_one, values.sizes))
    fills = masked and len(given) == 1 and is_number and not accumulate  # with a number of any dtype
    check(fills or values.dtype is x.dtype)
    if given and not masked:  # how much a mask picks depends on data
        check(_expands(values.sizes, _indexed(x, indices)[-1]))
    return like_self(x)


def _is_mask(index: TensorSpec) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _check_indices(x: TensorSpec, indices: Sequence[Given]) -> None:
    """Not more of them than dims, of dtypes that index, masks of the sizes they stand for, on the CPU or x's device."""
    check(len(indices) <= x.ndim, IndexError)
    given = [i for i in indices if i is not None]
    if any(i.device != x.device and i.device.type != "cpu" for i in given):
        raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({x.device})")
    check(all(i.dtype in (*PLACES, torch.bool, torch.uint8) for i in given), IndexError)
    at = 0
    for index in indices:
        if index is None or not _is_mask(index):
            at += 1
            continue
        check(all(map(active.equal, index.sizes, x.sizes[at:])), IndexError)
        at += index.ndim


def _expands(values: Sequence[Size], sizes: Sequence[Size]) -> bool:
    """Whether values of these sizes expand to what is indexed, which has no fewer dims."""
    pairs = zip(values, sizes[len(sizes) - len(values) :])
    return len(values) <= len(sizes) and all(active.is_one(a) or active.equal(a, b) or active.is_fixed_one(a) for a, b in pairs)


def _view_scatter(name: str, view: Callable[..., TensorSpec]) -> None:
    @row(name)
    def rule(x: TensorSpec, src: TensorSpec, *place: Any, **options: Any) -> Any:
        """Eager clones the memory behind x as it is, gaps and offset too, unless elements share memory."""
        check(same_sizes(src.sizes, view(x, *place, **options).sizes))
        shares = any(t.__class__ is int and t == 0 and s != 1 for s, t in zip(x.sizes, x.strides))
        return fresh(x, x.sizes) if shares else x


_view_scatter("slice_scatter.default", slice_)
_view_scatter("select_scatter.default", select)
_view_scatter("diagonal_scatter.default", diagonal)


@row("index_copy.default")
def index_copy(x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec) -> TensorSpec:
    dim, count = wrap_dim(dim, x.ndim), index.numel()
    check(index.ndim < 2 and (source.ndim > 0 or active.equal(count, 1)), IndexError)
    check(not (source.ndim and x.ndim) or source.ndim == x.ndim, IndexError)
    own, others = ([s for d, s in enumerate(t.sizes) if d != dim] for t in (x, source))
    check(index.dtype is torch.int64 and same_sizes(own, others))
    check(not source.ndim or active.equal(count, source.sizes[dim]), IndexError)
    return fresh(x, x.sizes)


@row("put.default")
def put(x: TensorSpec, index: TensorSpec, source: TensorSpec, accumulate: bool = False) -> TensorSpec:
    check(index.dtype is torch.int64)
    check(active.equal(index.numel(), source.numel()), IndexError)
    return like_self(x)


@row("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(x: TensorSpec, dim: int, index: TensorSpec, value: Any) -> TensorSpec:
    check(value.__class__ is not TensorSpec or not value.ndim)
    check(index.dtype is torch.int64, IndexError)
    check_number(value, x.dtype)
    wrap_dim(dim, x.ndim)
    return like_self(x)


@row("gather.default")
def gather(x: TensorSpec, dim: int, index: TensorSpec, *, sparse_grad: bool = False) -> TensorSpec:
    dim = wrap_dim(dim, x.ndim)
    if not _is_empty(index):
        check(index.dtype in PLACES and _fits(index, x, beside=dim))
    return fresh(x, index.sizes)


@row(*names("scatter", "src", "value", "reduce", "value_reduce"), "scatter_add.default", "scatter_reduce.two")
def scatter(x: TensorSpec, dim: int, index: TensorSpec, src: Any, *rest: Any, **options: Any) -> TensorSpec:
    dim, is_tensor = wrap_dim(dim, x.ndim), src.__class__ is TensorSpec
    if not _is_empty(index):
        check(index.dtype in PLACES and _fits(index, x, beside=dim) and (not is_tensor or _fits(index, src)))
    check(not is_tensor or src.dtype is x.dtype)
    check_number(src, x.dtype)
    return fresh(x, x.sizes)


@row("index_add.default", "index_reduce.default")
def index_add(x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec, *rest: Any, **options: Any) -> TensorSpec:
    dim = wrap_dim(dim, x.ndim)
    check(index.ndim < 2, IndexError)
    check(index.dtype in PLACES and source.dtype is x.dtype)
    rows = source.sizes[dim] if source.ndim > dim else 1
    check(active.equal(rows, index.numel()), RuntimeError if source.ndim else IndexError)
    check(same_sizes(x.sizes, source.sizes, beside=dim))
    return fresh(x, x.sizes)


@row("masked_scatter.default")
def masked_scatter(x: TensorSpec, mask: TensorSpec, source: TensorSpec) -> TensorSpec:
    check(mask.dtype is torch.bool and x.dtype is source.dtype)
    return fresh(x, broadcasting.broadcast_sizes(x.sizes, mask.sizes))


@row("index.Tensor", "_unsafe_index.Tensor")
def index(x: TensorSpec, indices: Sequence[Given]) -> TensorSpec:
    _check_indices(x, indices)
    if any(i is not None and _is_mask(i) for i in indices):
        raise DataDependentError("aten.index.Tensor with a mask")
    indices = list(indices) + [None] * (x.ndim - len(indices))
    given, kept, block, adjacent, sizes = _indexed(x, indices)
    return TensorSpec(x.dtype, x.device, sizes, _index_strides(x, indices, given, kept, block, adjacent, sizes), 0)


def _indexed(x: TensorSpec, indices: Sequence[Given]) -> tuple[Any, ...]:
    """The dims with an index, those without, the sizes of the indices together, whether these stay in place, the sizes of the result.

    Raises IndexError where a dim of no elements is indexed, also where nobody needs the result.
    """
    given = [d for d, i in enumerate(indices) if i is not None]
    block = _together([i.sizes for i in indices if i is not None])
    has_places = all(s.__class__ is int and s for s in block)
    check(not (has_places and any(x.sizes[d].__class__ is int and x.sizes[d] == 0 for d in given)), IndexError)
    kept = [d for d in range(x.ndim) if d not in given]
    adjacent = given == list(range(given[0], given[-1] + 1))
    before = [x.sizes[d] for d in kept if adjacent and d < given[0]]
    after = [x.sizes[d] for d in kept if not (adjacent and d < given[0])]
    return given, kept, block, adjacent, (*before, *block, *after)


def _together(shapes: Any) -> tuple[Size, ...]:
    try:
        return broadcasting.broadcast_sizes(*shapes)
    except RuntimeError:
        raise Refused(IndexError) from None


def _index_strides(
    x: TensorSpec,
    indices: Sequence[Given],
    given: Sequence[int],
    kept: Sequence[int],
    block: tuple[Size, ...],
    adjacent: bool,
    sizes: tuple[Size, ...],
) -> tuple[Size, ...]:
    """Eager iterates over the operand with indexed dimensions put where the block goes, stride 0, beside views of the indices."""
    lead = [d for d in kept if adjacent and d < given[0]]
    rest = [d for d in kept if d not in lead]
    operand = [x.strides[d] for d in lead] + [0] * len(block) + [x.strides[d] for d in rest]
    operands: list[Any] = [(sizes, tuple(operand))]
    shape = (*(1,) * len(lead), *block, *(1,) * len(rest))
    for index in indices:
        if index is not None:
            operands.append((shape, view_strides(block, _steps(index, block), shape)))
    return broadcasting.strides_in_order(sizes, broadcasting._iteration_order(operands, sizes))


def _steps(index: TensorSpec, block: tuple[Size, ...]) -> tuple[Size, ...]:
    """The strides of an index that is expanded to the block and then made one of 64-bit integers."""
    new = len(block) - index.ndim
    same = map(active.equal, index.sizes, block[new:])
    steps = (*(0,) * new, *(step if fits else 0 for step, fits in zip(index.strides, same)))
    kept = index.dtype is torch.int64 or broadcasting.is_dense(block, steps)
    return steps if kept else broadcasting.elementwise_strides([(block, steps)], block)


@row("slice_backward.default", "select_backward.default", "diagonal_backward.default")
def view_backward(grad: TensorSpec, sizes: Sequence[Size], *rest: Any) -> TensorSpec:
    """Where a slice ends is decided by the slice, not by its gradient."""
    return fresh(grad, tuple(sizes))


@row("nll_loss_forward.default")
def nll_loss_forward(x: TensorSpec, target: TensorSpec, weight: Given, reduction: int, ignore_index: int) -> Results:
    check(target.dtype in (torch.int64, torch.uint8))
    out = (x.sizes[0],) if reduction == 0 and x.ndim == 2 else ()
    return fresh(x, out), fresh(x, ())


@row("multi_margin_loss.default", reads="self target reduction")
def multi_margin_loss(x: TensorSpec, target: TensorSpec, reduction: int) -> TensorSpec:
    """Without a reduction a vector has what the target has, a number or a vector of one."""
    return fresh(x, target.sizes if reduction == 0 else ()) if x.ndim < 2 and not _is_empty(x) else NotImplemented


@row("nll_loss2d_forward.default")
def nll_loss2d_forward(x: TensorSpec, target: TensorSpec, weight: Given, reduction: int, ignore_index: int) -> Results:
    check(target.dtype is torch.int64)
    if x.ndim != 4 or target.ndim != 3 or x.sizes[1:2] == (0,):
        return NotImplemented
    pixels = (x.sizes[0], *x.sizes[2:])
    check(same_sizes(pixels, target.sizes) and (weight is None or same_sizes(weight.sizes, x.sizes[1:2])))
    return fresh(x, pixels if reduction == 0 else ()), fresh(x, ())


row(*names("nll_loss_backward multi_margin_loss_backward multilabel_margin_loss_backward", "default"), reads="self")(row_major)
row(*names("_ctc_loss_backward", "default", "Tensor"), reads="log_probs")(row_major)
row("_unsafe_masked_index_put_accumulate.default", reads="self")(like_self)


@row("nll_loss2d_backward.default")
def nll_loss2d_backward(grad: TensorSpec, x: TensorSpec, *rest: Any) -> TensorSpec:
    check(same_layout(x) == contiguous(x.sizes))
    return fresh(x, x.sizes)


demand(lambda x, diagonal=0: x.ndim > 1, "tril.default", "triu.default")
demand(lambda x, dims: len({wrap_dim(dim, x.ndim) for dim in dims}) == len(dims), "flip.default")


@row("rot90.default")
def rot90(x: TensorSpec, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorSpec:
    if x.ndim < 2 or len(dims) != 2:
        return NotImplemented
    a, b = (wrap_dim(dim, x.ndim) for dim in dims)
    if a == b:
        return NotImplemented
    if k % 4 == 0:
        return fresh(x, x.sizes)
    places = [*range(x.ndim)]
    if k % 2:
        places[a], places[b] = b, a
    strides = same_layout(x)
    return TensorSpec(x.dtype, x.device, tuple([x.sizes[p] for p in places]), tuple([strides[p] for p in places]), 0)


laid_out(row_major, *names("tril triu cumsum cumprod cummax cummin logcumsumexp", "default"))


@row("roll.default")
def roll(x: TensorSpec, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorSpec:
    check(len(shifts) > 0 and (len(shifts) == len(dims) or len(shifts) == 1 and not len(dims)))
    check(x.ndim > 0 or not dims, IndexError)
    if 0 in x.sizes:
        return like_self(x)
    rolled = fresh(x, x.sizes)
    for shift, dim in zip(shifts, dims):
        if _is_channels_last_rolled(x, shift, wrap_dim(dim, x.ndim)):
            rolled = TensorSpec(x.dtype, x.device, x.sizes, broadcasting.channels_last(x.sizes))
        else:
            rolled = fresh(x, x.sizes)
        x = rolled
    return rolled


def _is_channels_last_rolled(x: TensorSpec, shift: Size, dim: int) -> bool:
    """Eager's kernel for the CPU joins the two parts that change places, one of which may be empty."""
    if x.device.type != "cpu" or not suggests_channels_last(x):
        return False
    size = x.sizes[dim]
    moved = mod(shift, size)
    if active.equal(moved, 0):
        return False
    parts = (TensorSpec(x.dtype, x.device, (*x.sizes[:dim], n, *x.sizes[dim + 1 :]), x.strides) for n in (size - moved, moved))
    return all(map(suggests_channels_last, parts))


@row("constant_pad_nd.default")
def constant_pad_nd(x: TensorSpec, pad: Sequence[Size], value: Any = 0) -> TensorSpec:
    padded = list(x.sizes)
    for i, ends in enumerate(zip(pad[::2], pad[1::2])):
        dim = x.ndim - 1 - i
        cut = -sum(end for end in ends if end.__class__ is int and end < 0)
        check(not cut or at_least(cut, padded[dim]))  # what is cut off is cut off before anything is added
        padded[dim] = padded[dim] + sum(ends)
    sizes = tuple(padded)
    if any(end.__class__ is not int or end > 0 for end in pad):
        check_number(value, x.dtype)
    last = suggests_channels_last(x)
    return TensorSpec(x.dtype, x.device, sizes, broadcasting.channels_last(sizes) if last else contiguous(sizes), 0)


@row("_unsafe_masked_index.default")
def unsafe_masked_index(x: TensorSpec, mask: TensorSpec, indices: Sequence[Given], fill: Any) -> TensorSpec:
    return fresh(x, broadcasting.broadcast_sizes(index(x, indices).sizes, mask.sizes))


@row("bucketize.Tensor")
def bucketize(x: TensorSpec, boundaries: TensorSpec, *, out_int32: bool = False, right: bool = False) -> TensorSpec:
    check(boundaries.ndim == 1)
    return fresh(x, x.sizes, torch.int32 if out_int32 else torch.int64)


@row("nonzero_static.default")
def nonzero_static(x: TensorSpec, *, size: int, fill_value: int = -1) -> TensorSpec:
    """Row by row on a CPU, column by column on a GPU; torch's meta kernel sees no device and takes the latter."""
    return fresh(x, (size, x.ndim), torch.int64) if x.device.type == "cpu" else NotImplemented


@row("_ctc_loss.default")
def ctc_loss(x: TensorSpec, targets: TensorSpec, steps: Sequence[int], lengths: Sequence[int], *rest: Any) -> Results:
    """The loss of each sequence, and what the backward needs: a row of states for each step of time."""
    check(x.ndim == 3 and active.equal(len(steps), x.sizes[1]) and active.equal(len(lengths), x.sizes[1]))
    return fresh(x, x.sizes[1:2]), fresh(x, (x.sizes[1], x.sizes[0], 2 * max(lengths, default=0) + 1))


@row("multilabel_margin_loss_forward.default")
def multilabel_margin_loss_forward(x: TensorSpec, target: TensorSpec, reduction: int) -> Results:
    """One number for a vector, also without a reduction."""
    if x.ndim > 1 or x.sizes != target.sizes or _is_empty(x):
        return NotImplemented
    return fresh(x, ()), fresh(x, target.sizes)


BAGS = "weight indices offsets mode per_sample_weights include_last_offset padding_idx"


@row("_embedding_bag.default", reads=BAGS)
def embedding_bag(weight: TensorSpec, indices: TensorSpec, offsets: TensorSpec, mode: int, *how: Any) -> Results:
    """The bags and what the backward needs, as the CPU's kernel leaves it: it sums rows of dense memory without the bag of each index."""
    weights, include_last_offset, padding_idx = how
    if weight.device.type != "cpu" or indices.ndim != 1 or offsets.ndim != 1 or not weight.dtype.is_floating_point:
        return NotImplemented
    bags, width = offsets.sizes[0] - bool(include_last_offset), weight.sizes[1]
    direct = (
        mode == 0
        and weight.dtype is not torch.float64
        and active.equal(weight.strides[1], 1)
        and padding_idx < 0
        and (weights is None or active.equal(weights.strides[0], 1))
    )
    integers = result_dtype(indices, offsets)
    bag_of_index = fresh(offsets, (0,) if direct else indices.sizes, integers)
    largest = (bags, width) if mode == 2 else (bags,)
    return fresh(weight, (bags, width)), bag_of_index, fresh(offsets, (bags,), integers), fresh(offsets, largest, integers)


@row("_embedding_bag_forward_only.default", reads=BAGS)
def embedding_bag_forward_only(weight: TensorSpec, indices: TensorSpec, offsets: TensorSpec, mode: int, *how: Any) -> Results:
    """The same, but a sum counts the last offset as a bag, too, in what is not the result."""
    found = embedding_bag(weight, indices, offsets, mode, *how)
    if found is NotImplemented or mode:
        return found
    return *found[:2], fresh(offsets, offsets.sizes, found[2].dtype), fresh(offsets, offsets.sizes, found[2].dtype)


@row("_padded_dense_to_jagged_forward.default")
def padded_dense_to_jagged(dense: TensorSpec, offsets: Sequence[TensorSpec], total_L: Size | None = None) -> TensorSpec:
    check(dense.ndim >= 2 and len(offsets) == 1)
    if total_L is None:
        raise DataDependentError("aten._padded_dense_to_jagged_forward without total_L")
    return fresh(dense, (total_L, *dense.sizes[2:]))
