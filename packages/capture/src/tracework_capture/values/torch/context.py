"""Context managers that torch gives, as what they record: grad mode, autocast, forward-mode AD, and those that mean nothing to a graph."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, Self, TypeAlias

import numpy
import torch
from torch.autograd import forward_ad

from ..._torch.autograd import dual_level
from ..._torch.modes import set_grad_mode
from ..._torch.settings import enter_autocast, exit_autocast
from ...errors import BreakGraph
from ...graph.settings import left
from ...regions import error_on_graph_break, leave_region
from ...sources import Const, InstanceAttr, Source
from ..objects.existing import wrap_object
from ..objects.function import FunctionValue
from ..plain.sequence import NONE
from ..protocol.binding import BoundBuiltin, class_value
from ..protocol.calls import Handler, call
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractFunction
from ..protocol.value import Emitter, Frame, Value
from ..protocol.wraps import guard_type, wraps, wraps_derived, wraps_named
from .inference_tensors import begin_block, end_block
from .overrides import dispatch

Blocks: TypeAlias = "Generator[Value | None, bool, None]"
Block: TypeAlias = "Callable[[Frame, ContextValue], Blocks]"
"""A generator function: up to its yield it records what entering a manager does, and gives what `as` gets (None: None); behind it, what
leaving does. The yield gives whether the graph ends inside of the block, which plain Python then enters again."""


class ContextValue(Value):
    """A manager made in the traced program, or found there. It can also decorate a function.

    block: what it does; None for classes with methods of their own. as_entered: what leaving does where the frame found it entered.
    fields: the attributes that are known.
    """

    outlives_graph = False
    """Whether it may be entered in a graph and left after it, where no with block says so."""

    def __init__(
        self,
        cls: Any,
        block: Block | None,
        args: list[Value],
        kwargs: dict[str, Value],
        as_entered: Callable[[Frame, ContextValue], None] | None = None,
        fields: dict[str, Value] | None = None,
    ) -> None:
        super().__init__(None)
        self.cls, self.block, self.args, self.kwargs = cls, block, args, kwargs
        self.as_entered, self.fields = as_entered, fields or {}
        self.obj: Any = None  # the manager itself, where it existed before
        self.begun: list[Blocks] = []
        """Of the blocks that it was entered for, the innermost last."""

    def python_type(self) -> type:
        return self.cls if isinstance(self.cls, type) else contextlib._GeneratorContextManager

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("__enter__", "__exit__", "clone"):
            return BoundBuiltin(self, name)
        if name == "__class__":
            return class_value(frame, self.cls)
        if name in self.fields:
            return self.fields[name]
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
        made.begun = []
        return made

    def enter(self, frame: Frame) -> Value | None:
        """Records what entering does; returns what `as` gives when that is not None."""
        assert self.block is not None  # classes without one say here what entering does
        begun = self.block(frame, self)
        found = next(begun)
        self.begun.append(begun)
        return found

    def leave(self, frame: Frame, at_break: bool = False) -> None:
        """Records what leaving does; at_break: the graph ends inside, and plain Python enters the manager again."""
        if self.begun:
            with contextlib.suppress(StopIteration):
                self.begun.pop().send(at_break)
        elif self.as_entered is not None:
            self.as_entered(frame, self)
        else:
            frame.break_graph("context_unknown", f"the end of a block of {self.cls.__name__} that this frame did not begin")

    def reload(self, emit: Emitter) -> str:
        parts = [emit.load(a) for a in self.args] + [f"{k}={emit.load(v)}" for k, v in self.kwargs.items()]
        return f"{emit.known(self.cls)}({', '.join(parts)})"


def manager(cls: Any) -> Callable[[Block], Block]:
    """Adds the row of a manager whose arguments do not matter to its block."""

    def add(block: Block) -> Block:
        @functools.wraps(block)
        def made(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
            return ContextValue(cls, block, args, kwargs)

        call(cls)(made)
        return block

    return add


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
    """no_grad, enable_grad, set_grad_enabled(mode). `mode` is what holds inside, `before` what the last leaving brings back: the object has
    one place for that, so one that is entered twice at once stays in force. set_grad_enabled takes effect when it is made, and remembers what
    held then; as a decorator it takes none but inside of the function."""

    outlives_graph = True

    def __init__(self, cls: type, args: list[Value], mode: bool) -> None:
        super().__init__(cls, None, args, {})
        self.mode, self.acts_when_made = mode, cls is torch.set_grad_enabled
        self.before: bool | None = None

    def getattr(self, frame: Frame, name: str) -> Value:
        return ConstantValue(self.before) if name == "prev" and self.before is not None else super().getattr(frame, name)

    def reload(self, emit: Emitter) -> str:
        """One that is entered knows what held before."""
        if self.acts_when_made:
            return f"{emit.const(grad_switch)}({self.mode}, {self.before})"
        if self.before is None:
            return super().reload(emit)
        return f"{emit.const(entered_before)}({super().reload(emit)}, {self.before})"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.acts_when_made:
            switch_grad(frame, self.mode_before(frame))
        return super().call(frame, args, kwargs)

    def for_call(self, frame: Frame) -> ContextValue:
        made = self.copied()
        made.before = torch.is_grad_enabled() if self.acts_when_made else None
        return made

    def copied(self) -> Self:
        made = super().copied()
        made.before = None
        return made

    def enter(self, frame: Frame) -> None:
        if not self.acts_when_made:
            self.before = torch.is_grad_enabled()
            if self.obj is not None:
                frame.log_effect(("entered", id(self.obj)), lambda emit: emit.line(f"{emit.load(self)}.prev = {self.before}"))
        switch_grad(frame, self.mode)

    def leave(self, frame: Frame, at_break: bool = False) -> None:
        before = self.mode_before(frame)
        if before is not None:
            (set_grad if at_break else switch_grad)(frame, before)

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


def grad_row(cls: type) -> Handler:
    """no_grad() and enable_grad(); with a function they decorate it."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs:
            return frame.break_graph("call_unknown", f"torch.{cls.__name__} with these arguments")
        made = GradModeContext(cls, [], cls is torch.enable_grad)
        return made.call(frame, args, kwargs) if args else made

    return handler


