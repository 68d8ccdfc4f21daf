"""What frames ask of the layers around the interpreter, gathered in one place: wrapping, containers, exceptions, inlining."""

from __future__ import annotations

import bdb
from typing import Any, NoReturn, cast

from .. import _C
from ..sources import Attr, Const
from ..values.objects import exception as exceptions
from ..values.objects.function import BoundMethodValue, NewFunctionValue
from ..values.plain import results
from ..values.protocol import wraps
from ..values.protocol.user_keys import refuse_effects
from ..values.protocol.value import Frame, Value
from ..values.torch.results import wrap_result
from . import clauses
from . import inline as inlining
from .frame import SymbolicFrame
from .select import may_be_inlined


class Services:
    """Bound to one policy and one way of running code with the hook off; `torch_functions_off_for`: whom calls of torch do not ask where
    the frame runs."""

    def __init__(self, call_policy: Any, call_disabled: Any, torch_functions_off_for: str) -> None:
        self.call_policy = call_policy
        self.call_disabled = call_disabled
        self.torch_functions_off_for = torch_functions_off_for

    @property
    def torch_functions_on(self) -> bool:
        """Whether they ask subclasses of tensors."""
        return self.torch_functions_off_for == "nobody"

    # --- values ------------------------------------------------------------------------------------------------
    def wrap(self, frame: SymbolicFrame, obj: object, source: Any) -> Value:
        """The Value of an existing object; a compiled function stands for the function it was made of."""
        if type(obj) is _C.Scoped and obj.callback is not None and source is not None:
            return frame.wrap(obj.__wrapped__, Attr(source, "__wrapped__"))
        return wraps.wrap(frame, obj, source)

    def wrap_constant(self, frame: SymbolicFrame, obj: object) -> Value:
        """The Value of a constant."""
        return results.wrap_constant(frame, obj)

    def wrap_result(self, frame: SymbolicFrame, node: Any, example: Any) -> Value:
        """The Value of a node's result."""
        return wrap_result(frame, node, example)

    def unstarted_generator(self, frame: Frame, obj: Any, source: Any) -> Value | None:
        """A generator of plain Python that can still be run from its start; None for other iterators."""
        if not inlining.can_be_started(obj) or type(source) is Const:
            return None
        maker = inlining.maker_of(obj)  # one that was decorated may be disabled
        if maker is None or self.call_policy(maker, maker.__globals__.get("__name__"))[0] == "break":
            return None
        return inlining.UnstartedGenerator(cast("SymbolicFrame", frame), obj, source)

    # --- exceptions --------------------------------------------------------------------------------------------
    def new_exception(self, frame: Frame, exception_type: type, args: tuple[object, ...]) -> exceptions.ExceptionValue:
        """exception_type(*args) of plain objects or Values."""
        return exceptions.ExceptionValue(exception_type, [exceptions.argument_value(frame, a) for a in args])

    def stopped_wrongly(self, frame: Frame, stop: Value) -> Value:
        """What a generator raises instead of a StopIteration that leaves it."""
        error = self.new_exception(frame, RuntimeError, ("generator raised StopIteration",))
        error.setattr(frame, "__cause__", stop)
        error.setattr(frame, "__context__", stop)
        return error

    def exception_of(self, frame: Frame, value: Value, cause: Value | None) -> Value:
        """What `raise value from cause` raises: classes are called."""
        exception = self.exception_instance(frame, value, "exceptions must derive from BaseException")
        if cause is not None and not (cause.is_constant() and cause.constant() is None):
            cause = self.exception_instance(frame, cause, "exception causes must derive from BaseException")
        if cause is not None:
            exception.setattr(frame, "__cause__", cause)
        return exception

    def exception_instance(self, frame: Frame, value: Value, refusal: str) -> Value:
        """An exception as it is, or one of a class that is called."""
        if issubclass(value.python_type(), BaseException):
            return value
        if not (issubclass(value.python_type(), type) and issubclass(value.real(), BaseException)):
            frame.raise_new(TypeError, refusal)
        made = value.call(frame, [], {})
        if not issubclass(made.python_type(), BaseException):
            frame.break_graph("exception", f"calling {value.describe()} did not give an exception")
        return made

    def exception_type(self, frame: SymbolicFrame, exception: Value) -> Value:
        """type(exception)"""
        kind = exception.python_type()
        return frame.wrap(kind, Const(kind, kind.__name__))

    def exception_matches(self, frame: Frame, exception: Value, kinds: Value) -> bool:
        """except kinds:"""
        return exceptions.matches(frame, exception, kinds)

    def kinds_of_clause(self, frame: SymbolicFrame, index: int) -> list[type] | None:
        """The classes of the except clause whose check is at this index; None where they are not known."""
        return clauses.kinds_of_clause(frame, index)

    # --- calls -------------------------------------------------------------------------------------------------
    def run_class_body(self, frame: Frame, body: NewFunctionValue) -> tuple[dict[str, Value], Value]:
        """The names that a class body leaves, and what it gives."""
        return inlining.run_class_body(cast("SymbolicFrame", frame), body)

    def leave_all_plain(self, frame: SymbolicFrame, detail: str) -> NoReturn:
        """A debugger shows the callers, too."""
        while frame.parent is not None:
            frame = frame.parent
        frame.leave_plain("call_skipped", detail)

    def inline(self, frame: SymbolicFrame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A Python function under the trace policy."""
        if isinstance(function, BoundMethodValue):
            return self.inline(frame, function.function, [function.owner, *args], kwargs)
        if args and issubclass(args[0].python_type(), bdb.Bdb):
            self.leave_all_plain(frame, f"{function.name} of a debugger")
        if frame.recording.selecting and not may_be_inlined(function.code):
            frame.break_graph("call_unknown", f"{function.name} in an arm of a condition on data")
        if frame.queries.traces_equality:
            refuse_effects(frame, function)
        real = None if isinstance(function, NewFunctionValue) else function.function
        decision, reason = self.call_policy(real, function.globals.get("__name__"), function.code.co_qualname)
        if decision == "plain":
            self.leave_all_plain(frame, f"{function.name}: {reason}")
        if decision == "break":
            disabled = reason.startswith("marked")
            inside = getattr(real, "_torchdynamo_orig_callable", None)  # of a wrapper that torch.compile's disable made
            name = getattr(inside, "__qualname__", function.name)
            frame.break_graph("call_disabled" if disabled else "call_skipped", f"{name}: {reason}")
        return inlining.inline(frame, function, args, kwargs)
