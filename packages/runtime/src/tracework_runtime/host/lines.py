"""The host program of a graph as data: what is bound, allocated, launched, called, freed and returned, in order.

A name stands for a tensor or, where a Bind made it, for a number; an Extent is a number or an expression over such names. `text` is Python
over names and over the globals of the artifact's host_source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tracework_runtime.errors import ArtifactError

__all__ = [
    "CALL",
    "WORK",
    "Address",
    "Allocate",
    "Bind",
    "Call",
    "Free",
    "Give",
    "Inputs",
    "Launch",
    "Line",
    "Product",
    "Return",
    "Reuse",
    "Take",
    "Window",
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
class Call:
    """Statements, such as a library call.

    writes: the names that they make. operators: "aten::mm" or "prims::sort", of what they run by the library. changes: the names among
    `reads` whose memory they write to. devices: where their tensors lie, "cpu" or "cuda:0". symbols: those that the sizes of what they make
    depend on.
    """

    text: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Window:
    """A tensor of known sizes and strides whose first element lies `offset` elements behind the first of `name`, and `first` bytes behind
    it in the workspace; text makes it of what is named.
    """

    name: str
    first: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    text: str


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product by the library into `operands[0]`, in one dtype on one device ("cpu" or "cuda:0").

    function: "mm_out", "addmm_out", "bmm_out" or "baddbmm_out". numbers: beta and alpha. call: the global that does the same with the
    other operands, `keywords` and `out=`.
    """

    function: str
    operands: tuple[Window, ...]
    dtype: str
    device: str
    numbers: tuple[float, float]
    call: str
    keywords: tuple[str, ...]
    operators: tuple[str, ...]

    def text(self, tensors: Sequence[str]) -> str:
        """The call with the operands as these texts."""
        return f"{self.call}({', '.join([*tensors[1:], *self.keywords, f'out={tensors[0]}'])})"


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


Line = Inputs | Bind | Take | Allocate | Reuse | Launch | Call | Product | Free | Give | Return
_LINES: Mapping[str, Any] = {
    kind.__name__.lower(): kind for kind in (Inputs, Bind, Take, Allocate, Reuse, Launch, Call, Product, Free, Give, Return)
}
_FIELDS = {word: len(dataclasses.fields(kind)) for word, kind in _LINES.items()}


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
    if isinstance(value, Window):
        return {"window": [_out(getattr(value, f.name)) for f in dataclasses.fields(value)]}
    return [_out(v) for v in value] if isinstance(value, tuple) else value


def _in(value: Any) -> Any:
    if isinstance(value, dict):
        return Window(*map(_in, value["window"])) if "window" in value else Address(value["at"], value["offset"])
    return tuple(map(_in, value)) if isinstance(value, list) else value