@call(torch.set_grad_enabled)
def set_grad_enabled_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    mode = args[0] if args else kwargs["mode"]
    wanted = force_plain(frame, mode)
    if type(wanted) is not bool:
        return frame.break_graph("call_unknown", f"torch.set_grad_enabled of a {type(wanted).__name__}, which eager refuses")
    made = GradModeContext(torch.set_grad_enabled, [mode], wanted)
    made.before = torch.is_grad_enabled()
    switch_grad(frame, wanted)
    return made


# --- blocks ------------------------------------------------------------------------------------------------------------------


def inference_block(wanted: bool) -> Block:
    """torch.inference_mode(wanted): in a graph it is a grad mode, and the answers of those who ask for it."""

    def block(frame: Frame, manager: ContextValue) -> Blocks:
        if not wanted and torch.is_inference_mode_enabled():
            frame.break_graph("context_unknown", "the end of an inference mode that began outside")
        begin_block(frame)
        frame.modes.inference.append(wanted)
        before = torch.is_grad_enabled()
        set_grad(frame, not wanted)
        yield None
        end_block(frame)
        frame.modes.inference.pop()
        set_grad(frame, before)

    return block


@call(torch.inference_mode)
def inference_mode_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.inference_mode(mode=True), or around a function."""
    mode = args[0] if args else kwargs.get("mode", ConstantValue(True))
    if type(mode) is not ConstantValue or type(mode.constant()) is not bool:  # what is no bool is decorated
        return ContextValue(torch.inference_mode, inference_block(True), [], {}).call(frame, [mode], {})
    return ContextValue(torch.inference_mode, inference_block(mode.constant()), [mode], {})


def autocast(cls: type, made: torch.autocast, args: list[Value], kwargs: dict[str, Value]) -> ContextValue:
    """torch.autocast(...), as `made`. It has one place for what held before, and so stays in force where it is entered again."""
    settings = (made.device, made.fast_dtype, made._enabled, made._cache_enabled)

    def block(frame: Frame, manager: ContextValue) -> Blocks:
        if manager.begun:
            frame.break_graph("context_unknown", f"{cls.__name__} that is entered again inside of its own block")
        entered = frame.graph.plain_node(frame, enter_autocast, settings)
        yield manager
        frame.graph.plain_node(frame, exit_autocast, (entered,))

    def leave(frame: Frame, manager: ContextValue) -> None:
        if not all(hasattr(manager.obj, name) for name in BEFORE_AUTOCAST):
            frame.break_graph("context_unknown", "the end of an autocast block that this frame did not begin")
        fields = [frame.wrap(getattr(manager.obj, n), InstanceAttr(manager.source, n)) for n in BEFORE_AUTOCAST]
        before = (made.device, *(force_plain(frame, field) for field in fields))
        frame.modes.autocast_ended.append(frame.graph.plain_node(frame, enter_autocast, before))
        exit_at_run_time(cls)(frame, manager)

    return ContextValue(cls, block, args, kwargs, leave)


BEFORE_AUTOCAST = ("prev_fastdtype", "prev", "prev_cache_enabled")
"""Where a manager that was entered keeps what held before it."""
AUTOCASTS = (torch.autocast, torch.cuda.amp.autocast, torch.cpu.amp.autocast)  # type: ignore[attr-defined]


def autocast_row(cls: type) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        plain_args = [force_plain(frame, a) for a in args]
        plain_kwargs = {k: force_plain(frame, v) for k, v in kwargs.items()}
        try:
            made = cls(*plain_args, **plain_kwargs)
        except (TypeError, ValueError, RuntimeError) as error:
            return frame.break_graph("call_unknown", f"torch.{cls.__name__}: {error}")
        return autocast(cls, made, args, kwargs)

    return handler


def exit_at_run_time(cls: Any) -> Callable[[Frame, ContextValue], None]:
    """The manager that the frame found entered is left when the graph has run."""
    return lambda frame, manager: frame.mutations.call(cls.__exit__, [manager, NONE, NONE, NONE])


def nothing(frame: Frame, manager: ContextValue) -> None:
    """Neither entering nor leaving is seen by a graph."""


def null(cls: Any, args: list[Value], kwargs: dict[str, Value], result: Value = NONE) -> ContextValue:
    """A manager without effect on a graph; `result` is what `as` gives."""
    is_plain = cls is contextlib.nullcontext
    made = ContextValue(cls, null_block, args, kwargs, nothing, {"enter_result": result} if is_plain else None)
    made.outlives_graph = is_plain
    return made


@manager(torch.fx.traceback.annotate)
def null_block(frame: Frame, manager: ContextValue) -> Blocks:
    """One without effect on a graph."""
    yield manager.fields.get("enter_result")


@manager(torch.autograd.profiler.record_function)
def named_block(frame: Frame, manager: ContextValue) -> Blocks:
    """A block with a name for profilers, which `as` gives; modes see calls where it begins and ends."""
    if frame.modes.function_modes:
        frame.break_graph("function_mode", "a block with a name for profilers")
    yield manager


@call(contextlib.nullcontext)
def nullcontext_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result = args[0] if args else kwargs.get("enter_result", NONE)
    return null(contextlib.nullcontext, args, kwargs, result)


@manager(torch.autograd.graph.disable_saved_tensors_hooks)
def hooks_disabled(frame: Frame, manager: ContextValue) -> Blocks:
    """disable_saved_tensors_hooks(message): hooks of saved tensors break the graph, and are then refused by plain Python."""
    frame.modes.saved_hooks_refused += 1
    yield None
    frame.modes.saved_hooks_refused -= 1


@manager(forward_ad.dual_level)
def dual_level_block(frame: Frame, manager: ContextValue) -> Blocks:
    """A level of forward-mode AD: the whole block goes into the graph, where eager kernels compute the tangents. Those do not outlive it:
    where a graph would end inside, it ends before the block begins."""
    if frame.modes.transforms:
        frame.break_graph("context_unknown", "forward_ad.dual_level under a transform of torch.func")
    step = frame.progress.step
    frame.modes.uses_dual_levels = True
    frame.graph.plain_node(frame, forward_ad.enter_dual_level, ())
    if (yield ConstantValue(dual_level())):
        stop = BreakGraph("context_unknown", "a block of forward_ad.dual_level with a break inside")
        stop.created_at = step
        raise stop
    frame.graph.plain_node(frame, forward_ad.exit_dual_level, ())


def node(fn: Callable[..., Any], frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A function whose calls are nodes."""
    return frame.graph.call(frame, fn, tuple(args), kwargs)


