"""with, try, raise, match."""

from __future__ import annotations

import torch

from ... import _C
from ...bytecode.code import Instruction
from ...sources import Const
from ...values.objects.exception import ExistingException, ExistingTraceback, matches, raised_by
from ...values.objects.exception_group import match_group
from ...values.plain.mapping import DictValue
from ...values.plain.sequence import TupleValue
from ...values.protocol.binding import class_value
from ...values.protocol.constant import force_plain
from ...values.protocol.value import SymbolicRaise, Value, is_none
from ...values.torch.state import DeviceBlock
from ..frame import HandlerMark, SymbolicFrame
from .attributes import MethodRef
from .containers import call_builtin
from .table import opcode


@opcode("BEFORE_WITH")
def before_with(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Enter a manager: its __exit__ stays on the stack below what __enter__ gave."""
    manager = frame.stack.pop()
    kind = manager.python_type()
    for name, missed in (("__enter__", ""), ("__exit__", " (missed __exit__ method)")):
        if not any(name in base.__dict__ for base in kind.__mro__):  # what the object itself has does not count
            text = f"'{_C.type_name(kind)}' object does not support the context manager protocol{missed}"
            frame.raise_new(TypeError, text)
    if manager.is_constant() and isinstance(manager.constant(), torch.device):
        manager = DeviceBlock(manager)
    exit_method = MethodRef(manager, "__exit__")
    entered = manager.call_method(frame, "__enter__", [], {})
    frame.stack.append(exit_method)
    frame.stack.append(entered)


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Call __exit__ with the exception; its result stays on top."""
    exception = frame.stack[-1]
    exit_method = frame.stack[-4]
    kind = class_value(frame, exception.python_type())
    existing = isinstance(exception, ExistingException)
    trace = ExistingTraceback(exception) if existing else exception.getattr(frame, "__traceback__")
    frame.stack.append(exit_method.call(frame, [kind, exception, trace], {}))


@opcode("PUSH_EXC_INFO")
def push_exc_info(frame: SymbolicFrame, instruction: Instruction) -> None:
    """An except or finally block begins: remember the exception being handled before."""
    exception = frame.stack.pop()
    frame.stack.append(HandlerMark(exception))
    frame.stack.append(exception)
    frame.handled.append(exception)


@opcode("POP_EXCEPT")
def pop_except(frame: SymbolicFrame, instruction: Instruction) -> None:
    """An except block ends. What leaves it by an exception pops a copy: the entry itself stands for no block from there on."""
    mark = frame.stack.pop()
    frame.stack[:] = [frame.constant(None) if entry is mark else entry for entry in frame.stack]
    if frame.handled:
        frame.handled.pop()


@opcode("CHECK_EXC_MATCH")
def check_exc_match(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Does the exception match the type or types on top?"""
    kinds = frame.stack.pop()
    frame.stack.append(frame.constant(matches(frame, frame.stack[-1], kinds)))


@opcode("CHECK_EG_MATCH")
def check_group_match(frame: SymbolicFrame, instruction: Instruction) -> None:
    """except* kinds: what is left of the exception, and what the clause handles of it (or None)."""
    exception, kinds = frame.pop_many(2)
    rest, handled = match_group(frame, exception, kinds)
    if not is_none(handled):
        frame.handled[-1] = handled
        next(entry for entry in reversed(frame.stack) if isinstance(entry, HandlerMark)).handled = handled
    frame.stack += [rest, handled]


@opcode("RAISE_VARARGS")
def raise_varargs(frame: SymbolicFrame, instruction: Instruction) -> None:
    """raise [value [from cause]]"""
    if instruction.arg == 0:
        handled = frame.handling()
        if handled is None:  # the captured frame may have been called while an exception is handled
            frame.break_graph("exception", "raise without an exception")
        raise SymbolicRaise(handled, again=True)
    cause = frame.stack.pop() if instruction.arg == 2 else None
    value = frame.stack.pop()
    if isinstance(value, ExistingException):
        frame.break_graph("exception", f"{value.describe()} gets a new context and traceback")
    raise SymbolicRaise(raised_by(frame, value, cause))


@opcode("RERAISE")
def reraise(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Raise the exception on top again."""
    exception = frame.stack.pop()
    if instruction.arg:  # the frame is where it was raised first; continuations may be given more than one such number
        frame.raised_at = 2 * force_plain(frame, frame.stack[-instruction.arg])
    raise SymbolicRaise(exception, again=True)


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: SymbolicFrame, instruction: Instruction) -> None:
    """AssertionError, whatever the name means in the module."""
    frame.stack.append(frame.wrap(AssertionError, Const(AssertionError, "AssertionError")))


@opcode("MATCH_SEQUENCE", "MATCH_MAPPING")
def match_kind(frame: SymbolicFrame, instruction: Instruction) -> None:
    """case [..]: or case {..}: a flag of the type says whether it is one."""
    flag = 1 << (5 if instruction.opname == "MATCH_SEQUENCE" else 6)
    frame.stack.append(frame.constant(bool(frame.stack[-1].python_type().__flags__ & flag)))


@opcode("MATCH_KEYS")
def match_keys(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The values of the keys on top, or None when one is missing."""
    subject, keys = frame.stack[-2], frame.stack[-1].unpack(frame)
    hashed = [key.hash_key(frame) for key in keys]
    for place, key in enumerate(hashed):
        if key in hashed[:place]:
            frame.raise_new(ValueError, f"mapping pattern checks duplicate key ({key!r})")
    missing = subject.python_type().__dict__.get("__missing__")
    if missing is not None or not isinstance(subject, DictValue):
        frame.break_graph("operation_unknown", f"a mapping pattern over {subject.describe()}")
    if all(subject.contains(frame, key).truth(frame) for key in keys):
        frame.stack.append(TupleValue([subject.getitem(frame, key) for key in keys]))
    else:
        frame.stack.append(frame.constant(None))


@opcode("MATCH_CLASS")
def match_class(frame: SymbolicFrame, instruction: Instruction) -> None:
    """case C(a, b=..):"""
    names = list(frame.stack.pop().constant())
    cls, subject = frame.stack.pop(), frame.stack.pop()
    if not call_builtin(frame, isinstance, subject, cls).truth(frame):
        frame.stack.append(frame.constant(None))
        return
    count = instruction.arg
    if count:
        positional = match_arguments(frame, cls, count)
        if positional is None:
            frame.stack.append(TupleValue([subject]))
            return
        names = positional + names
    for place, name in enumerate(names):
        if name in names[:place]:
            frame.raise_new(TypeError, f"{cls.real().__name__}() got multiple sub-patterns for attribute '{name}'")
    frame.stack.append(TupleValue([subject.getattr(frame, name) for name in names]))


_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def match_arguments(frame: SymbolicFrame, cls: Value, count: int) -> list[str] | None:
    """Attribute names of the positional patterns; None when the class matches its own value."""
    real = cls.real()
    if "__match_args__" not in dir(real) and issubclass(real, _SELF_MATCHING):
        return None
    found = getattr(real, "__match_args__", ())
    if type(found) is not tuple:
        frame.raise_new(TypeError, f"{real.__name__}.__match_args__ must be a tuple (got {type(found).__name__})")
    if len(found) < count:
        frame.raise_new(TypeError, f"{real.__name__}() accepts {len(found)} positional sub-patterns ({count} given)")
    for name in found[:count]:
        if type(name) is not str:
            frame.raise_new(TypeError, f"__match_args__ elements must be strings (got {type(name).__name__})")
    return list(found[:count])
