"""Continuation functions: code that takes the live stack and locals of a frame and goes on in the middle of its code.

The instructions of the original code that can be reached from there stay, with their exception handlers; a prologue pushes the
stack and jumps. All cells of the frame (its own and those it closes over) become free variables; the prologue puts its own ones where
cells of a frame are, too, and the code finds them there: an empty one is an UnboundLocalError. With `raising`, the prologue raises its
last argument, covered by the handler of the instruction: the frame's own try and with blocks see the exception.

The evaluator calls a continuation when the frame that broke has ended (run_entry in csrc/eval_frame.c): the program sees one frame,
and no round of a loop lies on the stack of the one before. A continuation of a continuation is one of the original code: a break
that comes around again finds the same code object.
"""

from __future__ import annotations

import inspect
import types
import weakref
from dataclasses import dataclass, replace
from dis import opmap
from typing import Any

from .. import _C
from ..errors import SkipFrame
from .assemble import Part, assemble
from .code import Instruction, code_info
from .emit import CodeWriter
from .facts import HAS_FREE, HAS_LOCAL, LOAD_CELL, PAIR_LOCALS
from .liveness import reachable
from .reload import local_name


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
class _Continuation:
    """A continuation: the code it goes on with, where, and for each of its instructions the index of the original one."""

    held: weakref.ref[types.CodeType]
    point: ResumePoint
    indices: list[int]
    begins: int
    """The index of its first instruction behind the prologue."""

    @property
    def code(self) -> types.CodeType:
        """The code it goes on with, which a frame that runs a continuation holds."""
        code = self.held()
        assert code is not None
        return code


# By identity, since equal code may be of several functions. Continuations live as long as the code they go on with: what was compiled for
# them serves although an entry that led there is gone.
_CODES: dict[int, tuple[weakref.ref[types.CodeType], dict[ResumePoint, types.CodeType]]] = {}
_RESUME_CODES: dict[int, _Continuation] = {}


def is_resume_code(code: types.CodeType) -> bool:
    """Whether code was made here."""
    return id(code) in _RESUME_CODES


def point_of(code: types.CodeType) -> ResumePoint | None:
    """The point of the original code at which a continuation goes on; None for other code."""
    made = _RESUME_CODES.get(id(code))
    return None if made is None else made.point


def original_code(code: types.CodeType) -> types.CodeType:
    """The code that a continuation goes on with; of other code, the code itself."""
    made = _RESUME_CODES.get(id(code))
    return code if made is None else made.code


def original_place(code: types.CodeType, instruction: Instruction) -> Instruction:
    """The instruction of the original code behind one of a continuation; of other code, what is given."""
    made = _RESUME_CODES.get(id(code))
    return instruction if made is None else code_info(made.code).instructions[made.indices[instruction.index]]


def is_of_the_prologue(code: types.CodeType, instruction: Instruction) -> bool:
    """Whether the instruction only puts a continuation's stack where it was: there is no place to go on at."""
    made = _RESUME_CODES.get(id(code))
    return made is not None and instruction.index < made.begins


def held_in_others(code: types.CodeType) -> frozenset[str]:
    """The arguments of a continuation that something else on its stack holds: an iterator over it, the handler of an exception."""
    made = _RESUME_CODES.get(id(code))
    stack = "" if made is None else made.point.stack
    return frozenset(f"__tw_stack{i}" for i, kind in enumerate(stack) if kind in "hi")


def raising_code(code: types.CodeType) -> types.CodeType | None:
    """The continuation of the same point that raises its last argument there; None where no block of the frame would see it."""
    made = _RESUME_CODES.get(id(code))
    if made is None or code_info(made.code).instructions[made.point.index].handler is None:
        return None
    return resume_code(made.code, replace(made.point, raising=True))


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
        code, point = origin.code, replace(point, index=origin.indices[point.index])
    key = id(code)
    if key not in _CODES:
        _CODES[key] = (weakref.ref(code, lambda dead: _CODES.pop(key, None)), {})
    continuations = _CODES[key][1]
    made = continuations.get(point)
    if made is None:
        made, indices, begins = _make(code, point)
        _C.mark_continuation(made)
        continuations[point] = made
        _RESUME_CODES[id(made)] = _Continuation(weakref.ref(code), point, indices, begins)
        weakref.finalize(made, _RESUME_CODES.pop, id(made), None).atexit = False
    return made