QUIET_ERRORS = {"all", "divide", "over", "under", "invalid"}


def error_state(args: list[Value], kwargs: dict[str, Value]) -> ContextValue:
    """numpy.errstate(...) that neither raises nor calls anything: graphs give no warnings of floating-point errors."""
    return ContextValue(numpy.errstate, null_block, args, kwargs, exit_at_run_time(numpy.errstate))


@call(numpy.errstate)
def error_state_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """numpy.errstate(over="ignore")"""
    wanted = {k: force_plain(frame, v) for k, v in kwargs.items()}
    if args or not wanted.keys() <= QUIET_ERRORS or not set(wanted.values()) <= {"ignore", "warn", "print"}:
        return frame.break_graph("context_unknown", "numpy.errstate with these arguments")
    return error_state(args, kwargs)


def error_region(value: Value, wanted: bool, own: bool = True) -> ContextValue:
    """error_on_graph_break(value); `own`: it is ours, not torch's."""

    def block(frame: Frame, manager: ContextValue) -> Blocks:
        frame.modes.regions.append(wanted)
        yield None
        frame.modes.regions.pop()

    def leave(frame: Frame, manager: ContextValue) -> None:
        del frame.modes.regions[-1:]  # a break here is none in the region
        if not own:
            frame.break_graph("context_unknown", "the end of a region that plain Python entered")
        frame.mutations.call(leave_region, [], {})

    made = ContextValue(error_on_graph_break, block, [value], {}, leave)
    made.models_methods = True
    return made


