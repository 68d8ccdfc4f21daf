"""Code objects as lists of decoded instructions, made once per code object.

An instruction knows its resolved argument, the index of its jump target, the exception handler that covers it, and whether it
lies inside a loop; specialised and cache instructions never appear (co_code is the plain form).
"""

from __future__ import annotations

import dis
import types
import weakref
from typing import Any, NamedTuple

from ..errors import SkipFrame
from ..exception_table import exception_table
from .facts import HAS_CONST, HAS_FREE, HAS_JUMP, HAS_LOCAL, HAS_NAME, NAME_SHIFTS, PAIR_LOCALS
from .liveness import followers, reachable

_OPNAME = dis.opname
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap["CACHE"]


class Handler(NamedTuple):
    """A row of the exception table: where to go, how deep the stack is then, whether the raising offset is pushed."""

    target: int
    depth: int
    push_lasti: bool


class Instruction:
    """One instruction. `value` is its resolved argument, `target` the index of its jump target, `caches` counts the units behind it,
    `run` is its handler (set lazily)."""

    __slots__ = ("arg", "caches", "handler", "index", "in_loop", "offset", "opname", "run", "target", "value")

    def __init__(self, index: int, offset: int, opname: str, arg: int, value: Any) -> None:
        self.index, self.offset, self.opname, self.arg, self.value = index, offset, opname, arg, value
        self.target = -1
        self.caches = 0
        self.handler: Handler | None = None
        self.in_loop = False
        self.run: Any = None

    def __repr__(self) -> str:
        return f"{self.offset} {self.opname} {self.value!r}"


class CodeInfo:
    """Decoded instructions of a code object."""

    def __init__(self, code: types.CodeType) -> None:
        self._code = weakref.ref(code)
        self.instructions: list[Instruction] = []
        self.by_offset: dict[int, int] = {}
        self.live: list[frozenset[str]] | None = None  # liveness.py keeps its solution here
        self._positions: list[Any] | None = None
        self._decode()
        self._attach_handlers()
        self._mark_loops()

    @property
    def code(self) -> types.CodeType:
        """The code object, which whoever asks holds."""
        code = self._code()
        assert code is not None
        return code

    def line(self, instruction: Instruction) -> int:
        """User's line of an instruction."""
        return self.position(instruction)[0] or self.code.co_firstlineno

    def position(self, instruction: Instruction) -> Any:
        """(line, end line, column, end column)"""
        if self._positions is None:
            self._positions = list(self.code.co_positions())
        return self._positions[instruction.offset // 2]

    def _decode(self) -> None:
        code, data = self.code, self.code.co_code
        extended, start, jumps = 0, None, []
        for offset in range(0, len(data), 2):
            op, arg = data[offset], data[offset + 1] | extended
            if op == _CACHE:
                if not self.instructions:  # as which CPython gives an opcode that it does not know
                    raise SkipFrame(f"{code.co_qualname} has bytecode that CPython does not run")
                self.instructions[-1].caches += 1
                continue
            if start is None:
                start = offset
            if op == _EXTENDED_ARG:
                extended = arg << 8
                continue
            opname = _OPNAME[op]
            index = len(self.instructions)
            instruction = Instruction(index, offset, opname, arg, _resolve(code, op, opname, arg))
            for at in range(start, offset + 2, 2):
                self.by_offset[at] = index
            self.instructions.append(instruction)
            if op in HAS_JUMP:
                jumps.append(instruction)
            extended, start = 0, None
        self._resolve_jumps(jumps, len(data))

    def _resolve_jumps(self, jumps: list[Instruction], size: int) -> None:
        data = self.code.co_code
        for instruction in jumps:
            after = instruction.offset + 2
            while after < size and data[after] == _CACHE:
                after += 2
            step = -2 * instruction.arg if "BACKWARD" in instruction.opname else 2 * instruction.arg
            instruction.target = self.by_offset[after + step]

    def _attach_handlers(self) -> None:
        for start, end, target, depth, lasti in exception_table(self.code):
            handler = Handler(self.by_offset[target], depth, lasti)
            for offset in range(start, end, 2):
                index = self.by_offset.get(offset)
                if index is not None:
                    self.instructions[index].handler = handler

    def _mark_loops(self) -> None:
        """What lies on a cycle is in a loop. Not all that jumps back goes around: handlers lie behind all other code (3.12+)."""
        instructions = self.instructions
        backward: dict[int, list[int]] = {}
        for jump in instructions:
            if 0 <= jump.target < jump.index:
                backward.setdefault(jump.target, []).append(jump.index)
        for head in sorted(backward):
            if instructions[head].in_loop:
                continue
            body = set(reachable(self, head))
            open_ = [jump for jump in backward[head] if jump in body]
            before: dict[int, list[int]] = {}
            if open_:
                for at in body:
                    for after in followers(instructions[at]):
                        before.setdefault(after, []).append(at)
            while open_:
                inside = instructions[open_.pop()]
                if not inside.in_loop:
                    inside.in_loop = True
                    open_ += before.get(inside.index, ())


def _resolve(code: Any, op: int, opname: str, arg: int) -> Any:
    if op in HAS_CONST:
        return code.co_consts[arg]
    if op in HAS_NAME:
        return code.co_names[arg >> NAME_SHIFTS.get(opname, 0)]
    if opname in PAIR_LOCALS:
        return code._varname_from_oparg(arg >> 4), code._varname_from_oparg(arg & 15)
    if op in HAS_LOCAL or op in HAS_FREE:
        return code._varname_from_oparg(arg)
    return arg


_INFOS: dict[int, tuple[weakref.ref[types.CodeType], CodeInfo]] = {}


def code_info(code: types.CodeType) -> CodeInfo:
    """The decoded form of a code object; the table is by identity, since equal code may be of several functions, and holds no code."""
    key = id(code)
    found = _INFOS.get(key)
    if found is None:
        found = _INFOS[key] = (weakref.ref(code, lambda dead: _INFOS.pop(key, None)), CodeInfo(code))
    return found[1]
