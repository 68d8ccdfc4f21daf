"""A kernel as it is written: with fewer passes over its rows where they can be saved, its tiling, and its shape."""

from __future__ import annotations

from ...schedule.plan import LoopKernel
from .config import Shape
from .exponentials import in_one_pass
from .one_place import without_sums_of_one_place
from .shape import shape_of
from .tiling import Tiling, tile

__all__ = ["shaped"]


def shaped(kernel: LoopKernel, tiling: Tiling) -> tuple[LoopKernel, Tiling, Shape]:
    """A kernel as it is written, with its tiling and shape: where rows are walked in a loop, in as few passes as can be."""
    fewer, shape = without_sums_of_one_place(kernel), shape_of(kernel, tiling)
    if shape.kind == "looped" and tiling.contiguous == "r":
        fewer = in_one_pass(fewer)
    if fewer is kernel:
        return kernel, tiling, shape
    tiling = tile(fewer)
    return fewer, tiling, shape_of(fewer, tiling)
