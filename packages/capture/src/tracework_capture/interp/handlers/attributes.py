"""Attribute access."""

from __future__ import annotations

import types

from ...bytecode.code import Instruction
from ...bytecode.facts import VERSION
from ...guards.classes import defines, lookup_class
from ...values.objects.class_value import ClassValue
from ...values.objects.exception import attribute_of_exception
from ...values.objects.function import BoundMethodValue
from ...values.objects.instance import ObjectValue
from ...values.protocol.value import Emitter, Frame, Value
from ..frame import NULL, SymbolicFrame
from .table import opcode


class MethodRef(Value):
    """`owner.name` about to be called: the bound method is only built when something else than a call wants it."""

    def __init__(self, owner: Value, name: str) -> None:
        super().__init__(None)
        self.owner, self.name = owner, name

    def python_type(self) -> type:
        """Only a call looks at it."""
        return type(BoundMethodValue)

    def describe(self) -> str:
        """owner.name"""
        return f"{self.owner.describe()}.{self.name}"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """owner.name(...)"""
        return self.owner.call_method(frame, self.name, args, kwargs)

    def reload(self, emit: Emitter) -> str:
        """owner.name"""
        return f"{emit.load(self.owner)}.{self.name}"


@opcode("LOAD_ATTR")
def load_attr(frame: SymbolicFrame, instruction: Instruction) -> None:
    """owner.name; in 3.12+ the lowest bit asks for the method form."""
    owner = frame.stack.pop()
    if VERSION >= (3, 12) and instruction.arg & 1:
        push_method(frame, owner, instruction.value)
        return
    frame.stack.append(attribute_of_exception(frame, owner, instruction.value))


@opcode("LOAD_METHOD")
def load_method(frame: SymbolicFrame, instruction: Instruction) -> None:
    """owner.name for a call (3.11)."""
    push_method(frame, frame.stack.pop(), instruction.value)


def push_method(frame: SymbolicFrame, owner: Value, name: str) -> None:
    """The two stack entries of a method call."""
    # what the type lacks or computes is looked up now: errors and effects come before those of the arguments
    lazy = defines(owner.python_type(), name)
    if lazy and isinstance(owner, ObjectValue):  # what the frame stored over a method is not there before its effects are
        lazy = name not in owner.fields and not is_computed(owner.python_type(), name)
    pair = (MethodRef(owner, name) if lazy else attribute_of_exception(frame, owner, name), NULL)
    frame.stack.extend(pair if VERSION >= (3, 13) else pair[::-1])


def is_computed(cls: type, name: str) -> bool:
    """Whether reading the attribute of an instance runs code of the program."""
    if isinstance(lookup_class(cls, "__getattribute__")[0], types.FunctionType):
        return True
    kind = type(lookup_class(cls, name)[0])
    return issubclass(kind, property) or isinstance(lookup_class(kind, "__get__")[0], types.FunctionType)


@opcode("STORE_ATTR")
def store_attr(frame: SymbolicFrame, instruction: Instruction) -> None:
    """owner.name = value"""
    owner = frame.stack.pop()
    owner.setattr(frame, instruction.value, frame.stack.pop())


@opcode("DELETE_ATTR")
def delete_attr(frame: SymbolicFrame, instruction: Instruction) -> None:
    """del owner.name"""
    frame.stack.pop().delattr(frame, instruction.value)


def is_builtin_super(value: Value) -> bool:
    """Whether what the program calls by the name super is the builtin."""
    return isinstance(value, ClassValue) and value.cls is super


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(frame: SymbolicFrame, instruction: Instruction) -> None:
    """super(cls, self).name (3.12+): lowest bit: method form."""
    super_type, cls, owner = frame.pop_many(3)
    given = instruction.arg & 2 or is_builtin_super(super_type)  # another function of this name gets what the program wrote
    bound = super_type.call(frame, [cls, owner] if given else [], {})
    if instruction.arg & 1:
        push_method(frame, bound, instruction.value)
    else:
        frame.stack.append(attribute_of_exception(frame, bound, instruction.value))
