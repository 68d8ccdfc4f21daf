"""Functions of NumPy that NumPy writes in C, or in Python that looks at numbers of arrays, in terms of others that graphs have."""

from __future__ import annotations

from typing import Any, TypeAlias

from ..arrays import CONVERTER, numpy
from . import NotComputed, folded, polyfill

Array: TypeAlias = "numpy.ndarray[Any, numpy.dtype[Any]]"


class LeftToNumpy(NotComputed):
    """What is asked of a function of NumPy is done by NumPy itself."""

    reason = "numpy_array"


@polyfill(numpy.ptp)
def ptp(a: Any, axis: Any = None, out: Array | None = None, keepdims: Any = False) -> Any:
    return numpy.subtract(numpy.amax(a, axis, keepdims=keepdims), numpy.amin(a, axis, keepdims=keepdims), out=out)


@polyfill(numpy.trace, (numpy.ndarray, "trace"))
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Array | None = None) -> Any:
    return numpy.sum(numpy.diagonal(a, offset, axis1, axis2), -1, dtype, out)


@polyfill(numpy.rot90)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    m = numpy.asarray(m)
    first, second = planes(axes, m.ndim)
    if k % 2 == 0:
        return numpy.flip(m, (first, second)) if k % 4 else m[:]
    if k % 4 == 1:
        return numpy.swapaxes(numpy.flip(m, second), first, second)
    return numpy.flip(numpy.swapaxes(m, first, second), second)


@polyfill(numpy.lib.array_utils.normalize_axis_tuple)
@folded
def normalize_axis_tuple(axis: Any, ndim: int, argname: str | None = None, allow_duplicate: bool = False) -> tuple[int, ...]:
    """Of dims that are known, in most functions that take an axis."""
    return numpy.lib.array_utils.normalize_axis_tuple(axis, ndim, argname, allow_duplicate)


@folded
def planes(axes: Any, ndim: int) -> tuple[int, int]:
    """The two dims that axes name."""
    first, second = numpy.lib.array_utils.normalize_axis_tuple(axes, ndim, "axes")
    return first, second


@polyfill(numpy.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", constant_values: Any = 0, reflect_type: str = "even") -> Array:
    """Around constant numbers; in the other modes items of the array, which recur with a period."""
    array = numpy.asarray(array)
    known_way = mode in PADDINGS and reflect_type == "even" and not isinstance(constant_values, (tuple, list))
    if not known_way or array.flags.fnc or not array.ndim:
        raise LeftToNumpy("numpy.pad with these arguments")
    around = pad_widths(pad_width, array.ndim)
    if mode == "constant":
        padded = numpy.full([before + n + after for n, (before, after) in zip(array.shape, around)], constant_values, array.dtype)
        padded[tuple([slice(before, before + n) for n, (before, _) in zip(array.shape, around)])] = array
        return padded
    if 0 in array.shape:
        raise LeftToNumpy("numpy.pad of an empty array")
    for dim, (before, after) in enumerate(around):
        array = numpy.take(array, padded_places(array.shape[dim], before, after, mode), dim)
    return array


PADDINGS = ("constant", "edge", "reflect", "symmetric", "wrap")


def pad_widths(width: Any, ndim: int) -> list[tuple[int, int]]:
    """(before, after) of each dim."""
    if isinstance(width, int):
        rows = [(width, width)] * ndim
    elif not isinstance(width, (tuple, list)):
        return known_pad_widths(width, ndim)
    elif len(width) == 2 and isinstance(width[0], int) and isinstance(width[1], int):
        rows = [(width[0], width[1])] * ndim
    elif len(width) == ndim and all([isinstance(row, (tuple, list)) and len(row) == 2 for row in width]):
        rows = [(before, after) for before, after in width]
    else:
        return known_pad_widths(width, ndim)
    if any([before < 0 or after < 0 for before, after in rows]):
        raise ValueError("index can't contain negative values")
    return rows


@folded
def known_pad_widths(width: Any, ndim: int) -> list[tuple[int, int]]:
    """The same for whatever else NumPy takes."""
    if numpy.min(width) < 0:
        raise ValueError("index can't contain negative values")
    return [(before, after) for before, after in numpy.broadcast_to(numpy.asarray(width, dtype=int), (ndim, 2)).tolist()]


def padded_places(size: int, before: int, after: int, mode: str) -> Array:
    """The places along a dim whose items stand along it when it is padded."""
    places = numpy.arange(-before, size + after)
    if mode == "edge":
        return numpy.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    first = -1 if mode == "symmetric" else 0  # a place and its image in front of the dim are as much together
    last = 2 * size - 2 - first
    if before < size and after < size:  # one image on either side is enough
        places = numpy.maximum(places, first - places)
    else:
        places = places % ((last - first) or 1)
    return numpy.minimum(places, last - places)


@polyfill(CONVERTER)
class ArrayConverter:
    """NumPy's own _array_converter, which its functions put their arguments through."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple([numpy.asarray(a) for a in arrays])
        self.scalar_input = tuple([not isinstance(a, (list, tuple, numpy.ndarray)) for a in arrays])

    def __getitem__(self, place: int) -> Array:
        return self.arrays[place]

    def as_arrays(self, *, subok: bool = True, pyscalars: str = "convert") -> tuple[Array, ...]:
        if pyscalars != "convert":
            raise LeftToNumpy("_array_converter.as_arrays with these arguments")
        return self.arrays

    def wrap(self, array: Any, *, to_scalar: bool | None = None) -> Any:
        return array[()] if (all(self.scalar_input) if to_scalar is None else to_scalar) else array
