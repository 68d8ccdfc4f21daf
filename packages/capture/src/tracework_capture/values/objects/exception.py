"""Exception objects: made, raised and matched while tracing."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NoReturn

from ... import _C
from ...bytecode.resume import original_code
from ...errors import BreakGraph, NotPlain
from ...guards.classes import lookup_class, resolution_order
from ...signals import let_through
from ..plain.sequence import ListValue, TupleValue
from ..protocol.binding import BoundBuiltin, bind_class_attribute
from ..protocol.constant import ConstantValue, literal, plain
from ..protocol.kinds import AbstractException
from ..protocol.properties import function_value
from ..protocol.value import NEW, Emitter, Frame, HeldValue, SymbolicRaise, Value, is_none

NONE = ConstantValue(None)
_CHECK_ARGUMENTS = (OSError, SyntaxError, UnicodeError)  # classes whose __init__ may raise
_LINKS = {
    "__cause__": (BaseException, "exception cause must be None or derive from BaseException"),
    "__context__": (BaseException, "exception context must be None or derive from BaseException"),
    "__traceback__": (types.TracebackType, "__traceback__ must be a traceback or None"),
}


class TracebackValue(Value):
    """A traceback: where an exception was raised in a traced frame, or came out of a call, and what is behind that: nearer to where it
    began."""

    cls = types.TracebackType

    def __init__(self, frame: Frame, behind: TracebackValue | None) -> None:
        super().__init__(None)
        self.frame, self.behind = frame, behind
        self.offset, self.line = frame.offset(), frame.line()

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "tb_next":
            return NONE if self.behind is None else self.behind
        if name in ("tb_lasti", "tb_lineno"):
            return ConstantValue(self.line if name == "tb_lineno" else self.offset)
        return super().getattr(frame, name)

    def reload(self, emit: Emitter) -> str:
        if self.frame.parent is None:
            raise BreakGraph("cannot_rebuild", "a traceback with the captured frame, which the program may compare with itself")
        return self.text(emit)

    def text(self, emit: Emitter) -> str:
        """What makes it, where only its exception refers to it."""
        behind = None if self.behind is None else self.behind.shown(emit)
        code = original_code(self.frame.code)
        maker = maker_of(code, self.frame.globals, self.frame.offset(), self.offset, self.line)
        return f"{emit.const(maker, 'traceback')}({behind})"

    def shown(self, emit: Emitter) -> str:
        """The same object where the program refers to it, too."""
        return self.text(emit) if self.frame.parent is None else emit.load(self)


def maker_of(
    code: types.CodeType, globals_: dict[str, Any], ended: int, offset: int, line: int
) -> Callable[[types.TracebackType | None], types.TracebackType]:
    """A function that gives a traceback of a place, before another one. The frame is not the one that would have run: it is where that
    ended, and has no locals."""
    return lambda behind: types.TracebackType(behind, _C.ended_frame(code, globals_, ended), offset, line)


class ExistingTraceback(Value):
    """The traceback of an exception of plain Python."""

    cls = types.TracebackType

    def __init__(self, exception: Value) -> None:
        super().__init__(None)
        self.exception = exception

    def reload(self, emit: Emitter) -> str:
        return f"{emit.load(self.exception)}.__traceback__"


def raise_no_attribute(frame: Frame, owner: Value, name: str, text: str) -> NoReturn:
    """Raises an AttributeError that knows what was asked for, and of which object."""
    fields = {"name": ConstantValue(name), "obj": owner}
    frame.raise_user(ExceptionValue(AttributeError, [literal(frame, text)], fields))


def attribute_of_exception(frame: Frame, owner: Value, name: str) -> Value:
    """owner.name. An AttributeError that says neither what was asked for, nor of which object, learns it, as from Python's own lookup."""
    try:
        return owner.getattr(frame, name)
    except SymbolicRaise as raised:
        error = raised.value
        if (
            isinstance(error, ExceptionValue)
            and issubclass(error.cls, AttributeError)
            and error.fields.keys().isdisjoint(_ERROR_FIELDS)
        ):
            error.fields.update(name=ConstantValue(name), obj=owner)
        raise


_ERROR_FIELDS = ("name", "obj")


