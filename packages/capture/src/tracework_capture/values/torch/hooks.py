"""Hooks of tensors. Of a tensor made in the traced program the hook is traced, and becomes a graph that a node registers; one that cannot
be traced, or changes Python objects, is registered as it is where it is the same function at each call. Leaves and tensors that were there
before get theirs when the graph has run, as any other object that is changed."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.hooks import RemovableHandle
from tracework_primops import FakeTensor

from ...errors import BreakGraph
from ...graph.regions import Placed
from ...plan import Again, Learnt
from ...sources import Const
from ..objects.function import BoundMethodValue, FunctionValue, NewFunctionValue, call_own_code
from ..plain.sequence import NONE
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import call, method
from ..protocol.kinds import AbstractTensor
from ..protocol.make import make
from ..protocol.memory import remember
from ..protocol.region import Region
from ..protocol.value import Emitter, Frame, SymbolicRaise, Value
from .leaves import leaf_of
from .module_hooks import as_it_is


class HookCall:
    """Registers a captured hook; target of a call_function node."""

    def __init__(self, run: Placed) -> None:
        self.__name__ = self.__qualname__ = "register_hook"
        self.__module__ = __name__
        self.run = run

    def __call__(self, tensor: torch.Tensor, *read: torch.Tensor) -> RemovableHandle:
        def hook(gradient: torch.Tensor | None) -> torch.Tensor | None:
            if gradient is None:  # to another result of the operator one came; what was traced is what the hook does with one
                return None
            changed: torch.Tensor | None = self.run(gradient.contiguous(), *read)[0]
            return changed

        handle: RemovableHandle = tensor.register_hook(hook)
        return handle


class RegisterHook:
    """Registers a hook that the program has, which runs at backward time as it is; target of a node. `make` gives the hook."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.__name__ = self.__qualname__ = "register_hook"
        self.__module__ = __name__
        self.make = make

    def __call__(self, tensor: torch.Tensor) -> RemovableHandle:
        handle: RemovableHandle = tensor.register_hook(self.make())
        return handle


def real_function(frame: Frame, value: Value) -> Callable[[], Any] | None:
    """What gives the function that a value stands for, guarded, where it is the same one at each call; None for others."""
    if isinstance(value, NewFunctionValue):
        cells: Sequence[Any] = value.closure(frame)
        if value.default_count() or value.has_more() or any(cell.cell is None or cell.source is None for cell in cells):
            return None
        for cell in cells:
            frame.guard("IDENTITY", cell.source, cell.cell)
        made = types.FunctionType(value.code, value.globals, None, None, tuple(cell.cell for cell in cells))
        return lambda: made
    if isinstance(value, BoundMethodValue):
        return real_method(frame, value)
    if not isinstance(value, FunctionValue) or value.source is None:
        return None
    made = value.real()
    frame.guard("IDENTITY", value.source, made)
    return lambda: made


def real_method(frame: Frame, value: Any) -> Callable[[], Any] | None:
    """The same of a method, whose owner the graph does not keep alive."""
    owner, make = value.owner, real_function(frame, value.function)
    if getattr(owner, "obj", None) is None or owner.source is None or make is None:
        return None
    frame.guard("IDENTITY", owner.source, owner.obj)
    try:
        return weakref.WeakMethod(types.MethodType(make(), owner.obj))
    except TypeError:
        return None


def remove_hook(handle: RemovableHandle) -> None:
    """handle.remove(), as the target of a node."""
    handle.remove()


