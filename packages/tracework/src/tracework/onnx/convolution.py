"""Convolutions, pooling and padding of images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops.spec import contiguous_strides

from .pointwise import floats_only
from .reductions import reduced
from .table import Refused, Value, number, row
from .writer import Writer


def _per_dim(values: Sequence[Any], n: int) -> list[int]:
    numbers = [number(v, "a stride, padding or dilation") for v in values]
    return numbers * n if len(numbers) == 1 else numbers


@row("convolution")
def _convolution(
    w: Writer, out: Any, x: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> str:  # fmt: skip
    floats_only(x.dtype)
    n = x.ndim - 2
    strides, pads, dilations = (_per_dim(v, n) for v in (stride, padding, dilation))
    attributes: dict[str, Any] = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": groups}
    attributes["kernel_shape"] = [number(s, "a kernel's size") for s in weight.sizes[2:]]
    if transposed:
        attributes["output_padding"] = _per_dim(output_padding, n)
    inputs = [x.name, weight.name] + ([] if bias is None else [bias.name])
    return w.op("ConvTranspose" if transposed else "Conv", *inputs, **attributes)


@row("convolution_backward")
def _convolution_backward(
    w: Writer, out: Any, grad: Value, x: Value, weight: Value, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Any,
) -> tuple[str | None, ...]:  # fmt: skip
    """For x a transposed convolution of grad, for the kernel products."""
    floats_only(x.dtype)
    if transposed:
        raise Refused("the gradient of a transposed convolution")
    n = x.ndim - 2
    strides, pads, dilations = (_per_dim(v, n) for v in (stride, padding, dilation))
    kernel = [number(s, "a kernel's size") for s in weight.sizes[2:]]
    spatial = list(range(2, n + 2))
    of_x = of_weight = of_bias = None
    if mask[0]:
        of_x = _spread(w, grad.name, weight.name, x.sizes[2:], kernel, strides, pads, dilations, groups, x.dtype)
    if mask[1]:
        of_weight = _kernel_gradient(w, grad, x, weight, strides, pads, dilations, groups)
    if mask[2]:
        of_bias = reduced(w, "ReduceSum", grad.name, [0, *spatial], False)
    return of_x, of_weight, of_bias


def _spread(
    w: Writer, grad: str, weight: str, sizes: Sequence[Any], kernel: list[int], strides: list[int], pads: list[int], dilations: list[int],
    groups: int, dtype: torch.dtype,
) -> str:  # fmt: skip
    """The transposed convolution that gives images of these sizes."""
    n = len(kernel)
    whole = w.op(
        "ConvTranspose", grad, weight, strides=strides, pads=[0] * n * 2, dilations=dilations, group=groups, kernel_shape=kernel
    )
    # what the last step of the window did not reach is added and cut to the sizes
    extra = w.sizes([0, 0, *[0] * n, 0, 0, *[s - 1 + p for s, p in zip(strides, pads)]])
    whole = w.op("Pad", whole, extra, w.constant(0, dtype))
    starts, ends = w.ints(*pads), w.sizes([p + size for size, p in zip(sizes, pads)])
    return w.op("Slice", whole, starts, ends, w.ints(*range(2, n + 2)))


def _kernel_gradient(
    w: Writer, grad: Value, x: Value, weight: Value, strides: list[int], pads: list[int], dilations: list[int], groups: int
) -> str:
    """The products of grad's images with what each place of the window has seen, summed over images."""
    kernel = [number(s, "a kernel's size") for s in weight.sizes[2:]]
    images, results, channels = (
        x.sizes[0],
        number(grad.sizes[1], "a number of channels"),
        number(x.sizes[1], "a number of channels"),
    )
    count: Any = 1
    for s in grad.sizes[2:]:
        count = count * s
    padded = w.op("Pad", x.name, w.ints(0, 0, *pads, 0, 0, *pads), w.constant(0, x.dtype)) if any(pads) else x.name
    seen = _window_places(w, padded, kernel, strides, dilations, list(grad.sizes[2:]))  # (images, channels, places, ...)
    seen = w.reshape(seen, [images, groups, channels // groups * math.prod(kernel), count])
    of_results = w.reshape(grad.name, [images, groups, results // groups, count])
    products = w.op("MatMul", of_results, w.op("Transpose", seen, perm=[0, 1, 3, 2]))
    return w.reshape(reduced(w, "ReduceSum", products, [0], False), weight.sizes)


def _window_places(w: Writer, padded: str, kernel: list[int], strides: list[int], dilations: list[int], counts: list[Any]) -> str:
    """For each place in the window (a new dim after the channels) what it sees, one step of the window after the other."""
    n = len(kernel)
    pieces = []
    for place in itertools.product(*map(range, kernel)):
        starts = [i * d for i, d in zip(place, dilations)]
        ends = [start + (count - 1) * stride + 1 for start, count, stride in zip(starts, counts, strides)]
        piece = w.op("Slice", padded, w.ints(*starts), w.sizes(ends), w.ints(*range(2, n + 2)), w.ints(*strides))
        pieces.append(w.op("Unsqueeze", piece, w.ints(2)))
    return w.op("Concat", *pieces, axis=2) if len(pieces) > 1 else pieces[0]


def _batched(w: Writer, x: Value, n: int) -> tuple[str, list[Any]]:
    """x with one image and one channel dim, and the dims that it has in their place."""
    lead = list(x.sizes[: x.ndim - n])
    if len(lead) == 2:
        return x.name, lead
    return w.op("Unsqueeze", x.name, w.ints(0)), lead


def _unbatched(w: Writer, name: str, lead: list[Any]) -> str:
    return name if len(lead) == 2 else w.op("Squeeze", name, w.ints(0))


@row("max_pool")
def _max_pool(
    w: Writer, out: Any, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[str, str]:
    """ONNX counts places through all images and channels."""
    n = len(kernel)
    if x.ndim not in (n + 1, n + 2):
        raise Refused("pooling without channels")
    floats_only(x.dtype)
    name, lead = _batched(w, x, n)
    facts = {
        "kernel_shape": list(kernel), "strides": list(stride), "pads": list(padding) * 2, "dilations": list(dilation),
        "ceil_mode": int(ceil_mode),
    }  # fmt: skip
    if "MaxPool" in w.traits.lacks_operators:
        values = w.op("MaxPool", name, **facts)
        places = _places_of_largest(w, name, x, out[0].sizes[-n:], kernel, stride, padding, dilation)
    else:
        values, counted = w.ops("MaxPool", 2, name, **facts)
        size: Any = 1
        for s in x.sizes[x.ndim - n :]:
            size = size * s
        places = w.op("Mod", counted, w.size(size))
    # engines lose NaN, and begin with the least finite number
    w.refuse_values(w.op("IsNaN", name))
    w.refuse_values(w.op("Equal", values, w.constant(torch.finfo(x.dtype).min, x.dtype)))
    return _unbatched(w, values, lead), _unbatched(w, places, lead)


def _places_of_largest(
    w: Writer, name: str, x: Value, counts: Sequence[Any], kernel: Any, stride: Any, padding: Any, dilation: Any
) -> str:
    """Where in an image the first of the largest elements of each window is."""
    n = len(kernel)
    sizes = x.sizes[x.ndim - n :]
    steps = contiguous_strides(sizes)
    after = [
        (c - 1) * s + d * (k - 1) + 1 - size - p for c, s, d, k, size, p in zip(counts, stride, dilation, kernel, sizes, padding)
    ]
    padded = w.op("Pad", name, w.sizes([0, 0, *padding, 0, 0, *after]), w.constant(-math.inf, x.dtype))
    windows = _window_places(w, padded, list(kernel), list(stride), list(dilation), list(counts))
    offsets = [
        sum((at * d * step for at, d, step in zip(place, dilation, steps)), 0) for place in itertools.product(*map(range, kernel))
    ]
    found = w.op("Gather", w.sizes(offsets), w.op("ArgMax", windows, axis=2, keepdims=0), axis=0)
    for d, (count, s, p, step) in enumerate(zip(counts, stride, padding, steps)):
        begins = w.op("Sub", w.op("Mul", w.line(count, d, n), w.ints(s)), w.ints(p))
        found = w.op("Add", found, w.op("Mul", begins, w.size(step)))
    return found


@row("max_pool_backward")
def _max_pool_backward(
    w: Writer,
    out: Any,
    grad: Value,
    x: Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Value,
) -> str:
    n = len(kernel)
    lead = x.sizes[: x.ndim - n]
    size: Any = 1
    for s in x.sizes[x.ndim - n :]:
        size = size * s
    zeros = w.full(0, (*lead, size), x.dtype)
    count: Any = 1
    for s in grad.sizes[x.ndim - n :]:
        count = count * s
    flat = [w.reshape(t.name, (*lead, count)) for t in (indices, grad)]
    return w.reshape(w.op("ScatterElements", zeros, *flat, axis=len(lead), reduction="add"), x.sizes)


@row("avg_pool")
def _avg_pool(
    w: Writer, out: Any, x: Value, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> str:
    if divisor is not None or ceil_mode:
        raise Refused("ONNX's pooling has no divisor, and engines count windows past the end in different ways")
    floats_only(x.dtype)
    name, lead = _batched(w, x, len(kernel))
    found = w.op(
        "AveragePool",
        name,
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=list(padding) * 2,
        count_include_pad=int(include),
    )
    return _unbatched(w, found, lead)


@row("avg_pool_backward")
def _avg_pool_backward(
    w: Writer, out: Any, grad: Value, x: Value, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> str:  # fmt: skip
    """Each window's share, given to all that it has seen: a transposed convolution with ones."""
    if divisor is not None or ceil_mode or not (include or not any(padding)):
        raise Refused("windows whose elements are counted, or reach past the end")
    floats_only(x.dtype)
    n = len(kernel)
    flat: Any = 1
    for s in x.sizes[: x.ndim - n]:
        flat = flat * s
    share = w.op("Div", grad.name, w.constant(math.prod(kernel), x.dtype))
    share = w.reshape(share, [flat, 1, *grad.sizes[x.ndim - n :]])
    ones = w.constant([1.0] * math.prod(kernel), x.dtype, (1, 1, *kernel))
    found = _spread(w, share, ones, x.sizes[x.ndim - n :], list(kernel), list(stride), list(padding), [1] * n, 1, x.dtype)
    return w.reshape(found, x.sizes)


def _windows(size: int, count: int) -> list[tuple[int, int]]:
    """Where the windows begin and end that tile a dim, as in eager."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


Terms = list[list[tuple[int, float]]]
"""For each place of a result along a dim: places of the operand and their weights."""


def _averages(size: Any, count: Any) -> Terms:
    """Means over windows."""
    if not (isinstance(size, int) and isinstance(count, int)):
        raise Refused("windows that tile a dim of any size")
    return [[(place, 1 / (end - begin)) for place in range(begin, end)] for begin, end in _windows(size, count)]


def _transposed(terms: Terms, size: int) -> Terms:
    """Those of the gradient."""
    turned: Terms = [[] for _ in range(size)]
    for place, term in enumerate(terms):
        for source, weight in term:
            turned[source].append((place, weight))
    return turned


def _along(w: Writer, name: str, ndim: int, dim: int, terms: Terms, dtype: torch.dtype) -> str:
    """Weighted sums along a dim. Elements that a sum does not have are left out, and not multiplied by 0: they may be infinite."""
    width = max(map(len, terms))
    lines = [[*term, *[(0, 0.0)] * (width - len(term))] for term in terms]
    sizes = (len(terms), width, *[1] * (ndim - dim - 1))
    picked = w.op("Gather", name, w.constant([p for line in lines for p, _ in line], torch.int64, (len(terms), width)), axis=dim)
    weighted = w.op("Mul", picked, w.constant([weight for line in lines for _, weight in line], dtype, sizes))
    if any(len(term) < width for term in terms):
        real = w.constant([k < len(term) for term in terms for k in range(width)], torch.bool, sizes)
        weighted = w.op("Where", real, weighted, w.constant(0, dtype))
    return reduced(w, "ReduceSum", weighted, [dim + 1], False)


@row("adaptive_avg_pool")
def _adaptive_avg_pool(w: Writer, out: Any, x: Value, sizes: Any) -> str:
    """A mean over everything, or means over windows of each dim."""
    floats_only(x.dtype)
    n = len(sizes)
    spatial = list(range(x.ndim - n, x.ndim))
    if all(isinstance(s, int) and s == 1 for s in sizes):
        return reduced(w, "ReduceMean", x.name, spatial, True)
    name = x.name
    for d, count in zip(spatial, sizes):
        name = _along(w, name, x.ndim, d, _averages(x.sizes[d], count), x.dtype)
    return name


@row("adaptive_avg_pool_backward")
def _adaptive_avg_pool_backward(w: Writer, out: Any, grad: Value, x: Value) -> str:
    floats_only(x.dtype)
    n = x.ndim - 2 if x.ndim > 3 else 2
    spatial = list(range(x.ndim - n, x.ndim))
    if all(grad.sizes[d] == 1 for d in spatial):
        count: Any = 1
        for d in spatial:
            count = count * x.sizes[d]
        return w.expand(w.op("Div", grad.name, w.operand(count, x.dtype)), x.sizes)
    name = grad.name
    for d in spatial:
        name = _along(w, name, x.ndim, d, _transposed(_averages(x.sizes[d], grad.sizes[d]), x.sizes[d]), x.dtype)
    return name


def _border(mode: str) -> Any:
    def write(w: Writer, out: Any, x: Value, padding: Any) -> str:
        floats_only(x.dtype)
        if any(p < 0 for p in padding):
            raise Refused("a border that cuts")
        n = len(padding) // 2
        low = [0] * (x.ndim - n) + [padding[2 * i] for i in reversed(range(n))]
        high = [0] * (x.ndim - n) + [padding[2 * i + 1] for i in reversed(range(n))]
        return w.op("Pad", x.name, w.ints(*low, *high), mode=mode)

    return write


row("reflection_pad")(_border("reflect"))
row("replication_pad")(_border("edge"))


@row("upsample_nearest")
def _upsample_nearest(w: Writer, out: Any, x: Value, sizes: Any, scales: Any, exact: bool) -> str:
    """Whole factors only: eager and engines round other positions in different ways."""
    floats_only(x.dtype)
    factors = []
    for size, before, scale in zip(sizes, x.sizes[2:], scales):
        factor = (
            number(size, "a size") // number(before, "a size") if isinstance(size, int) and isinstance(before, int) else scale
        )
        if factor is None or factor != int(factor) or before * int(factor) != size:
            raise Refused("a resize by a factor that is no whole number")
        factors.append(int(factor))
    name = x.name
    for d, factor in enumerate(factors):
        if factor > 1:
            lead, rest = list(out.sizes[: d + 2]), list(x.sizes[d + 3 :])
            here = x.sizes[d + 2]
            name = w.op("Unsqueeze", name, w.ints(d + 3))
            name = w.reshape(w.expand(name, [*lead, here, factor, *rest]), [*lead, here * factor, *rest])
    return name


@row("upsample_nearest_backward")
def _upsample_nearest_backward(w: Writer, out: Any, grad: Value, sizes: Any, input_sizes: Any, scales: Any, exact: bool) -> str:
    floats_only(grad.dtype)
    shape: list[Any] = list(grad.sizes[:2])
    for size, before in zip(sizes, input_sizes[2:]):
        if not (isinstance(size, int) and isinstance(before, int)) or size % before:
            raise Refused("a resize by a factor that is no whole number")
        shape += [before, size // before]
    return reduced(w, "ReduceSum", w.reshape(grad.name, shape), list(range(3, len(shape), 2)), False)


@row("upsample_linear")
def _upsample_linear(w: Writer, out: Any, x: Value, sizes: Any, align_corners: bool, scales: Any) -> str:
    """Weighted sums of two along each dim."""
    floats_only(x.dtype)
    name = x.name
    for d, (size, scale) in enumerate(zip(sizes, scales), start=2):
        name = _along(w, name, x.ndim, d, _weights(x.sizes[d], size, align_corners, scale), x.dtype)
    return name


@row("upsample_linear_backward")
def _upsample_linear_backward(
    w: Writer, out: Any, grad: Value, sizes: Any, input_sizes: Any, align_corners: bool, scales: Any
) -> str:
    floats_only(grad.dtype)
    name = grad.name
    for d, (size, scale) in enumerate(zip(sizes, scales), start=2):
        terms = _transposed(_weights(input_sizes[d], size, align_corners, scale), input_sizes[d])
        name = _along(w, name, grad.ndim, d, terms, grad.dtype)
    return name


def _weights(before: Any, after: Any, align_corners: bool, scale: Any) -> Terms:
    """Those of linear interpolation."""
    if not (isinstance(before, int) and isinstance(after, int)):
        raise Refused("a linear resize of a dim of any size")
    terms: Terms = []
    for i in range(after):
        if align_corners:
            place = i * (before - 1) / (after - 1) if after > 1 else 0.0
        else:
            place = max((i + 0.5) * (1 / scale if scale else before / after) - 0.5, 0.0)
        low = min(int(place), before - 1)
        terms.append([(low, 1 - (place - low)), (min(low + 1, before - 1), place - low)])
    return terms


@row("im2col")
def _im2col(w: Writer, out: Any, x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any) -> str:
    """Each place of the window as a slice of the padded image."""
    name, _ = _batched(w, x, 2)
    padded = w.op("Pad", name, w.ints(0, 0, *padding, 0, 0, *padding), w.operand(0, x.dtype))
    counts = []
    for d in range(2):
        reach = x.sizes[x.ndim - 2 + d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1
        counts.append(reach // stride[d] + 1)
    return w.reshape(_window_places(w, padded, list(kernel), list(stride), list(dilation), counts), out.sizes)
