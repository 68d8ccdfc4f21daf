"""Convolutions are library calls."""

from typing import Any

import torch

from ..ir.index import contiguous_strides
from ..ir.scalar_ops import ops
from .layout import channels_last, is_row_major, is_static, strides_equal
from .pointwise import elementwise
from .registry import lowers
from .value import Lazy, settled
from .view import reshape


@lowers("convolution")
def convolution(low: Any, x: Any, w: Any, b: Any, *settings: Any) -> Any:
    """As aten.convolution; with channels last where that pays, which the library takes from its input's layout."""
    if low.images.convolution(low.spec, settings):
        low.spec = low.spec.replace(strides=channels_last(low.spec.sizes))
        x = low.realize_with(x, channels_last(x.sizes))
        result = low.extern(CONVOLUTION, (x, w, b, *_lists(settings)))
        low.images.note(result.buffer, low.buffers[result.buffer].layout)
        return result
    if _has_channels_last(low.spec):
        x, w = low.realize_with(x, channels_last(x.sizes)), _weight(low, w)
    if b is None or low.spec.device.type != "cuda":
        return low.extern(CONVOLUTION, (x, w, b, *_lists(settings)))
    # The library adds a bias in a kernel of its own: a loop of ours adds it to what reads the result.
    product = low.extern(CONVOLUTION, (x, w, None, *_lists(settings)))
    bias = reshape(low, b, (1, b.sizes[0], *[1] * (product.ndim - 2)))
    return elementwise(low, (product, bias), product.dtype, lambda v, a: ops.add(v, a))


def _weight(low: Any, w: Any) -> Any:
    """In the layout that a GPU's library would bring it to, with a slow copy."""
    return low.realize_with(w, channels_last(w.sizes)) if w.device.type == "cuda" else w


CONVOLUTION = "torch.convolution"
"""Called without the dispatch of torch.ops, which takes twice the time of the call itself."""


def _has_channels_last(spec: Any) -> bool:
    """Whether the result has them in the graph; the library has to be given such images then."""
    if spec is None or len(spec.sizes) != 4 or is_row_major(spec.sizes, spec.strides):
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
    target = f"{PACKED_CALL}{DIGEST}, lambda {names}: {make}, {', '.join(map(repr, facts))})"
    result = low.extern(target, (x, other, *sources))
    low.images.note(result.buffer, low.buffers[result.buffer].layout)
    return result


DIGEST = "content_digest"
"""The kernel that packed convolutions tell changed weights by."""
PACKED_CALL = "packed_convolution("
"""How the text of a packed convolution begins."""


@lowers("convolution_backward")
def convolution_backward(low: Any, grad: Any, x: Any, w: Any, bias_sizes: Any, *settings: Any) -> Any:
    """Gradients of x, w and bias."""
    bias_sizes = list(bias_sizes) if bias_sizes is not None else None
    if _has_channels_last(low.spec[0]):
        grad, x = (low.realize_with(v, channels_last(v.sizes)) for v in (grad, x))
        w = _weight(low, w)
    turned = _turns(low, grad, x, w, settings)
    if turned:
        grad, x = (low.realize_with(v, channels_last(v.sizes)) for v in (grad, x))
        of_x, *others = low.spec
        low.spec = (of_x.replace(strides=channels_last(of_x.sizes)) if of_x is not None else None, *others)
    target = "torch.ops.aten.convolution_backward.default"
    found = low.extern(target, (grad, x, w, bias_sizes, *_lists(settings)))
    if not turned or found[0] is None:
        return found
    value = found[0]
    copy = Lazy(value.sizes, value.dtype, value.device, value.load, 1, value.reads)
    return low.realize(copy, contiguous_strides(value.sizes)), *found[1:]


def _turns(low: Any, grad: Any, x: Any, w: Any, settings: Any) -> bool:
    """Whether the gradients of a depthwise convolution are computed channels-last, between copies.

    The library's for row-major images take 2 to 4 times as long where the window is large (120 channels of 28x28 with 5x5: 11.1 ms and
    4.7 ms), and up to 10 times with a stride (64 of 112x112 with 3x3: 22 and 3.7 ms); with neither, as long.
    """
    stride, _, _, transposed, _, groups, _ = settings
    if x.device.type != "cpu" or x.dtype != torch.float32 or transposed or not is_static((*x.sizes, *grad.sizes, *w.sizes)):
        return False
    depthwise = len(x.sizes) == 4 and 1 < groups == x.sizes[1] == w.sizes[0]
    of_x = low.spec[0]
    plain = is_row_major(x.sizes, getattr(settled(x), "strides", None) or contiguous_strides(x.sizes))
    plain = plain and (of_x is None or is_row_major(of_x.sizes, of_x.strides))
    return depthwise and plain and 0 not in x.sizes and (w.sizes[2] * w.sizes[3] >= LARGE_WINDOW or max(stride) > 1)


LARGE_WINDOW = 25
"""Elements."""


def _lists(settings: Any) -> list[Any]:
    return [list(s) if isinstance(s, (tuple, list)) else s for s in settings]