class Handle(Value):
    """What register_hook gives: removing it is all that is modelled."""

    cls = RemovableHandle

    def remove(self, frame: Frame) -> None:
        """The hook is not called any more."""
        raise NotImplementedError

    def getattr(self, frame: Frame, name: str) -> Value:
        return BoundBuiltin(self, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name != "remove":
            return frame.break_graph("hook", f"{name} of the handle of a hook")
        self.remove(frame)
        return NONE


class HandleValue(Handle):
    """The handle of a hook that the graph registers."""

    def __init__(self, node: fx.Node) -> None:
        super().__init__(None)
        self.node = node

    def remove(self, frame: Frame) -> None:
        if isinstance(self.node.target, RegisterHook):
            as_it_is(frame, remove_hook, (self.node,), None)
        else:
            frame.graph.plain_node(frame, remove_hook, (self.node,), of_history=True)


class DeferredHandle(Handle):
    """The handle of a hook that is registered when the graph has run, which loading the handle does."""

    def __init__(self, tensor: AbstractTensor, method: str, hook: Value) -> None:
        super().__init__(None)
        self.tensor, self.method, self.hook = tensor, method, hook
        self.version, self.removed = tensor.example.storage.version, False

    def remove(self, frame: Frame) -> None:
        self.removed = True
        self.tensor.hooks -= {self}
        frame.mutations.drop(("hook", self))

    def reload(self, emit: Emitter) -> str:
        if self.removed or self.tensor.example.storage.version != self.version:
            raise BreakGraph("hook", "a hook that was removed again, or whose tensor was written to afterwards")
        return f"{emit.load(self.tensor)}.{self.method}({emit.load(self.hook)})"


def register_after_graph(frame: Frame, tensor: AbstractTensor, method: str, hook: Value) -> Handle:
    """A hook that no backward of this frame may run."""
    handle = DeferredHandle(tensor, method, hook)
    tensor.hooks |= {handle}
    frame.mutations.effect(("hook", handle), lambda emit: emit.load(handle))
    return handle


@method(torch.Tensor, "register_post_accumulate_grad_hook")
def register_post_accumulate_grad_hook(
    frame: Frame, tensor: AbstractTensor, name: str, args: list[Any], kwargs: dict[str, Any]
) -> Value:
    """Tensor.register_post_accumulate_grad_hook(hook), of leaves only"""
    if frame.modes.transforms or not tensor.example.requires_grad or not tensor.is_leaf():
        return frame.break_graph("hook", f"{name} of a tensor that is no leaf with a gradient")
    return register_after_graph(frame, tensor, name, args[0] if args else kwargs["hook"])


@method(torch.Tensor, "retain_grad")
def retain_grad(frame: Frame, tensor: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.retain_grad(): a backward of this frame gives the tensor its gradient; others, when it has left the graph."""
    if frame.modes.transforms or not tensor.example.requires_grad:
        return frame.break_graph("hook", "retain_grad of a tensor without history")
    if leaf_of(frame, tensor):
        return NONE
    if tensor.source is not None:
        frame.mutations.call(torch.Tensor.retain_grad, [tensor])
        tensor.hooks |= {name}
    else:
        tensor.retains_grad = True
    return NONE


def keeps_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, which keeps its gradient; target of a node that later stages call as it is."""
    tensor.retain_grad()
    return tensor


@method(torch.Tensor, "register_hook")
def register_hook(frame: Frame, tensor: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.register_hook(hook)"""
    hook = args[0] if args else kwargs["hook"]
    if frame.modes.transforms or not tensor.example.requires_grad:
        return frame.break_graph("hook", "register_hook of a tensor without history")
    if tensor.source is not None or tensor.is_leaf():
        return register_after_graph(frame, tensor, name, hook)
    is_traced = not frame.plan.learnt.plain_hooks
    make = None if is_traced else real_function(frame, hook)
    if make is not None:
        return HandleValue(as_it_is(frame, RegisterHook(make), (tensor.as_graph_arg(frame),), None))
    gradient = gradient_of(frame, tensor)
    region = Region(frame, hook)
    try:
        with torch.no_grad():
            found = hook.call(frame, [gradient], {})
        why = region.what_changed()
        if not why and not isinstance(found, AbstractTensor) and not (found.is_constant() and found.constant() is None):
            why = f"gives a {found.describe()}"
    except (BreakGraph, SymbolicRaise) as stop:
        why = f"cannot be traced: {stop}"
    if why and is_traced:
        raise Again("hook_untraced", Learnt(plain_hooks=True), f"it {why}")
    if why:
        return frame.break_graph("hook", f"a hook of a tensor {why}, and is another function at each call")
    own = gradient.node
    made = region.outline([found.node if isinstance(found, AbstractTensor) else None], "Hook", [own])
    read = [n for n in made.inputs if n is not own]
    target = HookCall(made.among([own, *read]))
    return HandleValue(frame.graph.plain_node(frame, target, (tensor.node, *read), of_history=True))


def gradient_of(frame: Frame, tensor: AbstractTensor) -> AbstractTensor:
    """A stand-in for the gradient."""
    options = {"memory_format": torch.contiguous_format}
    with torch.no_grad():
        example = frame.graph.run_on_fakes(frame, torch.empty_like, (tensor.example,), options, "call_function")
    return stand_in_like(frame, example)


def stand_in_like(frame: Frame, example: FakeTensor) -> AbstractTensor:
    """A tensor that is not there yet, with a node that its user erases."""
    node = frame.graph.bare_node(torch.empty_like, (), example)
    value = make.tensor(node, example)
    remember(frame, value)
    return value


@call(RemovableHandle.remove)
def remove_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """RemovableHandle.remove of a handle that was there before, whose number is another one for each hook."""
    if len(args) == 1 and getattr(args[0], "obj", None) is not None and type(args[0].source) is not Const:
        return frame.break_graph("hook", f"remove() of {args[0].describe()}")
    return call_own_code(frame, RemovableHandle.remove, args, kwargs)
