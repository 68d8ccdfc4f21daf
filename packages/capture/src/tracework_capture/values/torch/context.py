"""Context managers that torch gives: grad mode, autocast, and those that mean nothing to a graph."""

from __future__ import annotations

import contextlib
import copy
import inspect
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy
import torch

from ..._torch import enter_autocast, exit_autocast, set_grad_mode
from ...graph.managers import left, record_plain
from ...regions import error_on_graph_break, leave_region
from ...sources import Const, InstanceAttr
from ..objects.existing import wrap_object
from ..objects.function import FunctionValue
from ..plain.sequence import NONE
from ..protocol.binding import BoundBuiltin, class_value
from ..protocol.calls import call, calls
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.value import Value
from ..protocol.wraps import guard_type, wraps, wraps_derived, wraps_named
from .inference_tensors import begin_block, end_block
from .overrides import dispatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

    from ...sources import Source
    from ..protocol.calls import Handler
    from ..protocol.kinds import AbstractFunction
    from ..protocol.value import Emitter, Frame


class ContextValue(Value):
    """A manager made in the traced program. `enter` and `leave` record nodes; it can also decorate a function."""

    def __init__(self, cls: Any, args: list[Value], kwargs: dict[str, Value]) -> None:
        super().__init__(None)
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        self.obj: Any = None  # the manager itself, where it existed before

    def python_type(self) -> type:
        return cast(type, self.cls)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("__enter__", "__exit__", "clone"):
            return BoundBuiltin(self, name)
        if name == "__class__":
            return class_value(frame, self.cls)
        if name == "prev" and self.obj is not None and name in self.obj.__dict__:
            return frame.wrap(self.obj.prev, InstanceAttr(self.source, name))  # entered before this frame, left in it
        return frame.break_graph("context_unknown", f"{self.cls.__name__}.{name}")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__enter__":
            found = self.enter(frame) or NONE
            frame.modes.entered.append((self, frame.progress.step, frame.locations()))
            return found
        if name == "__exit__":
            self.leave(frame)
            left(frame, self)
            return ConstantValue(False)
        if name == "clone":
            return self.copied()
        return self.getattr(frame, name).call(frame, args, kwargs)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Used as a decorator: the function runs inside."""
        if len(args) == 1 and isinstance(args[0], FunctionValue):
            if args[0].code.co_flags & GENERATORS:
                return frame.break_graph(
                    "context_unknown", f"{self.cls.__name__} around a generator, which it is entered for at each step"
                )
            return DecoratedValue(self, args[0])
        return frame.break_graph("context_unknown", f"call of {self.cls.__name__}")

    def for_call(self, frame: Frame) -> ContextValue:
        """The manager that a call of a function which this one decorates enters."""
        return self

    def copied(self) -> Self:
        """A manager like this one that was not entered."""
        made = copy.copy(self)
        made.source = made.obj = None
        return made

    def enter(self, frame: Frame) -> Value | None:
        """Records what entering does; returns what `as` gives when that is not None."""
        return None

    def leave(self, frame: Frame) -> None:
        """Records what leaving does."""

    outlives_graph: bool = False
    """Whether the manager may be entered in a graph and left after it, where no with block says so."""

    def leave_at_break(self, frame: Frame) -> None:
        """The graph ends inside; plain Python enters the manager again."""
        self.leave(frame)

    def reload(self, emit: Emitter) -> str:
        parts = [emit.load(a) for a in self.args] + [f"{k}={emit.load(v)}" for k, v in self.kwargs.items()]
        return f"{emit.known(self.cls)}({', '.join(parts)})"


GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class DecoratedValue(Value):
    """A function under a context manager."""

    def __init__(self, manager: ContextValue, function: AbstractFunction) -> None:
        super().__init__(None)
        self.manager = manager
        self.function = function

    def python_type(self) -> type:
        return self.function.python_type()

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        manager = self.manager.for_call(frame)
        manager.enter(frame)
        try:
            return self.function.call(frame, args, kwargs)
        finally:
            manager.leave(frame)


class GradModeContext(ContextValue):
    """no_grad, enable_grad, set_grad_enabled(mode). `mode` is what holds inside, `before` what the last leaving brings back: the
    object has one place for that, so one that is entered twice at once stays in force."""

    def __init__(self, cls: type, args: list[Value], kwargs: dict[Any, Any], mode: bool) -> None:
        super().__init__(cls, args, kwargs)
        self.mode = mode
        self.before: bool | None = None

    outlives_graph = True

    def getattr(self, frame: Frame, name: str) -> Value:
        return ConstantValue(self.before) if name == "prev" and self.before is not None else super().getattr(frame, name)

    def reload(self, emit: Emitter) -> str:
        """One that is entered knows what held before."""
        if self.before is None:
            return super().reload(emit)
        return f"{emit.const(entered_before)}({super().reload(emit)}, {self.before})"

    def for_call(self, frame: Frame) -> ContextValue:
        return self.copied()

    def copied(self) -> Self:
        made = super().copied()
        made.before = None
        return made

    def enter(self, frame: Frame) -> None:
        self.before = torch.is_grad_enabled()
        if self.obj is not None:
            frame.log_effect(("entered", id(self.obj)), lambda emit: emit.line(f"{emit.load(self)}.prev = {self.before}"))
        switch_grad(frame, self.mode)

    def leave(self, frame: Frame) -> None:
        before = self.mode_before(frame)
        if before is not None:
            switch_grad(frame, before)

    def leave_at_break(self, frame: Frame) -> None:
        before = self.mode_before(frame)
        if before is not None:
            set_grad(frame, before)

    def mode_before(self, frame: Frame) -> bool | None:
        """What leaving brings back; None where it was not entered."""
        if self.before is None and self.obj is not None:
            before: bool = force_plain(frame, self.getattr(frame, "prev"))
            return before
        return self.before


def entered_before(manager: Any, before: bool) -> Any:
    """A manager of grad mode that was entered where grad mode was `before`."""
    manager.prev = before
    return manager


class SetGradEnabled(GradModeContext):
    """torch.set_grad_enabled(mode) takes effect when it is made, and remembers what held then. As a decorator it takes none but inside of
    the function."""

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        switch_grad(frame, self.mode_before(frame))
        return super().call(frame, args, kwargs)

    def for_call(self, frame: Frame) -> ContextValue:
        made = self.copied()
        made.before = torch.is_grad_enabled()
        return made

    def enter(self, frame: Frame) -> None:
        switch_grad(frame, self.mode)

    def reload(self, emit: Emitter) -> str:
        return f"{emit.const(grad_switch)}({self.mode}, {self.before})"


def grad_switch(mode: bool, before: bool) -> Any:
    """A torch.set_grad_enabled(mode) that was made where grad mode was `before`: it has taken effect already."""
    made = object.__new__(torch.set_grad_enabled)
    made.prev, made.mode = before, mode
    return made


def switch_grad(frame: Frame, mode: bool | None) -> None:
    """The program's own switch, about which torch asks the modes that are on."""
    if not frame.modes.function_modes:
        set_grad(frame, mode)
        return
    dispatch(frame, frame.wrap(set_grad_mode, Const(set_grad_mode)), [ConstantValue(mode)], {})


