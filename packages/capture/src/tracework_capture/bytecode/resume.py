"""Continuation functions: code that takes the live stack and locals of a frame and goes on in the middle of its code.

The original code keeps its instructions and exception table; a prologue pushes the stack and jumps. All cells of the frame
(its own and those it closes over) become free variables. With `raising`, the continuation raises its last argument at the
instruction instead of running it, so that the frame's own try and with blocks see the exception.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass

import bytecode as bc

from ..errors import SkipFrame
from .code import code_info
from .facts import VERSION
from .reload import local_name

__all__ = ["ResumePoint", "is_resume_code", "resume_code"]


@dataclass(frozen=True)
class ResumePoint:
    """Where and with what to go on. `stack` has one letter an entry: `v` a value, `n` a NULL."""

    index: int
    stack: str
    locals: tuple[str, ...]
    cells: tuple[str, ...]
    raising: bool = False


_CODES: dict[tuple[int, ResumePoint], types.CodeType] = {}
_RESUME_CODES: dict[int, types.CodeType] = {}
_CELL_OPCODES = frozenset({"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})


def is_resume_code(code: types.CodeType) -> bool:
    """Whether code was made here."""
    return id(code) in _RESUME_CODES


def resume_code(code: types.CodeType, point: ResumePoint) -> types.CodeType:
    """The continuation of `code` at `point`; one code object per point. Free variables are point.cells, in this order."""
    key = (id(code), point)
    made = _CODES.get(key)
    if made is None:
        made = _CODES[key] = _make(code, point)
        _RESUME_CODES[id(made)] = code  # keeps `code` alive: its id is a key
    return made


def _make(code: types.CodeType, point: ResumePoint) -> types.CodeType:
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise SkipFrame("a generator cannot be continued")
    source = bc.Bytecode.from_code(code)
    result = bc.Bytecode()
    stack_names = [f"__tw_stack{i}" for i, kind in enumerate(point.stack) if kind == "v"]
    names = list(point.locals) + stack_names + (["__tw_raised"] if point.raising else [])
    result.argcount, result.argnames = len(names), names
    result.name, result.filename = code.co_name, code.co_filename
    result.qualname = code.co_qualname
    result.first_lineno = code.co_firstlineno
    result.flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    result.freevars = list(point.cells)
    result.cellvars = []
    target = bc.Label()
    line = code_info(code).line(code_info(code).instructions[point.index])
    result.extend(_prologue(point, target, line))
    result.extend(_body(code, source, point, target, line))
    made = result.to_code()
    return made.replace(co_flags=(made.co_flags | inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS))


def _prologue(point: ResumePoint, target: bc.Label, line: int) -> list[bc.Instr]:
    def instr(name: str, arg: object = bc.UNSET) -> bc.Instr:
        return bc.Instr(name, arg, lineno=line)

    prologue = []
    if point.cells:
        prologue.append(instr("COPY_FREE_VARS", len(point.cells)))
    prologue.append(instr("RESUME", 0))
    number = 0
    for index, kind in enumerate(point.stack):
        if kind == "n":
            prologue.append(instr("PUSH_NULL"))
        else:
            prologue.append(instr("LOAD_FAST", f"__tw_stack{index}"))
            number += 1
    prologue.append(instr("JUMP_FORWARD", target))
    return prologue


def _body(code: types.CodeType, source: bc.Bytecode, point: ResumePoint, target: bc.Label, line: int) -> list[object]:
    body: list[object] = []
    index = -1
    for item in source:
        if not isinstance(item, bc.Instr):
            body.append(item)
            continue
        index += 1
        if index == point.index:
            body.extend(_landing(point, target, line))
        if item.name in ("MAKE_CELL", "COPY_FREE_VARS"):
            item = bc.Instr("NOP", location=item.location)
        elif isinstance(item.arg, bc.CellVar):
            item = bc.Instr(item.name, bc.FreeVar(item.arg.name), location=item.location)
        body.append(item)
    if index + 1 != len(code_info(code).instructions):
        raise SkipFrame("instructions of the code could not be matched")
    return body


def _landing(point: ResumePoint, target: bc.Label, line: int) -> list[object]:
    if not point.raising:
        return [target]
    after = bc.Label()
    return [
        bc.Instr("JUMP_FORWARD", after, lineno=line), target,
        bc.Instr("LOAD_FAST", "__tw_raised", lineno=line), bc.Instr("RAISE_VARARGS", 1, lineno=line), after,
    ]


assert VERSION >= (3, 11)
assert local_name("x") == "x"
