"""What convolutions and changes of layout cost on a GPU, predicted in femtoseconds.

The library's kernels for tensor cores read images with their channels next to each other. For row-major ones it lays the operands out
anew at each call, and some results. How much longer the kernels themselves take so, KINDS says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

__all__ = ["KINDS", "LAUNCH", "MOVE", "RATES", "TURN", "Kind", "Work", "kind_of", "rate", "times", "works"]

MOVE = 250.0
"""A byte read or written (4 TB/s)."""
LAUNCH = 5e9
"""One more kernel."""
TURN = 0.25
"""How much longer a loop takes for bytes that lie across its order, in units of a copy of them."""

RATES: Mapping[tuple[str, torch.dtype], float] = {
    ("cuda", torch.float16): 2.9,
    ("cuda", torch.bfloat16): 2.9,
    ("cuda", torch.float32): 5.8,
}
"""(device, dtype) -> a multiplication on tensor cores; what has no row is computed as quickly from row-major images."""


@dataclass(frozen=True)
class Kind:
    """Of convolutions. ratio: time of the kernel channels-last, over its time row-major; anew: whether the library lays row-major images out
    anew for it."""

    ratio: float
    anew: bool = True


KINDS: Mapping[str, Kind] = {
    "few channels": Kind(0.783),
    "more in than out": Kind(0.725),
    "other": Kind(0.823),
    "volume": Kind(0.92),
    "grouped": Kind(1.358, anew=False),
    "depthwise": Kind(0.93, anew=False),
    "gradients, depthwise": Kind(1.0, anew=False),
}
"""As published in pytorch#187606; volume: a decoder's in bfloat16, LightX2V#860; depthwise: 7x7 of 96x56x56 in bfloat16, 14.4 and 15.5 us on
an H200, and of gradients no figure is known. What laying out anew takes is seen in a profile in pytorch#81940: a network's convolutions in
TF32 take 59 % of its time, and the kernels that bring images to channels-last and back 17 and 16 %.
"""
FEW_CHANNELS = 64


def rate(x: torch.Tensor, groups: int) -> float | None:
    """What a multiplication of a convolution of these images takes, None where it has nothing to gain.

    In float32 that needs TF32, which torch does not allow for volumes (pytorch#167024), and depthwise convolutions have kernels of torch's own
    for row-major images.
    """
    if x.dtype == torch.float32 and (
        x.ndim > 4 or groups == x.shape[1] > 1 or torch.backends.cudnn.conv.fp32_precision != "tf32"
    ):
        return None
    return RATES.get((x.device.type, x.dtype)) if torch.backends.cudnn.enabled else None


@dataclass(frozen=True)
class Work:
    """A convolution, or one gradient of it. read, written, weight: bytes of images or gradients read, of the result, of the weight."""

    kind: str
    multiplications: int
    read: int
    written: int
    weight: int
    rate: float


def kind_of(channels: int, results: int, groups: int, gradient: bool, volume: bool = False) -> str:
    """A name in KINDS, from the channels of a convolution's images and results."""
    if groups > 1:
        depthwise = "gradients, depthwise" if gradient else "depthwise"
        return depthwise if groups == channels else "grouped"
    if volume:
        return "volume"
    if max(channels, results) <= FEW_CHANNELS:
        return "few channels"
    return "more in than out" if channels >= 2 * results else "other"


def works(
    x: torch.Tensor,
    w: torch.Tensor,
    result: Sequence[int],
    transposed: bool,
    groups: int,
    gradients: Sequence[bool] | None = None,
) -> list[Work]:
    """What a convolution computes; with `gradients`, of which (image, weight) the gradient is wanted, what its backward does.

    result: sizes of the convolution's result.
    """
    found = rate(x, groups)
    assert found is not None
    size = x.element_size()
    image, other, weight = (size * prod(sizes) for sizes in (x.shape, result, w.shape))
    count = prod(x.shape if transposed else result) * prod(w.shape[1:])
    kind = kind_of(x.shape[1], result[1], groups, gradients is not None, x.ndim > 4)
    if gradients is None:
        return [Work(kind, count, image, other, weight, found)]
    of_image, of_weight = gradients
    backward = kind_of(result[1], x.shape[1], groups, True, x.ndim > 4)
    return [Work(backward, count, other, image, weight, found)] * of_image + [
        Work(kind, count, image + other, weight, 0, found)
    ] * of_weight


def times(work: Work) -> tuple[float, float]:
    """(row-major, channels-last): the kernel, and what the library moves for a row-major one."""
    kind, moved = KINDS[work.kind], MOVE * (work.read + work.written + work.weight)
    last = max(work.multiplications * work.rate, moved) + LAUNCH
    return max(last / kind.ratio, last + 2 * moved + LAUNCH if kind.anew else 0.0), last