def set_grad(frame: Frame, mode: bool | None) -> None:
    """A node that sets grad mode; none when it is so already."""
    if torch.is_grad_enabled() != mode:
        frame.graph.call(frame, set_grad_mode, (mode,))


def grad_row(cls: type, mode: bool) -> Handler:
    """no_grad() and enable_grad(); with a function they decorate it."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs:
            return frame.break_graph("call_unknown", f"torch.{cls.__name__} with these arguments")
        made = GradModeContext(cls, [], {}, mode)
        return made.call(frame, args, kwargs) if args else made

    return handler


@call(torch.set_grad_enabled)
def set_grad_enabled_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    mode = args[0] if args else kwargs["mode"]
    wanted = force_plain(frame, mode)
    if type(wanted) is not bool:
        return frame.break_graph("call_unknown", f"torch.set_grad_enabled of a {type(wanted).__name__}, which eager refuses")
    made = SetGradEnabled(torch.set_grad_enabled, [mode], {}, wanted)
    made.before = torch.is_grad_enabled()
    switch_grad(frame, wanted)
    return made


class InferenceMode(GradModeContext):
    """torch.inference_mode(wanted): in a graph it is a grad mode, and the answers of those who ask for it."""

    def __init__(self, args: list[Value], wanted: bool) -> None:
        super().__init__(torch.inference_mode, args, {}, not wanted)
        self.entered: list[bool] = []

    outlives_graph = False

    def for_call(self, frame: Frame) -> ContextValue:
        return self  # it knows each of the blocks that it is entered for

    def enter(self, frame: Frame) -> None:
        if self.mode and torch.is_inference_mode_enabled():
            frame.break_graph("context_unknown", "the end of an inference mode that began outside")
        begin_block(frame)
        frame.modes.inference.append(not self.mode)
        self.entered.append(torch.is_grad_enabled())
        set_grad(frame, self.mode)

    def leave(self, frame: Frame) -> None:
        end_block(frame)
        frame.modes.inference.pop()
        set_grad(frame, self.entered.pop())

    leave_at_break = leave


@call(torch.inference_mode)
def inference_mode_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.inference_mode(mode=True), or around a function."""
    mode = args[0] if args else kwargs.get("mode", ConstantValue(True))
    if type(mode) is not ConstantValue or type(mode.constant()) is not bool:  # what is no bool is decorated
        return InferenceMode([], True).call(frame, [mode], {})
    return InferenceMode([mode], mode.constant())


