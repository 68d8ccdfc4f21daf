"""Reductions as loop nests; variance in two passes over the same rows, or over blocks of them that a CPU's caches hold."""

import dataclasses
import math
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
    elif (parts := block_dims(x, dims, low.node.args[0].meta["spec"].strides)) is not None:
        mean, squares = (reshape(low, v, _kept(x.sizes, dims)) for v in _by_blocks(low, x, dims, parts, wide))
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


def _kept(sizes: Sequence[Size], dims: Sequence[int]) -> list[Size]:
    return [1 if d in dims else s for d, s in enumerate(sizes)]


LARGE = 1 << 23
"""Bytes that a CPU would read twice from memory."""
CACHED = 1 << 18
"""Bytes of a block, which it reads twice from a core's cache."""
LEAST_BLOCK = 64
"""Elements of a block that are one result's: what is kept for each is little beside them."""


@dataclasses.dataclass(frozen=True)
class BlockDims:
    """The dimensions whose elements are all of one block, and that of which a block has so many neighbours, if any."""

    whole: tuple[int, ...]
    part: tuple[int, int] | None


def block_dims(x: Any, dims: Sequence[int], strides: Sequence[Size]) -> BlockDims | None:
    """How to cut what a CPU reduces into blocks that its caches hold; None where they hold all that is one result's, or it is no CPU."""
    sizes = [s for s in x.sizes if isinstance(s, int)]
    steps = [s for s in strides if isinstance(s, int)]
    if x.device.type != "cpu" or len(sizes) < x.ndim or len(steps) < x.ndim:
        return None
    if math.prod(sizes) * x.dtype.itemsize < LARGE:
        return None
    whole: list[int] = []
    for dim in sorted((d for d in dims if sizes[d] > 1), key=lambda d: steps[d]):
        around = [d for d in range(x.ndim) if d not in dims and steps[d] < steps[dim]]
        step = math.prod(sizes[d] for d in (*whole, *around)) * x.dtype.itemsize
        if step * sizes[dim] > CACHED:
            part = max((n for n in range(1, CACHED // step + 1) if sizes[dim] % n == 0), default=1)
            found = BlockDims(tuple(whole), (dim, part) if part > 1 else None)
            return found if math.prod(sizes[d] for d in whole) * part >= LEAST_BLOCK else None
        whole.append(dim)
    return None


def _by_blocks(low: Any, x: Any, dims: Sequence[int], parts: BlockDims, wide: torch.dtype) -> tuple[Any, Any]:
    """Mean and sum of squared differences from it, of those of blocks: each block is read while it is in a cache."""
    sizes, whole, rest = list(x.sizes), list(parts.whole), list(dims)
    if parts.part is not None:
        dim, step = parts.part
        sizes[dim : dim + 1] = [sizes[dim] // step, step]
        whole = [d + (d > dim) for d in whole] + [dim + 1]
        rest = [d + (d > dim) for d in rest] + [dim + 1]
        x = reshape(low, x, sizes)
    rest = [d for d in rest if d not in whole]
    inside, outside = (constant_product([sizes[d] for d in several]) for several in (whole, rest))
    total = reduce(low, x, sorted(whole), True, "sum", wide, lambda v, _: ops.to_dtype(v, wide))
    centred = elementwise(low, (x, total), wide, lambda v, t: ops.sub(ops.to_dtype(v, wide), _over(t, inside, wide)), 2)
    squares = reduce(low, centred, sorted(whole), True, "sum", wide, lambda v, _: _squared(v))
    drift = reduce(low, centred, sorted(whole), True, "sum", wide, lambda v, _: v)
    # of a block: what its squares are from its own mean, and how far off its rounded mean is
    squares = elementwise(low, (squares, drift), wide, lambda s, d: _without_drift(s, _over(d, inside, wide), d, wide), 3)
    totals, total = total, reduce(low, total, sorted(rest), True, "sum", wide, lambda v, _: v)
    mean = _divided(low, total, inside * outside, 0, wide)
    # the difference first: what a rounded mean is off by is lost in it
    from_mean = lambda t, d, m: ops.add(ops.sub(_over(t, inside, wide), m), _over(d, inside, wide))
    apart = elementwise(low, (totals, drift, mean), wide, from_mean, 4)
    within = reduce(low, squares, sorted(rest), True, "sum", wide, lambda v, _: v)
    between = reduce(low, apart, sorted(rest), True, "sum", wide, lambda v, _: _squared(v))
    drift = reduce(low, apart, sorted(rest), True, "sum", wide, lambda v, _: v)

    def together(w: Any, b: Any, d: Any) -> Any:
        return ops.add(w, ops.mul(_without_drift(b, _over(d, outside, wide), d, wide), ops.constant(float(inside), wide)))

    return mean, elementwise(low, (within, between, drift), wide, together, 4)


def _over(value: Any, count: int, dtype: torch.dtype) -> Any:
    return ops.div(value, ops.constant(float(count), dtype))


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
