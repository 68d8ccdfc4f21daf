"""Pools, patches, paddings by copies and nearest upsampling as indirect-free loops where that is cheap."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.index import Size, constant_size, floordiv, maximum, minimum, same
from ..ir.scalar_ops import ops
from ..ir.views import IndexMap
from . import resample
from .layout import channels_last, is_row_major, strides_equal
from .reduction import accumulator, reduce
from .registry import Refused, lowers
from .value import Lazy, pointwise, settled
from .view import rearranged, reshape

MAX_WINDOW = 25
"""Elements of a pooling window that are written out one by one; larger windows call the library."""


@lowers("max_pool")
def max_pool(low: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    """The window written out: the library computes row-major inputs element by element on a CPU, and is slow on a GPU."""
    if math.prod(kernel) > MAX_WINDOW or not x.dtype.is_floating_point:
        raise Refused("a pool of a large window or of integers")
    spec = low.spec[0]
    lead = x.ndim - len(kernel)
    x = low.realize(settled(x))
    spaces = [range(k) for k in kernel]

    def elements(index: list[Size]) -> Any:
        """(value, position) of each element of the window, -inf outside of the input."""
        for offsets in itertools.product(*spaces):
            at = [i * s + o * d - p for i, o, s, d, p in zip(index[lead:], offsets, stride, dilation, padding, strict=True)]
            inside = None
            if set(dilation) == {1}:
                at = _clamped(x.sizes[lead:], spec.sizes[lead:], at, offsets, stride, padding)
            else:
                inside = inside_of(x.sizes[lead:], spec.sizes[lead:], at, offsets, stride, dilation, padding)
            full = [*index[:lead], *at]
            value = x.load(full) if inside is None else ops.masked(inside, lambda full=full: x.load(full), -math.inf)
            yield value, at

    first = lambda index: [_first(*row) for row in zip(index[lead:], stride, dilation, padding, strict=True)]
    return _largest(low, x, lead, elements, first, 6 * math.prod(kernel))


def _largest(low: Any, x: Any, lead: int, elements: Any, first: Callable[[list[Size]], list[Size]], cost: int) -> tuple[Any, Any]:
    """The largest element of each window, and where it is. elements(index): (value, position) of each, -inf outside of the input;
    first(index): the first position in it."""

    def highest(index: list[Size]) -> Any:
        return functools.reduce(ops.maximum, (value for value, _ in elements(index)))

    def where_it_is(index: list[Size]) -> Any:
        """Of the first of equal ones, of the last NaN, of the first element of all if nothing exceeds -inf."""
        value = ops.constant(-math.inf, x.dtype)
        place = ops.index_expr(_flat(first(index), x.sizes[lead:]), counted)
        for new, at in elements(index):
            wins = ops.logical_or(ops.gt(new, value), ops.ne(new, new))
            value = ops.where(wins, new, value)
            place = ops.where(wins, ops.index_expr(_flat(at, x.sizes[lead:]), counted), place)
        return ops.to_dtype(place, torch.int64)

    spec, counted = low.spec[0], _counted(x.sizes[lead:])
    strides = low.images.strides(spec, x.reads)
    values = pointwise(spec.sizes, x.dtype, x.device, highest, [x], cost, strides)
    places = pointwise(spec.sizes, torch.int64, x.device, where_it_is, [x], cost, strides)
    return values, places


@lowers("adaptive_max_pool")
def adaptive_max_pool(low: Any, x: Any, sizes: Sequence[Any]) -> Any:
    """Windows that tile the input, written out."""
    lead = x.ndim - len(sizes)
    resample.known(*x.sizes[lead:], *sizes)
    tiles = [resample.Tile(*row) for row in zip(x.sizes[lead:], sizes, strict=True)]
    count = math.prod(t.longest for t in tiles)
    if count > MAX_WINDOW or not x.dtype.is_floating_point:
        raise Refused("a pool of a large window or of integers")
    x = low.realize(settled(x))
    if x.device.type not in GATHERED_ON and not resample.in_rows(x):
        raise Refused("a CPU's library is made for other layouts and dtypes than plain rows")

    def elements(index: list[Size]) -> Any:
        for taps in itertools.product(*(t.forward(o) for t, o in zip(tiles, index[lead:], strict=True))):
            at = [tap.at for tap in taps]
            inside = resample.all_of(*(tap.inside for tap in taps))
            load = functools.partial(x.load, [*index[:lead], *at])
            yield load() if inside is None else ops.masked(inside, load, -math.inf), at

    first: Callable[[list[Size]], list[Size]] = lambda index: [t.first(o) for t, o in zip(tiles, index[lead:], strict=True)]
    return _largest(low, x, lead, elements, first, 6 * count)


GATHERED_ON = frozenset({"cuda"})
"""Devices where the gradient of a pool is gathered by a loop; elsewhere the library scatters it as fast."""
FEW_WINDOWS = 4
"""That an element is in, where a CPU gathers all the same, if channels lie next to each other: 4x64x112x112 with a relu's gradient behind it
takes 0.65 ms by windows of 3 and a stride of 2, the library alone 0.95; windows of 2 0.26 and 0.75; nine windows 2.87 and 2.50."""


@lowers("max_pool_backward")
def max_pool_backward(
    low: Any, grad: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Any
) -> Any:
    """Each element of the input looks at the windows that it may be in: those whose index it is give their gradient."""
    reach = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
    most = MAX_WINDOW if x.device.type in GATHERED_ON else FEW_WINDOWS if _has_channels_last(low.spec) else 0
    if set(dilation) != {1} or math.prod(reach) > most:
        raise Refused("the gradient of a pool with gaps or of a large window, or of rows on a CPU")
    lead, wide = x.ndim - len(kernel), accumulator(x.dtype)
    grad, indices = low.realize(settled(grad)), _converted(low, indices)
    counted = _counted(x.sizes[lead:])

    def inner(index: list[Size]) -> Any:
        here = ops.index_expr(_flat(index[lead:], x.sizes[lead:]), counted)
        total = ops.constant(0.0, wide)
        rows = zip(index[lead:], x.sizes[lead:], grad.sizes[lead:], stride, padding, reach, strict=True)
        for windows in itertools.product(*(_windows_of(*row) for row in rows)):
            full = [*index[:lead], *(at for at, _ in windows)]
            hits = (test for _, tests in windows for test in tests)
            hit = functools.reduce(ops.logical_and, hits, ops.eq(ops.to_dtype(indices.load(full), counted), here))
            total = ops.add(total, ops.where(hit, ops.to_dtype(grad.load(full), wide), ops.constant(0.0, wide)))
        return ops.to_dtype(total, x.dtype)

    return pointwise(x.sizes, x.dtype, x.device, inner, [grad, indices], 8 * math.prod(reach), low.spec.strides)


@lowers("adaptive_max_pool_backward")
def adaptive_max_pool_backward(low: Any, grad: Any, x: Any, indices: Any) -> Any:
    """Each element of the input looks at the windows that it is in."""
    if x.device.type not in GATHERED_ON:
        raise Refused("the gradient of a pool on a CPU")
    lead, wide = 2, accumulator(x.dtype)
    resample.known(*x.sizes[lead:], *grad.sizes[lead:])
    tiles = [resample.Tile(*row) for row in zip(x.sizes[lead:], grad.sizes[lead:], strict=True)]
    count, counted = math.prod(t.most for t in tiles), _counted(x.sizes[lead:])
    if count > MAX_WINDOW:
        raise Refused("the gradient of a pool to more elements than it had")
    grad, indices = low.realize(settled(grad)), _converted(low, indices)

    def inner(index: list[Size]) -> Any:
        here = ops.index_expr(_flat(index[lead:], x.sizes[lead:]), counted)
        total = ops.constant(0.0, wide)
        for taps in itertools.product(*(t.backward(i) for t, i in zip(tiles, index[lead:], strict=True))):
            full = [*index[:lead], *(tap.at for tap in taps)]

            def given(full: list[Size] = full) -> Any:
                value = ops.to_dtype(grad.load(full), wide)
                return ops.where(ops.eq(ops.to_dtype(indices.load(full), counted), here), value, ops.constant(0.0, wide))

            inside = resample.all_of(*(tap.inside for tap in taps))
            total = ops.add(total, given() if inside is None else ops.masked(inside, given, 0.0))
        return ops.to_dtype(total, x.dtype)

    return pointwise(x.sizes, x.dtype, x.device, inner, [grad, indices], 8 * count, low.spec.strides)


def _has_channels_last(spec: Any) -> bool:
    """Whether channels lie next to each other: vectors of them look at the same windows."""
    sizes, strides = spec.sizes, spec.strides
    return len(sizes) in (4, 5) and not is_row_major(sizes, strides) and strides_equal(sizes, strides, channels_last(sizes))


def _windows_of(i: Size, size: Size, count: Size, stride: int, padding: int, reach: int) -> list[tuple[Size, list[Any]]]:
    """Along one dimension: the windows that an element may be in, moved into the result, and what must hold for one to be where it is."""
    found = []
    for back in range(reach):
        window = at = floordiv(i + padding, stride) - back
        tests = []
        if not (isinstance(size, int) and isinstance(count, int)) or (size - 1 + padding) // stride - back >= count:
            tests.append(ops.lt(ops.index_expr(window, torch.int64), ops.index_expr(count, torch.int64)))
            at = minimum(at, count - 1)
        if back:
            tests.append(ops.ge(ops.index_expr(window, torch.int64), ops.constant(0, torch.int64)))
            at = maximum(at, 0)
        found.append((at, tests))
    return found


def _first(i: Size, stride: int, dilation: int, padding: int) -> Size:
    """The first position of a window that lies in the input."""
    start = i * stride - padding
    return start if padding == 0 else start + floordiv(maximum(-start, 0) + (dilation - 1), dilation) * dilation


def _converted(low: Any, indices: Any) -> Any:
    """In memory, or converted from what is, by whoever reads it."""
    indices = settled(indices)
    in_place = isinstance(indices, Lazy) and indices.cost <= 1 and len(indices.reads) == 1
    return indices if in_place else low.realize(indices)


def _counted(sizes: Sequence[Size]) -> torch.dtype:
    """The dtype that flat positions are compared in: in 32 bits that takes half the instructions."""
    known = all(isinstance(size, int) for size in sizes)
    return torch.int32 if known and math.prod(map(constant_size, sizes)) < 2**31 else torch.int64


def _flat(position: Sequence[Size], sizes: Sequence[Size]) -> Size:
    flat: Size = 0
    for p, size in zip(position, sizes, strict=True):
        flat = flat * size + p
    return flat


def _clamped(sizes: Any, results: Any, at: Any, offsets: Any, stride: Any, padding: Any) -> list[Size]:
    """Positions outside moved to the edge, which is in the window too when it has no gaps: a load needs no test so."""
    moved: list[Size] = []
    for size, count, position, o, s, p in zip(sizes, results, at, offsets, stride, padding, strict=True):
        known = isinstance(size, int) and isinstance(count, int)
        if not known or (count - 1) * s + o - p >= size:
            position = minimum(position, size - 1)
        moved.append(maximum(position, 0) if o < p else position)
    return moved


def inside_of(sizes: Any, results: Any, at: Any, offsets: Any, stride: Any, dilation: Any, padding: Any) -> Any:
    """Whether the position lies in the input; None where it always does."""
    mask: Any = None
    for size, count, position, o, s, d, p in zip(sizes, results, at, offsets, stride, dilation, padding, strict=True):
        known = isinstance(size, int) and isinstance(count, int)
        tests: list[Callable[[Any], Any]] = []
        if not known or o * d < p:
            tests.append(lambda v: ops.ge(v, ops.constant(0, torch.int64)))
        if not known or (count - 1) * s + o * d - p >= size:

            def below(v: Any, size: Any = size) -> Any:
                return ops.lt(v, ops.index_expr(size, torch.int64))

            tests.append(below)
        for test in tests:
            found = test(ops.index_expr(position, torch.int64))
            mask = found if mask is None else ops.logical_and(mask, found)
    return mask


@lowers("adaptive_avg_pool")
def adaptive_avg_pool(low: Any, x: Any, sizes: Sequence[Size]) -> Any:
    """A mean over all spatial axes when the result is 1x1."""
    if any(not (isinstance(s, int) and s == 1) for s in sizes) or not x.dtype.is_floating_point:
        return resample.adaptive_avg_pool(low, x, sizes)
    dims = list(range(x.ndim - len(sizes), x.ndim))
    wide = accumulator(x.dtype)
    total = reduce(low, x, dims, True, "sum", wide, lambda v, _: ops.to_dtype(v, wide))
    count: Size = 1
    for d in dims:
        count = count * x.sizes[d]

    def inner(index: list[Size]) -> Any:
        return ops.to_dtype(ops.div(total.load(index), ops.index_expr(count, wide)), x.dtype)

    return pointwise(total.sizes, x.dtype, x.device, inner, [total], 4)


@lowers("adaptive_avg_pool_backward")
def adaptive_avg_pool_backward(low: Any, grad: Any, x: Any) -> Any:
    """grad / count everywhere when the pool had one element."""
    spatial = list(range(2, grad.ndim))
    if not all(same(grad.sizes[d], 1) for d in spatial):
        return resample.adaptive_avg_pool_backward(low, grad, x)
    grad = settled(grad)
    count: Size = 1
    for d in spatial:
        count = count * x.sizes[d]
    wide = accumulator(x.dtype)

    def inner(index: list[Size]) -> Any:
        at = [0 if d in spatial else i for d, i in enumerate(index)]
        value = ops.to_dtype(grad.load(at), wide)
        return ops.to_dtype(ops.div(value, ops.index_expr(count, wide)), x.dtype)

    return pointwise(x.sizes, x.dtype, x.device, inner, [grad], 4)


def _folded(name: str, fold: Callable[[Size, int], Size]) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, padding: Sequence[int]) -> Any:
        lows = {x.ndim - 1 - k: padding[2 * k] for k in range(len(padding) // 2)}
        if any(not isinstance(s, int) for s in x.sizes):
            raise Refused("padding of symbolic sizes")

        def inner(index: list[Size]) -> Any:
            at = list(index)
            for d, first in lows.items():
                at[d] = fold(index[d] - first, x.sizes[d])
            return x.load(at)

        return pointwise(low.spec.sizes, x.dtype, x.device, inner, [x], 6)


def _reflect(position: Size, size: int) -> Size:
    """As sums of what is 0 in the middle, where a loop over it has no conditions."""
    behind_first = position + 2 * maximum(-position, 0)
    return behind_first - 2 * maximum(behind_first - (size - 1), 0)


def _clamp(position: Size, size: int) -> Size:
    return minimum(maximum(position, 0), size - 1)


_folded("reflection_pad", _reflect)
_folded("replication_pad", _clamp)


@lowers("upsample_nearest")
def upsample_nearest(low: Any, x: Any, sizes: Sequence[Size], scales: Any, exact: bool = False) -> Any:
    """Whole factors only: result index // factor."""
    first = x.ndim - len(sizes)
    factors = []
    for k, size in enumerate(sizes):
        old = x.sizes[first + k]
        if not (isinstance(old, int) and isinstance(size, int) and size % old == 0) or exact:
            raise Refused("nearest upsampling by a factor that is not whole")
        if scales and scales[k] is not None and scales[k] * old != size:
            raise Refused("nearest upsampling by a given scale")
        factors.append(size // old)
    back: IndexMap = lambda index: [*index[:first], *[i // f for i, f in zip(index[first:], factors, strict=True)]]
    value = rearranged(x, low.spec.sizes, back, 1)
    value.base = None
    return value


@lowers("im2col")
def im2col(low: Any, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Each element of each patch is read where it lies, 0 outside."""
    counts = [
        (s + 2 * p - (k - 1) * d - 1) // t + 1
        for s, k, d, p, t in zip(x.sizes[2:], kernel, dilation, padding, stride, strict=True)
    ]
    sizes = (*x.sizes[:2], *kernel, *counts)
    x = low.realize(settled(x)) if any(k > t for k, t in zip(kernel, stride, strict=True)) else settled(x)

    def inner(index: list[Size]) -> Any:
        at = [o * t + k * d - p for k, o, d, p, t in zip(index[2:4], index[4:], dilation, padding, stride, strict=True)]
        load = lambda: x.load([*index[:2], *at])
        mask: Any = None
        for place, size, p in zip(at, x.sizes[2:], padding, strict=True):
            if not same(p, 0):
                position = ops.index_expr(place, torch.int64)
                inside = ops.ge(position, ops.constant(0, torch.int64)), ops.lt(position, ops.index_expr(size, torch.int64))
                mask = resample.all_of(mask, *inside)
        return load() if mask is None else ops.masked(mask, load, 0)

    return reshape(low, pointwise(sizes, x.dtype, x.device, inner, [x], 8), low.spec.sizes)
