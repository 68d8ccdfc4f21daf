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


@folded
def planes(axes: Any, ndim: int) -> tuple[int, int]:
    """The two dims that axes name."""
    first, second = numpy.lib.array_utils.normalize_axis_tuple(axes, ndim, "axes")
    return first, second


@polyfill(numpy.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", constant_values: Any = 0, reflect_type: str = "even") -> Array:
    """Around constant numbers; in the other modes items of the array, at places that NumPy finds."""
    array = numpy.asarray(array)
    if mode not in PADDINGS or reflect_type != "even" or isinstance(constant_values, (tuple, list)) or array.flags.fnc:
        raise LeftToNumpy("numpy.pad with these arguments")
    around = pad_widths(pad_width, array.ndim)
    if mode == "constant":
        padded = numpy.full([before + n + after for n, (before, after) in zip(array.shape, around)], constant_values, array.dtype)
        padded[tuple([slice(before, before + n) for n, (before, _) in zip(array.shape, around)])] = array
        return padded
    for dim, width in enumerate(around):
        array = numpy.take(array, padded_places(array.shape[dim], width, mode), dim)
    return array


PADDINGS = ("constant", "edge", "reflect", "symmetric", "wrap")


@folded
def pad_widths(width: Any, ndim: int) -> list[tuple[int, int]]:
    """(before, after) of each dim."""
    if numpy.min(width) < 0:
        raise ValueError("index can't contain negative values")
    return [(before, after) for before, after in numpy.broadcast_to(numpy.asarray(width, dtype=int), (ndim, 2)).tolist()]


@folded
def padded_places(size: int, width: tuple[int, int], mode: str) -> list[int]:
    """The places along a dim whose items stand along it when it is padded."""
    places: list[int] = numpy.pad(numpy.arange(size), width, mode).tolist()  # type: ignore[call-overload]
    return places


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
