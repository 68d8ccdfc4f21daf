"""Texts that all kernels of attention are written of: masks, places, loads."""

from __future__ import annotations

import math

from .....ir.cores import power_of_two
from .....ir.index import Size
from ...printer import IndexPrinter
from .config import LEAST

__all__ = ["LOG2E", "LOWEST", "all_of", "also", "divides", "lane_mask", "lanes_mask", "length_line", "loaded", "tile"]

LOG2E = math.log2(math.e)
LOWEST = 'float("-inf")'


def length_line(name: str, size: Size, printer: IndexPrinter) -> list[str]:
    return [f"{name} = {size}" if isinstance(size, int) else f"{name} = ({printer.text(size)}).to(tl.int32)"]


def divides(length: Size, block: int) -> bool:
    return isinstance(length, int) and length % block == 0


def tile(extent: int) -> int:
    """How many lanes a tile has for that many."""
    return max(LEAST, power_of_two(extent))


def lane_mask(name: str, extent: int) -> str | None:
    """A mask over the lanes of a row, if some are too many."""
    return None if tile(extent) == extent else f"({name} < {extent})"


def lanes_mask(name: str, extent: int) -> str | None:
    """The same over the lanes of a tile."""
    lane = lane_mask(name, extent)
    return None if lane is None else f"{lane}[None, :]"


def all_of(*masks: str | None) -> str:
    return " & ".join(m for m in masks if m is not None) or "None"


def also(*masks: str | None) -> str:
    mask = all_of(*masks)
    return "" if mask == "None" else f", {mask}"


def loaded(at: str, *masks: str | None) -> str:
    mask = all_of(*masks)
    return f"tl.load({at})" if mask == "None" else f"tl.load({at}, {mask}, other=0.0)"
