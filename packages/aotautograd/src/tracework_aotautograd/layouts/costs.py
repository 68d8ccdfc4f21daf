"""What convolutions and changes of layout cost on a GPU, predicted in femtoseconds.

The library's kernels for tensor cores read images with their channels next to each other. For row-major ones it lays operands and results
out anew at each call, by kernels that take LIBRARY_TURN times a copy; ours take 1 + TURN. How much longer the kernels themselves take so,
KINDS says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

__all__ = ["KINDS", "LAUNCH", "MOVE", "RATES", "TURN", "Kind", "Rate", "Work", "is_looped", "kind_of", "rate", "times", "works"]

MOVE = 238.0
"""A byte read or written (4.2 TB/s, copies on an H200)."""
LAUNCH = 5e9
"""One more kernel."""
TURN = 0.16
"""How much longer a loop takes for bytes that lie across its order, in units of a copy of them: a loop that does nothing else reaches 0.86 of
a copy's bandwidth on an H200."""
LIBRARY_TURN = 2.0
"""What the library's kernels take that change a layout, in units of a copy: 1.6 to 2.3 TB/s on an H200, by what convolutions in TF32 of 34 to
252 MB take longer row-major."""


@dataclass(frozen=True)
class Rate:
    """time: a multiplication on tensor cores; capability: that of the first GPUs whose tensor cores have the dtype."""

    time: float
    capability: tuple[int, int] = (0, 0)


RATES: Mapping[tuple[str, torch.dtype], Rate] = {
    ("cuda", torch.float16): Rate(2.9, (7, 0)),
    ("cuda", torch.bfloat16): Rate(2.9, (8, 0)),
    ("cuda", torch.float32): Rate(5.8, (8, 0)),
}
"""(device, dtype) -> what multiplies; what has no row is computed as quickly from row-major images."""


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
    "depthwise, looped": Kind(1.0, anew=False),
    "gradients, depthwise": Kind(1.0, anew=False),
    "line, TF32": Kind(1.5, anew=False),
}
"""As published in pytorch#187606; volume: a decoder's in bfloat16, LightX2V#860; depthwise: 7x7 of 96x56x56 in bfloat16, 14.4 and 15.5 us on
an H200, and of gradients no figure is known; looped: where compilers write a loop, which takes as long in either layout.

Lines (signals, and images of one row or column) in TF32, on an H200 with the library's conversions of the image, which it makes in both
layouts, and of the result in none: 64x64x4096 by 128 filters of 3, 148 us row-major and 146; 64x32x8192 by 64 filters of 7 at every second
place, 152 and 359 us: it takes another kernel.
"""
LOOPED_TAPS = 9
"""Elements of the largest window for which a depthwise convolution in float32 is looped whatever its layout."""
FEW_CHANNELS = 64
CHANNEL_BYTES = 16


def rate(x: torch.Tensor, groups: int, looped: bool = False) -> float | None:
    """What a multiplication of a convolution of these images takes, None where it has nothing to gain.

    In float32 that needs TF32, which torch does not allow for volumes (pytorch#167024), and depthwise convolutions have kernels of torch's own
    for row-major images, unless they are loops.
    """
    if x.dtype == torch.float32 and (
        x.ndim > 4 or (groups == x.shape[1] > 1 and not looped) or torch.backends.cudnn.conv.fp32_precision != "tf32"  # type: ignore[attr-defined]  # torch puts it there at run time
    ):
        return None
    found = RATES.get((x.device.type, x.dtype)) if torch.backends.cudnn.enabled else None
    return found.time if found is not None and _capability(x.device) >= found.capability else None


def is_looped(x: torch.Tensor, w: torch.Tensor, transposed: bool, groups: int) -> bool:
    """Whether a convolution, not a gradient of one, is a loop in compilers that have one."""
    depthwise = groups == x.shape[1] == w.shape[0] > 1 and w.shape[1] == 1
    return depthwise and not transposed and x.dtype == torch.float32 and prod(w.shape[2:]) <= LOOPED_TAPS


def _capability(device: torch.device) -> tuple[int, int]:
    """Of the GPU; where none is present, that of those that the figures are from."""
    present = device.type == "cuda" and torch.cuda.is_available()
    return torch.cuda.get_device_capability(device) if present else (9, 0)


@dataclass(frozen=True)
class Work:
    """A convolution, or one gradient of it. read, written, weight: bytes of images or gradients read, of the result, of the weight; padded:
    those of images and results that the library copies in any layout, because it takes channels in multiples of 16 bytes."""

    kind: str
    multiplications: int
    read: int
    written: int
    weight: int
    rate: float
    padded: int = 0


def kind_of(
    channels: int, results: int, groups: int, gradient: bool, volume: bool = False, looped: bool = False, line: bool = False
) -> str:
    """A name in KINDS, from the channels of a convolution's images and results; line: of one row or column, in TF32."""
    if groups == channels > 1:
        return "gradients, depthwise" if gradient else "depthwise, looped" if looped else "depthwise"
    if line:
        return "line, TF32"
    if groups > 1:
        return "grouped"
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
    looped = gradients is None and is_looped(x, w, transposed, groups)
    found = rate(x, groups, looped)
    assert found is not None
    size = x.element_size()
    image, other, weight = (size * prod(sizes) for sizes in (x.shape, result, w.shape))
    count = prod(x.shape if transposed else result) * prod(w.shape[1:])
    line = x.dtype == torch.float32 and sum(n > 1 for n in x.shape[2:]) == 1
    kind = kind_of(x.shape[1], result[1], groups, gradients is not None, x.ndim > 4, looped, line)
    padded = sum(n for n, channels in ((image, x.shape[1]), (other, result[1])) if channels * size % CHANNEL_BYTES)
    if gradients is None:
        return [Work(kind, count, image, other, weight, found, padded)]
    of_image, of_weight = gradients
    backward = kind_of(result[1], x.shape[1], groups, True, x.ndim > 4, line=line)
    return [Work(backward, count, other, image, weight, found, padded)] * of_image + [
        Work(kind, count, image + other, weight, 0, found, padded)
    ] * of_weight


def times(work: Work) -> tuple[float, float]:
    """(row-major, channels-last): the kernel, and what the library lays out anew for it."""
    kind, size = KINDS[work.kind], work.read + work.written + work.weight
    kernel = max(work.multiplications * work.rate, MOVE * size) + LAUNCH
    if not kind.anew:
        return kernel / kind.ratio, kernel
    last = kernel + _anew(work.padded)
    return max(last / kind.ratio, kernel + _anew(size)), last


def _anew(size: int) -> float:
    """What the library takes to lay out as many bytes anew."""
    return 2 * LIBRARY_TURN * MOVE * size + LAUNCH if size else 0.0
