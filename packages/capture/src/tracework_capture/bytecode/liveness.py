"""What may run, and which local variables are still read, after a point of a code object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .facts import PAIR_LOCALS

if TYPE_CHECKING:
    from .code import CodeInfo, Instruction

_ENDS = frozenset(
    {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
)
_READS = frozenset(
    {
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_AND_CLEAR",
        "DELETE_FAST",
        "MAKE_CELL",
        "LOAD_CLOSURE",
        "LOAD_DEREF",
        "STORE_DEREF",
        "DELETE_DEREF",
        "LOAD_CLASSDEREF",
    }
)
_LOOKS_AT_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "breakpoint", "set_trace"})
"""Names of functions that may read any local of the frame that calls them."""


def live_locals(info: CodeInfo, index: int) -> frozenset[str]:
    """Names that may be read when execution starts at an instruction (exception handlers included)."""
    solution = info.live
    if solution is None:
        solution = info.live = _solve(info)
    return solution[index] if index < len(solution) else frozenset()


def reachable(info: CodeInfo, index: int) -> list[int]:
    """Indices, in order, of the instructions that may run when execution starts at one, or when that one raises."""
    instructions = info.instructions
    found, open_ = set(), [index]
    while open_:
        at = open_.pop()
        if at not in found:
            found.add(at)
            open_ += followers(instructions[at])
    return sorted(found)


def followers(instruction: Instruction) -> list[int]:
    """Indices of the instructions that may run next, when it raises, too."""
    after = [] if instruction.opname in _ENDS else [instruction.index + 1]
    if instruction.handler is not None:
        after.append(instruction.handler.target)
    if instruction.target >= 0:
        after.append(instruction.target)
    return after


def _solve(info: CodeInfo) -> list[frozenset[str]]:
    instructions = info.instructions
    if not _LOOKS_AT_LOCALS.isdisjoint(info.code.co_names):
        code = info.code  # a comprehension may have the name of a cell for itself (3.12)
        return [frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))] * (len(instructions) + 1)
    live: list[frozenset[str]] = [frozenset()] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            before = _before(instruction, live)
            if before != live[instruction.index]:
                live[instruction.index] = before
                changed = True
    return live


def _before(instruction: Instruction, live: list[frozenset[str]]) -> frozenset[str]:
    after: frozenset[str] = frozenset() if instruction.opname in _ENDS else live[instruction.index + 1]
    if instruction.target >= 0:
        after = after | live[instruction.target]
        if instruction.opname == "FOR_ITER":
            after = after | live[min(instruction.target + 1, len(live) - 1)]
    reads, writes = _effects(instruction)
    result = (after - writes) | reads
    if instruction.handler is not None:
        result = result | live[instruction.handler.target]
    return result


def stored_locals(instruction: Instruction) -> frozenset[str]:
    """The locals that an instruction binds."""
    return _effects(instruction)[1]


def _effects(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    name, value = instruction.opname, instruction.value
    if name in _READS:
        return frozenset((value,)), frozenset()
    if name == "STORE_FAST":
        return frozenset(), frozenset((value,))
    if name in PAIR_LOCALS:
        first, second = value
        if name == "LOAD_FAST_LOAD_FAST":
            return frozenset((first, second)), frozenset()
        if name == "STORE_FAST_STORE_FAST":
            return frozenset(), frozenset((first, second))
        return frozenset((second,)) - frozenset((first,)), frozenset((first,))
    return frozenset(), frozenset()
