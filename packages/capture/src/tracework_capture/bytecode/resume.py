"""Continuation functions: code that takes the live stack and locals of a frame and goes on in the middle of its code.

The original code keeps its instructions and exception table; a prologue pushes the stack and jumps. All cells of the frame
(its own and those it closes over) become free variables. With `raising`, the continuation raises its last argument at the
instruction instead of running it, so that the frame's own try and with blocks see the exception.

The evaluator calls a continuation when the frame that broke has ended (run_entry in csrc/eval_frame.c): the program sees one frame,
and no round of a loop lies on the stack of the one before. A continuation of a continuation is one of the original code: a break
that comes around again finds the same code object.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass, replace

import bytecode as bc

from .. import _C
from ..errors import SkipFrame
from .code import CodeInfo, code_info, exception_table

__all__ = [
    "ResumePoint",
    "continues_a_loop",
    "is_inside_a_round",
    "is_resume_code",
    "original_code",
    "result_slot",
    "resume_code",
]


@dataclass(frozen=True)
class ResumePoint:
    """Where and with what to go on. `stack` has one letter an entry: `v` a value, `n` a NULL,
    `i` an iterator over the tuple that is given; `h` the entry of an
    except or finally block, which stands for what was being handled before it; what is being handled in it comes as the argument."""

    index: int
    stack: str
    locals: tuple[str, ...]
    cells: tuple[str, ...]
    raising: bool = False
    looping: bool = False


@dataclass(frozen=True)
class _Made:
    """A continuation: the code it goes on with, where, and how many instructions come before that and at the point."""

    code: types.CodeType
    point: ResumePoint
    before: int
    inserted: int

    def original_index(self, index: int) -> int:
        """The index in the original code of an instruction of the continuation."""
        index -= self.before
        return index if index < self.point.index else max(self.point.index, index - self.inserted)


_CODES: dict[tuple[int, ResumePoint], types.CodeType] = {}
_RESUME_CODES: dict[int, _Made] = {}
_CELL_OPCODES = frozenset(
    {"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
)


def is_resume_code(code: types.CodeType) -> bool:
    """Whether code was made here."""
    return id(code) in _RESUME_CODES


def original_code(code: types.CodeType) -> types.CodeType:
    """The code that a continuation goes on with; of other code, the code itself."""
    made = _RESUME_CODES.get(id(code))
    return code if made is None else made.code


def result_slot(code: types.CodeType) -> str | None:
    """The argument of a continuation that holds what the instruction it broke at gave, when there is one."""
    made = _RESUME_CODES.get(id(code))
    stack = "" if made is None else made.point.stack
    return f"__tw_stack{len(stack) - 1}" if stack.endswith("v") else None


def continues_a_loop(code: types.CodeType) -> bool:
    """Whether code goes on after a break in a loop."""
    made = _RESUME_CODES.get(id(code))
    return made is not None and made.point.looping


def is_inside_a_round(code: types.CodeType) -> bool:
    """Whether code goes on in the middle of a loop's body after a break there."""
    made = _RESUME_CODES.get(id(code))
    if made is None or not made.point.looping:
        return False
    return code_info(made.code).instructions[made.point.index - 1].opname != "FOR_ITER"


def resume_code(code: types.CodeType, point: ResumePoint) -> types.CodeType:
    """The continuation of `code` at `point`; one code object per point. Free variables are point.cells, in this order."""
    origin = _RESUME_CODES.get(id(code))
    if origin is not None:
        code, point = origin.code, replace(point, index=origin.original_index(point.index))
    key = (id(code), point)
    made = _CODES.get(key)
    if made is None:
        made, before, inserted = _make(code, point)
        _C.mark_continuation(made)
        _CODES[key] = made
        _RESUME_CODES[id(made)] = _Made(code, point, before, inserted)  # keeps `code` alive: its id is a key
    return made


