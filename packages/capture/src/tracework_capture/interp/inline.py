"""Calls of Python functions: bound, run by the machine in a frame of their own; generators become lazily run frames."""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from ..bytecode.facts import VERSION
from ..errors import BreakGraph
from ..exception_table import cleans_up
from ..polyfills import is_polyfill
from ..sources import Attr, GeneratorLocal
from ..values.objects.exception import raised_by, stopped_wrongly
from ..values.objects.function import FunctionValue, bind_arguments
from ..values.protocol.binding import BoundBuiltin
from ..values.protocol.value import EXISTING, Frame, SymbolicRaise, Value
from .frame import SymbolicFrame
from .handlers.table import RETURNED
from .machine import run

_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def inline(frame: SymbolicFrame, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Run the function's code on Values; a generator function gives its generator."""
    code = function.code
    if code.co_flags & _COROUTINE:
        frame.break_graph("generator", f"coroutine {code.co_qualname}")
    if is_polyfill(function.globals) and not code.co_flags & inspect.CO_GENERATOR:
        return run_polyfill(frame, function, args, kwargs)
    if frame.progress.depth >= frame.options.inline_depth_limit:
        frame.break_graph("recursion", code.co_qualname)
    frame.progress.expect_growth(frame)
    bound = bind_arguments(frame, function, args, kwargs)
    child = SymbolicFrame(frame, code, function.globals, bound, function.closure(frame), frame)
    child.function = function
    if code.co_flags & inspect.CO_GENERATOR:
        return GeneratorValue(child)
    frame.progress.depth += 1
    try:
        run(child)
    finally:
        frame.progress.depth -= 1
    assert child.result is not None
    return child.result


def run_polyfill(frame: SymbolicFrame, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The same for a polyfill, which counts for no limit."""
    idle = frame.progress.idle
    bound = bind_arguments(frame, function, args, kwargs)
    child = SymbolicFrame(frame, function.code, function.globals, bound, function.closure(frame), frame)
    child.function = function
    run(child)
    frame.progress.idle = idle
    assert child.result is not None
    return child.result


def run_class_body(frame: SymbolicFrame, body: FunctionValue) -> tuple[dict[str, Value], Value]:
    """The names that a class body leaves, and what it gives: the cell of `__class__` where a method uses it."""
    child = SymbolicFrame(frame, body.code, body.globals, {}, body.closure(frame), frame)
    child.function = body
    frame.progress.depth += 1
    try:
        run(child)
    finally:
        frame.progress.depth -= 1
    assert child.result is not None
    return child.locals, child.result


def _ends_a_handler(instructions: list[Any], at: int) -> bool:
    """Whether the code there only takes the exception that was being handled off the stack and raises on, out of the function."""
    names = [i.opname for i in instructions[at : at + 3]]
    return names == ["COPY", "POP_EXCEPT", "RERAISE"] and all(_leaves(instructions, i.handler) for i in instructions[at : at + 3])


def _leaves(instructions: list[Any], handler: Any) -> bool:
    """Whether an exception with this handler leaves the function. From 3.12 on a generator is in one that turns StopIteration around."""
    return handler is None or instructions[handler.target].opname.startswith("CALL_INTRINSIC")


class GeneratorValue(Value):
    """A generator of an inlined generator function; runs when it is asked for a value."""

    cls = types.GeneratorType

    def __init__(self, frame: SymbolicFrame) -> None:
        super().__init__(None)
        self.frame = frame
        self.started = self.finished = self.running = False
        self.returned: Value | None = None
        self.created_at = frame.progress.step
        frame.memory.generators.append(self)

    def truth(self, frame: Frame) -> bool:
        return True

    def iterate(self, frame: Frame) -> Value:
        return self

    def next_value(self, frame: Frame) -> Value | None:
        return self.resume(frame, frame.constant(None), None)

    def resume(self, frame: Frame, sent: Value, raised: SymbolicRaise | None) -> Value | None:
        """Go on until the next yield; None at the end."""
        if self.finished:
            if raised is not None:
                self.rethrow(raised)
            return None
        if self.running:
            frame.raise_new(ValueError, "generator already executing")
        self.frame.parent = cast(SymbolicFrame, frame)  # the one class of frames
        if self.started:
            if raised is None:
                self.frame.push(sent)
        elif raised is not None:
            self.finished = True
            self.rethrow(raised)
        self.started = self.running = True
        if raised is not None:
            if self.frame.handled and not raised.again:  # what the caller handles is no context of what is thrown
                self.frame.chain(raised.value)
            else:
                self.frame.passes(raised.value)
            raised.again = True
        try:
            thrown, raised = raised, None
            try:
                signal = run(self.frame, thrown)
            finally:
                del thrown
        except SymbolicRaise as escaped:
            self.finished = True
            if issubclass(escaped.value.python_type(), StopIteration):
                raise SymbolicRaise(stopped_wrongly(frame, escaped.value), again=True) from None
            raise
        finally:
            self.running = False
        if signal is RETURNED:
            self.finished, self.returned = True, self.frame.result
            return None
        return self.frame.result

    def rethrow(self, raised: SymbolicRaise) -> None:
        """The exception leaves at once; no frame is left that holds it and is held by it."""
        try:
            raise raised
        finally:
            del raised

    def is_left(self) -> bool:
        """Whether plain Python would have to do something about it where it stopped."""
        return self.started and not self.finished and self.has_cleanup()

    def has_cleanup(self) -> bool:
        """Whether it stopped inside a try or with block."""
        handler = self.frame.current.handler
        return not (handler is None or _leaves(self.frame.instructions, handler) or self._passes_generator_exit(handler.target))

    def _passes_generator_exit(self, start: int) -> bool:
        """Whether the handler is only `except SomeError:` clauses that closing the generator does not enter, and no block is outside."""
        instructions = self.frame.instructions
        at = start + 1
        while [i.opname for i in instructions[at : at + 2]] == ["LOAD_GLOBAL", "CHECK_EXC_MATCH"]:
            name = instructions[at].value
            caught = getattr(builtins, name, None) if isinstance(name, str) and name not in self.frame.globals else None
            if not isinstance(caught, type) or issubclass(GeneratorExit, caught):
                return False
            at = instructions[at + 2].target
        last = instructions[at]
        if last.opname != "RERAISE" or at == start + 1:
            return False
        return last.handler is None or _leaves(instructions, last.handler) or _ends_a_handler(instructions, last.handler.target)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in _METHODS:
            return BoundBuiltin(self, name)
        frame.break_graph("attribute_unknown", f"generator.{name}")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        method = _METHODS.get(name)
        if method is None:
            frame.break_graph("attribute_unknown", f"generator.{name}")
        return method(self, frame, *args)

    def reload(self, emit: Any) -> str:
        raise self.alive()

    def alive(self) -> BreakGraph:
        """Why no continuation can take it over; the graph may end before it is made."""
        stop = BreakGraph("generator", f"a generator of {self.frame.code.co_qualname} is alive")
        if not cleans_up(self.frame.code):  # a continuation may let go of it later than plain Python does
            stop.created_at = self.created_at
        return stop


def can_be_started(obj: object) -> bool:
    """Whether an existing iterator is a generator that has not run and whose code can be traced from its start: it shares no variable
    with other functions, takes no iterator over (as generator expressions do), and letting go of it in the middle runs nothing."""
    if type(obj) is not types.GeneratorType or inspect.getgeneratorstate(obj) != inspect.GEN_CREATED:
        return False
    code = obj.gi_code
    return not (code.co_freevars or code.co_cellvars or ".0" in code.co_varnames[:1] or cleans_up(code))


def maker_of(generator: types.GeneratorType[Any, Any, Any]) -> types.FunctionType | None:
    """The function of a generator where its module has it under its name, undecorated; None where that cannot be told."""
    found: Any = None
    assert generator.gi_frame is not None  # it has not run
    names: Mapping[str, Any] = generator.gi_frame.f_globals
    for name in generator.gi_code.co_qualname.split("."):
        found = names.get(name)
        names = vars(found) if isinstance(found, type) else {}
    found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    return found if isinstance(found, types.FunctionType) and found.__code__ is generator.gi_code else None


class UnstartedGenerator(GeneratorValue):
    """A generator of plain Python that nobody has asked yet, alive at a break, say. Once it is asked it runs as if the program had made
    it, to its end: that is what the existing object is left as. One that is left in the middle is not asked."""

    mutability = EXISTING

    def __init__(self, frame: SymbolicFrame, obj: types.GeneratorType[Any, Any, Any], source: Any) -> None:
        assert obj.gi_frame is not None  # it has not run
        super().__init__(SymbolicFrame(frame, obj.gi_code, obj.gi_frame.f_globals, {}, (), frame))
        self.source = source
        self.obj = obj
        self.is_guarded = False

    def resume(self, frame: Frame, sent: Value, raised: SymbolicRaise | None) -> Value | None:
        self.query(frame)
        return super().resume(frame, sent, raised)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name != "__iter__":
            self.query(frame)  # closing it is for good, too
        return super().call_method(frame, name, args, kwargs)

    def query(self, frame: Frame) -> None:
        """Guard that it is as it is, and read its arguments."""
        if self.is_guarded:
            return
        self.is_guarded, self.created_at = True, frame.progress.step
        frame.guard("IDENTITY", Attr(self.source, "gi_code"), self.obj.gi_code)
        frame.guard("NOT_NONE", Attr(self.source, "gi_frame"))
        for state in ("gi_running", "gi_suspended"):
            frame.guard("CONSTANT", Attr(self.source, state), False)
        arguments = self.obj.gi_frame.f_locals
        self.frame.locals.update(
            {name: frame.wrap(value, GeneratorLocal(self.source, name)) for name, value in arguments.items()}
        )
        frame.mutations.keep.append(self)
        frame.mutations.effect(("generator", id(self)), lambda emit: emit.line(f"{emit.source(self.source)}.close()"))

    def is_left(self) -> bool:
        return self.started and not self.finished

    def needs_reload_from_graph(self) -> bool:
        return self.is_left()


def _send(generator: GeneratorValue, frame: Frame, *args: Value) -> Value:
    item = generator.resume(frame, args[0] if args else frame.constant(None), None)
    if item is None:
        _stop(generator, frame)
    return item


def _stop(generator: GeneratorValue, frame: Frame) -> NoReturn:
    returned = generator.returned
    generator.returned = None
    if returned is None or (returned.is_constant() and returned.constant() is None):
        frame.raise_new(StopIteration)
    frame.raise_new(StopIteration, returned)


def _throw(generator: GeneratorValue, frame: Frame, *args: Value) -> Value:
    exception = raised_by(
        frame, args[1] if len(args) > 1 and not (args[1].is_constant() and args[1].constant() is None) else args[0], None
    )
    item = generator.resume(frame, frame.constant(None), SymbolicRaise(exception))
    if item is None:
        _stop(generator, frame)
    return item


def _close(generator: GeneratorValue, frame: Frame) -> Value:
    nothing = frame.constant(None)
    if generator.finished or not generator.started:
        generator.finished = True
        return nothing
    exit_value = frame.new_exception(GeneratorExit)
    try:
        item = generator.resume(frame, nothing, SymbolicRaise(exit_value))
    except SymbolicRaise as raised:
        if not issubclass(raised.value.python_type(), GeneratorExit):
            raise
        return nothing
    if item is not None:
        frame.raise_new(RuntimeError, "generator ignored GeneratorExit")
    returned, generator.returned = generator.returned, None
    return returned if VERSION >= (3, 13) and returned is not None else nothing


_METHODS: dict[str, Callable[..., Value]] = {
    "__next__": _send,
    "send": _send,
    "throw": _throw,
    "close": _close,
    "__iter__": lambda generator, frame: generator,
}
