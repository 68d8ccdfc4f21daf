"""Instructions back to a code object: arguments, jumps, locations and exception handlers are laid out here.

A part keeps the caches behind its instruction as the original had them, so that this knows nothing of single opcodes. The two tables
are written as CPython's Objects/locations.md and Objects/exception_handling_notes.txt describe them.
"""

from __future__ import annotations

import functools
from dis import opmap
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable, Iterator

__all__ = ["Part", "assemble", "at_one_place"]

_EXTENDED_ARG = opmap["EXTENDED_ARG"]
_Position = tuple["int | None", ...]


class Part(NamedTuple):
    """An instruction to write. `target`: the part it jumps to, instead of `arg`. `handler`: (part, depth, whether the raising offset
    is pushed) of the exception handler that covers it. `position`: (line, end line, column, end column), each may be None."""

    opname: str
    arg: int
    position: _Position
    caches: int = 0
    target: int = -1
    handler: tuple[int, int, bool] | None = None


def assemble(code: types.CodeType, parts: list[Part], **changes: Any) -> types.CodeType:
    """`code` with these instructions instead of its own, and with the `changes` that code.replace() takes."""
    starts, args, widths = _lay_out(parts)
    written = bytearray()
    for part, arg, width in zip(parts, args, widths):
        for shift in range(8 * (width - 1), 0, -8):
            written += bytes((_EXTENDED_ARG, arg >> shift & 255))
        written += bytes((opmap[part.opname], arg & 255)) + bytes(2 * part.caches)
    stretches = ((after - start, part.position) for part, start, after in zip(parts, starts, starts[1:]))
    return code.replace(
        co_code=bytes(written),
        co_linetable=_location_table(code.co_firstlineno, stretches),
        co_exceptiontable=_exception_table(parts, starts),
        **changes,
    )


def at_one_place(code: types.CodeType, position: _Position) -> types.CodeType:
    """`code` with all its instructions at one position: (line, end line, column, end column), each may be None."""
    return code.replace(co_linetable=_location_table(code.co_firstlineno, [(len(code.co_code) // 2, position)]))


def _location_table(line_before: int, stretches: Iterable[tuple[int, _Position]]) -> bytes:
    """The table of stretches: (code units, position)."""
    table = bytearray()
    for units, position in stretches:
        line = position[0]
        moved = 0 if line is None else line - line_before
        line_before += moved
        for first in range(0, units, _LONGEST_ENTRY):
            table += _location(min(_LONGEST_ENTRY, units - first), 0 if first else moved, position)
    return bytes(table)


_LONGEST_ENTRY = 8
_LINE, _LINES_AND_COLUMNS, _NO_PLACE = 13, 14, 15  # kinds of entries of the location table


@functools.lru_cache(8192)  # the continuations of one function consist of the same instructions
def _location(units: int, moved: int, position: _Position) -> bytes:
    """One entry of the location table; `moved` counts the lines from the one before."""
    line, end_line, column, end_column = position
    kind = _NO_PLACE if line is None else _LINE if None in position else _LINES_AND_COLUMNS
    entry = bytes((0x80 | kind << 3 | units - 1,))
    if kind != _NO_PLACE:
        entry += _varint(abs(moved) << 1 | (moved < 0))
    if kind == _LINES_AND_COLUMNS:
        entry += _varint(end_line - line) + _varint(column + 1) + _varint(end_column + 1)
    return entry


def _varint(number: int) -> bytes:
    """Six bits a byte, the lowest first; the seventh says that more follow."""
    made = bytearray()
    while number >= 64:
        made.append(64 | number & 63)
        number >>= 6
    made.append(number)
    return bytes(made)


def _lay_out(parts: list[Part]) -> tuple[list[int], list[int], list[int]]:
    """Where each part starts (and the end) in code units, its argument, and how many bytes that has: the first in the instruction
    itself, each other in an EXTENDED_ARG. A jump that needs more makes others longer, so this is repeated until all fit."""
    args = [part.arg for part in parts]
    widths = [_width(arg) for arg in args]
    jumps = [(i, part.target) for i, part in enumerate(parts) if part.target >= 0]
    while True:
        starts = [0]
        for part, width in zip(parts, widths):
            starts.append(starts[-1] + width + part.caches)
        fit = True
        for index, target in jumps:
            args[index] = abs(starts[target] - starts[index + 1])
            if _width(args[index]) > widths[index]:
                widths[index], fit = _width(args[index]), False
        if fit:
            return starts, args, widths


def _width(arg: int) -> int:
    return max(1, (arg.bit_length() + 7) // 8)


def _exception_table(parts: list[Part], starts: list[int]) -> bytes:
    """The stretches with one handler: start, length, handler, and the depth of its stack with a bit for the offset, each in groups of
    six bits, the highest first; a bit says that more groups follow, another one that a row starts."""
    table = bytearray()
    for row in _covered(parts, starts):
        begun = 0x80
        for number in row:
            for shift in range(6 * (max(0, number.bit_length() - 1) // 6), -1, -6):
                table.append(begun | (64 if shift else 0) | number >> shift & 63)
                begun = 0
    return bytes(table)


def _covered(parts: list[Part], starts: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """The rows of the exception table."""
    first = 0
    for index in range(1, len(parts) + 1):
        handler = parts[first].handler
        if index < len(parts) and parts[index].handler == handler:
            continue
        if handler is not None:
            target, depth, lasti = handler
            yield starts[first], starts[index] - starts[first], starts[target], depth << 1 | lasti
        first = index
