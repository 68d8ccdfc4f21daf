"""What convolutions and changes of layout cost, predicted in femtoseconds.

A GPU's library has kernels for tensor cores that read images with their channels next to each other, a CPU's ones that read blocks of them, or
such images as they are. For row-major ones it lays operands and results out anew at each call, by kernels that take `library_turn` times a
copy; ours take 1 + `turn`. How much longer the kernels themselves take so, KINDS and CPU_KINDS say.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

__all__ = [
    "CPU_KINDS",
    "KINDS",
    "PRICES",
    "RATES",
    "Convolution",
    "Direction",
    "Kind",
    "Prices",
    "Rate",
    "Work",
    "has_row",
    "is_looped",
    "kind_of",
    "on_cpu",
    "prices",
    "rate",
    "times",
    "works",
]


@dataclass(frozen=True)
class Prices:
    """move: a byte read or written; launch: one more kernel; turn: how much longer a loop takes for bytes that lie across its order, in units
    of a copy of them; library_turn: what the library's kernels take that change a layout, in the same unit; least_gain: what changed layouts
    have to save in all."""

    move: float
    launch: float
    turn: float
    library_turn: float
    least_gain: float


PRICES: Mapping[str, Prices] = {
    "cuda": Prices(238.0, 5e9, 0.16, 2.0, 5e9),
    "cpu": Prices(25e3, 3e9, 0.5, 1.5, 5e10),
}
"""Type of a device -> what things take there.

cuda: 4.2 TB/s, copies on an H200; a loop that does nothing else but turn reaches 0.86 of a copy's bandwidth there, the library's kernels 1.6 to
2.3 TB/s, by what convolutions in TF32 of 34 to 252 MB take longer row-major. cpu: 40 GB/s, two cores of an EPYC out of their own caches, where
convolutions of 1 to 17 MB take 20 to 110 us a megabyte longer row-major, 75 in the middle.
"""


@dataclass(frozen=True)
class Rate:
    """time: a multiplication on tensor cores; capability: that of the first GPUs whose tensor cores have the dtype."""

    time: float
    capability: tuple[int, int] = (0, 0)


RATES: Mapping[tuple[str, torch.dtype], Rate] = {
    ("cuda", torch.float16): Rate(2.9, (7, 0)),
    ("cuda", torch.bfloat16): Rate(2.9, (8, 0)),
    ("cuda", torch.float32): Rate(5.8, (8, 0)),
    ("cpu", torch.float32): Rate(1e4),
}
"""(device, dtype) -> what multiplies: tensor cores, or two cores with 512-bit vectors; what has no row is computed as quickly from row-major
images, or was not measured."""


LOOPED_TAPS = 9
"""Elements of the largest window for which a depthwise convolution in float32 is looped whatever its layout."""
MEDIUM_TAPS = 25
"""Elements of the largest window for which the library has a kernel for the gradient of depthwise weights in float32, channels-last."""
LARGE_WINDOW = 7
LARGE_WINDOW_CHANNELS = 16
WIDE_PIXEL, WIDE_PIXEL_ALONE = 1024, 8192
"""Bytes of channels from which on a CPU's first cache holds no window of pixels that are whole rows of them, and no few single pixels."""
LEAST_GROUP = 4
"""Channels of the groups that were measured."""
WIDE_GROUP = 16
FEW_CHANNELS = 64
CHANNEL_BYTES = 16


class Direction(enum.Enum):
    """What the kernel of a convolution computes; a transposed convolution is the gradient of an image, and the gradient of its own image a
    convolution."""

    FORWARD = enum.auto()
    IMAGE = enum.auto()
    WEIGHT = enum.auto()


