"""Reductions as loop nests; variance in two passes over the same rows."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.buffer import BufferLayout
from ..ir.handlers import Recorder
from ..ir.index import Size, constant_product, contiguous_strides, product, same, symbol
from ..ir.scalar_ops import compute_dtype, handling, ops
from .pointwise import elementwise
from .registry import Refused, lowers
from .value import Strided, TensorValue, pointwise, settled
from .view import reshape


def normal_dims(x: TensorValue, dims: Any) -> tuple[int, ...]:
    """Sorted non-negative dims; all of them for None or ()."""
    if dims is None:
        return tuple(range(x.ndim))
    if isinstance(dims, int):
        dims = (dims,)
    chosen = tuple(sorted({d % x.ndim for d in dims})) if x.ndim else ()
    return chosen or tuple(range(x.ndim))


def reduce(
    low: Any,
    x: Any,
    dims: Sequence[int],
    keepdim: bool,
    kind: str,
    dtype: torch.dtype,
    element: Callable[[Any, list[Size]], Any],
    accumulate: torch.dtype | None = None,
) -> Any:
    """The reduction of element(x[index], reduced index); its result accumulates in `accumulate`, is stored as dtype."""
    x = settled(x)
    dims = [d for d in dims]
    outer = [s for d, s in enumerate(x.sizes) if d not in dims]
    reduced = [x.sizes[d] for d in dims]
    if all(same(s, 1) for s in reduced):
        return _of_one(low, x, dims, keepdim, kind, dtype, element)
    buffer = low.new_buffer(BufferLayout.dense(accumulate or dtype, x.device, tuple(outer)))

    def inner(index: list[Size], inside: list[Size]) -> Any:
        at, rest = iter(index), iter(inside)
        full = [next(rest) if d in dims else next(at) for d in range(x.ndim)]
        return element(x.load(full), inside)

    if any(isinstance(s, int) and s == 0 for s in reduced):
        raise Refused("a reduction of no elements")
    low.reduction_node(buffer, kind, reduced, inner)
    value: Any = low.whole(buffer)
    if accumulate is not None and accumulate != dtype:
        value = elementwise(low, (value,), dtype, lambda v: ops.to_dtype(v, dtype))
    return keep(low, value, x.sizes, dims) if keepdim else value


def _of_one(low: Any, x: Any, dims: Sequence[int], keepdim: bool, kind: str, dtype: torch.dtype, element: Any) -> Any:
    """A reduction of one element each is that element (or position 0); a sum starts at 0, which -0.0 does not change."""
    from_zero = kind == "sum" and dims and dtype.is_floating_point

    def scalar(value: Any) -> Any:
        result = element(value, [0] * len(dims))
        if from_zero:
            return ops.add(ops.to_dtype(result, dtype), ops.constant(0.0, dtype))
        return ops.constant(0, dtype) if type(result) is tuple else ops.to_dtype(result, dtype)

    value = elementwise(low, (x,), dtype, scalar)
    return value if keepdim else reshape(low, value, [s for d, s in enumerate(x.sizes) if d not in dims])


def keep(low: Any, value: Any, sizes: Sequence[Size], dims: Sequence[int]) -> Any:
    """With the reduced axes as axes of size 1."""
    kept = [1 if d in dims else s for d, s in enumerate(sizes)]
    if isinstance(value, Strided):
        strides = iter(value.strides)
        return value.window(kept, [1 if d in dims else next(strides) for d in range(len(sizes))], value.offset)
    return reshape(low, value, kept)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Half types accumulate in float32."""
    return compute_dtype(dtype)


