"""functools.cache and lru_cache: with arguments that are known they are asked while tracing, and by a guard before each call.

The guard asks as often as the traced program did, so that what is counted stays right, and holds while the same object comes back, or
an equal constant: a function that the program makes anew for each call, from the same code, is asked itself.
"""

from __future__ import annotations

import logging
import math
import types
from collections.abc import Iterable
from typing import Any

import torch

from ...atoms import ATOM_TYPES, is_atom
from ...errors import NotPlain
from ...graph.checks import written_inputs
from ...guards.classes import lookup_class
from ...guards.remembered import Remembered, question
from ...signals import let_through
from ...sources import Attr, Const, Source
from ..number.size_floats import SizeFloat
from ..number.symint import SymNumber
from ..plain.sequence import TupleValue
from ..protocol.binding import CONTAINERS
from ..protocol.constant import ConstantValue, force_plain, placed_call, plain
from ..protocol.keys import typed_key
from ..protocol.user_keys import globals_read, is_pure
from ..protocol.value import EXISTING, Frame, SymbolicRaise, Value
from .function import is_empty
from .instance import ObjectValue
from .instance_fields import own_dict
from .row_value import RowValue

NOT_FOLLOWED: tuple[Any, ...] = (types.ModuleType, types.FunctionType, *ATOM_TYPES)
OF_NUMBERS: tuple[Any, ...] = (abs, float, int, max, min, round, math)
"""Globals of a function that give the same for the same numbers."""
REACHED = 10_000
"""Objects that are looked at for what a function may read."""

OF_MEMORY = ("cache_info", "cache_clear")
"""Methods that tell of what was asked before, or forget it."""

_BY_IDENTITY = {"__hash__": object.__hash__, "__eq__": object.__eq__}


