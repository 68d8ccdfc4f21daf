"""Instructions back to a code object: arguments, jumps, positions and the exception table of a list of parts.

A part keeps the caches behind its instruction as the original had them, so that this knows nothing of single opcodes. Formats:
CPython's Objects/locations.md and Objects/exception_handling_notes.txt.
"""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator

__all__ = ["Part", "assemble"]

_OPMAP = dis.opmap
_EXTENDED_ARG = _OPMAP["EXTENDED_ARG"]
_LONG_POSITION, _NO_POSITION, _LONGEST = 14, 15, 8
_UNIT = 2


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
    data = bytearray()
    for part, arg, width in zip(parts, args, widths):
        for shift in range(8 * (width - 1), 0, -8):
            data += bytes((_EXTENDED_ARG, arg >> shift & 255))
        data += bytes((_OPMAP[part.opname], arg & 255)) + bytes(_UNIT * part.caches)
    positions = b"".join(_positions(code.co_firstlineno, parts, starts))
    table = b"".join(_exception_table(parts, starts))
    return code.replace(co_code=bytes(data), co_linetable=positions, co_exceptiontable=table, **changes)


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


def _positions(line: int, parts: list[Part], starts: list[int]) -> Iterator[bytes]:
    """The table of positions: for each instruction its length and its place, the line relative to the one before."""
    for part, start, end in zip(parts, starts, starts[1:]):
        for at in range(start, end, _LONGEST):
            length = min(_LONGEST, end - at) - 1
            now, end_line, column, end_column = part.position
            if now is None:
                yield bytes((128 | _NO_POSITION << 3 | length,))
                continue
            step, line = now - line, now
            numbers = (
                abs(step) << 1 | (step < 0),
                (end_line or now) - now,
                *(0 if c is None else c + 1 for c in (column, end_column)),
            )
            yield bytes((128 | _LONG_POSITION << 3 | length,)) + b"".join(map(_varint, numbers))


def _varint(value: int) -> bytes:
    """Six bits a byte, least significant first; 64 says that more follow."""
    groups = bytearray()
    while value > 63:
        groups.append(value & 63 | 64)
        value >>= 6
    groups.append(value)
    return bytes(groups)


def _exception_table(parts: list[Part], starts: list[int]) -> Iterator[bytes]:
    """Rows (start, length, target, depth and whether the offset is pushed) of the stretches with one handler."""
    first = 0
    for index in range(1, len(parts) + 1):
        handler = parts[first].handler
        if index < len(parts) and parts[index].handler == handler:
            continue
        if handler is not None:
            target, depth, lasti = handler
            row = (starts[first], starts[index] - starts[first], starts[target], depth << 1 | lasti)
            yield b"".join(_big_varint(value, 128 if number == 0 else 0) for number, value in enumerate(row))
        first = index


def _big_varint(value: int, mark: int) -> bytes:
    """Six bits a byte, most significant first; 64 says that more follow, `mark` is on the first byte."""
    groups = [value & 63]
    while value := value >> 6:
        groups.append(value & 63)
    groups.reverse()
    return bytes(g | (64 if i < len(groups) - 1 else 0) | (mark if i == 0 else 0) for i, g in enumerate(groups))
