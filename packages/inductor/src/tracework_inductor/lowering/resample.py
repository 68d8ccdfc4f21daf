"""Averages of windows, patches, paddings' gradients and resampling, as sums over a few elements for each dimension: nothing is scattered."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..ir.index import Size, floordiv, maximum, minimum
from ..ir.scalar_ops import ops
from .layout import channels_last, is_row_major, strides_equal
from .reduction import accumulator
from .registry import Refused, lowers
from .value import Strided, pointwise, settled

MOST_TAPS = 36
"""Elements that are added up, written out one by one; more call the library."""
GATHERED_ON = frozenset({"cuda"})
"""Devices where all of this is done by loops."""
FASTER_ON_CPU = frozenset({"avg_pool", "avg_pool_backward", "adaptive_avg_pool", "upsample_nearest_backward", "col2im",
                           "upsample_linear", "upsample_linear_backward"})  # fmt: skip
"""Ops whose loops are faster than a CPU's library on row-major images (1.3 to 29 times, measured)."""
FASTER_CHANNELS_LAST = frozenset({"avg_pool", "adaptive_avg_pool", "upsample_linear"})
"""Those that are so on channels-last images too, for which the library is made."""
LEAST_CHANNELS = 16
"""That lie side by side where loops go over them."""


class Tap(NamedTuple):
    """Along one dimension: the position of an element, whether it counts (None: always), and its weight (None: 1)."""

    at: Size
    inside: Any = None
    weight: Any = None


Taps = Callable[[Size], list[Tap]]


def _taps_of(
    low: Any,
    x: Any,
    dims: Sequence[Taps],
    count: int,
    leaf: Callable[[list[Size], Any], Any] = lambda at, value: value,
    read: Callable[[list[Size], list[Size]], list[Size]] | None = None,
) -> Any:
    """The sum over all combinations of taps of leaf(position, value) times the weights, for each element of the node's result.

    read: the index in x of what the element `index` of the result has at a position; else the same but for these dimensions."""
    if x.device.type not in GATHERED_ON and not _is_faster_on_cpu(low.node.target.name, x):
        raise Refused(f"the library does as well on {x.device.type}")
    if count > MOST_TAPS:
        raise Refused(f"a sum over windows of {count} elements")
    if not x.dtype.is_floating_point:
        raise Refused("windows of integers")
    spec, wide = low.spec, accumulator(x.dtype)
    lead = len(spec.sizes) - len(dims)

    def inner(index: list[Size]) -> Any:
        taps = [of(at) for of, at in zip(dims, index[lead:], strict=True)]

        def along(d: int, at: list[Size], inside: Any) -> Any:
            if d == len(taps):
                place = [*index[:lead], *at] if read is None else read(index, at)
                value = lambda: leaf(at, ops.to_dtype(x.load(place), wide))
                return value() if inside is None else ops.masked(inside, value, 0.0)
            total = None
            for tap in taps[d]:
                both = tap.inside if inside is None or tap.inside is None else ops.logical_and(inside, tap.inside)
                value = along(d + 1, [*at, tap.at], inside if tap.inside is None else both)
                value = value if tap.weight is None else ops.mul(value, tap.weight)
                total = value if total is None else ops.add(total, value)
            return total

        return ops.to_dtype(along(0, [], None), x.dtype)

    return pointwise(spec.sizes, x.dtype, x.device, inner, [x], 6 * count, low.images.strides(spec, x.reads))


def _is_faster_on_cpu(name: str, x: Any) -> bool:
    return name in FASTER_ON_CPU and in_rows(x) or name in FASTER_CHANNELS_LAST and _in_channels(x)


def _in_channels(x: Any) -> bool:
    """Whether a value of a plain floating dtype is a buffer of images, or volumes, with several channels side by side."""
    images = isinstance(x, Strided) and x.ndim in (4, 5) and strides_equal(x.sizes, x.strides, channels_last(x.sizes))
    many = images and isinstance(x.sizes[1], int) and x.sizes[1] >= LEAST_CHANNELS
    return many and x.dtype in (torch.float32, torch.float64)


