"""ATen kernels that ONNX has an operator for, or that never become prims: they are left whole where a graph is made for an engine."""

from __future__ import annotations

import math
from typing import Any

import torch

from .pointwise import exponential, floats_only
from .reductions import extreme_over, reduced, some_nan
from .table import Refused, Value, row
from .writer import Writer

aten = torch.ops.aten


def _dim(x: Value, dim: int) -> int:
    if x.ndim == 0:
        raise Refused("it has no dims")
    return dim % x.ndim


def _softmax_of(kind: str) -> Any:
    def write(w: Writer, out: Any, x: Value, dim: int, half_to_float: bool) -> str:
        found = w.op(kind, w.in_dtype(x, out.dtype), axis=_dim(x, dim))
        if kind not in w.traits.not_for_special:
            return found
        return w.op("Where", some_nan(w, found, [_dim(x, dim)], True), w.constant(math.nan, out.dtype), found)

    return write


row(aten._softmax.default)(_softmax_of("Softmax"))
row(aten._log_softmax.default)(_softmax_of("LogSoftmax"))


@row(aten.gelu.default)
def _gelu(w: Writer, out: Any, x: Value, *, approximate: str = "none") -> str:
    return w.op("Gelu", x.name, approximate=approximate)


@row(aten.native_layer_norm.default)
def _layer_norm(w: Writer, out: Any, x: Value, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[str, ...]:
    floats_only(x.dtype)
    axis = x.ndim - len(shape)
    if weight is not None:
        scale = w.in_dtype(weight, x.dtype)
    elif all(isinstance(s, int) for s in shape):
        scale = w.constant([1.0] * math.prod(shape), x.dtype, list(shape))
    else:
        scale = w.full(1, shape, x.dtype)
    inputs = [x.name, scale] + ([] if bias is None else [w.in_dtype(bias, x.dtype)])
    normal = w.op("LayerNormalization", *inputs, axis=axis, epsilon=float(eps))
    # ONNX's operator has the statistics as well, and TVM gives something else for them
    dims = list(range(axis, x.ndim))
    mean = reduced(w, "ReduceMean", x.name, dims, True)
    centred = w.op("Sub", x.name, mean)
    variance = reduced(w, "ReduceMean", w.op("Mul", centred, centred), dims, True)
    mean = w.op("Where", w.op("IsNaN", variance), variance, mean)  # eager's running mean
    return normal, mean, w.op("Reciprocal", w.op("Sqrt", w.op("Add", variance, w.constant(float(eps), x.dtype))))


@row(aten._native_batch_norm_legit_no_training.default)
def _batch_norm(
    w: Writer, out: Any, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, momentum: Any, eps: float
) -> Any:
    floats_only(x.dtype)
    if x.ndim < 3:
        raise Refused("engines want images")
    channels = x.sizes[1:2]
    scale = w.in_dtype(weight, x.dtype) if weight is not None else w.full(1, channels, x.dtype)
    shift = w.in_dtype(bias, x.dtype) if bias is not None else w.full(0, channels, x.dtype)
    y = w.op("BatchNormalization", x.name, scale, shift, *[w.in_dtype(t, x.dtype) for t in (mean, variance)], epsilon=float(eps))
    nothing = w.constant([], x.dtype, [0])
    return y, nothing, nothing


def _scores(w: Writer, q: Value, k: Value, mask: Any, causal: bool, scale: Any) -> str:
    """(..., queries, keys): products with the scale and the mask."""
    scale = 1 / math.sqrt(q.sizes[-1]) if scale is None else scale
    found = w.op("MatMul", w.op("Mul", q.name, w.operand(float(scale), q.dtype)), _turned(w, k.name, k.ndim))
    never = w.constant(-math.inf, q.dtype)
    if causal:
        rows, columns = q.sizes[-2], k.sizes[-2]
        later = w.op("Less", w.line(rows, 0, 2), w.line(columns, 1, 2))
        found = w.op("Where", later, never, found)
    if mask is None:
        return found
    if mask.dtype is torch.bool:
        return w.op("Where", mask.name, found, never)
    return w.op("Add", found, w.in_dtype(mask, q.dtype))


def _turned(w: Writer, name: str, ndim: int) -> str:
    return w.op("Transpose", name, perm=[*range(ndim - 2), ndim - 1, ndim - 2])


def _without_dropout(dropout: Any) -> None:
    if dropout:
        raise Refused("the random numbers of attention's dropout are drawn inside eager's kernel")


def _attention(w: Writer, q: Value, k: Value, v: Value, mask: Any, causal: bool, scale: Any) -> tuple[str, str]:
    """Results, and logarithms of the sums of exponentials. A row without any key to look at gives 0 for both, as eager's kernel does."""
    floats_only(q.dtype)
    if q.sizes[:-2] != k.sizes[:-2]:
        raise Refused("keys and values for several heads of queries")
    scores = _scores(w, q, k, mask, causal, scale)
    largest = extreme_over(w, "ReduceMax", scores, q.dtype, [q.ndim - 1], True)
    zero = w.constant(0, q.dtype)
    nothing = w.op("Equal", largest, w.constant(-math.inf, q.dtype))
    base = w.op("Where", nothing, zero, largest)
    exponentials = exponential(w, w.op("Sub", scores, base))
    total = w.op("ReduceSum", exponentials, w.ints(-1), keepdims=1)
    weights = w.op("Div", exponentials, w.op("Where", nothing, w.constant(1, q.dtype), total))
    logarithm = w.op("Where", nothing, zero, w.op("Add", w.op("Log", total), base))
    return w.op("MatMul", weights, v.name), w.op("Squeeze", logarithm, w.ints(-1))


@row(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash(
    w: Writer, out: Any, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False, *, attn_mask: Any = None,
    scale: Any = None,
) -> tuple[str, str]:  # fmt: skip
    _without_dropout(dropout)
    return _attention(w, q, k, v, attn_mask, causal, scale)


@row(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def _flash_backward(
    w: Writer, out: Any, grad: Value, q: Value, k: Value, v: Value, result: Value, logsumexp: Value, dropout: float, causal: bool, *,
    attn_mask: Any = None, scale: Any = None,
) -> tuple[str, str, str]:  # fmt: skip
    """The weights once more, from the logarithms of their sums, and the gradients of a softmax between two products."""
    _without_dropout(dropout)
    floats_only(q.dtype)
    number = 1 / math.sqrt(q.sizes[-1]) if scale is None else scale
    sums = w.op("Unsqueeze", w.in_dtype(logsumexp, q.dtype), w.ints(-1))
    weights = exponential(w, w.op("Sub", _scores(w, q, k, attn_mask, causal, scale), sums))
    of_v = w.op("MatMul", _turned(w, weights, q.ndim), grad.name)
    of_weights = w.op("MatMul", grad.name, _turned(w, v.name, v.ndim))
    along = reduced(w, "ReduceSum", w.op("Mul", grad.name, result.name), [q.ndim - 1], True)
    of_scores = w.op("Mul", w.op("Mul", weights, w.op("Sub", of_weights, along)), w.constant(float(number), q.dtype))
    of_q = w.op("MatMul", of_scores, k.name)
    of_k = w.op("MatMul", _turned(w, of_scores, q.ndim), q.name)
    return of_q, of_k, of_v