def _make(code: types.CodeType, point: ResumePoint) -> tuple[types.CodeType, int, int]:
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise SkipFrame("a generator cannot be continued")
    source = bc.Bytecode.from_code(code)
    result = bc.Bytecode()
    stack_names = [f"__tw_stack{i}" for i, kind in enumerate(point.stack) if kind in "vhi"]
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
    prologue = _prologue(point, target, line)
    result.extend(prologue)
    landing = _landing(point, target, line)
    result.extend(_body(code, source, point, landing))
    made = result.to_code(stacksize=code.co_stacksize + 2, compute_exception_stack_depths=False)
    flags = made.co_flags | inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
    inserted = sum(isinstance(item, bc.Instr) for item in landing)
    table = _moved_table(code, made, point, len(prologue), inserted)
    return made.replace(co_flags=flags, co_exceptiontable=table), len(prologue), inserted


def _moved_table(code: types.CodeType, made: types.CodeType, point: ResumePoint, before: int, inserted: int) -> bytes:
    """The exception table of `code` for the moved instructions. Written by hand: most of it covers code that only the jump
    reaches, for which depths cannot be computed again."""
    old, new = CodeInfo(code), CodeInfo(made)
    first_offset: dict[int, int] = {}
    for offset, index in new.by_offset.items():
        first_offset[index] = min(offset, first_offset.get(index, offset))

    def moved(offset: int) -> int:
        index = old.by_offset.get(offset)
        if index is None:  # the end of the code, or inside caches
            index = min((i for o, i in old.by_offset.items() if o >= offset), default=len(old.instructions))
        index += before + (inserted if index > point.index else 0)
        return first_offset.get(index, len(made.co_code)) // 2

    table = bytearray()
    for start, end, target, depth, lasti in exception_table(code):
        begin = moved(start)
        row = (
            begin,
            moved(end) - begin,
            moved(target) + (0 if old.by_offset[target] != point.index else inserted),
            depth << 1 | lasti,
        )
        for number, value in enumerate(row):
            table += _varint(value, 128 if number == 0 else 0)
    return bytes(table)


def _varint(value: int, mark: int) -> bytes:
    """Six bits a byte, most significant first; 64 says that more follow, `mark` is on the first byte."""
    groups = [value & 63]
    while value := value >> 6:
        groups.append(value & 63)
    groups.reverse()
    return bytes(g | (64 if i < len(groups) - 1 else 0) | (mark if i == 0 else 0) for i, g in enumerate(groups))


def _prologue(point: ResumePoint, target: bc.Label, line: int) -> list[bc.Instr]:
    def instr(name: str, arg: object = bc.UNSET) -> bc.Instr:
        return bc.Instr(name, arg, lineno=line)

    prologue = []
    if point.cells:
        prologue.append(instr("COPY_FREE_VARS", len(point.cells)))
    prologue.append(instr("RESUME", 0))
    for index, kind in enumerate(point.stack):
        if kind == "n":
            prologue.append(instr("PUSH_NULL"))
        elif kind in "vhi":
            name = f"__tw_stack{index}"
            prologue += [instr("LOAD_FAST", name), instr("DELETE_FAST", name)]  # what the stack drops may die
        if kind == "i":
            prologue.append(instr("GET_ITER"))
        if kind == "h":
            prologue += [instr("PUSH_EXC_INFO"), instr("POP_TOP")]
    prologue.append(instr("JUMP_FORWARD", target))
    return prologue


def _body(code: types.CodeType, source: bc.Bytecode, point: ResumePoint, landing: list[object]) -> list[object]:
    body: list[object] = []
    index = -1
    for item in source:
        if not isinstance(item, bc.Instr):
            if not isinstance(item, (bc.TryBegin, bc.TryEnd)):
                body.append(item)
            continue
        index += 1
        if index == point.index:
            body.extend(landing)
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
        bc.Instr("JUMP_FORWARD", after, lineno=line),
        target,
        bc.Instr("LOAD_FAST", "__tw_raised", lineno=line),
        bc.Instr("DELETE_FAST", "__tw_raised", lineno=line),  # or it and its traceback would hold each other
        bc.Instr("RAISE_VARARGS", 1, lineno=line),
        after,
    ]
