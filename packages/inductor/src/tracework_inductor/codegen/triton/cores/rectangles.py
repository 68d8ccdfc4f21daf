"""Matrices in memory of which a block copies rectangles at once, by descriptors of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....ir.body import Axis
from ....ir.index import Size

__all__ = ["ALIGNMENT", "Rectangle", "rectangle"]

ALIGNMENT = 16
"""Bytes that a matrix's first element and its rows have to be multiples of."""


class Rectangle(NamedTuple):
    """A matrix over two dimensions: the place of its first element, the elements from one row to the next, and whether it is the first of the
    dimensions whose elements lie side by side."""

    offset: int
    stride: int
    turned: bool


def rectangle(index: Size, dims: tuple[Sequence[Axis], Sequence[Axis]], itemsize: int) -> Rectangle | None:
    """The matrix that an index over the axes of two dimensions reaches; None where no descriptor tells it."""
    known = None if isinstance(index, int) else index.as_affine()
    if known is None:
        return None
    offset, coefficients = known
    if not coefficients.keys() <= {axis.var for axes in dims for axis in axes}:
        return None
    first, second = (_step(axes, coefficients) for axes in dims)
    if first is None or second is None or 1 not in (first, second):
        return None
    turned = second != 1
    stride = second if turned else first
    if stride <= 0 or stride * itemsize % ALIGNMENT or offset < 0 or offset * itemsize % ALIGNMENT:
        return None
    return Rectangle(offset, stride, turned)


def _step(axes: Sequence[Axis], coefficients: Mapping[Any, int]) -> int | None:
    """What one step along all axes together, taken as one, adds to an index; None where that changes along the way."""
    found, below = None, 1
    for axis in reversed(axes):
        if not isinstance(axis.size, int):
            return None
        if axis.size == 1:
            continue
        coefficient = coefficients.get(axis.var, 0)
        if found is None:
            found = coefficient
        elif coefficient != found * below:
            return None
        below *= axis.size
    return found
