"""Convolutions are library calls, but for depthwise ones on a GPU for which loops are faster."""

import dataclasses
import itertools
import math
from typing import Any

import torch

from ..ir.cores import DEPTHWISE, PACKED
from ..ir.index import contiguous_strides, same
from ..ir.scalar_ops import ops
from ..product_costs import has_few_channels
from .layout import channels_last, is_row_major, is_static, strides_equal
from .pointwise import elementwise
from .reduction import reduce
from .registry import lowers
from .tile_products import convolution_with_tiles
from .value import Lazy, pointwise, settled
from .view import reshape
from .window import inside_of


@lowers("convolution")
def convolution(low: Any, x: Any, w: Any, b: Any, *settings: Any) -> Any:
    """As aten.convolution; with channels last where that pays, which the library takes from its input's layout."""
    if low.images.convolution(low.spec, settings):
        low.spec = low.spec.replace(strides=channels_last(low.spec.sizes))
        x = low.realize_with(x, channels_last(x.sizes))
        result = low.extern(CONVOLUTION, (x, w, b, *_lists(settings)))
        low.images.note(result.buffer, low.buffers[result.buffer].layout)
        return result
    if _is_looped(low, x, w, settings):
        return _window_sums(low, x, w, b, settings)
    if low.spec.device.type != "cuda":
        return low.extern(CONVOLUTION, (*_placed(low, x, w), b, *_lists(settings)))
    product = _without_bias(low, x, w, settings)
    if b is None:
        return product
    # The library adds a bias in a kernel of its own: a loop of ours adds it to what reads the result.
    bias = reshape(low, b, (1, b.sizes[0], *[1] * (product.ndim - 2)))
    return elementwise(low, (product, bias), product.dtype, lambda v, a: ops.add(v, a))


def _without_bias(low: Any, x: Any, w: Any, settings: Any) -> Any:
    def library() -> Any:
        return low.extern(CONVOLUTION, (*_placed(low, x, w), None, *_lists(settings)))

    if low.node not in low.tile_products:
        return library()
    one_tap = all(same(n, 1) for n in w.sizes[2:])  # else each element is read for several places of the window
    as_they_are = one_tap or has_few_channels(w.sizes, w.dtype.itemsize)
    return convolution_with_tiles(low, library, *((x, w) if as_they_are else _placed(low, x, w)), settings)