def in_rows(x: Any) -> bool:
    """Whether a value of a plain floating dtype is a row-major buffer."""
    in_memory = isinstance(x, Strided) and is_row_major(x.sizes, x.strides)
    return in_memory and x.dtype in (torch.float32, torch.float64)


def _whole(low: Any, x: Any) -> Any:
    return low.realize(settled(x))


def known(*sizes: Any) -> None:
    """Refuses open sizes, and those of nothing."""
    if not all(isinstance(s, int) and s > 0 for s in sizes):
        raise Refused("windows of open sizes, or of none")


def _test(name: str, a: Size, b: Size) -> Any:
    return getattr(ops, name)(ops.index_expr(a, torch.int64), ops.index_expr(b, torch.int64))


def all_of(*conditions: Any) -> Any:
    """Whether all hold that are not None; None if there are none."""
    found = None
    for condition in conditions:
        if condition is not None:
            found = condition if found is None else ops.logical_and(found, condition)
    return found


def _over(value: Any, count: Size) -> Any:
    wide = ops.dtype(value)
    return value if isinstance(count, int) and count == 1 else ops.div(value, ops.index_expr(count, wide))


@dataclass(frozen=True)
class _Window:
    """A pool along one dimension: sizes of input and result, and its settings."""

    size: int
    result: int
    kernel: int
    stride: int
    padding: int
    with_padding: bool

    def forward(self, o: Size) -> list[Tap]:
        return [self._tap(o, k) for k in range(self.kernel)]

    def _tap(self, o: Size, k: int) -> Tap:
        at = o * self.stride + (k - self.padding)
        first = _test("ge", at, 0) if k < self.padding else None
        last = _test("lt", at, self.size) if (self.result - 1) * self.stride + k - self.padding >= self.size else None
        return Tap(at, all_of(first, last))

    @property
    def reach(self) -> int:
        """How many windows an element may be in."""
        return -(-self.kernel // self.stride)

    def backward(self, i: Size) -> list[Tap]:
        newest = floordiv(i + self.padding, self.stride)
        found = []
        for b in range(self.reach):
            at = newest - b
            partly = b == self.reach - 1 and self.reach * self.stride != self.kernel
            inside = _test("lt", i + self.padding - at * self.stride, self.kernel) if partly else None
            first = _test("ge", at, 0) if b else None
            last = _test("lt", at, self.result) if (self.size - 1 + self.padding) // self.stride - b >= self.result else None
            found.append(Tap(at, all_of(inside, first, last)))
        return found

    def count(self, o: Size) -> Size:
        """Elements of a window, of which some may be padding."""
        start = o * self.stride - self.padding
        edge = self.size + self.padding if self.with_padding else self.size
        full = (self.result - 1) * self.stride - self.padding + self.kernel <= edge
        end = start + self.kernel if full else minimum(start + self.kernel, edge)
        return end - (start if self.with_padding or not self.padding else maximum(start, 0))


def _windows(x: Any, results: Any, kernel: Any, stride: Any, padding: Any, with_padding: bool) -> list[_Window]:
    sizes, results = x.sizes[-len(kernel) :], results[-len(kernel) :]
    known(*sizes, *results)
    return [_Window(*row, with_padding) for row in zip(sizes, results, kernel, stride, padding, strict=True)]


def _product(counts: Sequence[Size]) -> Size:
    found: Size = 1
    for count in counts:
        found = found * count
    return found


@lowers("avg_pool")
def avg_pool(low: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, with_padding: bool, divisor: Any) -> Any:
    """The sum of a window over how many elements it has, or over a given number."""
    windows = _windows(x, low.spec.sizes, kernel, stride, padding, with_padding)
    overlapping = any(k > s for k, s in zip(kernel, stride, strict=True))
    x = _whole(low, x) if overlapping or x.device.type not in GATHERED_ON else settled(x)
    total = _taps_of(low, x, [w.forward for w in windows], math.prod(kernel))
    return _divided(
        total, lambda index: divisor or _product([w.count(o) for w, o in zip(windows, index[-len(kernel) :], strict=True)])
    )


def _divided(total: Any, count: Callable[[list[Size]], Size]) -> Any:
    """Each element over a count of its own."""
    wide, inner = accumulator(total.dtype), total.inner
    total.inner = lambda index: ops.to_dtype(_over(ops.to_dtype(inner(index), wide), count(index)), total.dtype)
    return total


def _longest_on_cpu(stride: Sequence[int]) -> int:
    """Windows up to this length are gathered faster than scattered: of 5 with stride 3, 2.07 ms and the library's 1.15, of 3 with stride 2
    1.4 times as fast; of 6 with stride 1, 1.1 to 2.5 times."""
    return 4 if max(stride) > 1 else 8


@lowers("avg_pool_backward")
def avg_pool_backward(
    low: Any, grad: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, with_padding: bool, divisor: Any
) -> Any:
    """Each element looks at the windows that it is in."""
    if grad.device.type not in GATHERED_ON and (len(kernel) > 2 or max(kernel) > _longest_on_cpu(stride)):
        raise Refused("the library scatters large windows, and those of volumes, as fast")
    windows = _windows(x, grad.sizes, kernel, stride, padding, with_padding)
    taps = math.prod(w.reach for w in windows)
    share = lambda at, value: _over(value, divisor or _product([w.count(o) for w, o in zip(windows, at, strict=True)]))
    return _taps_of(low, _whole(low, grad), [w.backward for w in windows], taps, share)


@dataclass(frozen=True)
class Tile:
    """An adaptive pool along one dimension: windows from floor(o * size / result) to ceil((o + 1) * size / result)."""

    size: int
    result: int

    def first(self, o: Size) -> Size:
        """Where a window begins."""
        return floordiv(o * self.size, self.result)

    def count(self, o: Size) -> Size:
        return floordiv((o + 1) * self.size + (self.result - 1), self.result) - self.first(o)

    @property
    def longest(self) -> int:
        return max(-(-(o + 1) * self.size // self.result) - o * self.size // self.result for o in range(self.result))

    @property
    def most(self) -> int:
        """Windows that an element is in."""
        return max(-(-(i + 1) * self.result // self.size) - i * self.result // self.size for i in range(self.size))

    def forward(self, o: Size) -> list[Tap]:
        shortest = -(-self.size // self.result)
        first, count = self.first(o), self.count(o)
        return [Tap(first + k, None if k < shortest else _test("lt", k, count)) for k in range(self.longest)]

    def backward(self, i: Size) -> list[Tap]:
        first = floordiv(i * self.result, self.size)
        inside = lambda at: _test("lt", at * self.size, (i + 1) * self.result)
        return [Tap(first + k, inside(first + k) if k else None) for k in range(self.most)]


def adaptive_avg_pool(low: Any, x: Any, sizes: Sequence[Any]) -> Any:
    """Means of windows that tile x, some of which overlap by one element."""
    known(*x.sizes[-len(sizes) :], *sizes)
    tiles = [Tile(*row) for row in zip(x.sizes[-len(sizes) :], sizes, strict=True)]
    taps = math.prod(t.longest for t in tiles)
    total = _taps_of(low, _whole(low, x), [t.forward for t in tiles], taps)
    return _divided(total, lambda index: _product([t.count(o) for t, o in zip(tiles, index[-len(sizes) :], strict=True)]))


def adaptive_avg_pool_backward(low: Any, grad: Any, x: Any) -> Any:
    """Each element looks at the windows that it is in."""
    known(*x.sizes[2:], *grad.sizes[2:])
    tiles = [Tile(*row) for row in zip(x.sizes[2:], grad.sizes[2:], strict=True)]
    share = lambda at, value: _over(value, _product([t.count(o) for t, o in zip(tiles, at, strict=True)]))
    return _taps_of(low, _whole(low, grad), [t.backward for t in tiles], math.prod(t.most for t in tiles), share)


class _Line(NamedTuple):
    """Linear resampling along one dimension: result o lies at a real position of the input, between two of its elements."""

    size: int
    result: int
    corners: bool
    dtype: torch.dtype

    @property
    def factor(self) -> int:
        """By how much a row grows, if that is a power of two from the middle of one element to that of the next, which numbers hold exactly;
        else 0."""
        whole, rest = divmod(self.result, self.size)
        return whole if not self.corners and not rest and whole & (whole - 1) == 0 else 0

    @property
    def halving(self) -> int:
        """By what even number a row shrinks, if by one: each result is the mean of the two elements in the middle of as many; else 0."""
        whole, rest = divmod(self.size, self.result)
        return whole if not self.corners and not rest and whole % 2 == 0 else 0

    def position(self, o: Size) -> Any:
        """Where a result lies."""
        number = lambda v: ops.constant(v, self.dtype)
        if self.corners:
            return ops.mul(ops.index_expr(o, self.dtype), number((self.size - 1) / (self.result - 1)))
        middle = ops.add(ops.index_expr(o, self.dtype), number(0.5))
        return ops.sub(ops.mul(middle, number(self.size / self.result)), number(0.5))

    def _position(self, o: Size) -> Any:
        """Where a result lies, not before the first element."""
        at = self.position(o)
        return at if self.corners else ops.maximum(at, ops.constant(0.0, self.dtype))

    def forward(self, o: Size) -> list[Tap]:
        last, one = self.size - 1, ops.constant(1.0, self.dtype)
        if halving := self.halving:
            return [Tap(halving * o + halving // 2 - k, None, ops.constant(0.5, self.dtype)) for k in (1, 0)]
        if factor := self.factor:
            steps = maximum(2 * o + (1 - factor), 0)
            before = floordiv(steps, 2 * factor)
            part = ops.index_expr(steps - before * (2 * factor), self.dtype)
            weight = ops.mul(part, ops.constant(1 / (2 * factor), self.dtype))
            return [Tap(before, None, ops.sub(one, weight)), Tap(minimum(before + 1, last), None, weight)]
        at = self._position(o)
        found = ops.minimum(ops.to_dtype(at, torch.int32), ops.constant(last, torch.int32))
        weight = ops.sub(at, ops.to_dtype(found, self.dtype))
        behind = ops.minimum(ops.add(found, ops.constant(1, torch.int32)), ops.constant(last, torch.int32))
        places = (ops.indirect(ops.to_dtype(p, torch.int64), self.size) for p in (found, behind))
        return [Tap(p, None, w) for p, w in zip(places, (ops.sub(one, weight), weight), strict=True)]

    @property
    def most(self) -> int:
        """Results that an element has a part in: those that lie less than 1 away from it."""
        if self.halving:
            return 1
        return math.ceil(2 * (self.result - 1) / (self.size - 1)) if self.corners else math.ceil(2 * self.result / self.size)

    def backward(self, i: Size) -> list[Tap]:
        """A result gives an element what that lies nearer to it than 1; those behind the last element are its own."""
        if halving := self.halving:
            at = floordiv(i, halving)
            part, middle = i - at * halving, halving // 2
            inside = None if halving == 2 else all_of(_test("ge", part, middle - 1), _test("lt", part, middle + 1))
            return [Tap(at, inside, ops.constant(0.5, self.dtype))]
        if self.corners:
            first = floordiv((i - 1) * (self.result - 1), self.size - 1) + 1
        else:
            first = floordiv((2 * i - 1) * self.result - self.size, 2 * self.size) + 1
        number = lambda v: ops.constant(v, self.dtype)
        found = []
        for at in (first + k for k in range(self.most)):
            inside = all_of(_test("ge", at, 0), _test("lt", at, self.result))
            if (factor := self.factor) and factor % 2 == 0:
                steps = minimum(maximum(2 * at + (1 - factor), 0), 2 * factor * (self.size - 1)) - 2 * factor * i
                away = ops.mul(ops.abs(ops.index_expr(steps, self.dtype)), number(1 / (2 * factor)))
                share = ops.sub(number(1.0), away)
            else:
                place = ops.minimum(self._position(at), number(float(self.size - 1)))
                away = ops.abs(ops.sub(place, ops.index_expr(i, self.dtype)))
                share = ops.maximum(ops.sub(number(1.0), away), number(0.0))
                # The last of them may be too far away: its gradient, which need not be finite, is not looked at.
                inside = all_of(inside, ops.gt(share, number(0.0)))
            found.append(Tap(at, inside, share))
        return found


def _lines(sizes: Any, results: Any, corners: bool, scales: Any, dtype: torch.dtype) -> list[_Line]:
    known(*sizes, *results)
    for size, result, scale in zip(sizes, results, scales, strict=True):
        if corners and 1 in (size, result):
            raise Refused("a corner without another")
        if not corners and scale is not None and scale * size != result:
            raise Refused("a scale that is not the sizes' ratio")
    return [_Line(*row, corners, accumulator(dtype)) for row in zip(sizes, results, strict=True)]


def _refuse_gathers(x: Any, lines: Sequence[_Line]) -> None:
    """Where a row grows by a small power of two, all elements between two of the input have the same neighbours; where it shrinks by a small
    even number, they lie in equal steps; else vectors gather theirs. Weights of other factors are rounded, and 0 or nearly 0 is not the same
    beside an infinite element."""
    in_steps = {lines[-1].factor, lines[-1].halving} & {2, 4} and all(line.factor > 1 or line.halving for line in lines)
    if x.device.type not in GATHERED_ON and not in_steps:
        raise Refused("a CPU's library interpolates by other factors as fast")


@lowers("upsample_linear")
def upsample_linear(low: Any, x: Any, sizes: Sequence[Size], corners: bool, scales: Any) -> Any:
    """Two elements along each dimension."""
    lines = _lines(x.sizes[2:], sizes, corners, scales, x.dtype)
    _refuse_gathers(x, lines)
    return _taps_of(low, _whole(low, x), [line.forward for line in lines], 2 ** len(lines))


@lowers("upsample_linear_backward")
def upsample_linear_backward(low: Any, grad: Any, sizes: Any, input_sizes: Any, corners: bool, scales: Any) -> Any:
    """Each element looks at the results that lie around it."""
    lines = _lines(input_sizes[2:], sizes, corners, scales, grad.dtype)
    _refuse_gathers(grad, lines)
    taps = math.prod(line.most for line in lines)
    return _taps_of(low, _whole(low, grad), [line.backward for line in lines], taps)


@lowers("upsample_nearest_backward")
def upsample_nearest_backward(low: Any, grad: Any, sizes: Any, input_sizes: Any, scales: Any, exact: bool = False) -> Any:
    """Of whole factors: the sum of the results that an element was copied to."""
    known(*sizes, *input_sizes[2:])
    pairs = list(zip(sizes, input_sizes[2:], scales, strict=True))
    if any(result % size or scale not in (None, result // size) for result, size, scale in pairs):
        raise Refused("a factor that is not whole")
    factors = [result // size for result, size, _ in pairs]
    dims = [lambda i, f=f: [Tap(i * f + k) for k in range(f)] for f in factors]
    return _taps_of(low, _whole(low, grad), dims, math.prod(factors))


class _Cubic(NamedTuple):
    """Cubic resampling along one dimension: result o lies at a real position of the input, the second of four elements is before it."""

    line: _Line

    def forward(self, o: Size) -> list[Tap]:
        line = self.line
        number = lambda v: ops.constant(v, line.dtype)
        at = line.position(o)
        before = ops.floor(at)
        behind = ops.sub(at, before)
        first = ops.to_dtype(before, torch.int32)
        found = []
        for k in range(-1, 3):
            place = ops.add(first, ops.constant(k, torch.int32))
            place = ops.minimum(ops.maximum(place, ops.constant(0, torch.int32)), ops.constant(line.size - 1, torch.int32))
            distance = ops.add(behind, number(float(-k))) if k < 1 else ops.sub(number(float(k)), behind)
            found.append(
                Tap(ops.indirect(ops.to_dtype(place, torch.int64), line.size), None, _cubic_weight(distance, k in (0, 1)))
            )
        return found


CUBIC = -0.75
"""The slope of the weights at a distance of 1."""


def _cubic_weight(distance: Any, near: bool) -> Any:
    """Of an element that is less than 1 away, or between 1 and 2, as Horner's scheme of eager's kernels."""
    number = lambda v: ops.constant(v, ops.dtype(distance))
    if near:
        value = ops.sub(ops.mul(number(CUBIC + 2), distance), number(CUBIC + 3))
        return ops.add(ops.mul(ops.mul(value, distance), distance), number(1.0))
    value = ops.sub(ops.mul(number(CUBIC), distance), number(5 * CUBIC))
    value = ops.add(ops.mul(value, distance), number(8 * CUBIC))
    return ops.sub(ops.mul(value, distance), number(4 * CUBIC))


@lowers("upsample_bicubic")
def upsample_bicubic(low: Any, x: Any, sizes: Sequence[Size], corners: bool, scales: Any) -> Any:
    """Four elements along each dimension."""
    lines = [_Cubic(line) for line in _lines(x.sizes[2:], sizes, corners, scales, x.dtype)]
    return _taps_of(low, _whole(low, x), [line.forward for line in lines], 4 ** len(lines))


@lowers("col2im")
def col2im(low: Any, x: Any, sizes: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Each element looks at the patches that it is in."""
    if set(dilation) != {1}:
        raise Refused("patches with gaps")
    counts = [(s + 2 * p - k) // t + 1 for s, k, p, t in zip(sizes, kernel, padding, stride, strict=True)]
    known(*sizes, *counts)
    windows = [_Window(*row, True) for row in zip(sizes, counts, kernel, stride, padding, strict=True)]

    def read(index: list[Size], at: list[Size]) -> list[Size]:
        column, patch = index[1], at[0] * 0
        for w, i, o in zip(windows, index[2:], at, strict=True):
            column, patch = column * w.kernel + (i + w.padding - o * w.stride), patch * w.result + o
        return [index[0], column, patch]

    return _taps_of(low, _whole(low, x), [w.backward for w in windows], math.prod(w.reach for w in windows), read=read)


class _Border(NamedTuple):
    """A padding with elements of the input along one dimension: its size, and how many come before and behind."""

    size: int
    before: int
    behind: int

    def of_copies(self, i: Size) -> list[Tap]:
        """The first and the last element get what all copies of them got."""
        here = i + self.before
        low = [Tap(k, _test("eq", i, 0)) for k in range(self.before)]
        high = [Tap(self.before + self.size + k, _test("eq", i, self.size - 1)) for k in range(self.behind)]
        return [Tap(here, self._kept(i)), *low, *high]

    def of_mirror(self, i: Size) -> list[Tap]:
        """Elements near an end get what the ones got that lie as far behind the end as they before it."""
        found = [Tap(i + self.before, self._kept(i))]
        if self.before > 0:
            found.append(Tap(self.before - i, all_of(_test("ge", i, 1), _test("le", i, self.before))))
        if self.behind > 0:
            last = self.size - 1
            inside = all_of(_test("lt", i, last), _test("ge", i, last - self.behind))
            found.append(Tap(self.before + 2 * last - i, inside))
        return found

    def _kept(self, i: Size) -> Any:
        """Whether an element is in the result, of which a negative padding cuts off some."""
        first = _test("ge", i, -self.before) if self.before < 0 else None
        return all_of(first, _test("lt", i, self.size + self.behind) if self.behind < 0 else None)

    @property
    def copies(self) -> int:
        return 1 + max(self.before, 0) + max(self.behind, 0)


def _borders(x: Any, padding: Sequence[Any]) -> list[_Border]:
    sizes = x.sizes[x.ndim - len(padding) // 2 :]
    known(*sizes)
    known(*(1 + abs(p) for p in padding))
    pairs = [padding[2 * k : 2 * k + 2] for k in reversed(range(len(padding) // 2))]
    return [_Border(size, *pair) for size, pair in zip(sizes, pairs, strict=True)]


@lowers("reflection_pad_backward")
def reflection_pad_backward(low: Any, grad: Any, x: Any, padding: Sequence[int]) -> Any:
    """Each element looks at its mirror images."""
    borders = _borders(x, padding)
    return _taps_of(low, _whole(low, grad), [b.of_mirror for b in borders], 3 ** len(borders))


@lowers("replication_pad_backward")
def replication_pad_backward(low: Any, grad: Any, x: Any, padding: Sequence[int]) -> Any:
    """Each element looks at its copies, which those in the middle have none of."""
    borders = _borders(x, padding)
    return _taps_of(low, _whole(low, grad), [b.of_copies for b in borders], math.prod(b.copies for b in borders))