def _make(code: types.CodeType, point: ResumePoint) -> tuple[types.CodeType, list[int], int]:
    """The code, for each of its instructions the index of the original one, and how many are its prologue. What cannot be reached is left
    out."""
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise SkipFrame("a generator cannot be continued")
    info = code_info(code)
    arguments = [*point.locals, *(f"__tw_stack{i}" for i, kind in enumerate(point.stack) if kind in "vhi")]
    arguments += ["__tw_raised"] if point.raising else []
    slots = {name: slot for slot, name in enumerate(arguments)}
    kept = [(info.instructions[i], _pieces(code, info.instructions[i], point.cells)) for i in reachable(info, point.index)]
    named = {name for _, pieces in kept for _, name, is_local in pieces if is_local}
    for name in sorted(named - slots.keys(), key=[*code.co_varnames, *code.co_cellvars].index):  # the order in which they end
        slots[name] = len(slots)
    own = tuple(name for name in point.cells if name in code.co_cellvars and name not in code.co_freevars)
    given = {name: len(slots) + len(own) + i for i, name in enumerate(point.cells)}
    cells = given | {name: len(slots) + i for i, name in enumerate(own)}
    here = info.instructions[point.index]
    prologue = _prologue(point, slots, [(given[name], cells[name]) for name in own], here.handler is not None)
    places, indices = {}, [point.index] * (len(prologue) + 1)
    for instruction, pieces in kept:
        places[instruction.index] = len(indices)
        indices += [instruction.index] * len(pieces)

    def handler(instruction: Instruction) -> tuple[int, int, bool] | None:
        row = instruction.handler
        return None if row is None else (places[row.target], row.depth, row.push_lasti)

    line = (info.position(here)[0], None, None, None)
    inside = handler(here) if point.raising else None
    parts = [
        Part(opname, arg, info.position(here) if opname == "RAISE_VARARGS" else line, handler=inside) for opname, arg in prologue
    ]
    parts.append(Part("JUMP_FORWARD", 0, line, target=places[point.index]))
    for instruction, pieces in kept:
        target = places[instruction.target] if instruction.target >= 0 else -1
        for opname, value, is_local in pieces:
            arg = value if is_local is None else slots[value] if is_local else cells[value]
            parts.append(Part(opname, arg, info.position(instruction), instruction.caches, target, handler(instruction)))
    made = assemble(
        code,
        parts,
        co_argcount=len(arguments),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=tuple(slots),
        co_nlocals=len(slots),
        co_cellvars=own,
        co_freevars=point.cells,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) | inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS,
        co_stacksize=code.co_stacksize + 2,
    )
    return made, indices, len(prologue) + 1


def _prologue(point: ResumePoint, slots: dict[str, int], own: list[tuple[int, int]], in_block: bool) -> list[tuple[str, int]]:
    """What puts the frame's own cells into their slots and the stack where the jump finds it, or raises: into the block that the frame is
    in, or out of it, where the traceback gets its entry. `own`: (from, to) of cells."""
    prologue = [("COPY_FREE_VARS", len(point.cells))] if point.cells else []
    prologue.append(("RESUME", 0))
    for free, cell in own:
        prologue += [(LOAD_CELL, free), ("STORE_FAST", cell)]
    for index, kind in enumerate(point.stack):
        if kind == "n":
            prologue.append(("PUSH_NULL", 0))
        else:
            slot = slots[f"__tw_stack{index}"]
            prologue += [("LOAD_FAST", slot), ("DELETE_FAST", slot)]  # what the stack drops may die
        if kind == "i":
            prologue.append(("GET_ITER", 0))
        if kind == "h":
            prologue += [("PUSH_EXC_INFO", 0), ("POP_TOP", 0)]
    if point.raising:
        slot = slots["__tw_raised"]  # deleted, or it and its traceback would hold each other
        prologue += [("LOAD_FAST", slot), ("DELETE_FAST", slot), ("RERAISE", 0) if in_block else ("RAISE_VARARGS", 1)]
    return prologue


def _pieces(code: types.CodeType, instruction: Instruction, cells: tuple[str, ...]) -> list[tuple[str, Any, bool | None]]:
    """(opcode, argument, None), or with a name for the argument (opcode, name, whether it is a local and not a cell). An instruction
    on two locals becomes two, since the new numbers of its locals may not fit into one argument."""
    opname, value, op = instruction.opname, instruction.value, opmap[instruction.opname]
    if opname in PAIR_LOCALS:
        halves = zip(opname.replace("_FAST_", "_FAST ").split(), value, divmod(instruction.arg, 16))
        return [(half, name, _is_local(code, slot, name, cells)) for half, name, slot in halves]
    if op in HAS_LOCAL or op in HAS_FREE:
        return [(opname, value, _is_local(code, instruction.arg, value, cells))]
    return [(opname, instruction.arg, None)]


def _is_local(code: types.CodeType, slot: int, name: str, cells: tuple[str, ...]) -> bool:
    """Whether a slot of the original code is a local of the continuation. A cell of that code has one slot, whatever instruction names
    it; a comprehension that has the name for itself keeps the cell on the stack meanwhile (3.12), and the slot is a local's."""
    if name in code.co_cellvars and name not in code.co_freevars:
        return name not in cells
    return slot < code.co_nlocals


def code_that_raises(
    code: types.CodeType, globals_: dict[str, Any], closure: tuple[types.CellType, ...] | None, error: BaseException
) -> types.CodeType | None:
    """The replacement of a continuation that raises `error` where it would go on, inside of the blocks that the frame is in, as plain
    Python; None where it is in none."""
    raising = raising_code(code)
    if raising is None:
        return None
    _C.set_mark(raising, _C.MARK_SKIP)
    writer = CodeWriter(code, globals_, {})
    function = writer.const(types.FunctionType(raising, globals_, code.co_name, None, closure), "resume")
    args = [*map(local_name, code.co_varnames[: code.co_argcount]), writer.const(error, "error")]
    writer.line(f"return {writer.const(_C.go_on)}({function}, {writer.handed_over(args)})")
    return writer.finish([], (code.co_firstlineno, None, None, None))