def _placed(low: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Image and weight as the library is given them."""
    return (low.realize_with(x, channels_last(x.sizes)), _weight(low, w)) if _has_channels_last(low.spec) else (x, w)


@dataclasses.dataclass(frozen=True)
class Looped:
    """Depthwise convolutions that are faster as a loop: elements of the window, and the most of the result."""

    taps: range
    elements: float = math.inf
    dtypes: frozenset[torch.dtype] = frozenset({torch.float32})
    dims: range = range(1, 4)
    roles: frozenset[str] = frozenset({"inference", "forward"})


LOOPED = {
    "row-major": (Looped(range(1, 50)),),
    "channels last": (
        Looped(range(1, 10)),
        Looped(
            range(25, 50),
            1 << 19,
            frozenset((torch.bfloat16, torch.float16, torch.float32)),
            range(2, 3),
            frozenset({"inference"}),
        ),
    ),
}
"""Layout of the result -> the rows that hold for it.

On an H200, bfloat16, channels last, microseconds of the library and ours, with a copy of the weights: 7x7 96x56x56 14.4 and 11.8, 384x14x14 11.5
and 10.6, four of these 15.5 and 8.3, sixteen 13.3 and 18.0; 5x5 120x28x28 5.5 and 4.6; 3x3 672x14x14 2.7 and 3.4; row-major 7x7 96x56x56
15.5 and 18.5.

In float32 torch has a kernel of its own for row-major images, which computes one element after the other from windows of any size: 3x3 of
64x96x56x56 in 191 us, cuDNN's kernel for channels last 57, and 37 for what follows, which is a part of the loop. That has 79 instructions an
element on sm_90 row-major and 47 channels last, without spills: 53 and 32 us of what 132 multiprocessors issue.
"""
LOOPED_ON = frozenset({"cuda"})


def _is_looped(low: Any, x: Any, w: Any, settings: Any) -> bool:
    """Whether a convolution is a loop: each channel by itself, where the library's kernels are slow."""
    transposed, groups, spec = settings[3], settings[5], low.spec
    if x.device.type not in LOOPED_ON or transposed or low.options.numerics != "default":
        return False
    if not is_static((*x.sizes, *w.sizes, *spec.sizes)) or 0 in spec.sizes or not groups == x.sizes[1] == w.sizes[0] > 1:
        return False
    dims, taps, elements = len(w.sizes) - 2, math.prod(w.sizes[2:]), math.prod(spec.sizes)
    return any(
        x.dtype in row.dtypes
        and dims in row.dims
        and taps in row.taps
        and elements <= row.elements
        and low.graph.role in row.roles
        for row in LOOPED["channels last" if _has_channels_last(spec) else "row-major"]
    )


def _window_sums(low: Any, x: Any, w: Any, b: Any, settings: Any) -> Any:
    """A depthwise convolution with its bias, the window written out, in float32."""
    stride, padding, dilation = settings[:3]
    spec, lead = low.spec, 2
    if _has_channels_last(spec):
        # weights of one tap next to each other, as those of an element
        taps_first = contiguous_strides((*w.sizes[2:], w.sizes[0]))
        x, w = low.realize_with(x, channels_last(x.sizes)), low.realize_with(w, (1, w.sizes[0], *taps_first[:-1]))
    else:
        x, w = low.realize(settled(x)), low.realize(settled(w))
    taps = list(itertools.product(*map(range, w.sizes[lead:])))

    def inner(index: Any) -> Any:
        channel = index[1]
        total = ops.to_dtype(b.load([channel]), torch.float32) if b is not None else ops.constant(0.0, torch.float32)
        for tap in taps:
            at = [i * s + o * d - p for i, o, s, d, p in zip(index[lead:], tap, stride, dilation, padding, strict=True)]
            inside = inside_of(x.sizes[lead:], spec.sizes[lead:], at, tap, stride, dilation, padding)
            place = [*index[:lead], *at]
            value = x.load(place) if inside is None else ops.masked(inside, lambda place=place: x.load(place), 0.0)
            term = ops.mul(ops.to_dtype(value, torch.float32), ops.to_dtype(w.load([channel, 0, *tap]), torch.float32))
            added = ops.add(total, term)
            # a tap outside of the image adds nothing, whatever its weight: zero times an infinite one would be NaN
            total = added if inside is None else ops.where(inside, added, total)
        return ops.to_dtype(total, spec.dtype)

    values = [x, w, *([b] if b is not None else [])]
    return low.realize(pointwise(spec.sizes, spec.dtype, x.device, inner, values, 6 * len(taps), spec.strides))


def _weight(low: Any, w: Any) -> Any:
    """In the layout that the library would bring it to, with a slow copy."""
    return low.realize_with(w, channels_last(w.sizes))


def _channels_last(low: Any, *images: Any) -> tuple[Any, ...]:
    """In memory, with channels last."""
    return tuple(low.realize_with(x, channels_last(x.sizes)) for x in images)


CONVOLUTION = "torch.convolution"
"""Called without the dispatch of torch.ops, which takes twice the time of the call itself."""


def _has_channels_last(spec: Any) -> bool:
    """Whether the result has them in the graph; the library has to be given such images then."""
    if spec is None or len(spec.sizes) not in (4, 5) or is_row_major(spec.sizes, spec.strides):
        return False
    return strides_equal(spec.sizes, spec.strides, channels_last(spec.sizes))


@lowers("packed_convolution")
def packed_convolution(low: Any, x: Any, other: Any, sources: Any, make: str, activation: str, label: str, *settings: Any) -> Any:
    """What passes/packed_convolution.py found; its result has channels last."""
    stride, padding, dilation, _, _, groups = settings
    low.spec = low.spec.replace(strides=channels_last(low.spec.sizes))
    x = low.realize_with(x, channels_last(x.sizes))
    other = low.realize_with(other, channels_last(other.sizes)) if other is not None else None
    names = "".join(f", a{n}" for n in range(len(sources)))[2:]
    facts = (activation, *_lists((stride, padding, dilation)), groups, label)
    target = f"packed_convolution({PACKED}, lambda {names}: {make}, {', '.join(map(repr, facts))})"
    result = low.extern(target, (x, other, *sources))
    low.images.note(result.buffer, low.buffers[result.buffer].layout)
    return result


@lowers("convolution_backward")
def convolution_backward(low: Any, grad: Any, x: Any, w: Any, bias_sizes: Any, *settings: Any) -> Any:
    """Gradients of x, w and bias."""
    bias_sizes = list(bias_sizes) if bias_sizes is not None else None
    if any(map(_has_channels_last, low.spec[:2])):
        grad, x, w = *_channels_last(low, grad, x), _weight(low, w)
    plain = _is_row_major(low, x)
    if not _is_own(low, grad, x, w, settings, plain):
        return _library_gradients(low, grad, x, w, bias_sizes, settings, plain and _is_faster_turned(grad, x, w, settings))
    of_x, of_w, of_bias = low.spec
    grad, x = _channels_last(low, grad, x)
    low.spec = of_w
    weights = low.extern(DEPTHWISE, (x, grad, tuple(w.sizes[2:]), *settings[:3]), out_form=DEPTHWISE)
    bias = reduce(low, grad, [0, 2, 3], False, "sum", grad.dtype, lambda v, _: v) if of_bias is not None else None
    if of_x is None:
        return None, weights, bias
    low.spec = of_x, None, None
    image, *_ = _library_gradients(low, grad, x, w, None, (*settings[:-1], [True, False, False]), plain)
    return image, weights, bias


def _library_gradients(low: Any, grad: Any, x: Any, w: Any, bias_sizes: Any, settings: Any, turned: bool) -> Any:
    """By the library; turned: it is given copies of row-major images that lie channels-last."""
    if turned:
        grad, x = _channels_last(low, grad, x)
        of_x, *others = low.spec
        low.spec = (of_x.replace(strides=channels_last(of_x.sizes)) if of_x is not None else None, *others)
    target = "torch.ops.aten.convolution_backward.default"
    found = low.extern(target, (grad, x, w, bias_sizes, *_lists(settings)))
    if not turned or found[0] is None:
        return found
    value = found[0]
    copy = Lazy(value.sizes, value.dtype, value.device, value.load, 1, value.reads)
    return low.realize(copy, contiguous_strides(value.sizes)), *found[1:]


def _is_own(low: Any, grad: Any, x: Any, w: Any, settings: Any, plain: bool) -> bool:
    """Whether the gradient of a depthwise convolution's weights is computed by our kernel (codegen/cpp/depthwise.py).

    The library's for channels-last images is good for windows of up to 9 elements; others take 0.7 to 11.4 ms where ours takes 0.06 to 0.21 (7x7
    over 384x14x14, 768x7x7 and 96x56x56, 5x5 over 4x120x28x28 and 4x960x7x7). Row-major, `plain`, it takes longer than ours with two copies.
    """
    if not _is_depthwise(grad, x, w, settings) or low.spec[1] is None or low.options.numerics != "default":
        return False
    enough = x.sizes[1] >= LEAST_CHANNELS and is_row_major(low.spec[1].sizes, low.spec[1].strides)
    return enough and (plain or w.sizes[2] * w.sizes[3] > SMALL_WINDOW)


def _is_faster_turned(grad: Any, x: Any, w: Any, settings: Any) -> bool:
    """Whether the library's gradients of a depthwise convolution are faster channels-last, between copies.

    Those for row-major images take 2 to 4 times as long where the window is large (120 channels of 28x28 with 5x5: 11.1 ms and 4.7 ms), and up
    to 10 times with a stride (64 of 112x112 with 3x3: 22 and 3.7 ms); with neither, as long.
    """
    return _is_depthwise(grad, x, w, settings) and (w.sizes[2] * w.sizes[3] >= LARGE_WINDOW or max(settings[0]) > 1)


def _is_depthwise(grad: Any, x: Any, w: Any, settings: Any) -> bool:
    """Whether this is a depthwise convolution on a CPU, of images whose sizes are known."""
    _, _, _, transposed, _, groups, _ = settings
    if x.device.type != "cpu" or x.dtype != torch.float32 or transposed or not is_static((*x.sizes, *grad.sizes, *w.sizes)):
        return False
    return len(x.sizes) == 4 and 1 < groups == x.sizes[1] == w.sizes[0] and 0 not in x.sizes


def _is_row_major(low: Any, x: Any) -> bool:
    """Whether images and their gradient lie row-major."""
    of_x = low.spec[0]
    plain = is_row_major(x.sizes, getattr(settled(x), "strides", None) or contiguous_strides(x.sizes))
    return plain and (of_x is None or is_row_major(of_x.sizes, of_x.strides))


LARGE_WINDOW = 25
SMALL_WINDOW = 9
"""Elements."""
LEAST_CHANNELS = 16
"""Of our kernel, whose vectors have as many."""


def _lists(settings: Any) -> list[Any]:
    return [list(s) if isinstance(s, (tuple, list)) else s for s in settings]
