"""The classes that an except clause of a traced frame names, read before an exception comes there."""

from __future__ import annotations

import types

from ..bytecode.code import CodeInfo
from ..bytecode.reload import builtins_of
from ..values.objects.class_value import ClassValue
from ..values.objects.exception import attribute_of_exception
from ..values.protocol.value import Value
from .frame import SymbolicFrame
from .handlers.names import read_global


def kinds_of_clause(frame: SymbolicFrame, index: int) -> list[type] | None:
    """What the CHECK_EXC_MATCH at this index compares with: a class, `module.Class`, or a tuple of those, which guards then keep; None where
    it is something else."""
    start = index
    while frame.info.instructions[start - 1].opname in ("LOAD_GLOBAL", "LOAD_ATTR", "BUILD_TUPLE"):
        start -= 1
    if not _begins_clause(frame.info, start):
        return None
    kinds: list[type] = []
    owner: Value | None = None
    for instruction in frame.info.instructions[start:index]:
        if instruction.opname == "BUILD_TUPLE":
            continue
        if instruction.opname == "LOAD_GLOBAL":
            found = _global_object(frame, instruction.value)
        else:
            found = vars(owner.real()).get(instruction.value) if owner is not None else None
        if isinstance(found, types.ModuleType):
            owner = _value(frame, owner, instruction.value)
        elif isinstance(found, type) and issubclass(found, BaseException):
            kind = _value(frame, owner, instruction.value)
            if not isinstance(kind, ClassValue) or kind.cls is not found:  # the traced program has written to the module
                return None
            kinds.append(found)
            owner = None
        else:
            return None
    return kinds or None


def _begins_clause(info: CodeInfo, index: int) -> bool:
    """Whether a clause's expression begins there: at the begin of the handler, or where an earlier clause does not match."""
    if info.instructions[index - 1].opname == "PUSH_EXC_INFO":
        return True
    return any(
        jump.target == index and info.instructions[jump.index - 1].opname == "CHECK_EXC_MATCH" for jump in info.instructions
    )


def _global_object(frame: SymbolicFrame, name: str) -> object:
    """What a global is that the traced program has not touched, nor has it the table itself in its hands."""
    table = frame.globals
    if id(table) in frame.memory.memo or (id(table), name) in frame.memory.globals_written:
        return None
    return table.get(name, builtins_of(table).get(name))


def _value(frame: SymbolicFrame, owner: Value | None, name: str) -> Value:
    return read_global(frame, name) if owner is None else attribute_of_exception(frame, owner, name)