@dataclass(frozen=True)
class Convolution:
    """What rows of KINDS go by. channels, results: of image and result of the convolution, for a transposed one those that it is the gradient
    of; line: a signal, or images of one row or column; looped: as is_looped() says; strided: whether windows lie more than a pixel apart;
    size: bytes of an element."""

    direction: Direction
    channels: int
    results: int
    window: tuple[int, ...]
    groups: int = 1
    tf32: bool = True
    line: bool = False
    transposed: bool = False
    looped: bool = False
    strided: bool = False
    size: int = 4

    @property
    def is_depthwise(self) -> bool:
        return self.groups == (self.results if self.transposed else self.channels) > 1

    @property
    def is_volume(self) -> bool:
        return len(self.window) > 2

    @property
    def group(self) -> int:
        """Channels of a group."""
        return min(self.channels, self.results) // self.groups

    @property
    def has_even_window(self) -> bool:
        """The library's kernels of depthwise convolutions, channels-last, are for odd ones."""
        return any(n % 2 == 0 for n in self.window)

    def pads(self, channels: int) -> bool:
        """Whether so many channels of a pixel are no multiple of what the library's kernels read."""
        return self.has_few_channels and channels * self.size % CHANNEL_BYTES > 0

    @property
    def has_few_channels(self) -> bool:
        return max(self.channels, self.results) <= FEW_CHANNELS

    @property
    def has_more_in_than_out(self) -> bool:
        image = self.direction is Direction.IMAGE
        return self.results >= 2 * self.channels if image else self.channels >= 2 * self.results

    def computes(self, direction: Direction, *, tf32: bool = False) -> bool:
        """Whether it computes this, in TF32 if that is asked."""
        return self.direction is direction and (self.tf32 or not tf32)


@dataclass(frozen=True)
class Kind:
    """Of convolutions. ratio: time of the kernel channels-last, over its time row-major; anew: whether the library lays row-major images out
    anew for it; taken: the kernel's time channels-last in units of what its multiplications or bytes take; tap: what a multiplication takes
    without tensor cores."""

    holds: Callable[[Convolution], bool]
    ratio: float
    anew: bool = True
    taken: float = 1.0
    tap: float | None = None


FORWARD, IMAGE, WEIGHT = Direction
KINDS: Mapping[str, Kind] = {
    "depthwise, looped": Kind(lambda c: c.looped, 1.0, anew=False),
    "depthwise, not measured": Kind(
        lambda c: c.is_depthwise and (c.transposed or c.is_volume or c.channels != c.results), 1.0, anew=False
    ),
    "depthwise line, weight, TF32": Kind(
        lambda c: c.is_depthwise and c.line and c.computes(WEIGHT, tf32=True), 6.0, anew=False, tap=9300.0
    ),
    "depthwise, large window, weight, TF32": Kind(
        lambda c: c.is_depthwise and prod(c.window) > MEDIUM_TAPS and c.computes(WEIGHT, tf32=True), 3.5, anew=False, tap=4800.0
    ),
    "depthwise, even window": Kind(
        lambda c: c.is_depthwise and c.has_even_window and not c.line and c.computes(FORWARD), 3.13, anew=False, tap=2730.0
    ),
    "depthwise, even window, image": Kind(
        lambda c: c.is_depthwise and c.has_even_window and not c.line and c.computes(IMAGE), 1.12, anew=False, tap=1100.0
    ),
    "depthwise, even window, weight": Kind(
        lambda c: c.is_depthwise and c.has_even_window and c.computes(WEIGHT), 2.9, anew=False, tap=5000.0
    ),
    "depthwise, weight": Kind(lambda c: c.is_depthwise and c.computes(WEIGHT), 0.27, anew=False, tap=250.0),
    "depthwise, image": Kind(lambda c: c.is_depthwise and c.computes(IMAGE), 0.36, anew=False, tap=400.0),
    "depthwise": Kind(lambda c: c.is_depthwise, 0.31, anew=False, tap=160.0),
    "grouped, not measured": Kind(lambda c: c.groups > 1 and (c.group < LEAST_GROUP or c.is_volume), 1.358, anew=False),
    "grouped line, image, TF32": Kind(
        lambda c: c.groups > 1 and c.group >= WIDE_GROUP and c.line and c.computes(IMAGE, tf32=True), 1.36, anew=False, taken=20.0
    ),
    "grouped, weight, TF32": Kind(lambda c: c.groups > 1 and c.computes(WEIGHT, tf32=True), 1.04, anew=False, taken=10.6),
    "narrow groups, weight": Kind(
        lambda c: c.groups > 1 and c.group == LEAST_GROUP and not c.line and c.computes(WEIGHT), 2.6, anew=False, taken=33.0
    ),
    "grouped": Kind(lambda c: c.groups > 1, 0.44, anew=False, taken=2.2),
    "volume": Kind(lambda c: c.is_volume, 0.92),
    "large window, TF32": Kind(
        lambda c: (
            c.channels == LARGE_WINDOW_CHANNELS and max(c.window) >= LARGE_WINDOW and c.strided and c.computes(FORWARD, tf32=True)
        ),
        2.92, anew=False, taken=10.6,
    ),
    "line, image, TF32": Kind(lambda c: c.line and c.computes(IMAGE, tf32=True), 0.5, anew=False, taken=1.5),
    "line, weight, TF32": Kind(lambda c: c.line and c.computes(WEIGHT, tf32=True), 0.69, anew=False, taken=2.9),
    "line, few channels, TF32": Kind(
        lambda c: c.line and c.tf32 and min(c.channels, c.results) <= FEW_CHANNELS, 1.5, anew=False, taken=4.0
    ),
    "line, TF32": Kind(lambda c: c.line and c.tf32, 0.62, anew=False),
    "few channels, weight, TF32": Kind(
        lambda c: c.has_few_channels and c.computes(WEIGHT, tf32=True), 0.91, anew=False, taken=5.7
    ),
    "padded channels, image, TF32": Kind(
        lambda c: c.pads(c.channels) and c.computes(IMAGE, tf32=True), 1.22, anew=False, taken=13.0
    ),
    "padded results, TF32": Kind(lambda c: c.pads(c.results) and prod(c.window) > 1 and c.computes(FORWARD, tf32=True), 6.4, anew=False, taken=55.0),
    "few channels, image, TF32": Kind(lambda c: c.has_few_channels and c.computes(IMAGE, tf32=True), 0.66, anew=False, taken=4.8),
    "few channels": Kind(lambda c: c.has_few_channels, 0.783),
    "more in than out": Kind(lambda c: c.has_more_in_than_out, 0.725),
    "other": Kind(lambda c: True, 0.823),
}  # fmt: skip
"""The first row that holds is a convolution's.

The last three are as published in pytorch#187606, and so is that of groups that were not measured; volume: a decoder's in bfloat16,
LightX2V#860; looped: where compilers write a loop, which takes as long in either layout; of other depthwise ones without figures the layouts
are taken for equal. All others are means of what an H200 takes, in tests/unit/layouts/test_choice.py:TOOK, with the library's conversions of
row-major images; "TF32" is float32 in general where the kernel has no products. Halves gain wherever they have no row of their own.

In TF32 the library has no good kernel for windows of 7 over 16 channels, two pixels apart; 12 and 24 have one.
"""


