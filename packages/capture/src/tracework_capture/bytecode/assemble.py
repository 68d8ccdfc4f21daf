"""Instructions back to a code object: arguments and jumps are laid out here, the bytecode package writes the tables.

A part keeps the caches behind its instruction as the original had them, so that this knows nothing of single opcodes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from dis import opmap
from typing import Any, NamedTuple

import bytecode as bc
from bytecode.concrete import ExceptionTableEntry
from bytecode.instr import UNSET, InstrLocation, opcode_has_argument


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
    written = bc.ConcreteBytecode()
    written.first_lineno = code.co_firstlineno
    # CPython looks whether locals and cells of instructions are there
    written.varnames, written.freevars = list(changes["co_varnames"]), list(changes["co_freevars"])
    written.cellvars = list(changes.get("co_cellvars", ()))
    for part, arg, width in zip(parts, args, widths):
        written.append(_instruction(part.opname, arg, part.position, width))
        if part.caches:
            written.extend([_instruction("CACHE", 0, part.position, 1)] * part.caches)
    written.exception_table = list(_exception_table(parts, starts))
    made = written.to_code(stacksize=code.co_stacksize, compute_exception_stack_depths=False)
    return code.replace(co_code=made.co_code, co_linetable=made.co_linetable, co_exceptiontable=made.co_exceptiontable, **changes)


@functools.lru_cache(8192)  # the continuations of one function consist of the same instructions, which are only read
def _instruction(opname: str, arg: int, position: tuple[int | None, ...], width: int) -> bc.ConcreteInstr:
    """An instruction, its argument in so many bytes."""
    given = arg if opcode_has_argument(opmap[opname]) else UNSET
    return bc.ConcreteInstr(opname, given, location=InstrLocation(*position), extended_args=width - 1)


def at_one_place(code: types.CodeType, position: tuple[int | None, ...]) -> types.CodeType:
    """`code` with all its instructions at one position: (line, end line, column, end column), each may be None."""
    line, end_line, column, end_column = position
    units = len(code.co_code) // 2
    table, moved = bytearray(), (line or 0) - code.co_firstlineno
    for first in range(0, units, _LONGEST_ENTRY):
        count = min(_LONGEST_ENTRY, units - first)
        kind = _NO_PLACE if line is None else _LINE if None in position else _LINES_AND_COLUMNS
        table.append(0x80 | kind << 3 | count - 1)
        if line is not None:
            table += _varint(abs(moved) << 1 | (moved < 0))
            moved = 0
        if line is not None and end_line is not None and column is not None and end_column is not None:
            table += _varint(end_line - line) + _varint(column + 1) + _varint(end_column + 1)
    return code.replace(co_linetable=bytes(table))


_LONGEST_ENTRY = 8
_LINE, _LINES_AND_COLUMNS, _NO_PLACE = 13, 14, 15  # kinds of entries of the location table, see CPython's Objects/locations.md


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


def _exception_table(parts: list[Part], starts: list[int]) -> Iterator[ExceptionTableEntry]:
    """The stretches with one handler."""
    first = 0
    for index in range(1, len(parts) + 1):
        handler = parts[first].handler
        if index < len(parts) and parts[index].handler == handler:
            continue
        if handler is not None:
            target, depth, lasti = handler
            yield ExceptionTableEntry(starts[first], starts[index] - 1, starts[target], depth, lasti)
        first = index