class CachedFunction(RowValue):
    """What functools.cache and lru_cache make. Unless its object is guarded (`by_identity`), only calls of it that give constants are
    known, and the code that it runs."""

    def __init__(self, fn: Any, source: Source | None, by_identity: bool = True) -> None:
        super().__init__(fn, self.query, source)
        self.by_identity = by_identity

    def fix(self, frame: Frame) -> None:
        """Something needs the object."""
        if not self.by_identity:
            self.by_identity = True
            frame.guard("IDENTITY", self.source, self.fn)

    def wrapped(self, frame: Frame) -> Value:
        """The function that it asks for what it does not remember."""
        function = self.fn.__wrapped__
        return frame.wrap(function, Const(function) if self.by_identity else Attr(self.source, "__wrapped__"))

    def getattr(self, frame: Frame, name: str) -> Value:
        self.fix(frame)
        return super().getattr(frame, name)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in OF_MEMORY:
            return frame.break_graph("call_unknown", f"{name} of {self.describe()}: what it remembers")
        return super().call_method(frame, name, args, kwargs)

    def hash_key(self, frame: Frame) -> Any:
        self.fix(frame)
        return super().hash_key(frame)

    def as_graph_arg(self, frame: Frame) -> Any:
        self.fix(frame)
        return super().as_graph_arg(frame)

    def query(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """What the function remembers, or what it computes now."""
        name = self.fn.__wrapped__.__name__
        if args and issubclass(args[0].python_type(), logging.Logger):
            frame.mutations.call(self.fn, list(args), dict(kwargs))  # warning_once: said after the graph, or found said already
            return ConstantValue(None)
        if id(self.fn) not in frame.queries.remembered and self.is_formula(args, kwargs):
            return self.computed(frame, args)
        try:
            known, by_name = [key_of(frame, a) for a in args], {k: key_of(frame, v) for k, v in kwargs.items()}
        except NotPlain:
            return self.called_once(frame, args, kwargs)
        if has_written(frame):  # which another function may read
            self.fix(frame)
        if waits_for_writes(frame, self.fn.__wrapped__, [*args, *kwargs.values()]):
            return frame.break_graph("call_unknown", f"{name}, which remembers results and reads what was written here")
        if id(self.fn) in frame.queries.remembered_after:
            return frame.break_graph("call_unknown", f"{name}, which is asked after the graph, too")
        remembered, most = frame.queries.remembered.get(id(self.fn)), self.fn.cache_parameters()["maxsize"]
        if remembered is not None and most is not None and remembered.number_with(known, by_name) > most:
            return frame.break_graph("call_unknown", f"{name}, which forgets one result for another")
        key = question(self.fn, known, by_name, len(remembered.calls) if remembered is not None else 0)
        answers = frame.plan.answers
        if key not in answers:
            try:
                answers[key] = placed_call(frame, self.fn, *known, **by_name), known, by_name
            except Exception as error:
                let_through(error)
                return frame.break_graph("call_unknown", f"{name}, which remembers results, and raises {type(error).__name__}")
        found = answers[key][0]
        if not is_atom(found):
            self.fix(frame)
        if remembered is None:
            remembered = frame.queries.remembered[id(self.fn)] = Remembered(self.fn)
            frame.guard("RELATION", self.source, (remembered, (self.source,)))
        remembered.record_call(self.fn, known, by_name, found)
        return frame.wrap(found, Const(found))

    def called_once(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """What it computes of objects that no guard knows, which it may hold; of the same ones again it is what it gave."""
        calls = frame.queries.remembered_here.setdefault(id(self.fn), {})
        most = self.fn.cache_parameters()["maxsize"]
        if most is not None and most < 1:
            return self.wrapped(frame).call(frame, args, kwargs)
        key = tuple(typed_key(frame, a) for a in args), tuple((k, typed_key(frame, v)) for k, v in kwargs.items())
        if key not in calls:
            if len(calls) == most:
                return frame.break_graph("call_unknown", f"{self.describe()}, which forgets one result for another")
            calls[key] = self.wrapped(frame).call(frame, args, kwargs)
        return calls[key]

    def is_formula(self, args: list[Value], kwargs: dict[str, Value]) -> bool:
        """Whether it is called with one int that is open, and depends on nothing else: what it remembers is what it computes. Ints are
        keys of their own; floats equal ints, and 0.0 equals -0.0."""
        function = self.fn.__wrapped__
        if not self.by_identity or kwargs or len(args) != 1 or type(args[0]) is not SymNumber or args[0].python_type() is not int:
            return False
        if type(function) is not types.FunctionType or function.__closure__ or function.__defaults__ or function.__kwdefaults__:
            return False
        read = globals_read(function.__code__, function.__globals__)
        return is_pure(function.__code__) and all(any(found is each for each in OF_NUMBERS) for found in read)

    def computed(self, frame: Frame, args: list[Value]) -> Value:
        """What it computes. It is asked when the graph has run, so that it remembers and counts."""
        name = self.fn.__wrapped__.__name__
        try:
            found = self.wrapped(frame).call(frame, args, {})
        except SymbolicRaise:
            return frame.break_graph("call_unknown", f"{name}, which remembers results, and raises")
        if not (found.is_constant() or isinstance(found, (SymNumber, SizeFloat))):
            return frame.break_graph("call_unknown", f"{name}, which remembers an object")
        frame.queries.remembered_after.add(id(self.fn))
        frame.mutations.call(frame.services.call_disabled(self.fn), list(args), {})
        return found


def key_of(frame: Frame, value: Value) -> Any:
    """The object that an argument is. Raises NotPlain where no guard says which."""
    if value.python_type() in ATOM_TYPES:
        return force_plain(frame, value)
    if isinstance(value, ObjectValue) and value.mutability is EXISTING and value.source is not None:
        kind = value.python_type()
        if all(lookup_class(kind, name)[0] is own for name, own in _BY_IDENTITY.items()):
            frame.guard("IDENTITY", value.source, value.obj)
            return value.obj
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(key_of(frame, item) for item in value.all_items(frame))
    if isinstance(value, ObjectValue):  # what it remembers may hold it, as an instance of its own class
        raise NotPlain(value)
    return plain(value)


def has_written(frame: Frame) -> bool:
    """Whether there are writes that functions may read when they run."""
    return bool(frame.mutations.entries) or bool(written_inputs(frame))


def waits_for_writes(frame: Frame, function: Any, args: list[Value]) -> bool:
    """Whether a function may read what the frame wrote, which is not in place yet: a variable that it names, or an object that is reached
    from its variables and arguments."""
    pending = frame.mutations.entries
    objects = [value.obj for value in args if isinstance(value, ObjectValue)]
    if isinstance(function, types.FunctionType):
        cells, table = function.__closure__ or (), function.__globals__
        names = [name for name in function.__code__.co_names if name in table]
        if any(("cell", id(cell)) in pending for cell in cells) or any(("global", id(table), name) in pending for name in names):
            return True
        objects += [table[name] for name in names] + [cell.cell_contents for cell in cells if not is_empty(cell)]
    seen = reached(objects)
    if (seen is None or any(isinstance(each, torch.Tensor) for each in seen)) and written_inputs(frame):
        return True
    if not pending:
        return False
    changed = frame.mutations.changed()
    if seen is None or changed is None:
        return bool(objects)
    values, memo = {id(each) for each in changed if each is not None}, frame.memory.memo
    return any(id(each) in values or id(memo.get(id(each))) in values for each in seen if each is not None)


def reached(objects: list[Any]) -> Iterable[Any] | None:
    """The objects and what they hold, though not what classes, modules and functions hold; None where they are more than REACHED, or one
    has slots."""
    seen: dict[int, Any] = {}
    left = [*objects]
    while left:
        found = left.pop()
        if id(found) in seen:
            continue
        if len(seen) == REACHED:
            return None
        seen[id(found)] = found
        if isinstance(found, dict):
            left += [*found.keys(), *found.values()]
        elif isinstance(found, CONTAINERS):
            left += found
        elif not isinstance(found, (type, *NOT_FOLLOWED)):
            if any(vars(kind).get("__slots__") for kind in type(found).__mro__):
                return None
            left += (own_dict(found) or {}).values()
    return seen.values()