CPU_KINDS: Mapping[str, Kind] = {
    "depthwise": Kind(lambda c: c.is_depthwise, 1.0, tap=2e4),
    "grouped": Kind(lambda c: c.groups > 1, 1.0, anew=False),
    "wide": Kind(
        lambda c: 4 * max(c.channels, c.results) >= (WIDE_PIXEL if prod(c.window) > 1 else WIDE_PIXEL_ALONE), 1.2, anew=False
    ),
    "other": Kind(lambda c: True, 1.0),
}
"""The same of a CPU's, in float32. Measured on two cores, row-major and channels-last, microseconds of a forward, of the gradient of the images
and of that of the weights, weights and their gradients lying as the images do: 64 to 64 channels with 3x3 over 4x56x56 4251 and 4070, 4289 and
4098, 4891 and 4525; 24 to 72 with 1x1 812 and 280, 766 and 317, 752 and 270; wide, 256 with 3x3 over 4x14x14 3973 and 4120, 4022 and 4015, 4609
and 4409, 512 over 4x7x7 4086 and 4729, 4893 and 4639, 5703 and 15150, 2048 to 512 with 1x1 over 2x7x7 1085 and 2652, 1176 and 1147, 2667 and
2904; depthwise, 72 with 3x3 over 4x56x56 873 and 153, 915 and 186, 2025 and 293."""


def on_cpu(x: torch.Tensor) -> bool:
    """Whether a CPU's library computes with a tensor."""
    return x.device.type == "cpu"


def prices(x: torch.Tensor) -> Prices:
    """What things take where a tensor is."""
    return PRICES["cpu" if on_cpu(x) else "cuda"]


