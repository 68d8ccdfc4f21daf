"""ATen rows: reductions, softmax, normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    Given,
    Refused,
    Results,
    at_least,
    check,
    demand,
    fresh,
    laid_out,
    like_first,
    like_self,
    names,
    refuses,
    row,
    row_major,
    same_sizes,
    suggests_channels_last,
    symbolic,
    wrap_dim,
)

Dims = Sequence[int] | int | None


def reduced(sizes: Sequence[Size], dims: Any, keepdim: bool) -> tuple[Size, ...]:
    """The sizes after a reduction; no dims means all of them."""
    ndim = len(sizes)
    if dims is None or dims == [] or dims == ():
        return (1,) * ndim if keepdim else ()
    gone = {wrap_dim(d, ndim) for d in (dims if isinstance(dims, (list, tuple)) else (dims,))}
    if keepdim:
        return tuple(1 if d in gone else s for d, s in enumerate(sizes))
    return tuple(s for d, s in enumerate(sizes) if d not in gone)


@refuses("mean.default", "mean.dim")
def mean(x: TensorSpec, *dims: Any, dtype: torch.dtype | None = None) -> None:
    out = dtype or x.dtype
    if not (out.is_floating_point or out.is_complex):
        raise Refused(refusal(torch.ops.aten.mean.default, (x.replace(dtype=out),)))


demand(lambda x, *dims, **options: x.ndim <= 64, *names("amax amin aminmax", "default"))


def _has_elements(x: TensorSpec, dims: Sequence[int], error: type[Exception] = RuntimeError) -> None:
    """Eager refuses to choose where there is no element; no dims means all of them, for which it raises `error`."""
    if 0 in x.sizes:
        check(len(dims) > 0, error)
        check(all(x.sizes[wrap_dim(dim, x.ndim)] != 0 for dim in dims), IndexError)


refuses(*names("max min", "default", "dim"))(lambda x, *dim: _has_elements(x, dim[:1]))
refuses("amax.default", "amin.default")(lambda x, dim=(), keepdim=False: _has_elements(x, dim))
refuses("aminmax.default")(lambda x, *, dim=None, keepdim=False: _has_elements(x, () if dim is None else (dim,)))
demand(lambda x, dim=(), keepdim=False: len({wrap_dim(d, x.ndim) for d in dim}) == len(dim), "amax.default", "amin.default")


@refuses("argmax.default", "argmin.default")
def argmax(x: TensorSpec, dim: int | None = None, keepdim: bool = False) -> None:
    if x.dtype is torch.bool or x.dtype.is_complex:  # which eager asks of tensors without elements, too
        raise Refused(refusal(torch.ops.aten.argmax.default, (x,)))
    _has_elements(x, () if dim is None else (dim,), IndexError)


laid_out(like_first, "sort.default", "sort.stable")
laid_out(row_major, "_safe_softmax.default", "mean.default", "mean.dim")


@row("_softmax.default", "_log_softmax.default")
def softmax(x: TensorSpec, dim: int, half_to_float: bool) -> TensorSpec:
    wrap_dim(dim, x.ndim)
    return fresh(x, x.sizes, torch.float32 if half_to_float else x.dtype)


@row("_softmax_backward_data.default", "_log_softmax_backward_data.default")
def softmax_backward(grad: TensorSpec, output: TensorSpec, dim: int, input_dtype: torch.dtype) -> TensorSpec:
    return fresh(grad, grad.sizes, input_dtype)


@row("native_layer_norm_backward.default", reads="input weight bias output_mask")
def native_layer_norm_backward(x: TensorSpec, weight: Given, bias: Given, mask: Sequence[bool]) -> Results:
    """Each as what it is the gradient of."""
    return _wanted([None if t is None else fresh(t, t.sizes) for t in (x, weight, bias or weight)], mask)


def _wanted(gradients: Sequence[Given], mask: Sequence[bool]) -> Results:
    return tuple([found if wanted else None for found, wanted in zip(gradients, mask)])


@row("logsumexp.default")
def logsumexp(x: TensorSpec, dim: Sequence[int], keepdim: bool = False) -> TensorSpec:
    dtype = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.get_default_dtype()
    return fresh(x, reduced(x.sizes, dim, keepdim), dtype)


@symbolic("topk.default")
def topk(x: TensorSpec, k: int, dim: int = -1, *rest: Any) -> Results:
    check(not x.ndim or at_least(0, k) and active.decide("<=", k, x.sizes[wrap_dim(dim, x.ndim)]))
    sizes = tuple(k if d == wrap_dim(dim, x.ndim) else s for d, s in enumerate(x.sizes))
    return fresh(x, sizes), fresh(x, sizes, torch.int64)


@symbolic("hash_tensor.default")
def hash_tensor(x: TensorSpec, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> TensorSpec:
    return fresh(x, reduced(x.sizes, tuple(dim), keepdim), torch.uint64)


@row("linalg_vector_norm.default", reads="self dim keepdim dtype")
def linalg_vector_norm(x: TensorSpec, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None) -> TensorSpec:
    return fresh(x, reduced(x.sizes, dim, keepdim), real_of(dtype or x.dtype))


@row("norm.ScalarOpt_dim")
def norm(x: TensorSpec, p: Any, dim: Sequence[int], keepdim: bool = False) -> TensorSpec:
    return fresh(x, reduced(x.sizes, dim, keepdim), real_of(x.dtype))


def _statistics_dtype(x: TensorSpec, *parameters: Given) -> torch.dtype:
    """Of the means that a normalisation keeps. For the CPU's kernels parameters have the dtype of the input, or all are float32 beside an
    input in half precision."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    if x.device.type != "cpu":
        return torch.float32 if half else x.dtype
    found = {p.dtype for p in parameters if p is not None} or {x.dtype}
    check(found == {x.dtype} or half and found == {torch.float32})
    return found.pop()


