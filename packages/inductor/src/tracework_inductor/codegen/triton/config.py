"""Block sizes, warps and stages: one table per kernel shape, tuned for Hopper (132 multiprocessors, 16-byte loads).

The aim everywhere is eight elements a thread (one or two 16-byte vectors) and at least two blocks a multiprocessor.
The first config is the default, further ones are tried at the first launch.
"""

import dataclasses
from typing import Any

__all__ = ["MAX_PERSISTENT", "Config", "Shape", "configs", "splits"]

MULTIPROCESSORS = 132
# Rows up to this many elements are held in registers at once.
MAX_PERSISTENT = 16384
_MOST_IN_FLIGHT = 4
# Rows from this many elements on are walked in steps of 4096: measured on softmax and cross entropy of 50257 columns.
_LONG_ROW = 32768


@dataclasses.dataclass(frozen=True)
class Shape:
    """What the choice depends on: kind ("pointwise", "tiled", "persistent", "looped"), numbers of points (hints),
    the contiguous dimension, how many loads there are, how many values of a row live at once, and how many loads are inside rows."""

    kind: str
    outer: int
    inner: int
    contiguous: str
    loads: int = 1
    second: int = 1
    held: int = 1
    streams: int = 1


@dataclasses.dataclass(frozen=True)
class Config:
    """Values of the constexpr arguments, and how the kernel is compiled."""

    constants: dict[str, int]
    num_warps: int = 4
    num_stages: int = 1

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"constants": self.constants, "num_warps": self.num_warps, "num_stages": self.num_stages}


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def _between(low: int, n: int, high: int) -> int:
    return max(low, min(n, high))


def _warps(elements: int, a_thread: int = 8) -> int:
    return _between(1, power_of_two(elements // (32 * a_thread)), 16)


def _pointwise(shape: Shape) -> list[Config]:
    largest = 1024 if shape.loads <= 8 else 512
    block = _between(128, power_of_two(shape.outer // (MULTIPROCESSORS * _MOST_IN_FLIGHT)), largest)
    return [Config({"XBLOCK": block}, _between(1, _warps(block), 4) if block > 128 else 4)]


def _tiled(shape: Shape) -> list[Config]:
    x = _between(16, power_of_two(shape.outer), 64)
    y = _between(16, power_of_two(shape.second), 2048 // x)
    return [Config({"YBLOCK": y, "XBLOCK": x}, _between(4, _warps(x * y), 8))]


def _persistent(shape: Shape) -> list[Config]:
    row = power_of_two(shape.inner)
    wide = 64 if shape.contiguous == "x" else 1
    rows = _between(wide, 2048 // row, 64)
    rows = min(rows, power_of_two(shape.outer))
    while rows > max(1, wide // 2) and shape.outer // rows < MULTIPROCESSORS * 2:
        rows //= 2
    rows = max(rows, 1)
    # Several values of the row live at once: fewer elements a thread.
    a_thread = 8 if shape.held <= 4 else 4
    return [Config({"XBLOCK": rows, "RBLOCK": row}, _between(1, _warps(rows * row, a_thread), 16 if row >= 8192 else 8))]


def _looped(shape: Shape) -> list[Config]:
    if shape.contiguous == "x":  # measured on columns of 24 to 3072 channels of images, one load a point and three
        x = _between(16, power_of_two(shape.outer), 32 if shape.streams <= 2 else 64)
        r = _between(8, power_of_two(shape.inner), 2048 // x)
        return [Config({"XBLOCK": x, "RBLOCK": r}, 8)]
    if shape.inner >= _LONG_ROW:
        return [Config({"XBLOCK": 1, "RBLOCK": 4096}, 16, 2)]
    r = _between(64, power_of_two(shape.inner), 2048 if shape.loads <= 4 else 1024)
    x = _between(1, 2048 // r, power_of_two(shape.outer))
    return [Config({"XBLOCK": x, "RBLOCK": r}, _between(4, _warps(r * x), 8), 2)]


TABLES = {"pointwise": _pointwise, "tiled": _tiled, "persistent": _persistent, "looped": _looped}


def configs(shape: Shape) -> list[Config]:
    """Configs for a shape, the best guess first."""
    return TABLES[shape.kind](shape)


def splits(shape: Shape, config: Config) -> int:
    """Into how many parts a looped reduction is split so that the device is filled; 1 for not at all."""
    blocks = max(-(-shape.outer // config.constants["XBLOCK"]), 1)
    if blocks >= MULTIPROCESSORS:
        return 1
    longest = shape.inner // config.constants["RBLOCK"]
    if shape.contiguous == "x":
        most = min((8 if shape.streams <= 2 else 4) * MULTIPROCESSORS // blocks, longest // 2, 256)
        return 1 << (most.bit_length() - 1) if most else 1
    enough = 6 * MULTIPROCESSORS // blocks
    return _between(1, power_of_two(min(enough, longest)), 256) if longest >= 4 else 1