class AutocastContext(ContextValue):
    """torch.autocast(...)"""

    def __init__(
        self, cls: type, args: list[Value], kwargs: dict[str, Value], settings: tuple[str, torch.dtype, bool, bool]
    ) -> None:
        super().__init__(cls, args, kwargs)
        self.settings = settings
        self.nodes: list[fx.Node] = []

    def enter(self, frame: Frame) -> ContextValue:
        if self.nodes:  # it has one place for what held before, and so stays in force
            frame.break_graph("context_unknown", f"{self.cls.__name__} that is entered again inside of its own block")
        self.nodes.append(record_plain(frame, enter_autocast, self.settings))
        return self

    def leave(self, frame: Frame) -> None:
        if self.nodes:
            record_plain(frame, exit_autocast, (self.nodes.pop(),))
            return
        if not all(hasattr(self.obj, name) for name in BEFORE_AUTOCAST):
            frame.break_graph("context_unknown", "the end of an autocast block that this frame did not begin")
        before = [force_plain(frame, frame.wrap(getattr(self.obj, n), InstanceAttr(self.source, n))) for n in BEFORE_AUTOCAST]
        settings = (self.settings[0], *before)
        frame.modes.autocast_ended.append(record_plain(frame, enter_autocast, settings))
        frame.mutations.call(self.cls.__exit__, [self, NONE, NONE, NONE])


BEFORE_AUTOCAST = ("prev_fastdtype", "prev", "prev_cache_enabled")
"""Where a manager that was entered keeps what held before it."""


def enter_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """type(manager).__enter__(manager), as ExitStack.enter_context calls it"""
    return (
        args[0].call_method(frame, "__enter__", args[1:], kwargs)
        if isinstance(args[0], ContextValue)
        else unknown(frame, "enter")
    )


def exit_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """type(manager).__exit__, which ExitStack keeps, and which lies on the stack of a frame that goes on after a break"""
    return (
        args[0].call_method(frame, "__exit__", args[1:], kwargs) if isinstance(args[0], ContextValue) else unknown(frame, "exit")
    )


def unknown(frame: Frame, what: str) -> NoReturn:
    frame.break_graph("context_unknown", f"__{what}__ of a manager derived from torch's")


AUTOCASTS = (torch.autocast, torch.cuda.amp.autocast, torch.cpu.amp.autocast)  # type: ignore[attr-defined]
GRAD_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode)
for _cls in (*GRAD_MODES, torch.autocast, torch.autograd.profiler.record_function):  # called as functions of their class
    call(f"{_cls.__module__}.{_cls.__qualname__}.__enter__")(enter_row)
    call(f"{_cls.__module__}.{_cls.__qualname__}.__exit__")(exit_row)


