"""ACCESS: Source type -> how the native program gets there from its base, and how Python fetches the same value.

A row gives steps, each (accessor name of _C.ACCESSORS, key, index); the last step's value is the source's value.
"""

import collections
import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType
from typing import Any

from .. import _C, _torch
from ..arrays import tensor_maker
from ..errors import GuardBuildError
from ..formulas import int_of_formula
from ..sources import (
    Ambient,
    ArrayTensor,
    Attr,
    CellContents,
    ClassAttr,
    Closure,
    ClosureCell,
    ComputedInt,
    Const,
    DefaultArg,
    DictItem,
    DictKeyAt,
    DictValueAt,
    FrameGlobals,
    FunctionGlobals,
    GeneratorLocal,
    Global,
    InstanceAttr,
    InstanceDict,
    Item,
    ItemAhead,
    IteratedList,
    KwDefaultArg,
    Local,
    Member,
    ModuleEntry,
    PartItem,
    PlainPart,
    Referent,
    Source,
    TensorOffset,
    TensorSize,
    TensorStride,
    TypeOf,
)
from .classes import class_attribute
from .kinds import NATIVE_STATES, STATES

Step = tuple[str, Any, int]


@dataclass(frozen=True)
class Scope:
    """The frame that Python-side checks look at: argument values and closure contents by name, globals, cells of free variables."""

    names: dict[str, Any]
    globals: dict[str, Any]
    cells: dict[str, CellType] = field(default_factory=dict)

    @classmethod
    def of_frame(
        cls, code: CodeType, names: dict[str, Any], globals_: dict[str, Any], closure: Sequence[CellType] | None
    ) -> "Scope":
        """The scope of a call of `code`."""
        return cls(names, globals_, dict(zip(code.co_freevars, closure or ())))


@dataclass(frozen=True)
class Access:
    """steps(source, code) for the native program; fetch(source, base value, scope) in Python."""

    steps: Callable[[Any, CodeType], tuple[Step, ...]]
    fetch: Callable[[Any, Any, Scope], Any]


def _local_slot(source: Local, code: CodeType) -> tuple[Step, ...]:
    count = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & inspect.CO_VARARGS)
        + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    )
    if source.name not in code.co_varnames[:count]:
        raise GuardBuildError(
            f"{source.name!r} is not an argument of {code.co_qualname}: only arguments have a value when it is called"
        )
    return (("LOCAL", None, code.co_varnames.index(source.name)),)


def _free_variable(accessor: str) -> Callable[[Any, CodeType], tuple[Step, ...]]:
    def steps(source: Closure | ClosureCell, code: CodeType) -> tuple[Step, ...]:
        if source.name not in code.co_freevars:
            raise GuardBuildError(f"{source.name!r} is not a free variable of {code.co_qualname}")
        return ((accessor, None, code.co_freevars.index(source.name)),)

    return steps


def _state(source: Ambient, code: CodeType) -> tuple[Step, ...]:
    if source.name not in STATES:
        raise GuardBuildError(f"state {source.name!r} is not in STATES; known: {', '.join(STATES)}")
    return (("CALL", NATIVE_STATES[source.name], 0),)


def _dict_item(container: Any, key: Any) -> Any:
    if type(key) is _C.WeakKey and (key := key()) is None:
        raise KeyError("a key that is dead")
    if not issubclass(type(container), dict):
        return container[key]
    if not dict.__contains__(container, key):  # dict.__getitem__ would ask __missing__, which may add the key
        raise KeyError(key)
    return dict.__getitem__(container, key)


def part_item(container: Any, index: int) -> Any:
    """An item of the list, tuple or deque that the container is by inheritance."""
    native = next(kind for kind in (list, tuple, collections.deque) if isinstance(container, kind))
    return native.__getitem__(container, index)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: lambda text: str.__getitem__(text, slice(None)),
    bytes: lambda text: bytes.__getitem__(text, slice(None)),
}


def plain_part(obj: Any) -> Any:
    """The int, float, str or bytes that an instance of a subclass is by inheritance."""
    return next(make for kind, make in _PLAIN.items() if kind in type(obj).__mro__)(obj)


def _counted(counter: Any) -> range:
    """What an itertools.count of ints gives; raises LookupError for other numbers, which rounding adds up."""
    _, (start, *steps) = counter.__reduce__()
    step = steps[0] if steps else 1
    if type(start) is not int or type(step) is not int or not step:
        raise LookupError("a count of other numbers than ints")
    return range(start, start + (step << 62), step)


def goes_over(iterator: Any) -> tuple[Any, int]:
    """The sequence that an iterator of Python's own goes over, an empty one at its end, and the place of the next item; of a count, a range
    that ends nowhere near. Raises LookupError for sequences whose class is not Python's own."""
    if type(iterator) is itertools.count:
        return _counted(iterator), 0
    _, (items,), *place = iterator.__reduce__()
    if type(items) not in (list, tuple, range, str, bytes):
        raise LookupError("a class that may have its own items")
    return items, place[0] or 0 if place else 0  # from 3.12 on a range begins with the next item


def iterated_list(iterator: Any) -> list[Any]:
    """The list that a list iterator goes over; raises LookupError for others."""
    items, _ = goes_over(iterator)
    if type(items) is not list:
        raise LookupError("not over a list")
    return items


