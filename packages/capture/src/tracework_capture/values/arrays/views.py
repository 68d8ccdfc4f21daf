"""Views of arrays that torch has no tensor for: dims that run backwards (negative strides), memory that nothing may be written to.

Such an array is kept as a tensor over the same memory, in the order of the memory, and what is special about it: computing with it reads
the memory as it is then, writing to it writes there, and what the program gets is NumPy's own view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...arrays import as_view, numpy
from ...sources import Source
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Emitter, Frame
from .array import ARRAY_ATTRIBUTES, ArrayValue
from .breaks import refuse
from .layouts import is_in_fortran_order
from .nodes import call, call_method


class SpecialView(ArrayValue):
    """`memory` is a tensor over the memory; `flips` are the dims that run backwards; not all may be written to."""

    is_plain = False

    def __init__(
        self, frame: Frame, memory: AbstractTensor, flips: Iterable[int], writeable: bool, base: Any, source: Source | None = None
    ) -> None:
        super().__init__(memory, source=source, base=base)
        self.frame, self.flips, self.writeable = frame, frozenset(flips), writeable

    warns = False
    """Whether it may be written to, with a warning."""

    @property
    def tensor(self) -> AbstractTensor:
        """What it holds now: with dims that run backwards a copy."""
        return flipped(self.frame, self.memory, self.flips)

    def shared(self, frame: Frame) -> AbstractTensor:
        return refuse(frame, f"a tensor over a {self.describe()} with negative strides, or that is read-only")

    def write(self, frame: Frame, source: AbstractTensor) -> None:
        if not self.writeable:
            refuse(frame, "an array that is read-only is written to")
        if self.flips:
            sizes = tuple(self.example.shape)
            source = flipped(frame, call_method(frame, "expand", source, sizes), self.flips)
        call_method(frame, "copy_", self.memory, source)

    def reload(self, emit: Emitter) -> str:
        return (
            f"{emit.const(as_view)}({self.over_memory(emit)}, {sorted(self.flips)!r}, {'None' if self.warns else self.writeable})"
        )


def inside_of(frame: Frame, made: ArrayValue, sizes: tuple[Any, ...]) -> ArrayValue:
    """What a function made, as a view of an array of these sizes that owns the memory: so NumPy's own code leaves some results."""
    if made.scalar or 0 in sizes:
        return made
    return view_of(frame, ArrayValue(call(frame, torch.reshape, made.memory, sizes)), made.memory)


def held_sizes(array: Any) -> tuple[int, ...] | None:
    """The sizes of the array that this one is all of, in other dims or the same; None for others."""
    held = array.base
    if type(held) is not numpy.ndarray or held.dtype != array.dtype or not (held.flags.c_contiguous and array.flags.c_contiguous):
        return None
    sizes: tuple[int, ...] = held.shape
    return sizes if held.size == array.size else None


def flipped(frame: Frame, tensor: AbstractTensor, dims: Iterable[int]) -> AbstractTensor:
    """The tensor, its items in these dims the other way round."""
    return call(frame, torch.flip, tensor, tuple(sorted(dims))) if dims else tensor


def viewed(frame: Frame, array: ArrayValue, made: Any, dims: Iterable[int | None] | None = None) -> ArrayValue:
    """The array for a tensor over (some of) its memory; dims: of each of its dims, which one of the array it is, None where it is new."""
    flips = [new for new, old in enumerate(dims or ()) if old in array.flips]
    if made.example.storage is not array.memory.example.storage or array.scalar:
        return ArrayValue(made, array.scalar)
    return view_of(frame, array, made, flips)


def view_of(frame: Frame, array: ArrayValue, made: Any, flips: Iterable[int] = ()) -> ArrayValue:
    """The array for a tensor over (some of) the memory of this one, whose dims `flips` run backwards."""
    if not flips and array.writeable:
        return ArrayValue(made, base=array)
    return SpecialView(frame, made, flips, array.writeable, array)


def permuted(frame: Frame, a: ArrayValue, dims: Iterable[int]) -> ArrayValue:
    dims = tuple(dims)
    return viewed(frame, a, call(frame, torch.permute, a.memory, dims), dims)


def transposed(frame: Frame, self: ArrayValue) -> ArrayValue:
    return permuted(frame, self, reversed(range(self.example.ndim)))


def matrix_transposed(frame: Frame, self: ArrayValue) -> ArrayValue:
    if self.example.ndim < 2:
        return refuse(frame, "mT of an array of less than two dims")
    dims = list(range(self.example.ndim))
    return permuted(frame, self, [*dims[:-2], dims[-1], dims[-2]])


def part(frame: Frame, self: ArrayValue, which: int) -> ArrayValue:
    """real and imag: views of complex arrays; real arrays are their own real part, and their imaginary one is read-only."""
    if self.dtype.kind == "c":
        pairs = call(frame, torch.view_as_real, self.memory)
        found = call(frame, torch.select, pairs, -1, which)
        return viewed(frame, self, found, range(self.example.ndim))
    if which == 0:
        return self
    layout = torch.preserve_format if is_in_fortran_order(self) else torch.contiguous_format
    zeros = call(frame, torch.zeros_like, self.tensor, memory_format=layout)
    return ArrayValue(zeros, scalar=True) if self.scalar else SpecialView(frame, zeros, (), False, None)


ARRAY_ATTRIBUTES.add(
    {
        "T": transposed,
        "mT": matrix_transposed,
        "real": lambda frame, self: part(frame, self, 0),
        "imag": lambda frame, self: part(frame, self, 1),
    }
)