@lowers("sum")
def sum(low: Any, x: Any, dims: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    """Sum, accumulated in `dtype` (half types in float32)."""
    return _arithmetic(low, x, dims, keepdim, dtype, "sum")


@lowers("prod")
def prod(low: Any, x: Any, dims: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    """Product."""
    return _arithmetic(low, x, dims, keepdim, dtype, "prod")


def _arithmetic(low: Any, x: Any, dims: Any, keepdim: bool, dtype: Any, kind: str) -> Any:
    dtype = dtype or low.spec.dtype
    wide = accumulator(dtype)
    if x.ndim == 0:
        return elementwise(low, (x,), dtype, lambda v: ops.to_dtype(v, dtype))
    return reduce(low, x, normal_dims(x, dims), keepdim, kind, dtype, lambda v, _: ops.to_dtype(v, wide), wide)


def _extreme(name: str, kind: str) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, dims: Any, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return x
        if x.dtype == torch.bool:
            boolean = {"max": "any", "min": "all"}[kind]
            return reduce(low, x, normal_dims(x, dims), keepdim, boolean, torch.bool, lambda v, _: v)
        return reduce(low, x, normal_dims(x, dims), keepdim, kind, x.dtype, lambda v, _: v)


_extreme("amax", "max")
_extreme("amin", "min")


def _logical(name: str) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, dims: Any, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return elementwise(low, (x,), torch.bool, lambda v: ops.to_dtype(v, torch.bool))
        return reduce(low, x, normal_dims(x, dims), keepdim, name, torch.bool, lambda v, _: ops.to_dtype(v, torch.bool))


_logical("any")
_logical("all")


def _position(name: str) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, dim: Any, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return pointwise((), torch.int64, x.device, lambda index: ops.constant(0, torch.int64), (), 0)
        dims = normal_dims(x, dim)
        sizes = [x.sizes[d] for d in dims]
        strides = contiguous_strides(sizes)

        def element(value: Any, inside: list[Size]) -> Any:
            at: Size = 0
            for i, s in zip(inside, strides, strict=True):
                at = at + i * s
            if value_is_bool:
                value = ops.to_dtype(value, torch.int32)
            return value, ops.index_expr(at, torch.int64)

        value_is_bool = x.dtype == torch.bool
        return reduce(low, x, dims, keepdim, name, torch.int64, element)


_position("argmax")
_position("argmin")


@lowers("xor_sum")
def xor_sum(low: Any, x: Any, dims: Any, keepdim: bool = False) -> Any:
    """Exclusive or of all elements."""
    if x.dtype == torch.bool:
        raise Refused("xor of bools")
    return reduce(low, x, normal_dims(x, dims), keepdim, "xor_sum", x.dtype, lambda v, _: v)


@lowers("count_nonzero")
def count_nonzero(low: Any, x: Any, dims: Any) -> Any:
    """How many elements are not 0."""
    if x.ndim == 0:
        return elementwise(low, (x,), torch.int64, lambda v: ops.to_dtype(ops.to_dtype(v, torch.bool), torch.int64))
    return reduce(
        low,
        x,
        normal_dims(x, dims),
        False,
        "sum",
        torch.int64,
        lambda v, _: ops.to_dtype(ops.to_dtype(v, torch.bool), torch.int64),
    )


@lowers("var_mean")
def var_mean(low: Any, x: Any, dims: Any, correction: Any = 1, keepdim: bool = False) -> Any:
    """Mean first, then the sum of squared differences: both passes share their rows. On a GPU in one pass where rows are long."""
    dtype = low.spec[0].dtype
    wide = accumulator(dtype)
    dims = normal_dims(x, dims)
    if x.ndim == 0 or not x.dtype.is_floating_point:
        raise Refused("the variance of a scalar or of integers")
    count = product([x.sizes[d] for d in dims])
    x = _shared(low, x)
    if wide == torch.float32 and _in_one_pass(x, dims):
        mean, squares = (
            reduce(low, x, dims, True, k, wide, lambda v, _: ops.to_dtype(v, wide)) for k in ("mean", "squared_deviations")
        )
    else:
        total = reduce(low, x, dims, True, "sum", wide, lambda v, _: ops.to_dtype(v, wide))
        mean = _divided(low, total, count, 0, wide)
        centred = elementwise(low, (x, mean), wide, lambda v, m: ops.sub(ops.to_dtype(v, wide), m), 1)
        squares = reduce(low, centred, dims, True, "sum", wide, lambda v, _: _squared(v))
        if x.device.type == "cpu":  # as eager's kernels there, which accumulate in double
            drift = reduce(low, centred, dims, True, "sum", wide, lambda v, _: v)
            terms = (squares, _divided(low, drift, count, 0, wide), drift)
            squares = elementwise(low, terms, wide, lambda s, d, t: _without_drift(s, d, t, wide), 3)
    variance = _divided(low, squares, count, correction, wide)
    results = [_narrow(low, variance, dtype), _narrow(low, mean, dtype)]
    if not keepdim:
        sizes = [s for d, s in enumerate(x.sizes) if d not in dims]
        results = [reshape(low, r, sizes) for r in results]
    return tuple(results)


ONE_PASS = 1024
"""Elements from which a row that does not lie in one piece is read once; one that does is kept in registers up to 16 times as many."""


def _in_one_pass(x: Any, dims: Sequence[int]) -> bool:
    """Whether a GPU reads x once for mean and variance, by a recurrence, instead of twice."""
    count = constant_product([x.sizes[d] for d in dims])
    return x.device.type == "cuda" and count > (16 * ONE_PASS if _in_one_piece(x, dims) else ONE_PASS)


def _in_one_piece(x: Any, dims: Sequence[int]) -> bool:
    """Whether the elements of most of what x is computed from lie side by side along the last of these dimensions, as the last of all."""
    if tuple(dims) != tuple(range(x.ndim - len(dims), x.ndim)):
        return False
    recorder, last = Recorder(), max((d for d in dims if not same(x.sizes[d], 1)), default=dims[-1])
    index = [symbol(f"x{d}", 0, None) for d in range(x.ndim)]
    with handling(recorder):
        x.load(index)
    full = [e for i in recorder.instructions if i.op == "load" and _depends_on_all(e := i.args[1], x, dims, index)]
    return not full or any(e.coefficient(index[last]) == 1 for e in full)


def _depends_on_all(place: Size, x: Any, dims: Sequence[int], index: Sequence[Any]) -> bool:
    """Whether a place is another one for each element of a row."""
    return not isinstance(place, int) and all(same(x.sizes[d], 1) or index[d] in place.free_symbols for d in dims)


def _without_drift(squares: Any, drift: Any, total: Any, dtype: torch.dtype) -> Any:
    """The sum of squared differences from the mean, given that from a rounded mean, and how far off this is on average and in total."""
    return ops.maximum(ops.sub(squares, ops.mul(drift, total)), ops.constant(0.0, dtype))


def _squared(value: Any) -> Any:
    return ops.mul(value, value)


def _shared(low: Any, x: Any) -> Any:
    """Both passes read x: an expensive x goes to memory first."""
    x = settled(x)
    cheap = isinstance(x, Strided) or (x.cost < low.options.inline_cost and len(x.reads) <= 1)
    return x if cheap else low.realize(x)


def _narrow(low: Any, value: Any, dtype: torch.dtype) -> Any:
    if value.dtype == dtype:
        return value
    return elementwise(low, (value,), dtype, lambda v: ops.to_dtype(v, dtype))


def _divided(low: Any, total: Any, count: Size, correction: Any, dtype: torch.dtype) -> Any:
    """total / max(count - correction, 0)."""
    if isinstance(count, int) and float(correction) == int(correction):
        divisor = max(count - int(correction), 0)
        return elementwise(low, (total, float(divisor)), dtype, lambda a, b: ops.div(a, b), 1)

    def scalar(a: Any) -> Any:
        n = ops.sub(ops.index_expr(count, dtype), ops.constant(float(correction), dtype))
        return ops.div(a, ops.maximum(n, ops.constant(0.0, dtype)))

    return elementwise(low, (total,), dtype, scalar, 2)


@lowers("logsumexp")
def logsumexp(low: Any, x: Any, dims: Any, keepdim: bool = False) -> Any:
    """max + log(sum(exp(x - max))), with infinite maxima replaced by 0."""
    dims = normal_dims(x, dims)
    if x.ndim == 0 or not x.dtype.is_floating_point:
        raise Refused("logsumexp of a scalar or of integers")
    wide = accumulator(x.dtype)
    x = _shared(low, x)
    highest = reduce(low, x, dims, True, "max", x.dtype, lambda v, _: v)

    def finite(v: Any) -> Any:
        v = ops.to_dtype(v, wide)
        return ops.where(ops.isinf(v), ops.constant(0.0, wide), v)

    shift = elementwise(low, (highest,), wide, finite, 2)
    scaled = elementwise(low, (x, shift), wide, lambda v, m: ops.exp(ops.sub(ops.to_dtype(v, wide), m)), 9)
    total = reduce(low, scaled, dims, True, "sum", wide, lambda v, _: v)
    result = elementwise(low, (total, shift), x.dtype, lambda s, m: ops.to_dtype(ops.add(ops.log(s), m), x.dtype), 9, wide)
    if keepdim:
        return result
    return reshape(low, result, [s for d, s in enumerate(x.sizes) if d not in dims])


@lowers("norm")
def norm(low: Any, x: Any, ord: Any, dims: Any, keepdim: bool = False) -> Any:
    """Vector norms 1 and 2."""
    if ord not in (1, 2) or x.ndim == 0 or not x.dtype.is_floating_point:
        raise Refused(f"a norm of order {ord}")
    wide = accumulator(x.dtype)
    element = {1: lambda v: ops.abs(v), 2: _squared}[ord]
    dims = normal_dims(x, dims)
    total = reduce(low, x, dims, keepdim, "sum", wide, lambda v, _: element(ops.to_dtype(v, wide)))
    root = {1: lambda v: v, 2: lambda v: ops.sqrt(v)}[ord]
    return elementwise(low, (total,), x.dtype, lambda v: ops.to_dtype(root(v), x.dtype), 2, wide)


__all__ = ["accumulator", "keep", "normal_dims", "reduce", "same"]
