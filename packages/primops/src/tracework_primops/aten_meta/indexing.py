"""ATen rows: cat, gather, embedding, index, losses over classes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import broadcasting
from ..elementwise import common_device, contiguous, same_layout
from ..meta.view import view_strides
from ..promotion import result_dtype
from ..spec import TensorSpec
from ..symbols import active, mod
from ..symbols.expr import Size
from .rows import (
    at_least,
    check_number,
    fresh,
    laid_out,
    like_self,
    names,
    refuses,
    row,
    row_major,
    suggests_channels_last,
    wrap_dim,
)
from .view import diagonal, select, unsqueeze, view
from .view import slice as slice_


def _is_skipped(spec: TensorSpec) -> bool:
    return len(spec.sizes) == 1 and spec.sizes[0].__class__ is int and spec.sizes[0] == 0


@row("cat.default")
def cat(tensors: Sequence[TensorSpec], dim: int = 0) -> TensorSpec:
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    kept = [t for t in tensors if not _is_skipped(t)] or [tensors[0]]
    first = kept[0]
    for i, t in enumerate(tensors):
        if not t.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    dim = wrap_dim(dim, first.ndim)
    lengths = list(first.sizes)
    for other in kept[1:]:
        if other.ndim != first.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {other.ndim}")
        for d, (a, b) in enumerate(zip(first.sizes, other.sizes)):
            if d != dim and not active.equal(a, b):
                raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}. Expected {a} but got {b}")
        lengths[dim] = lengths[dim] + other.sizes[dim]
    sizes = tuple(lengths)
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
    for other in tensors[1:]:
        if other.ndim != first.ndim or not all(active.equal(a, b) for a, b in zip(first.sizes, other.sizes)):
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(first.sizes)} and {list(other.sizes)}")
    sizes = (*first.sizes[:dim], len(tensors), *first.sizes[dim:])
    if dim == first.ndim:
        return cat([unsqueeze(t, dim) for t in tensors], dim)
    return view(cat(tensors, dim), sizes)


@row("embedding.default")
def embedding(
    weight: TensorSpec, indices: TensorSpec, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> TensorSpec:
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the scalar types Long, Int; got {indices.dtype}"
        )
    return fresh(weight, (*indices.sizes, *weight.sizes[1:]))


@row("gather.default")
def gather(x: TensorSpec, dim: int, index: TensorSpec, *, sparse_grad: bool = False) -> TensorSpec:
    dim = wrap_dim(dim, x.ndim)
    if _is_empty(index):
        return fresh(x, index.sizes)
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("gather(): Expected dtype int32/int64 for index")
    _check_index("gather", x, dim, index, skip_dim=True)
    return fresh(x, index.sizes)


def _is_empty(spec: TensorSpec) -> bool:
    return any(s.__class__ is int and s == 0 for s in spec.sizes)


def _check_index(op: str, x: TensorSpec, dim: int, index: TensorSpec, skip_dim: bool = False) -> None:
    """The index has x's number of dims and, beside `dim`, no size above x's. Raises RuntimeError."""
    if max(index.ndim, 1) != max(x.ndim, 1):
        raise RuntimeError(f"{op}(): Index tensor must have the same number of dimensions as input tensor")
    for d, (a, b) in enumerate(zip(index.sizes, x.sizes or (1,))):
        if not (skip_dim and d == dim) and _is_larger(a, b):
            raise RuntimeError(f"{op}(): size of index at dim {d} is {a}, more than {b}")


def _is_larger(a: Size, b: Size) -> bool:
    fits = 0 if b.__class__ is int and b == 0 else 1  # sizes that are open are not zero
    return a is not b and not (a.__class__ is int and a <= fits) and active.decide(">", a, b)


@row("index_select.default")
def index_select(x: TensorSpec, dim: int, index: TensorSpec) -> TensorSpec:
    if index.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, but got dim: {index.ndim}")
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"index_select(): Expected dtype int32 or int64 for index, but got: {index.dtype}")
    dim = wrap_dim(dim, x.ndim)
    if not x.ndim:
        if not active.equal(index.numel(), 1):
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)")
        return fresh(x, ())
    if x.device.type == "cpu" and x.sizes[dim] == 0 and index.numel().__class__ is int and index.numel():
        raise RuntimeError("index_select(): self indexing axis dim should be positive")  # also where nobody needs the result
    return fresh(x, (*x.sizes[:dim], index.numel(), *x.sizes[dim + 1 :]))


@row("index_put.default", "_unsafe_index_put.default")
def index_put(
    x: TensorSpec, indices: Sequence[TensorSpec | None], values: TensorSpec, accumulate: bool = False, unsafe: Any = False
) -> TensorSpec:
    _check_indices(x, indices)
    given = [i for i in indices if i is not None]
    masked = any(map(_is_mask, given))
    is_number = values.device.type == "cpu" and all(map(active.is_one, values.sizes))
    fills = masked and len(given) == 1 and is_number and not accumulate  # with a number of any dtype
    if not fills and values.dtype is not x.dtype:
        found = f"got {x.dtype} for the destination and {values.dtype} for the source."
        raise RuntimeError(f"Index put requires the source and destination dtypes match, {found}")
    if given and not masked:  # how much a mask picks depends on data
        _check_fits(values.sizes, _indexed(x, indices)[-1])
    return like_self(x)


def _is_mask(index: TensorSpec) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _check_indices(x: TensorSpec, indices: Sequence[TensorSpec | None]) -> None:
    """Not more of them than dims, of dtypes that index, masks of the sizes they stand for, on the CPU or x's device.

    Raises IndexError, for devices RuntimeError.
    """
    if len(indices) > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim} (got {len(indices)})")
    if any(i is not None and i.device != x.device and i.device.type != "cpu" for i in indices):
        raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({x.device})")
    at = 0
    for given in indices:
        if given is not None and given.dtype not in (torch.int64, torch.int32, torch.bool, torch.uint8):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if given is not None and _is_mask(given):
            for dim, (size, wanted) in enumerate(zip(given.sizes, x.sizes[at:]), at):
                if not active.equal(size, wanted):
                    mask = f"The shape of the mask {list(given.sizes)} at index {dim - at}"
                    raise IndexError(f"{mask} does not match the shape of the indexed tensor {list(x.sizes)} at index {dim}")
        at += given.ndim if given is not None and _is_mask(given) else 1


def _check_fits(values: Sequence[Size], sizes: Sequence[Size]) -> None:
    """Values of these sizes expand to what is indexed, which has no fewer dims. Raises RuntimeError."""
    wanted = sizes[len(sizes) - len(values) :] if len(values) <= len(sizes) else None
    if wanted is None or not all(
        active.is_one(a) or active.equal(a, b) or active.is_fixed_one(a) for a, b in zip(values, wanted)
    ):
        shapes = f"value tensor of shape {list(values)} cannot be broadcast to indexing result of shape {list(sizes)}"
        raise RuntimeError(f"shape mismatch: {shapes}")


def _view_scatter(name: str, view: Callable[..., TensorSpec]) -> None:
    @row(name)
    def rule(x: TensorSpec, src: TensorSpec, *place: Any, **options: Any) -> Any:
        """Eager clones the memory behind x as it is, gaps and offset too, unless elements share memory."""
        part = view(x, *place, **options)
        if src.ndim != part.ndim or not all(active.equal(a, b) for a, b in zip(src.sizes, part.sizes)):
            sizes = f"src size = {list(src.sizes)}, slice size = {list(part.sizes)}"
            raise RuntimeError(f"expected src to have a size equal to the slice of self. {sizes}")
        shares = any(t.__class__ is int and t == 0 and s != 1 for s, t in zip(x.sizes, x.strides))
        return fresh(x, x.sizes) if shares else x


_view_scatter("slice_scatter.default", slice_)
_view_scatter("select_scatter.default", select)
_view_scatter("diagonal_scatter.default", diagonal)


def _check_dtype(what: str, tensor: TensorSpec, *dtypes: torch.dtype, error: type[Exception] = RuntimeError) -> None:
    """Raises `error` unless a tensor of places or classes has one of these dtypes."""
    if tensor.dtype not in dtypes:
        raise error(f"expected {what} to be of {' or '.join(map(str, dtypes))}, but got {tensor.dtype}")


@row("index_copy.default")
def index_copy(x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec) -> TensorSpec:
    dim, count = wrap_dim(dim, x.ndim), index.numel()
    if index.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.ndim})")
    if not source.ndim and not active.equal(count, 1):
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {count})")
    if source.ndim and x.ndim and source.ndim != x.ndim:
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. "
            f"Source dimensionality ({source.ndim}), destination dimensionality ({x.ndim})"
        )
    _check_dtype("the index of index_copy", index, torch.int64)
    own, others = ([s for d, s in enumerate(t.sizes) if d != dim] for t in (x, source))
    if len(own) != len(others) or not all(active.equal(a, b) for a, b in zip(own, others)):
        shapes = f"Destination slice shape: {own} and source slice shape: {others}"
        raise RuntimeError(f"index_copy_(): Source/destination tensor must have same slice shapes. {shapes}")
    if source.ndim and not active.equal(count, source.sizes[dim]):
        raise IndexError(f"index_copy_(): Number of indices ({count}) should be equal to source.size(dim) ({source.sizes[dim]})")
    return fresh(x, x.sizes)


@row("put.default")
def put(x: TensorSpec, index: TensorSpec, source: TensorSpec, accumulate: bool = False) -> TensorSpec:
    _check_dtype("the index of put", index, torch.int64)
    if not active.equal(index.numel(), source.numel()):
        counts = f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        raise IndexError(f"put_(): Expected source and index to have the same number of elements, but got {counts}")
    return fresh(x, x.sizes)


@row("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(x: TensorSpec, dim: int, index: TensorSpec, value: Any) -> TensorSpec:
    if value.__class__ is TensorSpec and value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    _check_dtype("the index of index_fill", index, torch.int64, error=IndexError)
    check_number(value, x.dtype)
    wrap_dim(dim, x.ndim)
    return like_self(x)


@row("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add.default", "scatter_reduce.two")
def scatter(x: TensorSpec, dim: int, index: TensorSpec, src: Any, *rest: Any, **options: Any) -> TensorSpec:
    dim = wrap_dim(dim, x.ndim)
    if not _is_empty(index):
        if index.dtype not in (torch.int64, torch.int32):
            raise RuntimeError("scatter(): Expected dtype int32/int64 for index")
        _check_index("scatter", x, dim, index, skip_dim=True)
        if src.__class__ is TensorSpec:
            _check_index("scatter", src, dim, index)
    if src.__class__ is not TensorSpec:
        check_number(src, x.dtype)
    elif src.dtype is not x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    return fresh(x, x.sizes)


@row("index_add.default", "index_reduce.default")
def index_add(
    x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec, reduce: str | None = None, **options: Any
) -> TensorSpec:
    dim = wrap_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError("index_add_(): Index is supposed to be a vector")
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("index_add_(): Expected dtype int32/int64 for index")
    if source.dtype is not x.dtype:
        raise RuntimeError("index_add_(): self and source must have the same scalar type")
    rows = source.sizes[dim] if source.ndim > dim else 1
    if not active.equal(rows, index.numel()):
        if not source.ndim:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        raise RuntimeError(
            f"index_add_(): Number of indices ({index.numel()}) should be equal to source.size(dim): ({rows}), for dim: {dim}"
        )
    others = [(a, b) for d, (a, b) in enumerate(zip(x.sizes, source.sizes)) if d != dim]
    if source.ndim != x.ndim or not all(active.equal(a, b) for a, b in others):
        raise RuntimeError(
            f"source tensor shape must match self tensor shape, excluding the specified dimension. Got {x} and {source}"
        )
    return fresh(x, x.sizes)


@row("masked_scatter.default")
def masked_scatter(x: TensorSpec, mask: TensorSpec, source: TensorSpec) -> TensorSpec:
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    if x.dtype is not source.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {x.dtype} and {source.dtype}")
    return fresh(x, broadcasting.broadcast_sizes(x.sizes, mask.sizes))


@row("index.Tensor", "_unsafe_index.Tensor")
def index(x: TensorSpec, indices: Sequence[TensorSpec | None]) -> TensorSpec:
    _check_indices(x, indices)
    if any(i is not None and _is_mask(i) for i in indices):
        from ..errors import DataDependentError

        raise DataDependentError("aten.index.Tensor with a mask")
    indices = list(indices) + [None] * (x.ndim - len(indices))
    given, kept, block, adjacent, sizes = _indexed(x, indices)
    return TensorSpec(x.dtype, x.device, sizes, _index_strides(x, indices, given, kept, block, adjacent, sizes), 0)


def _indexed(x: TensorSpec, indices: Sequence[TensorSpec | None]) -> tuple[Any, ...]:
    """The dims with an index, those without, the sizes of the indices together, whether these stay in place, the sizes of the result.

    Raises IndexError where a dim of no elements is indexed, also where nobody needs the result.
    """
    given = [d for d, i in enumerate(indices) if i is not None]
    block = _together([i.sizes for i in indices if i is not None])
    if all(s.__class__ is int and s for s in block) and any(x.sizes[d].__class__ is int and x.sizes[d] == 0 for d in given):
        raise IndexError("index is out of bounds for dimension with size 0")
    kept = [d for d in range(x.ndim) if d not in given]
    adjacent = given == list(range(given[0], given[-1] + 1))
    before = [x.sizes[d] for d in kept if adjacent and d < given[0]]
    after = [x.sizes[d] for d in kept if not (adjacent and d < given[0])]
    return given, kept, block, adjacent, (*before, *block, *after)


def _together(shapes: Any) -> tuple[Size, ...]:
    try:
        return broadcasting.broadcast_sizes(*shapes)
    except RuntimeError as error:
        found = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {found}") from error


def _index_strides(
    x: TensorSpec,
    indices: Sequence[TensorSpec | None],
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
def nll_loss_forward(
    x: TensorSpec, target: TensorSpec, weight: TensorSpec | None, reduction: int, ignore_index: int
) -> tuple[Any, ...]:
    _check_dtype("the target of nll_loss", target, torch.int64, torch.uint8)
    out = (x.sizes[0],) if reduction == 0 and x.ndim == 2 else ()
    return fresh(x, out), fresh(x, ())


@row("multi_margin_loss.default")
def multi_margin_loss(
    x: TensorSpec, target: TensorSpec, p: Any = 1, margin: Any = 1, weight: TensorSpec | None = None, reduction: int = 1
) -> TensorSpec:
    """Without a reduction a vector has what the target has, a number or a vector of one."""
    return fresh(x, target.sizes if reduction == 0 else ()) if x.ndim < 2 and not _is_empty(x) else NotImplemented


@row("nll_loss2d_forward.default")
def nll_loss2d_forward(
    x: TensorSpec, target: TensorSpec, weight: TensorSpec | None, reduction: int, ignore_index: int
) -> tuple[Any, ...]:
    _check_dtype("the target of nll_loss", target, torch.int64)
    if x.ndim != 4 or target.ndim != 3 or x.sizes[1:2] == (0,):
        return NotImplemented
    pixels = (x.sizes[0], *x.sizes[2:])
    if not all(map(active.equal, pixels, target.sizes)):
        raise RuntimeError(f"size mismatch (got input: {list(x.sizes)}, target: {list(target.sizes)})")
    if weight is not None and not (weight.ndim == 1 and active.equal(weight.sizes[0], x.sizes[1])):
        raise RuntimeError("weight tensor should be defined either for all or no classes")
    return fresh(x, pixels if reduction == 0 else ()), fresh(x, ())


@row(*names("nll_loss_backward multi_margin_loss_backward multilabel_margin_loss_backward", "default"))
@row("_ctc_loss_backward.default", "_ctc_loss_backward.Tensor")
def gradient_of_scores(grad: TensorSpec, x: TensorSpec, *rest: Any, **options: Any) -> TensorSpec:
    return fresh(x, x.sizes)


@row("_unsafe_masked_index_put_accumulate.default")
def unsafe_masked_index_put_accumulate(x: TensorSpec, *rest: Any) -> TensorSpec:
    return like_self(x)


@row("nll_loss2d_backward.default")
def nll_loss2d_backward(grad: TensorSpec, x: TensorSpec, *rest: Any) -> TensorSpec:
    if same_layout(x) != contiguous(x.sizes):
        raise RuntimeError("grad_input must be contiguous")
    return fresh(x, x.sizes)


@refuses("tril.default", "triu.default")
def tril(x: TensorSpec, diagonal: int = 0) -> None:
    if x.ndim < 2:
        raise RuntimeError("tril, triu: input tensor must have at least 2 dimensions")


@refuses("flip.default")
def flip(x: TensorSpec, dims: Sequence[int]) -> None:
    if len({wrap_dim(dim, x.ndim) for dim in dims}) < len(dims):
        raise RuntimeError(f"flip: a dim appears multiple times in the list of dims {list(dims)}")


@row("rot90.default")
def rot90(x: TensorSpec, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorSpec:
    if x.ndim < 2 or len(dims) != 2:
        return NotImplemented
    a, b = (wrap_dim(dim, x.ndim) for dim in dims)
    if a == b:
        return NotImplemented
    places = [*range(x.ndim)]
    if k % 2:
        places[a], places[b] = b, a
    strides = same_layout(x)
    return TensorSpec(x.dtype, x.device, tuple([x.sizes[p] for p in places]), tuple([strides[p] for p in places]), 0)


laid_out(row_major, *names("tril triu cumsum cumprod cummax cummin logcumsumexp", "default"))


@row("roll.default")
def roll(x: TensorSpec, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorSpec:
    if not len(shifts):
        raise RuntimeError("`shifts` required")
    if len(shifts) != len(dims) and not (len(shifts) == 1 and not len(dims)):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims: {len(dims)}")
    if dims and not x.ndim:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
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
        if cut and not at_least(cut, padded[dim]):  # what is cut off is cut off before anything is added
            raise RuntimeError("narrow(): length must be non-negative.")
        padded[dim] = padded[dim] + sum(ends)
    sizes = tuple(padded)
    if any(end.__class__ is not int or end > 0 for end in pad):
        check_number(value, x.dtype)
    last = suggests_channels_last(x)
    return TensorSpec(x.dtype, x.device, sizes, broadcasting.channels_last(sizes) if last else contiguous(sizes), 0)


@row("_unsafe_masked_index.default")
def unsafe_masked_index(x: TensorSpec, mask: TensorSpec, indices: Sequence[TensorSpec | None], fill: Any) -> TensorSpec:
    return fresh(x, broadcasting.broadcast_sizes(index(x, indices).sizes, mask.sizes))


@row("bucketize.Tensor")
def bucketize(x: TensorSpec, boundaries: TensorSpec, *, out_int32: bool = False, right: bool = False) -> TensorSpec:
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return fresh(x, x.sizes, torch.int32 if out_int32 else torch.int64)


@row("nonzero_static.default")
def nonzero_static(x: TensorSpec, *, size: int, fill_value: int = -1) -> TensorSpec:
    """Row by row on a CPU, column by column on a GPU; torch's meta kernel sees no device and takes the latter."""
    return fresh(x, (size, x.ndim), torch.int64) if x.device.type == "cpu" else NotImplemented


