"""ATen rows: reductions, softmax, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _torch
from ..broadcasting import channels_last, is_channels_last
from ..elementwise import contiguous
from ..promotion import real_of
from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Size
from .dtypes import refusal
from .rows import (
    at_least,
    fresh,
    laid_out,
    like_first,
    like_self,
    refuses,
    row,
    row_major,
    suggests_channels_last,
    symbolic,
    wrap_dim,
)

Dims = Sequence[int] | int | None
Given = TensorSpec | None


def reduced(sizes: Sequence[Size], dims: Any, keepdim: bool) -> tuple[Size, ...]:
    """The sizes after a reduction; no dims means all of them."""
    ndim = len(sizes)
    if dims is None or dims == [] or dims == ():
        return (1,) * ndim if keepdim else ()
    gone = {wrap_dim(d, ndim) for d in (dims if isinstance(dims, (list, tuple)) else (dims,))}
    if keepdim:
        return tuple(1 if d in gone else s for d, s in enumerate(sizes))
    return tuple(s for d, s in enumerate(sizes) if d not in gone)


@refuses("mean.default")
def mean_all(x: TensorSpec, *, dtype: torch.dtype | None = None) -> None:
    mean_dims(x, None, dtype=dtype)


@refuses("mean.dim")
def mean_dims(x: TensorSpec, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> None:
    out = dtype or x.dtype
    if not (out.is_floating_point or out.is_complex):
        raise refusal(torch.ops.aten.mean.default, (x.replace(dtype=out),))(
            f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {out}"
        )


def _few_dims(x: TensorSpec) -> None:
    if x.ndim > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")


@refuses("amax.default", "amin.default")
def extremum_dims(x: TensorSpec, dim: Sequence[int] = (), keepdim: bool = False) -> None:
    _few_dims(x)
    _has_elements("amax", x, dim)
    reduced_dims = [wrap_dim(d, x.ndim) for d in dim]
    if len(set(reduced_dims)) != len(reduced_dims):
        raise RuntimeError("a dim appears multiple times in the list of dims")


def _has_elements(name: str, x: TensorSpec, dims: Sequence[int], error: type[Exception] = RuntimeError) -> None:
    """Raises what eager raises where there is no element to choose; no dims means all of them, for which eager raises `error`."""
    if 0 in x.sizes:
        if not len(dims):
            raise error(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
        for dim in dims:
            if x.sizes[wrap_dim(dim, x.ndim)] == 0:
                raise IndexError(f"{name}(): Expected reduction dim {dim} to have non-zero size.")


@refuses("max.default", "min.default")
def extremum_all(x: TensorSpec) -> None:
    _has_elements("max", x, ())


@refuses("max.dim", "min.dim")
def extremum_dim(x: TensorSpec, dim: int, keepdim: bool = False) -> None:
    _has_elements("max", x, (dim,))


@refuses("argmax.default", "argmin.default")
def argmax(x: TensorSpec, dim: int | None = None, keepdim: bool = False) -> None:
    if x.dtype is torch.bool or x.dtype.is_complex:  # which eager asks of tensors without elements, too
        raise refusal(torch.ops.aten.argmax.default, (x,))(f"argmax(): does not support {x.dtype} input")
    _has_elements("argmax", x, () if dim is None else (dim,), IndexError)


laid_out(like_first, "sort.default", "sort.stable")
laid_out(row_major, "_safe_softmax.default", "mean.default", "mean.dim")


@row("_softmax.default", "_log_softmax.default")
def softmax(x: TensorSpec, dim: int, half_to_float: bool) -> TensorSpec:
    wrap_dim(dim, x.ndim)
    return fresh(x, x.sizes, torch.float32 if half_to_float else x.dtype)


@row("_softmax_backward_data.default", "_log_softmax_backward_data.default")
def softmax_backward(grad: TensorSpec, output: TensorSpec, dim: int, input_dtype: torch.dtype) -> TensorSpec:
    return fresh(grad, grad.sizes, input_dtype)


@row("native_layer_norm_backward.default")
def native_layer_norm_backward(
    grad: TensorSpec, x: TensorSpec, normalized_shape: Sequence[Size], mean: TensorSpec, rstd: TensorSpec, *rest: Any
) -> tuple[Given, ...]:
    """Each as what it is the gradient of."""
    weight, bias, mask = rest
    return _wanted([None if t is None else fresh(t, t.sizes) for t in (x, weight, bias or weight)], mask)


def _wanted(gradients: Sequence[Given], mask: Sequence[bool]) -> tuple[Given, ...]:
    return tuple([found if wanted else None for found, wanted in zip(gradients, mask)])


@row("logsumexp.default")
def logsumexp(x: TensorSpec, dim: Sequence[int], keepdim: bool = False) -> TensorSpec:
    dtype = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.get_default_dtype()
    return fresh(x, reduced(x.sizes, dim, keepdim), dtype)


@symbolic("topk.default")
def topk(x: TensorSpec, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, ...]:
    if x.ndim and not (at_least(0, k) and active.decide("<=", k, x.sizes[wrap_dim(dim, x.ndim)])):
        raise RuntimeError("selected index k out of range")
    sizes = tuple(k if d == wrap_dim(dim, x.ndim) else s for d, s in enumerate(x.sizes))
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


@symbolic("hash_tensor.default")
def hash_tensor(x: TensorSpec, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> TensorSpec:
    return fresh(x, reduced(x.sizes, tuple(dim), keepdim), torch.uint64)


@row("linalg_vector_norm.default")
def linalg_vector_norm(
    x: TensorSpec, ord: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorSpec:
    return fresh(x, reduced(x.sizes, dim, keepdim), real_of(dtype or x.dtype))


@row("norm.ScalarOpt_dim")
def norm(x: TensorSpec, p: Any, dim: Sequence[int], keepdim: bool = False) -> TensorSpec:
    return fresh(x, reduced(x.sizes, dim, keepdim), real_of(x.dtype))


def _statistics_dtype(x: TensorSpec, *parameters: TensorSpec | None) -> torch.dtype:
    """Of the means that a normalisation keeps. Raises RuntimeError where the CPU's kernels do: parameters have the dtype of the input,
    or all are float32 beside an input in half precision."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    if x.device.type != "cpu":
        return torch.float32 if half else x.dtype
    found = {p.dtype for p in parameters if p is not None} or {x.dtype}
    if len(found) > 1 or not (found == {x.dtype} or half and found == {torch.float32}):
        dtypes = ", ".join(sorted(map(str, found)))
        raise RuntimeError(f"mixed dtype (CPU): an input of {x.dtype} is not normalized with parameters of {dtypes}")
    return found.pop()


