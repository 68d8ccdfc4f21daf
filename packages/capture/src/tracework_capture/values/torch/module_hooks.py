"""Backward hooks of modules: nodes of the graph that set up torch's own BackwardHook, around the nodes of the module's call.

The hooks themselves are never traced. The autograd engine runs them at backward time, with real gradients, as it does for plain Python;
so later stages call these nodes as they are, and compile what is between them.
"""

from __future__ import annotations

import dis
import functools
import weakref
from typing import Any, cast

import torch
from torch import fx
from torch.nn.modules import module as torch_module
from tracework_primops import FakeTensor

from ... import _torch
from ...graph.checks import isolate_node
from ...sources import Attr, Const, InstanceAttr, Source
from ..objects.rows_attributes import call_after_graph
from ..objects.rows_warned import warn_at
from ..plain.sequence import NONE, TupleValue
from ..protocol.binding import class_value
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractModule, AbstractTensor
from ..protocol.value import Frame, Value

OWN_TABLES = ("_backward_hooks", "_backward_pre_hooks")
GLOBAL_TABLES = ("_global_backward_hooks", "_global_backward_pre_hooks")
TORCH_MODULE = Const(torch_module, "torch.nn.modules.module")


class MakeHook:
    """Makes the BackwardHook of one call of a module, with the hooks that the module has then; target of a node.

    count: how many arguments the call has where no gradient goes to one of them; None otherwise.
    """

    def __init__(self, module: torch.nn.Module, count: int | None) -> None:
        self.__name__ = self.__qualname__ = "make_backward_hook"
        self.__module__ = __name__
        self.module, self.count = weakref.ref(module), count

    def __call__(self) -> Any:
        hook = _torch.backward_hook(cast(torch.nn.Module, self.module()))
        if self.count is not None:
            hook.setup_input_hook((None,) * self.count)
        return hook


class PassThrough:
    """Leads the tensors among the arguments or results of a module's call through its BackwardHook; target of a node.

    method: setup_input_hook or setup_output_hook. places: where the tensors are among `count` values.
    """

    def __init__(self, method: str, places: tuple[int, ...], count: int) -> None:
        self.__name__ = self.__qualname__ = method
        self.__module__ = __name__
        self.places, self.count = places, count

    def __call__(self, hook: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values: list[torch.Tensor | None] = [None] * self.count
        for place, tensor in zip(self.places, tensors):
            values[place] = tensor
        found = getattr(hook, self.__name__)(tuple(values))
        return tuple([found[place] for place in self.places])


class ModuleHooks:
    """The backward hooks of one call of a module that has some, while the call is traced."""

    def __init__(self, frame: Frame, module: AbstractModule) -> None:
        break_at_old_hooks(frame, module)
        self.module, self.arguments = module, 0
        self.node: fx.Node | None = None
        frame.guard("IDENTITY", module.source, module.obj)

    def enter(self, frame: Frame, args: list[Value]) -> list[Value]:
        """The arguments, as forward gets them."""
        self.arguments = len(args)
        return self.through(frame, args, "setup_input_hook")

    def leave(self, frame: Frame, result: Value) -> Value:
        """The result, as the caller gets it."""
        if isinstance(result, AbstractTensor):
            return self.through(frame, [result], "setup_output_hook")[0]
        if not issubclass(result.python_type(), tuple):
            text = "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors"
            warn_in_call(frame, f"{text} but received {result.python_type()}")
            return result
        if not isinstance(result, TupleValue):
            return frame.break_graph("hook", f"backward hooks of a module that gives a {result.describe()}")
        items = result.unpack(frame)
        passed = self.through(frame, items, "setup_output_hook")
        if passed is items:
            return result
        if result.cls is not tuple:
            return class_value(frame, result.cls).call(frame, passed, {})
        return TupleValue(passed)

    def through(self, frame: Frame, values: list[Value], method: str) -> list[Value]:
        tensors: dict[int, Any] = {i: v for i, v in enumerate(values) if issubclass(v.python_type(), torch.Tensor)}
        if not torch.is_grad_enabled() or not any(v.example.requires_grad for v in tensors.values()):
            return values
        if frame.modes.transforms:
            return frame.break_graph("hook", "backward hooks of a module under a transform of torch.func")
        if any(v.python_type() not in (torch.Tensor, torch.nn.Parameter) for v in tensors.values()):
            return frame.break_graph("hook", "backward hooks of a module that is given a subclass of Tensor")
        if self.node is None:
            count = self.arguments if method == "setup_output_hook" else None
            self.node = as_it_is(frame, MakeHook(self.module.obj, count), (), None)
        nodes = tuple(v.as_graph_arg(frame) for v in tensors.values())
        example = frame.graph.run_on_fakes(frame, _torch.through_backward_hook, nodes, {}, "call_function")
        node = as_it_is(frame, PassThrough(method, tuple(tensors), len(values)), (self.node, *nodes), example)
        passed = frame.graph.wrap_result(frame, node, example).unpack(frame)
        found = dict(zip(tensors, passed))
        return [found.get(i, v) for i, v in enumerate(values)]


def as_it_is(frame: Frame, target: Any, args: tuple[fx.Node, ...], example: tuple[FakeTensor] | None) -> fx.Node:
    """A node that later stages call, in its place among the others."""
    node = frame.graph.known_node(frame, target, args, example, data_dependent=True, of_history=True)
    if frame.plan.learnt.isolated:
        isolate_node(frame, node)
    return node


def has_hooks(frame: Frame, module: AbstractModule) -> bool:
    """Whether a call of the module has backward hooks; guarded is whether there are some, since they are looked up when the graph runs."""
    own = [(table_source(module.source, name), module.existing(frame, name)) for name in OWN_TABLES]
    shared = [(table_source(TORCH_MODULE, name), getattr(torch_module, name)) for name in GLOBAL_TABLES]
    for source, table in own + shared:
        guard_table(frame, source, table, "TRUTH", True)
    return any(table for _, table in own + shared)


def table_source(source: Source, name: str) -> Source:
    """Where a table of hooks of a module, or of all modules, is."""
    return Attr(source, name) if source is TORCH_MODULE else InstanceAttr(source, name)


def guard_table(frame: Frame, source: Source, table: dict[Any, Any], kind: str, payload: int) -> None:
    """The guard of a table that holds hooks; that there are none is checked by the version of the dict."""
    if table:
        frame.guard(kind, source, payload)
    else:
        frame.guard("DICT_KEYS", source, ())


def break_at_old_hooks(frame: Frame, module: AbstractModule) -> None:
    """Breaks the graph where hooks were registered by register_backward_hook; what was looked at is guarded."""
    own, shared = module.obj._is_full_backward_hook, _torch.hooks_of_all_modules_are_full()
    frame.guard("CONSTANT", InstanceAttr(module.source, "_is_full_backward_hook"), own)
    frame.guard("CONSTANT", Attr(TORCH_MODULE, "_global_is_full_backward_hook"), shared)
    if _torch.has_old_hooks(module.obj):
        frame.break_graph(
            "hook", f"{module.cls.__name__} has hooks of register_backward_hook; register_full_backward_hook replaces it"
        )


def warn_in_call(frame: Frame, text: str) -> None:
    """What Module.__call__ warns of: for its own line, in which its inner function is called."""
    code = _torch.module_call.__code__
    places = [i.positions for i in dis.get_instructions(code) if i.argval == "inner"]
    line = max(p.lineno for p in places if p is not None and p.lineno)
    warn = functools.partial(warn_at, vars(torch_module), code.co_filename, line)
    call_after_graph(frame, warn, [ConstantValue(text), ConstantValue(None), NONE], {})