class ExceptionValue(AbstractException):
    """An exception made in the traced program; `args` are Values."""

    is_unique = True
    mutability = NEW

    def __init__(self, cls: type[BaseException], args: Sequence[Value], fields: dict[str, Value] | None = None) -> None:
        super().__init__(None)
        self.cls = cls
        self.args = list(args)
        self.fields = dict(fields or {})
        self.given: list[Value] | None = (
            None  # what the __init__ of the built-in class got, which may keep it in fields of its own
        )
        self.cause: Value = NONE
        self.context: Value = NONE
        self.suppress_context = False
        self.context_is_callers = False  # its context is what the program handled when it called the captured code
        self.trace: TracebackValue | None = None

    def passes(self, frame: Frame) -> None:
        """It is raised in the frame, or comes out of a call there: its traceback is another one from now on."""
        self.trace = TracebackValue(frame, self.trace)

    def raise_during(self, handled: Value | None) -> None:
        """What is being handled when it is raised (None: nothing) becomes its context, unless it is behind that one already."""
        if handled is None:
            self.context_is_callers = self.context is NONE
            return
        link: Any = handled
        seen = {id(handled)}
        while isinstance(behind := getattr(link, "context", None), ExceptionValue):
            if behind is self:
                link.context = NONE
                break
            if id(behind) in seen:  # the program made a ring of them
                break
            seen.add(id(behind))
            link = behind
        self.context = handled

    def text(self) -> str:
        """Message for people."""
        try:
            native = native_class(self.cls)
            return str(native(*[plain(a) for a in self.args]))
        except Exception as error:
            let_through(error)
            return ", ".join(a.describe() for a in self.args)

    def describe(self) -> str:
        return f"{self.cls.__name__}: {self.text()}"

    def getattr(self, frame: Frame, name: str) -> Value:
        trace = NONE if self.trace is None else self.trace
        fixed = {"__cause__": self.cause, "__context__": self.context, "__traceback__": trace}
        if name in self.fields:
            return self.fields[name]
        if name == "args":
            return TupleValue(self.args)
        if name == "__context__" and self.context_is_callers and frame.globals is not contextlib.__dict__:
            return frame.break_graph(
                "exception", "the context of one that was raised where none of the traced program was handled"
            )
        if name in fixed:
            return fixed[name]
        if name == "__suppress_context__":
            return ConstantValue(self.suppress_context)
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else NONE
        if name in ("__str__", "__repr__"):
            return BoundBuiltin(self, name)
        return bind_class_attribute(frame, self, self.cls, name)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if name in _LINKS:
            kind, refusal = _LINKS[name]
            if not issubclass(value.python_type(), (kind, types.NoneType)):
                frame.raise_new(TypeError, refusal)
        if name == "__cause__":
            self.cause, self.suppress_context = value, True
        elif name == "__context__":
            self.context, self.context_is_callers = value, False
        elif name == "__suppress_context__":
            self.suppress_context = value.truth(frame)
        elif name == "args":
            self.args = value.unpack(frame)
        elif name == "__traceback__":
            self.take_trace(frame, value)
        else:
            self.fields[name] = value

    def take_trace(self, frame: Frame, value: Value) -> ExceptionValue:
        """It gets the traceback of another one, or none."""
        if not isinstance(value, TracebackValue) and not value.is_constant():
            frame.break_graph("exception", f"{self.describe()} gets {value.describe()}")
        self.trace = value if isinstance(value, TracebackValue) else None
        return self

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__str__", "__repr__"):
            return self.text_of_class(frame, str if name == "__str__" else repr)
        static = lookup_class(self.cls, name)[0]
        if name in ("with_traceback", "add_note") and static is vars(BaseException)[name]:
            return self.call_native(frame, name, args, kwargs)
        return self.getattr(frame, name).call(frame, args, kwargs)

    def call_native(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A method that BaseException and its built-in subclasses define."""
        if name == "__init__":
            if kwargs or issubclass(self.cls, _CHECK_ARGUMENTS):
                return frame.break_graph("call_unknown", f"{native_class(self.cls).__name__}.__init__")
            self.args, self.given = list(args), list(args)
            return NONE
        if name in ("__str__", "__repr__"):
            return self.as_text(frame, str if name == "__str__" else repr)
        if name == "with_traceback" and len(args) == 1 and not kwargs:
            self.setattr(frame, "__traceback__", args[0])
            return self
        if name == "add_note" and len(args) == 1 and not kwargs:
            return self.add_note(frame, args[0])
        if name == "__setattr__":
            self.setattr(frame, plain(args[0]), args[1])
            return NONE
        return frame.break_graph("call_unknown", f"{self.cls.__name__}.{name}")

    def add_note(self, frame: Frame, note: Value) -> Value:
        """BaseException.add_note(note)"""
        if not issubclass(note.python_type(), str):
            frame.raise_new(TypeError, f"note must be a str, not '{note.python_type().__name__}'")
        if "__notes__" not in self.fields:
            self.fields["__notes__"] = ListValue([])
        return self.fields["__notes__"].call_method(frame, "append", [note], {})

    def own_text(self, frame: Frame, fn: Callable[[object], str]) -> Value | None:
        return self.text_of_class(frame, fn)

    def text_of_class(self, frame: Frame, fn: Callable[[object], str]) -> Value:
        """str(e) or repr(e), by the class's own method if it has one"""
        for name in ("__str__", "__repr__")[fn is repr :]:
            static, owner = lookup_class(self.cls, name)
            if isinstance(static, types.FunctionType):
                return function_value(frame, static).call(frame, [self], {})
            if owner is not BaseException:
                break
        return self.as_text(frame, fn)

    def as_text(self, frame: Frame, fn: Callable[[object], str]) -> Value:
        """str(e) or repr(e) of a built-in class"""
        is_its_argument = fn is str and len(self.args) == 1 and native_class(self.cls).__str__ is BaseException.__str__
        if is_its_argument and self.args[0].python_type() is str:
            return self.args[0]
        try:
            args = [plain(a) for a in self.args]
            native = native_class(self.cls)
            return ConstantValue(fn(native(*args)) if fn is str else f"{self.cls.__name__}({', '.join(map(repr, args))})")
        except NotPlain:
            return frame.break_graph("value_not_known", "text of an exception")

    def reload(self, emit: Emitter) -> str:
        cls = emit.known(self.cls, self.cls.__name__)
        items = "".join(f"{emit.load(a)}, " for a in self.args)
        if self.cls.__init__ in BUILTIN_INITS:
            return f"{cls}({items})"
        return f"{cls}.__new__({cls}, {items})"

    two_phase = True

    def fill(self, emit: Emitter, name: str) -> None:
        if self.cls.__init__ not in BUILTIN_INITS:
            if self.given is not None:
                init = emit.const(native_class(self.cls).__init__, "init")
                emit.line(f"{init}({', '.join([name, *map(emit.load, self.given)])})")
            if self.given is None or any(a is not b for a, b in zip_longest(self.args, self.given)):
                emit.line(f"{name}.args = ({''.join(emit.load(a) + ', ' for a in self.args)})")
        for key, value in self.fields.items():
            emit.line(f"{name}.{key} = {emit.load(value)}")
        if self.trace is not None:
            emit.line(f"{name}.__traceback__ = {self.trace.shown(emit)}")
            if self.context_is_callers:
                emit.line(f"{name}.__context__ = {emit.const(sys.exception)}()")
        if self.cause is not NONE:
            emit.line(f"{name}.__cause__ = {emit.load(self.cause)}")
        if self.context is not NONE:
            emit.line(f"{name}.__context__ = {emit.load(self.context)}")
        if self.suppress_context:
            emit.line(f"{name}.__suppress_context__ = True")


def native_class(cls: type) -> type[BaseException]:
    """The built-in exception that a class derives from."""
    return next(c for c in cls.__mro__ if c.__module__ == "builtins")


class ExistingException(HeldValue):
    """An exception of plain Python, alive at a break: it can be matched and raised again; for the rest the graph breaks."""

    is_unique = True

    def describe(self) -> str:
        return f"an existing {type(self.obj).__name__}"

    def getattr(self, frame: Frame, name: str) -> Value:
        return frame.break_graph("exception", f"{name} of {self.describe()}")

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        frame.break_graph("exception", f"{name} of {self.describe()}")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.getattr(frame, name)


BUILTIN_INITS = {
    e.__init__ for e in vars(__import__("builtins")).values() if isinstance(e, type) and issubclass(e, BaseException)
}


BUILTIN_NEWS = {
    e.__new__
    for e in vars(__import__("builtins")).values()
    if isinstance(e, type) and issubclass(e, BaseException) and not issubclass(e, BaseExceptionGroup)
}


def argument_value(frame: Frame, obj: Any) -> Value:
    """The value of an exception argument."""
    return obj if isinstance(obj, Value) else literal(frame, obj)


def matches(frame: Frame, exception: Value, handler: Value) -> bool:
    """Whether `except handler` catches; handler is a class value or a tuple of them."""
    if isinstance(handler, TupleValue):
        return any([matches(frame, exception, h) for h in handler.all_items(frame)])  # all of them are checked
    kind = handler.real()
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        frame.raise_new(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return kind in resolution_order(exception.python_type())


def raised_by(frame: Frame, value: Value, cause: Value | None) -> Value:
    """What `raise value from cause` raises: classes are called."""
    exception = exception_instance(frame, value, "exceptions must derive from BaseException")
    if cause is not None and not is_none(cause):
        cause = exception_instance(frame, cause, "exception causes must derive from BaseException")
    if cause is not None:
        exception.setattr(frame, "__cause__", cause)
    return exception


def exception_instance(frame: Frame, value: Value, refusal: str) -> Value:
    """An exception as it is, or one of a class that is called."""
    if issubclass(value.python_type(), BaseException):
        return value
    if not (issubclass(value.python_type(), type) and issubclass(value.real(), BaseException)):
        frame.raise_new(TypeError, refusal)
    made = value.call(frame, [], {})
    if not issubclass(made.python_type(), BaseException):
        frame.break_graph("exception", f"calling {value.describe()} did not give an exception")
    return made


def stopped_wrongly(frame: Frame, stop: Value) -> Value:
    """What a generator raises instead of a StopIteration that leaves it."""
    error = frame.new_exception(RuntimeError, "generator raised StopIteration")
    error.setattr(frame, "__cause__", stop)
    error.setattr(frame, "__context__", stop)
    return error
