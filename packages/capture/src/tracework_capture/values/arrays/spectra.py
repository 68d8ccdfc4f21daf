"""numpy.fft: transforms in the precision of the array, results laid out as the array."""

from __future__ import annotations

from typing import Any

import torch

from ...arrays import numpy
from ..protocol.value import Frame, Value
from .arguments import Argument, axes_of, known, one_axis
from .array import ArrayValue
from .breaks import refuse
from .layouts import ordered_like
from .nodes import call, call_method
from .operands import as_array, cast
from .table import function


def prepared(frame: Frame, name: str, value: Value) -> tuple[ArrayValue, ArrayValue]:
    """The array, and one with the numbers that are transformed."""
    a = as_array(frame, value)
    wanted = numpy.dtype(numpy.result_type(a.dtype, numpy.float32) if a.dtype.kind in "fc" else numpy.float64)
    if a.example.ndim == 0 or a.dtype == numpy.float16:
        return refuse(frame, f"numpy.fft.{name} of a number, or of halves")
    return a, ArrayValue(cast(frame, a.tensor, wanted))


def made(frame: Frame, found: Any, a: ArrayValue) -> ArrayValue:
    return ArrayValue(ordered_like(frame, call_method(frame, "resolve_conj", found), a))


def along_one(name: str) -> None:
    """fft and its kin along one axis."""

    def handler(frame: Frame, a: Value, n: Argument = None, axis: Argument = -1, norm: Argument = None) -> Value:
        given, a = prepared(frame, name, a)
        if name in ("rfft", "ihfft") and a.dtype.kind == "c":
            return refuse(frame, f"numpy.fft.{name} of complex numbers")
        dim = one_axis(frame, axis, a.example.ndim)
        return made(frame, call(frame, getattr(torch.fft, name), a.tensor, known(frame, n), dim, known(frame, norm)), given)

    function(f"fft.{name}", complex=True)(handler)


def along_many(name: str, dims: tuple[int, ...] | None) -> None:
    """fftn and its kin; dims: the axes where none are given."""

    def handler(frame: Frame, a: Value, s: Argument = None, axes: Argument = dims, norm: Argument = None) -> Value:
        (given, a), sizes = prepared(frame, name, a), known(frame, s)
        if (name.startswith("rfft") and a.dtype.kind == "c") or sizes is not None and None in (known(frame, axes), *sizes):
            return refuse(frame, f"numpy.fft.{name} with these arguments")
        axes = known(frame, axes)
        found = axes_of(frame, axes if axes is None else tuple(axes), a.example.ndim)
        found = tuple(range(a.example.ndim)) if found is None else found
        if not found or len(set(found)) != len(found):
            return refuse(frame, f"numpy.fft.{name} along axes that repeat, or none")
        return made(frame, call(frame, getattr(torch.fft, name), a.tensor, sizes, found, known(frame, norm)), given)

    function(f"fft.{name}", complex=True)(handler)


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    along_one(_name)
for _name, _dims in (("2", (-2, -1)), ("n", None)):
    for _kind in ("fft", "ifft", "rfft", "irfft"):
        along_many(_kind + _name, _dims)