def autocast_row(cls: type) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        plain_args = [force_plain(frame, a) for a in args]
        plain_kwargs = {k: force_plain(frame, v) for k, v in kwargs.items()}
        try:
            made = cls(*plain_args, **plain_kwargs)
        except (TypeError, ValueError, RuntimeError) as error:
            return frame.break_graph("call_unknown", f"torch.{cls.__name__}: {error}")
        settings = (made.device, made.fast_dtype, made._enabled, made._cache_enabled)
        return AutocastContext(cls, args, kwargs, settings)

    return handler


class NullContext(ContextValue):
    """A manager without effect on a graph; `result` is what `as` gives."""

    def __init__(self, cls: type | Callable[..., Any], args: list[Value], kwargs: dict[Any, Any], result: Value = NONE) -> None:
        super().__init__(cls, args, kwargs)
        self.result = result

    @property
    def outlives_graph(self) -> bool:  # type: ignore[override]
        return self.cls is contextlib.nullcontext

    def python_type(self) -> type:
        return self.cls if isinstance(self.cls, type) else contextlib._GeneratorContextManager

    def enter(self, frame: Frame) -> Value:
        return self.result

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "enter_result" and self.cls is contextlib.nullcontext:
            return self.result
        return super().getattr(frame, name)


def null_row(cls: Callable[..., Any]) -> Handler:
    return lambda frame, args, kwargs: NullContext(cls, args, kwargs)


class NamedBlock(NullContext):
    """A block with a name for profilers, which `as` gives; modes see calls where it begins and ends."""

    def enter(self, frame: Frame) -> ContextValue:
        if frame.modes.function_modes:
            return frame.break_graph("function_mode", "a block with a name for profilers")
        return self


def record_function_row(cls: type) -> Handler:
    return lambda frame, args, kwargs: NamedBlock(cls, args, kwargs)


@call(contextlib.nullcontext)
def nullcontext_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result = args[0] if args else kwargs.get("enter_result", NONE)
    return NullContext(contextlib.nullcontext, args, kwargs, result)


class HooksDisabled(NullContext):
    """disable_saved_tensors_hooks(message): hooks of saved tensors break the graph, and are then refused by plain Python."""

    def enter(self, frame: Frame) -> Value:
        frame.modes.saved_hooks_refused += 1
        return super().enter(frame)

    def leave(self, frame: Frame) -> None:
        frame.modes.saved_hooks_refused -= 1


@call(torch.autograd.graph.disable_saved_tensors_hooks)
def hooks_disabled_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return HooksDisabled(torch.autograd.graph.disable_saved_tensors_hooks, args, kwargs)


class ErrorState(ContextValue):
    """numpy.errstate(...) that neither raises nor calls anything: graphs give no warnings of floating-point errors. One that a
    continuation finds entered is left at run time, too."""

    entered = 0

    def enter(self, frame: Frame) -> None:
        self.entered += 1

    def leave(self, frame: Frame) -> None:
        if self.entered:
            self.entered -= 1
        else:
            frame.mutations.call(numpy.errstate.__exit__, [self, NONE, NONE, NONE])


@call(numpy.errstate)
def error_state_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """numpy.errstate(over="ignore")"""
    wanted = {k: force_plain(frame, v) for k, v in kwargs.items()}
    if args or not wanted.keys() <= QUIET_ERRORS or not set(wanted.values()) <= {"ignore", "warn", "print"}:
        return frame.break_graph("context_unknown", "numpy.errstate with these arguments")
    return ErrorState(numpy.errstate, args, kwargs)


QUIET_ERRORS = {"all", "divide", "over", "under", "invalid"}


class ErrorRegion(ContextValue):
    """error_on_graph_break(value). One that a continuation finds entered is left at run time, too; `own`: it is ours, not torch's."""

    models_methods = True

    def __init__(self, args: list[Value], wanted: bool, own: bool = True) -> None:
        super().__init__(error_on_graph_break, args, {})
        self.wanted = wanted
        self.own = own
        self.entered = 0

    def copied(self) -> Self:
        made = super().copied()
        made.entered = 0
        return made

    def enter(self, frame: Frame) -> Value | None:
        self.entered += 1
        frame.modes.regions.append(self.wanted)
        return NONE

    def leave(self, frame: Frame) -> None:
        if not self.entered and not self.own:
            del frame.modes.regions[-1:]  # a break here is none in the region
            frame.break_graph("context_unknown", "the end of a region that plain Python entered")
        frame.modes.regions.pop()
        if self.entered:
            self.entered -= 1
        else:
            frame.mutations.call(leave_region, [], {})


