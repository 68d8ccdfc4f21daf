"""Instructions back to a code object: arguments, jumps, and the tables of places and of exception handlers.

A part keeps the caches behind its instruction as the original had them, so that this knows nothing of single opcodes.
"""

from __future__ import annotations

from dis import opmap
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import types

__all__ = ["Part", "assemble", "at_one_place"]


class Part(NamedTuple):
    """An instruction to write. `target`: the part it jumps to, instead of `arg`. `handler`: (part, depth, whether the raising offset
    is pushed) of the exception handler that covers it. `position`: (line, end line, column, end column), each may be None."""

    opname: str
    arg: int
    position: tuple[int | None, ...]
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
    table = _location_table([part.position for part in parts], starts, code.co_firstlineno)
    return code.replace(co_code=bytes(written), co_linetable=table, co_exceptiontable=_exception_table(parts, starts), **changes)


def at_one_place(code: types.CodeType, position: tuple[int | None, ...]) -> types.CodeType:
    """`code` with all its instructions at one position: (line, end line, column, end column), each may be None."""
    return code.replace(co_linetable=_location_table([position], [0, len(code.co_code) // 2], code.co_firstlineno))


_EXTENDED_ARG = opmap["EXTENDED_ARG"]
_LONGEST_ENTRY = 8
_LINE, _LINES_AND_COLUMNS, _NO_PLACE = 13, 14, 15  # kinds of entries of the location table, see CPython's Objects/locations.md


def _location_table(positions: list[tuple[int | None, ...]], starts: list[int], line_before: int) -> bytes:
    """The table that says where instructions are in the source: one of `positions` from each of `starts` on."""
    table = bytearray()
    for index, position in enumerate(positions):
        line, end_line, column, end_column = position
        kind = _NO_PLACE if line is None else _LINE if None in position else _LINES_AND_COLUMNS
        for first in range(starts[index], starts[index + 1], _LONGEST_ENTRY):
            table.append(0x80 | kind << 3 | min(_LONGEST_ENTRY, starts[index + 1] - first) - 1)
            if line is not None:
                moved, line_before = line - line_before, line
                table += _varint(abs(moved) << 1 | (moved < 0))
            if kind == _LINES_AND_COLUMNS:
                table += _varint(end_line - line) + _varint(column + 1) + _varint(end_column + 1)
    return bytes(table)


def _varint(number: int) -> bytes:
    """Six bits a byte, the lowest first; the seventh says that more follow."""
    if number < 64:
        return _ONE_BYTE[number]
    made = bytearray()
    while number >= 64:
        made.append(64 | number & 63)
        number >>= 6
    made.append(number)
    return bytes(made)


_ONE_BYTE = [bytes((number,)) for number in range(64)]


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
    """One entry for each stretch with one handler: its start and length, the handler, how deep the stack is in it and whether the
    raising offset is pushed; see CPython's Objects/exception_handling_notes.txt."""
    table, first = bytearray(), 0
    for index in range(1, len(parts) + 1):
        handler = parts[first].handler
        if index < len(parts) and parts[index].handler == handler:
            continue
        if handler is not None:
            target, depth, lasti = handler
            entry = _entry_varint(starts[first])
            entry[0] |= 0x80
            for number in (starts[index] - starts[first], starts[target], depth << 1 | lasti):
                entry += _entry_varint(number)
            table += entry
        first = index
    return bytes(table)


def _entry_varint(number: int) -> bytearray:
    """Six bits a byte, the highest first; the seventh says that more follow."""
    made = bytearray((number & 63,))
    while number >= 64:
        number >>= 6
        made.insert(0, 64 | number & 63)
    return made