def _normalized(x: TensorSpec, axis: int, dtype: torch.dtype, count: int) -> Results:
    """A result of the input's sizes and `count` statistics over the dims from `axis` on."""
    statistic = fresh(x, (*x.sizes[:axis], *(1,) * (x.ndim - axis)), dtype)
    return fresh(x, x.sizes), *(statistic,) * count


@row("native_layer_norm.default")
def native_layer_norm(x: TensorSpec, normalized_shape: Sequence[Size], weight: Given, bias: Given, eps: float) -> Results:
    axis = x.ndim - len(normalized_shape)
    check(len(normalized_shape) > 0 and axis >= 0)
    check(all(other is None or same_sizes(other.sizes, normalized_shape) for other in (weight, bias)))
    check(same_sizes(x.sizes[axis:], normalized_shape))
    return _normalized(x, axis, _statistics_dtype(x, weight, bias), 2)


@row("_fused_rms_norm.default")
def fused_rms_norm(x: TensorSpec, normalized_shape: Sequence[Size], weight: Given, eps: float | None) -> Results:
    return _normalized(x, x.ndim - len(normalized_shape), _statistics_dtype(x), 1)


@row("native_group_norm.default")
def native_group_norm(x: TensorSpec, weight: Given, bias: Given, n: int, c: int, hxw: int, group: int, eps: float) -> Results:
    on_cpu = x.device.type == "cpu"
    last = on_cpu and suggests_channels_last(x)
    check(last or x.is_contiguous)
    check(c.__class__ is not int or c % group == 0)
    check(all(other is None or same_sizes(other.sizes, (c,)) for other in (weight, bias)))
    statistics = fresh(x, (n, group), _statistics_dtype(x, weight, bias) if on_cpu else x.dtype)
    strides = channels_last(x.sizes) if last else contiguous(x.sizes)
    return TensorSpec(x.dtype, x.device, x.sizes, strides, 0), statistics, statistics


@row("native_group_norm_backward.default", reads="grad_out input weight output_mask")
def native_group_norm_backward(grad: TensorSpec, x: TensorSpec, weight: Given, mask: Sequence[bool]) -> Results:
    """Of images and gradients that lie alike: eager's kernels read both in the order of one, and autograd copies them before."""
    if weight is None and (mask[1] or mask[2]):
        return NotImplemented
    last = x.device.type == "cpu" and suggests_channels_last(x)
    for one in () if _torch.GROUP_NORM_GRADIENT_TAKES_ANY_ORDER else (grad, x):
        check(is_channels_last(one.sizes, one.strides) if last else one.is_contiguous)
    of_image = fresh(x, x.sizes).replace(strides=channels_last(x.sizes) if last else contiguous(x.sizes))
    of_weight = fresh(weight, weight.sizes) if weight is not None else None
    return _wanted((of_image, of_weight, of_weight), mask)


