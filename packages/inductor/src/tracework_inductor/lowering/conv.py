"""Convolutions are library calls."""

from typing import Any

from .layout import channels_last
from .registry import lowers


@lowers("convolution")
def convolution(low: Any, x: Any, w: Any, b: Any, *settings: Any) -> Any:
    """As aten.convolution; with channels last where that pays, which the library takes from its input's layout."""
    if low.images.convolution(low.spec, settings):
        low.spec = low.spec.replace(strides=channels_last(low.spec.sizes))
        x = low.realize_with(x, channels_last(x.sizes))
        result = low.extern("torch.ops.aten.convolution.default", (x, w, b, *_lists(settings)))
        low.images.note(result.buffer, low.buffers[result.buffer].layout)
        return result
    return low.extern("torch.ops.aten.convolution.default", (x, w, b, *_lists(settings)))


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
    return low.extern("torch.ops.aten.convolution_backward.default", (grad, x, w, bias_sizes, *_lists(settings)))


def _lists(settings: Any) -> list[Any]:
    return [list(s) if isinstance(s, (tuple, list)) else s for s in settings]
