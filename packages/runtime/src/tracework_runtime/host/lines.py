"""The host program of a graph as data: what is bound, allocated, launched, called, freed and returned, in order.

A name stands for a tensor or, where a Bind made it, for a number; an Extent is a number or an expression over such names. `text` is Python
over names and over the globals of the artifact's host_source.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from tracework_runtime.errors import ArtifactError
from tracework_runtime.results import LARGE

__all__ = [
    "CALL",
    "WORK",
    "Address",
    "Allocate",
    "Argument",
    "Bind",
    "Call",
    "Free",
    "Give",
    "Inputs",
    "Launch",
    "Line",
    "Native",
    "Number",
    "Result",
    "Return",
    "Reuse",
    "Take",
    "Window",
    "input_names",
    "lines_from_data",
    "lines_to_data",
]

Extent = int | str
CALL = "\n\n\ndef call(args):\n"
"""What parts a host_source into its globals and the lines as Python text."""
WORK = "work"
"""The name of the workspace, whose address is that of its first byte."""


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a tensor's first element lies, plus `offset` in bytes."""

    name: str
    offset: Extent = 0


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The arguments get their names, and their list is emptied."""

    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Bind:
    """A number that an input is, or has among its sizes and strides."""

    symbol: str
    text: str
    reads: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Number:
    """The number that the input `given` is, an int or a tensor of one number on the CPU, in the memory of a device; the input is that memory
    itself in a recording."""

    name: str
    given: str
    device: str

    @property
    def text(self) -> str:
        """As a statement."""
        return f"{self.name} = in_memory({self.given}, {self.device!r})"


@dataclasses.dataclass(frozen=True)
class Take:
    """A workspace of `size` bytes, as the name WORK, and the tensors over it as `views`."""

    size: int


@dataclasses.dataclass(frozen=True)
class Allocate:
    """Memory that kernels fill, on the CPU or the one GPU: device is "cpu" or "cuda"."""

    name: str
    device: str
    dtype: str
    sizes: tuple[Extent, ...]
    strides: tuple[Extent, ...]

    @property
    def function(self) -> str:
        """What of tracework_runtime.results makes it."""
        known = [s for s in self.sizes if isinstance(s, int)]
        nbytes: int = math.prod(known) * getattr(torch, self.dtype).itemsize
        large = self.device == "cpu" and (nbytes >= LARGE or len(known) < len(self.sizes))
        return "large_cpu" if large else f"empty_{self.device}"


@dataclasses.dataclass(frozen=True)
class Reuse:
    """The memory of `old` as `new`; view: what comes behind a tensor's name for the other shape, if it is another."""

    new: str
    old: str
    view: str


@dataclasses.dataclass(frozen=True)
class Launch:
    """A kernel of the artifact, with addresses and numbers.

    failure: the statement for a result other than 0, which it can read as `failed`; empty for a kernel without result.
    writes: the names whose memory it writes to.
    """

    function: str
    operands: tuple[Address | Extent, ...]
    failure: str = ""
    writes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Window:
    """A tensor whose first element lies `offset` elements behind the first of `name`, and `first` bytes behind it in the workspace; text
    makes it of what is named.
    """

    name: str
    first: int
    offset: Extent
    sizes: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    text: str
    dtype: str


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of torch's C function: of a kind of library.ARGUMENT_KINDS, with a Window, numbers or nothing. text: how the call of the
    operator writes it, {} for a window; empty where that leaves it out.
    """

    kind: str
    value: Window | tuple[Extent, ...] | float | None
    text: str


@dataclasses.dataclass(frozen=True)
class Result:
    """What torch's C function gives: a tensor for `name` (empty: for nobody), or a number where there is no dtype. check: the call that says
    whether it is that, {} for the tensor.
    """

    name: str
    dtype: str
    sizes: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    check: str


@dataclasses.dataclass(frozen=True)
class Native:
    """torch's C function that does what a Call does: "convolution", on one device ("cpu" or "cuda:0"). operator: the global that is called
    with the arguments, in this order; is_tuple: it gives several results.
    """

    function: str
    device: str
    operator: str
    is_tuple: bool
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]


@dataclasses.dataclass(frozen=True)
class Call:
    """Statements, such as a library call.

    writes: the names that they make. operators: "aten::mm" or "prims::sort", of what they run by the library. changes: the names among
    `reads` whose memory they write to. devices: where their tensors lie, "cpu" or "cuda:0". symbols: those that the sizes of what they make
    depend on.
    native: the same without Python.
    """

    text: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    native: Native | None = None


@dataclasses.dataclass(frozen=True)
class Free:
    """Names that nobody needs any longer."""

    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Give:
    """The workspace goes back."""


@dataclasses.dataclass(frozen=True)
class Return:
    """The outputs, each as text."""

    values: tuple[str, ...]
    reads: tuple[str, ...]


Line = Inputs | Bind | Number | Take | Allocate | Reuse | Launch | Call | Free | Give | Return
_LINES: Mapping[str, Any] = {
    kind.__name__.lower(): kind for kind in (Inputs, Bind, Number, Take, Allocate, Reuse, Launch, Call, Free, Give, Return)
}
_PARTS: Mapping[str, Any] = {kind.__name__.lower(): kind for kind in (Window, Argument, Result, Native)}
_FIELDS = {word: len(dataclasses.fields(kind)) for word, kind in _LINES.items()}


def input_names(lines: Sequence[Line]) -> tuple[str, ...]:
    """The names that a program's first line gives to its inputs. Raises ArtifactError where another line comes first."""
    if not lines or not isinstance(first := lines[0], Inputs):
        raise ArtifactError("a host program begins with its inputs")
    return first.names


def lines_to_data(lines: Iterable[Line]) -> list[list[Any]]:
    """Lines as JSON holds them: a word, then the fields in order."""
    return [[type(line).__name__.lower(), *(_out(getattr(line, f.name)) for f in dataclasses.fields(line))] for line in lines]


def lines_from_data(data: Sequence[Sequence[Any]]) -> tuple[Line, ...]:
    """The inverse. Raises ArtifactError for a word or a number of fields that is none of ours."""
    found = []
    for word, *fields in data:
        kind = _LINES.get(word)
        if kind is None or len(fields) != _FIELDS[word]:
            raise ArtifactError(f"a host program with a line {word!r} of {len(fields)} fields, which this version does not know")
        found.append(kind(*map(_in, fields)))
    return tuple(found)


def _out(value: Any) -> Any:
    if isinstance(value, Address):
        return {"at": value.name, "offset": value.offset}
    word = type(value).__name__.lower()
    if word in _PARTS:
        return {word: [_out(getattr(value, f.name)) for f in dataclasses.fields(value)]}
    return [_out(v) for v in value] if isinstance(value, tuple) else value


def _in(value: Any) -> Any:
    if isinstance(value, dict):
        if "at" in value:
            return Address(value["at"], value["offset"])
        ((word, fields),) = value.items()
        return _PARTS[word](*map(_in, fields))
    return tuple(map(_in, value)) if isinstance(value, list) else value
