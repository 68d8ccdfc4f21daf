"""Exception groups made while tracing: how they are made and split, and what `except*` does with them.

Meaning: PEP 654. Parts of a group that is split have its cause, its context and its traceback: by these `except*` tells what a clause
raised again from what it raised anew.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ...bytecode.facts import VERSION
from ...guards.classes import lookup_class
from ..plain.sequence import ListValue, TupleValue
from ..protocol.constant import ConstantValue
from ..protocol.properties import function_value
from ..protocol.value import Emitter, Frame, Value, is_none
from .exception import NONE, ExceptionValue, matches

_OWN = frozenset({"split", "subgroup"})


def _has_traceback() -> bool:
    """Whether the group that CPython makes of a single exception for `except*` has a traceback, which newer releases give it."""
    found = False
    try:
        raise ValueError
    except* ValueError as group:
        found = group.__traceback__ is not None
    return found


_DERIVED_HAS_TRACEBACK = _has_traceback()


class GroupValue(ExceptionValue):
    """A group made in the traced program."""

    def __init__(self, cls: type[BaseException], message: Value, given: Value, exceptions: list[Value]) -> None:
        super().__init__(cls, [message, given])
        self.message, self.exceptions = message, exceptions
        self.part_of: GroupValue | None = None

    def text(self) -> str:
        message = self.message.constant() if self.message.is_constant() else self.message.describe()
        return f"{message} ({len(self.exceptions)} sub-exception{'s' * (len(self.exceptions) != 1)})"

    def as_text(self, frame: Frame, fn: Any) -> Value:
        if fn is str and self.message.is_constant():
            return ConstantValue(self.text())
        return frame.break_graph("value_not_known", "text of an exception group")

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "message":
            return self.message
        if name == "exceptions":
            return TupleValue(self.exceptions)
        return super().getattr(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if name in ("message", "exceptions"):
            frame.raise_new(AttributeError, "readonly attribute")
        super().setattr(frame, name, value)

    def call_native(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__init__":  # keeps what __new__ got
            return NONE
        if name == "derive" and len(args) == 1 and not kwargs:
            return new_group(frame, BaseExceptionGroup, self.message, args[0])
        if name in _OWN and len(args) == 1 and not kwargs:
            parts = split(frame, self, condition_of(frame, args[0]))
            return parts[0] if name == "subgroup" else TupleValue(parts)
        return super().call_native(frame, name, args, kwargs)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        static, _ = lookup_class(self.cls, name)
        if isinstance(static, types.MethodDescriptorType) and name in (*_OWN, "derive"):
            return self.call_native(frame, name, args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def reload(self, emit: Emitter) -> str:
        items = "".join(f"{emit.load(e)}, " for e in self.exceptions)
        return f"{emit.const(self.cls.__new__)}({emit.known(self.cls)}, {emit.load(self.message)}, ({items}))"

    def fill(self, emit: Emitter, name: str) -> None:
        emit.line(f"{name}.args = ({''.join(emit.load(a) + ', ' for a in self.args)})")
        super().fill(emit, name)
        if self.part_of is not None and self.trace is self.part_of.trace:
            emit.line(f"{name}.__traceback__ = {emit.load(self.part_of)}.__traceback__")


def is_group(exception: Value) -> bool:
    """Whether a value is an exception group."""
    return issubclass(exception.python_type(), BaseExceptionGroup)


def make_group(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(message, exceptions) for a class of groups; the arguments of its __init__ are these, too."""
    if kwargs or len(args) != 2:
        return frame.break_graph("call_unknown", f"construction of {cls.__name__} with these arguments")
    made = new_group(frame, cls, *args)
    init, _ = lookup_class(made.python_type(), "__init__")
    if isinstance(init, types.FunctionType):
        frame.inline(function_value(frame, init), [made, *args], {})
    return made


def new_group(frame: Frame, cls: type, message: Value, given: Value) -> Value:
    """The group as __new__ makes it; what that refuses is left to it."""
    items = given.unpack(frame) if isinstance(given, (TupleValue, ListValue)) else []
    if message.python_type() is not str or not items or not all(issubclass(e.python_type(), BaseException) for e in items):
        return frame.break_graph("call_unknown", f"construction of {cls.__name__} of something else than a text and exceptions")
    ordinary = all(issubclass(e.python_type(), Exception) for e in items)
    if cls is BaseExceptionGroup and ordinary:
        cls = ExceptionGroup
    if issubclass(cls, Exception) and not ordinary:
        return frame.break_graph("call_unknown", f"construction of {cls.__name__} of exceptions that are no Exception")
    return GroupValue(cls, message, given, items)