def item_ahead(iterator: Any, count: int) -> Any:
    """What an iterator over a sequence gives after `count` other items; raises LookupError when it has fewer left."""
    items, place = goes_over(iterator)
    return items[place + count]


def _applied(function: Callable[[Any], Callable[[Any], Any]]) -> Access:
    """What a function in Python, which `function` makes of the source, gives for the base."""
    return Access(lambda s, c: (("APPLY", function(s), 0),), lambda s, v, scope: function(s)(v))


ACCESS: dict[type, Access] = {
    Local: Access(_local_slot, lambda s, v, scope: scope.names[s.name]),
    Global: Access(lambda s, c: (("GLOBALS", None, 0), ("DICT_ITEM", s.name, 0)), lambda s, v, scope: scope.globals[s.name]),
    FrameGlobals: Access(lambda s, c: (("GLOBALS", None, 0),), lambda s, v, scope: scope.globals),
    Closure: Access(_free_variable("CLOSURE"), lambda s, v, scope: scope.names[s.name]),
    ClosureCell: Access(_free_variable("CLOSURE_CELL"), lambda s, v, scope: scope.cells[s.name]),
    Const: Access(lambda s, c: (("CONST", s.holder, 0),), lambda s, v, scope: s.value),
    Ambient: Access(_state, lambda s, v, scope: STATES[s.name]()),
    Attr: Access(lambda s, c: (("ATTR", s.name, 0),), lambda s, v, scope: getattr(v, s.name)),
    Member: _applied(lambda s: s.descriptor.__get__),
    InstanceDict: Access(lambda s, c: (("INSTANCE_DICT", None, 0),), lambda s, v, scope: _C.instance_dict(v)),
    InstanceAttr: Access(
        lambda s, c: (("INSTANCE_DICT", None, 0), ("DICT_ITEM", s.name, 0)), lambda s, v, scope: _C.instance_dict(v)[s.name]
    ),
    ModuleEntry: Access(
        lambda s, c: (("INSTANCE_DICT", None, 0), ("DICT_ITEM", s.table, 0), ("DICT_ITEM", s.name, 0)),
        lambda s, v, scope: v.__dict__[s.table][s.name],
    ),
    ClassAttr: Access(lambda s, c: (("CLASS_ATTR", s.name, 0),), lambda s, v, scope: class_attribute(v, s.name)),
    TypeOf: Access(lambda s, c: (("TYPE", None, 0),), lambda s, v, scope: type(v)),
    Referent: _applied(lambda s: lambda reference: reference()),
    GeneratorLocal: _applied(lambda s: lambda generator: generator.gi_frame.f_locals[s.name]),
    IteratedList: _applied(lambda s: iterated_list),
    ItemAhead: _applied(lambda s: lambda iterator: item_ahead(iterator, s.count)),
    ArrayTensor: _applied(lambda s: tensor_maker(s.flips, s.writeable)),
    Item: Access(lambda s, c: (("ITEM", None, s.index),), lambda s, v, scope: v[s.index]),
    PartItem: _applied(lambda s: lambda container: part_item(container, s.index)),
    PlainPart: _applied(lambda s: plain_part),
    DictItem: Access(lambda s, c: (("DICT_ITEM", s.key, 0),), lambda s, v, scope: _dict_item(v, s.key)),
    DictKeyAt: Access(lambda s, c: (("DICT_KEY_AT", None, s.index),), lambda s, v, scope: list(v)[s.index]),
    DictValueAt: _applied(lambda s: lambda held: list(held.values())[s.index]),  # the order of an OrderedDict is beside the table
    FunctionGlobals: Access(lambda s, c: (("FUNCTION_GLOBALS", None, 0),), lambda s, v, scope: v.__globals__),
    CellContents: Access(
        lambda s, c: (("CELL_CONTENTS", None, s.index),), lambda s, v, scope: v.__closure__[s.index].cell_contents
    ),
    DefaultArg: Access(lambda s, c: (("DEFAULT", None, s.index),), lambda s, v, scope: v.__defaults__[s.index]),
    KwDefaultArg: Access(lambda s, c: (("KWDEFAULT", s.name, 0),), lambda s, v, scope: v.__kwdefaults__[s.name]),
    ComputedInt: _applied(lambda s: functools.partial(int_of_formula, s.text, s.name)),
    TensorOffset: _applied(lambda s: _torch.modes.without_dispatch(lambda tensor: tensor.storage_offset())),
    TensorSize: _applied(lambda s: _torch.modes.without_dispatch(lambda tensor: tensor.size(s.dim))),
    TensorStride: _applied(lambda s: _torch.modes.without_dispatch(lambda tensor: tensor.stride(s.dim))),
}


def _row(source: Source) -> Access:
    row = ACCESS.get(type(source))
    if row is None:
        raise GuardBuildError(f"{source!r} cannot be fetched: {type(source).__name__} has no row in ACCESS")
    return row


def steps_of(source: Source, code: CodeType) -> tuple[Step, ...]:
    """The native steps from the base of `source` to it."""
    return _row(source).steps(source, code)


def fetch(source: Source, scope: Scope) -> Any:
    """The value in Python; raises whatever the access raises."""
    base = None if source.base is None else fetch(source.base, scope)
    return _row(source).fetch(source, base, scope)
