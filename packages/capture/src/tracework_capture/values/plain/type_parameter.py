"""Type parameters and type aliases that the traced program makes (3.12+). Only their names are looked at while tracing: what they stand
for is evaluated when somebody asks, by functions that the program made."""

from __future__ import annotations

import sys
import typing

from ...bytecode.intrinsics import intrinsic_function, intrinsic_names
from ..protocol.constant import EVALUATED_LAZILY
from ..protocol.value import NEW, Emitter, Frame, Value

TYPES = {
    (1, "TYPEVAR"): "TypeVar",
    (1, "PARAMSPEC"): "ParamSpec",
    (1, "TYPEVARTUPLE"): "TypeVarTuple",
    (1, "TYPEALIAS"): "TypeAliasType",
    (1, "SUBSCRIPT_GENERIC"): "_GenericAlias",
    (2, "TYPEVAR_WITH_BOUND"): "TypeVar",
    (2, "TYPEVAR_WITH_CONSTRAINTS"): "TypeVar",
}
"""(Number of operands, intrinsic) that makes one -> its type in typing."""

if sys.version_info >= (3, 12):
    for _kind in (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple, typing.TypeAliasType):
        # those of a TypeVar that was made by a call, which infers no variance, are there already
        EVALUATED_LAZILY.add(
            {(_kind, _name): "__infer_variance__" for _name in ("__bound__", "__constraints__", "__default__", "__value__")}
        )


class TypeParameterValue(Value):
    """What an intrinsic makes of its operands, each time another object."""

    is_unique = True
    mutability = NEW

    def __init__(self, intrinsic: str, operands: list[Value]) -> None:
        super().__init__(None)
        self.intrinsic, self.operands = intrinsic, operands
        self.default: Value | None = None

    def python_type(self) -> type:
        made: type = getattr(typing, TYPES[len(self.operands), self.intrinsic])
        return made

    def describe(self) -> str:
        return f"a {self.python_type().__name__} made in the traced program"

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__name__" and self.intrinsic != "SUBSCRIPT_GENERIC":
            return self.operands[0].unpack(frame)[0] if self.intrinsic == "TYPEALIAS" else self.operands[0]
        return super().getattr(frame, name)

    def set_default(self, evaluate: Value) -> None:
        """`[T = default]` (3.13)"""
        self.default = evaluate

    def reload(self, emit: Emitter) -> str:
        operands = [emit.load(operand) for operand in self.operands]
        made = intrinsic_text(emit, intrinsic_names(len(operands)).index(self.intrinsic), operands)
        if self.default is None:
            return made
        return intrinsic_text(emit, intrinsic_names(2).index("SET_TYPEPARAM_DEFAULT"), [made, emit.load(self.default)])


def intrinsic_text(emit: Emitter, number: int, operands: list[str]) -> str:
    """The call that does what an intrinsic does, as text of generated code."""
    return f"{emit.const(intrinsic_function(len(operands), number), 'intrinsic')}({', '.join(operands)})"