def condition_of(frame: Frame, given: Value) -> Callable[[Value], bool]:
    """What split() and subgroup() are given, as a test of one exception: a class, a tuple of classes, or a function."""
    kinds = given.all_items(frame) if isinstance(given, TupleValue) else [given]
    if all(issubclass(k.python_type(), type) and issubclass(k.real(), BaseException) for k in kinds):
        return lambda exception: matches(frame, exception, given)
    return lambda exception: given.call(frame, [exception], {}).truth(frame)


def split(frame: Frame, exception: Value, condition: Callable[[Value], bool]) -> tuple[Value, Value]:
    """(what satisfies the condition, the rest), each an exception or None."""
    if condition(exception):
        return exception, NONE
    if not is_group(exception):
        return NONE, exception
    if not isinstance(exception, GroupValue):
        return frame.break_graph("exception", f"parts of {exception.describe()}")
    parts = [split(frame, e, condition) for e in exception.exceptions]
    taken, rest = ([part[side] for part in parts if part[side] is not NONE] for side in (0, 1))
    return part_of(frame, exception, taken), part_of(frame, exception, rest)


def part_of(frame: Frame, group: GroupValue, exceptions: list[Value]) -> Value:
    """The group with some of its exceptions, or None when there are none."""
    if not exceptions:
        return NONE
    made = group.call_method(frame, "derive", [ListValue(exceptions)], {})
    if not isinstance(made, GroupValue):
        return frame.break_graph("exception", f"{group.cls.__name__}.derive gave {made.describe()}")
    made.cause, made.context, made.suppress_context = group.cause, group.context, True
    made.trace, made.part_of = group.trace, group
    if "__notes__" in group.fields:
        made.fields["__notes__"] = ListValue(group.fields["__notes__"].unpack(frame))
    return made


def match_group(frame: Frame, exception: Value, kinds: Value) -> tuple[Value, Value]:
    """What an `except* kinds` clause leaves of the exception, and what it handles (None when nothing)."""
    for kind in kinds.all_items(frame) if isinstance(kinds, TupleValue) else [kinds]:
        if issubclass(kind.python_type(), type) and issubclass(kind.real(), BaseExceptionGroup):
            frame.raise_new(TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.")
    if is_none(exception):
        return NONE, NONE
    if matches(frame, exception, kinds):
        return NONE, exception if is_group(exception) else of_one(frame, exception)
    if not is_group(exception):
        return exception, NONE
    if isinstance(lookup_class(exception.python_type(), "split")[0], types.FunctionType):
        frame.break_graph("exception", f"{exception.python_type().__name__} has a split of its own")
    handled, rest = split(frame, exception, lambda part: matches(frame, part, kinds))
    if handled is NONE and VERSION < (3, 12):  # which keeps the group itself then, 3.12 and newer one like it
        return exception, NONE
    return rest, handled


def of_one(frame: Frame, exception: Value) -> Value:
    """The group that an `except*` clause gets of an exception that is none."""
    made = GroupValue(
        ExceptionGroup if issubclass(exception.python_type(), Exception) else BaseExceptionGroup,
        ConstantValue(""),
        TupleValue([exception]),
        [exception],
    )
    if _DERIVED_HAS_TRACEBACK:
        frame.passes(made)
    return made


def raised_by_clauses(frame: Frame, original: Value, raised: list[Value]) -> Value:
    """What is raised after all `except*` clauses, given what each of them raised and what they left (each may be None); None: nothing."""
    raised = [exception for exception in raised if not is_none(exception)]
    if not raised:
        return NONE
    if not is_group(original):
        return raised[0]
    if not isinstance(original, GroupValue):
        return frame.break_graph("exception", f"parts of {original.describe()} were raised")
    again = [exception for exception in raised if has_metadata_of(exception, original)]
    anew = [exception for exception in raised if exception not in again]
    if again:
        kept = {id(leaf) for exception in again for leaf in leaves(exception)}
        anew.append(split(frame, original, lambda part: not is_group(part) and id(part) in kept)[0])
    return anew[0] if len(anew) == 1 else new_group(frame, BaseExceptionGroup, ConstantValue(""), ListValue(anew))


def has_metadata_of(exception: Value, original: GroupValue) -> bool:
    """Whether an exception is a part of the original one that was not raised anew."""
    if not isinstance(exception, GroupValue):
        return False
    same = exception.cause is original.cause and exception.context is original.context
    return same and exception.trace is original.trace


def leaves(exception: Value) -> list[Value]:
    """The exceptions in a group, and in the groups in it, that are none."""
    if not isinstance(exception, GroupValue):
        return [exception]
    return [leaf for part in exception.exceptions for leaf in leaves(part)]