def rate(x: torch.Tensor, groups: int, depthwise: bool = False) -> float | None:
    """What a multiplication of a convolution of these images takes, None where it has nothing to gain.

    In float32 that needs TF32, which torch does not allow for volumes (pytorch#167024), and depthwise convolutions have kernels of torch's own
    for row-major images; depthwise: as has_row() says. A CPU's were measured for images.
    """
    if on_cpu(x):
        measured = RATES.get(("cpu", x.dtype)) if x.ndim == 4 and torch.backends.mkldnn.is_available() else None
        return measured.time if measured is not None else None
    if x.dtype == torch.float32 and (
        x.ndim > 4 or (groups == x.shape[1] > 1 and not depthwise) or torch.backends.cudnn.conv.fp32_precision != "tf32"  # type: ignore[attr-defined]  # torch puts it there at run time
    ):
        return None
    found = RATES.get((x.device.type, x.dtype)) if torch.backends.cudnn.enabled else None
    return found.time if found is not None and _capability(x.device) >= found.capability else None


def has_row(x: torch.Tensor, w: torch.Tensor, transposed: bool, groups: int, gradients: bool) -> bool:
    """Whether it is known what a depthwise convolution in float32 takes in both layouts: of gradients, and of loops."""
    return _is_plain_depthwise(x, w, transposed, groups) and (gradients or is_looped(x, w, transposed, groups))


def is_looped(x: torch.Tensor, w: torch.Tensor, transposed: bool, groups: int) -> bool:
    """Whether a convolution, not a gradient of one, is a loop in compilers that have one."""
    plain = _is_plain_depthwise(x, w, transposed, groups)
    return plain and x.dtype == torch.float32 and prod(w.shape[2:]) <= LOOPED_TAPS


def _is_plain_depthwise(x: torch.Tensor, w: torch.Tensor, transposed: bool, groups: int) -> bool:
    return not transposed and groups == x.shape[1] == w.shape[0] > 1 and w.shape[1] == 1


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
    on_cpu: bool = False


def kind_of(convolution: Convolution, kinds: Mapping[str, Kind] = KINDS) -> str:
    """A name in KINDS or CPU_KINDS."""
    return next(name for name, kind in kinds.items() if kind.holds(convolution))


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
    found = rate(x, groups, has_row(x, w, transposed, groups, gradients is not None))
    assert found is not None
    size = x.element_size()
    image, other, weight = (size * prod(sizes) for sizes in (x.shape, result, w.shape))
    count = prod(x.shape if transposed else result) * prod(w.shape[1:])
    channels, results = (result[1], x.shape[1]) if transposed else (x.shape[1], result[1])
    forward, of_image = (IMAGE, FORWARD) if transposed else (FORWARD, IMAGE)
    tf32, line = x.dtype == torch.float32, sum(n > 1 for n in x.shape[2:]) == 1
    sides = [(a, b) for a, b in zip(x.shape[2:], result[2:], strict=True) if a > 1 and b > 1]
    strided, cpu = any(2 * max(pair) >= 3 * min(pair) for pair in sides), on_cpu(x)
    padded = sum(n for n, channels in ((image, x.shape[1]), (other, result[1])) if not cpu and channels * size % CHANNEL_BYTES)

    def work(direction: Direction, read: int, written: int, weight: int) -> Work:
        window = tuple(w.shape[2:])
        facts = Convolution(direction, channels, results, window, groups, tf32, line, transposed, looped, strided, size)
        return Work(kind_of(facts, CPU_KINDS if cpu else KINDS), count, read, written, weight, found, padded, cpu)

    if gradients is None:
        return [work(forward, image, other, weight)]
    wanted = zip(gradients, ((of_image, other, image, weight), (WEIGHT, image + other, weight, 0)), strict=True)
    return [work(*what) for is_wanted, what in wanted if is_wanted]


def times(work: Work) -> tuple[float, float]:
    """(row-major, channels-last): the kernel, and what the library lays out anew for it."""
    kind, price = (CPU_KINDS[work.kind], PRICES["cpu"]) if work.on_cpu else (KINDS[work.kind], PRICES["cuda"])
    size = work.read + work.written + work.weight
    kernel = kind.taken * max(work.multiplications * (kind.tap or work.rate), price.move * size)
    if not kind.anew:
        return kernel / kind.ratio + price.launch, kernel + price.launch
    last = kernel + price.launch + _anew(work.padded, price)
    return max(last / kind.ratio, kernel + price.launch + _anew(size, price)), last


def _anew(size: int, price: Prices) -> float:
    """What the library takes to lay out as many bytes anew."""
    return 2 * price.library_turn * price.move * size + price.launch if size else 0.0