@row("_ctc_loss.default")
def ctc_loss(
    log_probs: TensorSpec, targets: TensorSpec, input_lengths: Sequence[int], target_lengths: Sequence[int], *rest: Any
) -> tuple[Any, ...]:
    """The loss of each sequence, and what the backward needs: a row of states for each step of time."""
    if log_probs.ndim != 3:
        raise RuntimeError(
            f"Expected 3-dimensional tensor, but got {log_probs.ndim}-dimensional tensor for argument #1 'log_probs'"
        )
    steps, batch, _ = log_probs.sizes
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if not active.equal(len(lengths), batch):
            raise RuntimeError(f"{name} must be of size batch_size")
    states = 2 * max(target_lengths, default=0) + 1
    return fresh(log_probs, (batch,)), fresh(log_probs, (batch, steps, states))


@row("multilabel_margin_loss_forward.default")
def multilabel_margin_loss_forward(x: TensorSpec, target: TensorSpec, reduction: int) -> tuple[Any, ...]:
    """One number for a vector, also without a reduction."""
    if x.ndim > 1 or x.sizes != target.sizes or _is_empty(x):
        return NotImplemented
    return fresh(x, ()), fresh(x, target.sizes)


@row("_embedding_bag.default")
def embedding_bag(
    weight: TensorSpec,
    indices: TensorSpec,
    offsets: TensorSpec,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: TensorSpec | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Any, ...]:
    """The bags and what the backward needs, as the CPU's kernel leaves it: it sums rows of dense memory without the bag of each index."""
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


@row("_embedding_bag_forward_only.default")
def embedding_bag_forward_only(
    weight: TensorSpec, indices: TensorSpec, offsets: TensorSpec, scale_grad_by_freq: bool = False, mode: int = 0, *rest: Any
) -> tuple[Any, ...]:
    """The same, but a sum counts the last offset as a bag, too, in what is not the result."""
    found = embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, *rest)
    if found is NotImplemented or mode:
        return found
    return *found[:2], fresh(offsets, offsets.sizes, found[2].dtype), fresh(offsets, offsets.sizes, found[2].dtype)
