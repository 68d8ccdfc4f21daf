"""functools.cache and lru_cache: with arguments that are known they are asked while tracing, and by a guard before each call.

The guard asks as often as the traced program did, so that what is counted stays right, and holds while the same object comes back.
"""

from __future__ import annotations

import logging
import types

import torch

from ..graph.checks import written_inputs
from ..guards.classes import lookup_class
from ..guards.guard import payload_key
from ..sources import Const
from .binding import CONTAINERS
from .constant import ATOM_TYPES, ConstantValue, NotPlain, called_there, force_plain, plain
from .module import ModuleValue
from .row_value import RowValue
from .user_object import ObjectValue
from .value import EXISTING

_BY_IDENTITY = {
    "__hash__": (object.__hash__, torch.nn.Module.__dict__.get("__hash__")),
    "__eq__": (object.__eq__,),
}


class Remembered:
    """it gives what it gave while tracing"""

    def __init__(self, function, args, kwargs, found):
        self.function, self.args, self.kwargs, self.found = function, args, kwargs, found
        self.times = 0

    def __call__(self, _):
        found = None
        for _ in range(self.times):
            try:
                found = self.function(*self.args, **self.kwargs)
            except Exception:  # the program meets it where it calls the function
                return False
        return found is self.found


class RememberingFunction(RowValue):
    """What functools.cache and lru_cache make."""

    def __init__(self, fn, source):
        super().__init__(fn, self.ask, source)

    def ask(self, frame, args, kwargs):
        """What the function remembers, or what it computes now."""
        name = self.fn.__wrapped__.__name__
        try:
            known, by_name = [key_of(frame, a) for a in args], {k: key_of(frame, v) for k, v in kwargs.items()}
        except NotPlain:
            if args and issubclass(args[0].python_type(), logging.Logger):
                frame.mutations.call(
                    self.fn, list(args), dict(kwargs)
                )  # warning_once: said after the graph, or found said already
                return ConstantValue(None)
            return frame.wrap(self.fn.__wrapped__, Const(self.fn.__wrapped__)).call(frame, args, kwargs)
        if waits_for_writes(frame, self.fn.__wrapped__, [*args, *kwargs.values()]):
            return frame.break_graph("call_unknown", f"{name}, which remembers results and reads what was written here")
        asked = frame.root.remembered
        key = id(self.fn), payload_key(known), payload_key([*by_name.items()])
        if key not in asked:
            try:
                found = called_there(frame, self.fn, *known, **by_name)
            except Exception as error:
                return frame.break_graph("call_unknown", f"{name}, which remembers results, and raises {type(error).__name__}")
            asked[key] = Remembered(frame.root.services.call_disabled(self.fn), known, by_name, found)
            frame.guard("PREDICATE", self.source, asked[key])
        asked[key].times += 1
        return frame.wrap(asked[key].found, Const(asked[key].found))


def key_of(frame, value):
    """The object that an argument is. Raises NotPlain where no guard says which."""
    if value.python_type() in ATOM_TYPES:
        return force_plain(frame, value)
    if isinstance(value, (ObjectValue, ModuleValue)) and value.mutability is EXISTING and value.source is not None:
        kind = value.python_type()
        if all(lookup_class(kind, name)[0] in own for name, own in _BY_IDENTITY.items()):
            frame.guard("IDENTITY", value.source, value.obj)
            return value.obj
    return plain(value)


def waits_for_writes(frame, function, args):
    """Whether a function names a variable that the frame wrote, or a container or object that it may have written to: nothing is in
    place yet."""
    pending = frame.mutations.entries
    takes_objects = any(isinstance(value, (ObjectValue, ModuleValue)) for value in args)
    if takes_objects and (pending or written_inputs(frame.root)):
        return True
    if not pending or not isinstance(function, types.FunctionType):
        return False
    cells, table = function.__closure__ or (), function.__globals__
    if any(("cell", id(cell)) in pending for cell in cells):
        return True
    names = [name for name in function.__code__.co_names if name in table]
    held = [table[name] for name in names] + [cell.cell_contents for cell in cells]
    return any(("global", id(table), name) in pending for name in names) or any(isinstance(value, CONTAINERS) for value in held)