@call(error_on_graph_break, "torch._dynamo.decorators.error_on_graph_break")
def error_region_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0] if args else kwargs["error_on_graph_break"]
    return error_region(value, bool(force_plain(frame, value)))


def method_row(name: str) -> Handler:
    """type(manager).__enter__(manager), as ExitStack.enter_context calls it; type(manager).__exit__, which ExitStack keeps, and which lies on
    the stack of a frame that goes on after a break."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not isinstance(args[0], ContextValue):
            return frame.break_graph("context_unknown", f"{name} of a manager derived from torch's")
        return args[0].call_method(frame, name, args[1:], kwargs)

    return handler


# --- managers that were there --------------------------------------------------------------------------------------------------


def existing(frame: Frame, manager: ContextValue, obj: Any, source: Source, fields: tuple[str, ...] = ()) -> ContextValue:
    """The manager as the value of an object that was there, entered or not. `fields` are guarded of one that is made at each call of the
    code that uses it, so its identity is not."""
    guard_type(frame, obj, source)
    for name in fields:
        frame.wrap(getattr(obj, name), InstanceAttr(source, name))
    manager.source, manager.obj = source, obj
    return manager


@wraps_named(
    "tracework_capture.regions.error_on_graph_break",
    "torch._dynamo.decorators.ErrorOnGraphBreakDecoratorContextManager",
)
def existing_error_region(frame: Frame, obj: Any, source: Source) -> Value:
    wanted = frame.wrap(obj.error_on_graph_break, InstanceAttr(source, "error_on_graph_break"))
    made = error_region(wanted, obj.error_on_graph_break, type(obj) is error_on_graph_break)
    return existing(frame, made, obj, source)


@wraps_named("torch._dynamo.decorators.DynamoConfigPatchProxy")
def existing_options(frame: Frame, obj: Any, source: Source) -> Value:
    """Options of torch.compile."""
    return existing(frame, null(type(obj), [], {}), obj, source)


@wraps(numpy.errstate)
def existing_error_state(frame: Frame, obj: Any, source: Source) -> Value:
    return existing(frame, error_state([], {}), obj, source)


@wraps(contextlib.nullcontext)
def existing_null_context(frame: Frame, obj: Any, source: Source) -> Value:
    if getattr(obj, "enter_result", obj) is not None:
        return wrap_object(frame, obj, source)
    return existing(frame, null(type(obj), [], {}), obj, source, ("enter_result",))


@wraps_derived(torch.autocast)
def existing_autocast(frame: Frame, obj: Any, source: Source) -> Value:
    fields = ("device", "fast_dtype", "_enabled", "_cache_enabled") if type(obj) in AUTOCASTS else ()
    return existing(frame, autocast(type(obj), obj, [], {}), obj, source, fields)


@wraps(torch.no_grad, torch.enable_grad, torch.set_grad_enabled)
def existing_grad_mode(frame: Frame, obj: Any, source: Source) -> ContextValue:
    """Known by what it does: a block that goes on after a break has a new one in each call."""
    guard_type(frame, obj, source)
    mode = type(obj) is torch.enable_grad
    if type(obj) is torch.set_grad_enabled:
        mode = force_plain(frame, frame.wrap(obj.mode, InstanceAttr(source, "mode")))
    return existing(frame, GradModeContext(type(obj), [], mode), obj, source)


GRAD_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode)
for _cls in (*GRAD_MODES, torch.autocast, torch.autograd.profiler.record_function):  # called as functions of their class
    for _name in ("__enter__", "__exit__"):
        call(f"{_cls.__module__}.{_cls.__qualname__}.{_name}")(method_row(_name))
for _cls in GRAD_MODES[:2]:
    call(_cls)(grad_row(_cls))
for _autocast in AUTOCASTS:
    call(_autocast)(autocast_row(_autocast))
for _function in (forward_ad.make_dual, forward_ad.unpack_dual):
    call(_function)(functools.partial(node, _function))