PARAMETERS = "weight bias running_mean running_var"


@row("_native_batch_norm_legit.no_stats", reads="training input weight bias")
@row(*names("native_batch_norm _native_batch_norm_legit", "default"), reads=f"training input {PARAMETERS}")
def batch_norm(training: bool, x: TensorSpec, *parameters: Given) -> Results:
    stat = fresh(x, (x.sizes[1],), _statistics_dtype(x, *parameters))
    none = fresh(x, (0,), stat.dtype)
    out = like_self(x)
    if x.device.type == "cpu":
        last = not x.is_contiguous and (is_channels_last(x.sizes, x.strides) or suggests_channels_last(x))
        out = x.replace(strides=channels_last(x.sizes) if last else contiguous(x.sizes), offset=0)
    # a CPU's kernel keeps nothing of running statistics; others give them back
    return (out, stat, stat) if training or x.device.type != "cpu" else (out, none, none)


def _batch_norm_of(training: bool, reserves: bool) -> Callable[..., Results]:
    """`reserves` are bytes that a library's kernel leaves for the backward, none here."""
    return lambda x, *rest: (*batch_norm(training, x, *rest), *([fresh(x, (0,), torch.uint8)] if reserves else ()))


row("_native_batch_norm_legit_no_training.default", reads=f"input {PARAMETERS}")(_batch_norm_of(False, reserves=False))
row("_batch_norm_no_update.default", reads=f"input {PARAMETERS}")(_batch_norm_of(False, reserves=True))
row("_batch_norm_with_update.default", reads=f"input {PARAMETERS}")(_batch_norm_of(True, reserves=True))


@row("_native_batch_norm_legit_functional.default", reads=f"training input {PARAMETERS}")
def batch_norm_functional(training: bool, x: TensorSpec, *parameters: Given) -> Results:
    """With the running statistics as they are afterwards."""
    return (*batch_norm(training, x, *parameters), *[fresh(t, t.sizes) for t in parameters[2:] if t is not None])


@row("_batch_norm_with_update_functional.default", reads=f"input {PARAMETERS}")
def batch_norm_with_update_functional(x: TensorSpec, *parameters: Given) -> Results:
    return (*_batch_norm_of(True, reserves=True)(x, *parameters), *[fresh(t, t.sizes) for t in parameters[2:] if t is not None])


@row("native_batch_norm_backward.default", reads="input weight output_mask")
def native_batch_norm_backward(x: TensorSpec, weight: Given, mask: Sequence[bool]) -> Results:
    of_channels = fresh(x, (x.sizes[1],), weight.dtype if weight is not None else _statistics_dtype(x))
    return _wanted((like_self(x), of_channels, of_channels), mask)


@row("histogram.bin_ct", "histogram.bins_tensor")
def histogram(x: TensorSpec, bins: Any, **options: Any) -> Results:
    edges = bins.sizes[0] if bins.__class__ is TensorSpec else bins + 1
    return fresh(x, (edges - 1,)), fresh(x, (edges,))


@row("_histogramdd_bin_edges.default")
def histogramdd_bin_edges(x: TensorSpec, bins: Sequence[int], **options: Any) -> list[TensorSpec]:
    check(x.ndim > 1 and active.equal(x.sizes[-1], len(bins)))
    return [fresh(x, (n + 1,)) for n in bins]


@row("_histogramdd_from_bin_cts.default")
def histogramdd_from_bin_cts(x: TensorSpec, bins: Sequence[int], **options: Any) -> TensorSpec:
    return fresh(x, tuple(bins))


@row("_histogramdd_from_bin_tensors.default")
def histogramdd_from_bin_tensors(x: TensorSpec, bins: Sequence[TensorSpec], **options: Any) -> TensorSpec:
    return fresh(x, tuple(b.sizes[0] - 1 for b in bins))
