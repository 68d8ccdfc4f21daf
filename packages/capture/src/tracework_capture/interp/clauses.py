"""The classes that an except clause of a traced frame names, read before an exception comes there."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ..bytecode.reload import builtins_of
from .handlers.attributes import attribute_asked
from .handlers.names import read_global

if TYPE_CHECKING:
    from ..values.value import Value
    from .frame import SymbolicFrame

__all__ = ["kinds_of_clause"]


def kinds_of_clause(frame: SymbolicFrame, index: int) -> list[type] | None:
    """What the CHECK_EXC_MATCH at this index compares with: a class, `module.Class`, or a tuple of those, which guards then keep; None where
    it is something else."""
    start = index
    while frame.info.instructions[start - 1].opname in ("LOAD_GLOBAL", "LOAD_ATTR", "BUILD_TUPLE"):
        start -= 1
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
            _value(frame, owner, instruction.value)
            kinds.append(found)
            owner = None
        else:
            return None
    return kinds or None


def _global_object(frame: SymbolicFrame, name: str) -> object:
    """What a global is that the traced program has not touched, nor has it the table itself in its hands."""
    table = frame.globals
    if id(table) in frame.root.memo or (id(table), name) in frame.root.globals_written:
        return None
    return table.get(name, builtins_of(table).get(name))


def _value(frame: SymbolicFrame, owner: Value | None, name: str) -> Value:
    return read_global(frame, name) if owner is None else attribute_asked(frame, owner, name)