def _all_equal(a: Sequence[Size], b: Sequence[Size]) -> bool:
    return all(active.equal(x, y) for x, y in zip(a, b))


def _normalized(x: TensorSpec, axis: int, dtype: torch.dtype, count: int) -> tuple[TensorSpec, ...]:
    """A result of the input's sizes and `count` statistics over the dims from `axis` on."""
    statistic = fresh(x, (*x.sizes[:axis], *(1,) * (x.ndim - axis)), dtype)
    return fresh(x, x.sizes), *(statistic,) * count


@row("native_layer_norm.default")
def native_layer_norm(
    x: TensorSpec, normalized_shape: Sequence[Size], weight: TensorSpec | None, bias: TensorSpec | None, eps: float
) -> tuple[TensorSpec, ...]:
    axis = x.ndim - len(normalized_shape)
    if not len(normalized_shape):
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and (other.ndim != len(normalized_shape) or not _all_equal(other.sizes, normalized_shape)):
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {list(other.sizes)} and {list(normalized_shape)}"
            )
    if not all(active.equal(a, b) for a, b in zip(x.sizes[axis:], normalized_shape)) or axis < 0:
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape [*, {normalized_shape}], but got {x.sizes}"
        )
    return _normalized(x, axis, _statistics_dtype(x, weight, bias), 2)


@row("_fused_rms_norm.default")
def fused_rms_norm(
    x: TensorSpec, normalized_shape: Sequence[Size], weight: TensorSpec | None, eps: float | None
) -> tuple[TensorSpec, ...]:
    return _normalized(x, x.ndim - len(normalized_shape), _statistics_dtype(x), 1)


@row("native_group_norm.default")
def native_group_norm(
    x: TensorSpec, weight: Given, bias: Given, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Any, ...]:
    on_cpu = x.device.type == "cpu"
    last = on_cpu and suggests_channels_last(x)
    if not (last or x.is_contiguous):
        raise RuntimeError("Expected X.is_contiguous(memory_format) to be true, but got false.")
    if c.__class__ is int and c % group:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got {x} and {group}")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and not (other.ndim == 1 and active.equal(other.sizes[0], c)):
            raise RuntimeError(f"Expected {name} to be a vector of size equal to the number of channels, but got {other}")
    statistics = fresh(x, (n, group), _statistics_dtype(x, weight, bias) if on_cpu else x.dtype)
    strides = channels_last(x.sizes) if last else contiguous(x.sizes)
    return TensorSpec(x.dtype, x.device, x.sizes, strides, 0), statistics, statistics


@row("native_group_norm_backward.default")
def native_group_norm_backward(
    grad: TensorSpec, x: TensorSpec, mean: TensorSpec, rstd: TensorSpec, weight: Given, *rest: Any
) -> tuple[Any, ...]:
    """Raises RuntimeError for images and gradients that do not lie alike, where eager's kernels read both in the order of one, whatever they are
    given, and autograd copies them before."""
    mask = rest[-1]
    if weight is None and (mask[1] or mask[2]):
        return NotImplemented
    last = x.device.type == "cpu" and suggests_channels_last(x)
    for one in () if _torch.GROUP_NORM_GRADIENT_TAKES_ANY_ORDER else (grad, x):
        if not (is_channels_last(one.sizes, one.strides) if last else one.is_contiguous):
            wanted = "channels-last" if last else "row-major"
            raise RuntimeError(f"native_group_norm_backward: expected {wanted} operands, but got {one}")
    of_image = fresh(x, x.sizes).replace(strides=channels_last(x.sizes) if last else contiguous(x.sizes))
    of_weight = fresh(weight, weight.sizes) if weight is not None else None
    return _wanted((of_image, of_weight, of_weight), mask)