@call(error_on_graph_break, "torch._dynamo.decorators.error_on_graph_break")
def error_region_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0] if args else kwargs["error_on_graph_break"]
    return ErrorRegion([value], bool(force_plain(frame, value)))


@wraps_named(
    "tracework_capture.regions.error_on_graph_break",
    "torch._dynamo.decorators.ErrorOnGraphBreakDecoratorContextManager",
)
def existing_error_region(frame: Frame, obj: Any, source: Source) -> Value:
    wanted = frame.wrap(obj.error_on_graph_break, InstanceAttr(source, "error_on_graph_break"))
    guard_type(frame, obj, source)
    made = ErrorRegion([wanted], obj.error_on_graph_break, type(obj) is error_on_graph_break)
    made.source = source
    return made


@wraps_named("torch._dynamo.decorators.DynamoConfigPatchProxy")
def existing_options(frame: Frame, obj: Any, source: Source) -> Value:
    """Options of torch.compile."""
    guard_type(frame, obj, source)
    return existing(NullContext(type(obj), [], {}), obj, source)


@wraps(numpy.errstate)
def existing_error_state(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return existing(ErrorState(type(obj), [], {}), obj, source)


@wraps(contextlib.nullcontext)
def existing_null_context(frame: Frame, obj: Any, source: Source) -> Value:
    if getattr(obj, "enter_result", obj) is not None:
        return wrap_object(frame, obj, source)
    return existing_with_fields(frame, NullContext(type(obj), [], {}), obj, source)


@wraps_derived(torch.autocast)
def existing_autocast(frame: Frame, obj: Any, source: Source) -> Value:
    settings = (obj.device, obj.fast_dtype, obj._enabled, obj._cache_enabled)
    return existing_with_fields(frame, AutocastContext(type(obj), [], {}, settings), obj, source)


def existing(manager: ContextValue, obj: Any, source: Source) -> ContextValue:
    """The manager as the value of an object that was there, entered or not."""
    manager.source, manager.obj = source, obj
    return manager


def existing_with_fields(frame: Frame, manager: ContextValue, obj: Any, source: Source) -> ContextValue:
    """The same with guards of what it was made with: one is made at each call of the code that uses it, so not of its identity."""
    guard_type(frame, obj, source)
    for name in FIELDS_OF_EXISTING.get(type(obj), ()):
        frame.wrap(getattr(obj, name), InstanceAttr(source, name))
    return existing(manager, obj, source)


FIELDS_OF_EXISTING = {
    contextlib.nullcontext: ("enter_result",),
    **dict.fromkeys(AUTOCASTS, ("device", "fast_dtype", "_enabled", "_cache_enabled")),
}
"""What is guarded of managers that existed before."""


@wraps(torch.no_grad, torch.enable_grad, torch.set_grad_enabled)
def existing_grad_mode(frame: Frame, obj: Any, source: Source) -> ContextValue:
    """Known by what it does: a block that goes on after a break has a new one in each call."""
    frame.guard("TYPE", source, type(obj))
    mode = type(obj) is torch.enable_grad
    if type(obj) is torch.set_grad_enabled:
        mode = force_plain(frame, frame.wrap(obj.mode, InstanceAttr(source, "mode")))
    made = (SetGradEnabled if type(obj) is torch.set_grad_enabled else GradModeContext)(type(obj), [], {}, mode)
    return existing(made, obj, source)


calls(
    {
        torch.no_grad: grad_row(torch.no_grad, False),
        torch.enable_grad: grad_row(torch.enable_grad, True),
        **{cls: autocast_row(cls) for cls in AUTOCASTS},
        torch.autograd.profiler.record_function: record_function_row(torch.autograd.profiler.record_function),
        "torch.fx.traceback.annotate": null_row(torch.fx.traceback.annotate),
    }
)
