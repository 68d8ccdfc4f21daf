"""Result specs of convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..broadcasting import channels_last, is_channels_last, is_contiguous
from ..op import Op
from ..spec import TensorSpec
from ..symbols import Size, floordiv
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


def convolved(
    x: Sequence[Size],
    w: Sequence[Size],
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Sizes of a convolution's result, and of each spatial dim what is negative where the input is too small for one.

    A parameter with one number stands for every spatial dim.
    """
    spatial = len(x) - 2

    def per_dim(value: Sequence[Size]) -> list[Size]:
        return list(value) * spatial if len(value) == 1 else list(value)

    stride, padding, dilation, extra = map(per_dim, (stride, padding, dilation, output_padding or (0,)))
    channels = w[1] * groups if transposed else w[0]
    sizes = [x[0], 0 if x[1].__class__ is int and x[1] == 0 else channels]  # nothing from no channels
    room = []
    for size, width, step, pad, apart, more in zip(x[2:], w[2:], stride, padding, dilation, extra):
        window = apart * (width - 1) + 1
        beyond = (size - 1) * step - 2 * pad + window + more if transposed else size + 2 * pad - window
        sizes.append(beyond if transposed else floordiv(beyond, step) + 1)
        room.append(beyond)
    return tuple(sizes), tuple(room)


def wants_channels_last(x: TensorSpec, w: TensorSpec) -> bool:
    """Whether eager lays the result of this convolution out with channels innermost."""

    def strict(t: TensorSpec) -> bool:
        return is_channels_last(t.sizes, t.strides) and not is_contiguous(t.sizes, t.strides)

    return strict(x) or strict(w)


@rule()
def convolution(x: TensorSpec, w: TensorSpec, b: TensorSpec | None, *parameters: Any) -> TensorSpec:
    sizes, _ = convolved(x.sizes, w.sizes, *parameters)
    strides = channels_last(sizes) if wants_channels_last(x, w) else None
    return TensorSpec(x.dtype, x.device, sizes, strides)


@rule()
def convolution_backward(
    grad: TensorSpec, x: TensorSpec, w: TensorSpec, bias_sizes: Sequence[Size] | None, *rest: Any
) -> tuple[TensorSpec | None, ...]:
    mask = rest[-1]
    last = wants_channels_last(x, w)

    def like(t: TensorSpec) -> TensorSpec:
        return TensorSpec(t.dtype, t.device, t.sizes, channels_last(t.sizes) if last else None)

    bias = TensorSpec(grad.dtype, grad.device, (grad.sizes[1],))
    return like(x) if mask[0] else None, like(w) if mask[1] else None, bias if mask[2] else None