def _batch_norm(x: TensorSpec, training: bool, *parameters: TensorSpec | None) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    stat = fresh(x, (x.sizes[1],), _statistics_dtype(x, *parameters))
    none = fresh(x, (0,), stat.dtype)
    out = like_self(x)
    if x.device.type == "cpu":
        last = not x.is_contiguous and (is_channels_last(x.sizes, x.strides) or suggests_channels_last(x))
        out = x.replace(strides=channels_last(x.sizes) if last else contiguous(x.sizes), offset=0)
    # a CPU's kernel keeps nothing of running statistics; others give them back
    return (out, stat, stat) if training or x.device.type != "cpu" else (out, none, none)


# What follows the image: weight, bias, mean and variance, then whether it is training, where that is asked, momentum and eps.


@row("native_batch_norm.default", "_native_batch_norm_legit.default")
def native_batch_norm(x: TensorSpec, *given: Any) -> tuple[Any, ...]:
    return _batch_norm(x, given[4], *given[:4])


@row("_native_batch_norm_legit_functional.default")
def native_batch_norm_functional(x: TensorSpec, *given: Any) -> tuple[Any, ...]:
    """With the running statistics as they are afterwards."""
    return (*_batch_norm(x, given[4], *given[:4]), *(fresh(t, t.sizes) for t in given[2:4]))


@row("_batch_norm_with_update.default")
def batch_norm_with_update(x: TensorSpec, *given: Any) -> tuple[Any, ...]:
    return (*_batch_norm(x, True, *given[:4]), fresh(x, (0,), torch.uint8))


@row("_batch_norm_with_update_functional.default")
def batch_norm_with_update_functional(x: TensorSpec, *given: Any) -> tuple[Any, ...]:
    return (*batch_norm_with_update(x, *given), *(fresh(t, t.sizes) for t in given[2:4]))


@row("_batch_norm_no_update.default")
def batch_norm_no_update(x: TensorSpec, *given: Any) -> tuple[Any, ...]:
    return (*_batch_norm(x, False, *given[:4]), fresh(x, (0,), torch.uint8))


@row("_native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(x: TensorSpec, weight: Given, bias: Given, training: bool, *rest: Any) -> tuple[Any, ...]:
    return _batch_norm(x, training, weight, bias)


@row("_native_batch_norm_legit_no_training.default")
def native_batch_norm_no_training(x: TensorSpec, *given: Any) -> tuple[Any, ...]:
    return _batch_norm(x, False, *given[:4])


@row("native_batch_norm_backward.default")
def native_batch_norm_backward(grad: TensorSpec, x: TensorSpec, weight: Given, *rest: Any) -> tuple[Any, ...]:
    of_channels = fresh(x, (x.sizes[1],), weight.dtype if weight is not None else _statistics_dtype(x))
    return _wanted((like_self(x), of_channels, of_channels), rest[-1])


@row("histogram.bin_ct", "histogram.bins_tensor")
def histogram(x: TensorSpec, bins: Any, **options: Any) -> tuple[Any, ...]:
    edges = bins.sizes[0] if bins.__class__ is TensorSpec else bins + 1
    return fresh(x, (edges - 1,)), fresh(x, (edges,))


@row("_histogramdd_bin_edges.default")
def histogramdd_bin_edges(x: TensorSpec, bins: Sequence[int], **options: Any) -> list[TensorSpec]:
    if x.ndim < 2 or not active.equal(x.sizes[-1], len(bins)):
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    return [fresh(x, (n + 1,)) for n in bins]


@row("_histogramdd_from_bin_cts.default")
def histogramdd_from_bin_cts(x: TensorSpec, bins: Sequence[int], **options: Any) -> TensorSpec:
    return fresh(x, tuple(bins))


@row("_histogramdd_from_bin_tensors.default")
def histogramdd_from_bin_tensors(x: TensorSpec, bins: Sequence[TensorSpec], **options: Any) -> TensorSpec:
    return fresh(x, tuple(b.sizes[0] - 1 for b in bins))


@refuses("aminmax.default")
def aminmax(x: TensorSpec, *, dim: int | None = None, keepdim: bool = False) -> None:
    _few_dims(x)
    if dim is None and 0 in x.sizes:
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    if dim is not None and x.ndim and x.sizes[wrap_dim(dim, x.ndim)] == 0:
        raise IndexError(f"aminmax: Expected reduction dim {dim} to have non-zero size.")
