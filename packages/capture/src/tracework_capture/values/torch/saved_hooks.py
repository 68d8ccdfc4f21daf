"""torch.autograd.graph.saved_tensors_hooks and save_on_cpu inside the traced program: a block of the graph that later stages call as it
is, under the hooks, which see what eager saves.

Tensors are packed while the graph runs, so the pack hook may neither see nor change what the program does meanwhile: of functions of the
program those that name nothing but torch and a few builtins. Unpacking is for the backward, and may do anything.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

import torch

from ... import _torch
from ..protocol.calls import call
from ..protocol.constant import force_plain
from ..protocol.region import Region
from ..protocol.value import Frame, Value
from .context import Blocks, ContextValue
from .hooks import real_function
from .module_hooks import as_it_is

KNOWN_NAMES = frozenset("torch isinstance len tuple float int bool min max abs".split())
CHANGING_NAMES = ("set_", "save", "load", "manual_seed", "seed")
OTHER_OPCODES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "DELETE_", "IMPORT_", "MAKE_FUNCTION", "YIELD", "LOAD_NAME")


class EnterSavedHooks:
    """Makes and enters a manager; target of a node."""

    def __init__(self, make: Callable[[], Any], name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self.make = make

    def __call__(self) -> Any:
        return _torch.enter_saved_hooks(self.make())


def under_hooks(cls: Any, args: list[Value], kwargs: dict[str, Value], make: Callable[[], Any]) -> ContextValue:
    """A manager of hooks; `make` makes the one that the graph enters."""

    def block(frame: Frame, manager: ContextValue) -> Blocks:
        if frame.modes.transforms or frame.modes.saved_hooks_refused:
            frame.break_graph("context_unknown", f"{cls.__name__} under a transform of torch.func, or where it is disabled")
        frame.modes.uses_saved_hooks = True
        entered = as_it_is(frame, EnterSavedHooks(make, cls.__name__), (), None)
        inside = Region(frame)
        yield None
        for node in inside.nodes():
            node.meta["data_dependent"] = True
        as_it_is(frame, _torch.leave_saved_hooks, (entered,), None)

    return ContextValue(cls, block, args, kwargs)


@call(torch.autograd.graph.saved_tensors_hooks)
def saved_hooks_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """saved_tensors_hooks(pack_hook, unpack_hook)"""
    cls = torch.autograd.graph.saved_tensors_hooks
    given = dict(zip(("pack_hook", "unpack_hook"), args)) | kwargs
    if len(args) > 2 or set(given) != {"pack_hook", "unpack_hook"}:
        return frame.break_graph("context_unknown", "saved_tensors_hooks with these arguments")
    hooks: list[Any] = [real_function(frame, given[name]) for name in ("pack_hook", "unpack_hook")]
    if None in hooks or type(hooks[0]()) is not types.FunctionType or not is_isolated(hooks[0]()):
        return frame.break_graph("hook", "saved_tensors_hooks whose pack hook may see or change what is outside of it")
    return under_hooks(cls, args, kwargs, lambda: cls(*(hook() for hook in hooks)))


@call(torch.autograd.graph.save_on_cpu)
def save_on_cpu_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """save_on_cpu(pin_memory, device_type)"""
    cls = torch.autograd.graph.save_on_cpu
    plain = [force_plain(frame, a) for a in args], {name: force_plain(frame, a) for name, a in kwargs.items()}
    return under_hooks(cls, args, kwargs, lambda: cls(*plain[0], **plain[1]))


def is_isolated(function: Callable[..., Any]) -> bool:
    """Whether a function names nothing through which it could reach what the program has."""
    code = function.__code__
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    others = any(i.opname.startswith(OTHER_OPCODES) for i in dis.get_instructions(code))
    known = names <= KNOWN_NAMES and function.__globals__.get("torch", torch) is torch
    known = known and not any(name in function.__globals__ for name in names - {"torch"})
    changing = any(name.startswith(CHANGING_NAMES) for name in code.co_names)
    return known and not (
        others or changing or code.co_freevars or code.co_cellvars or function.__defaults__ or function.__kwdefaults__
    )
