"""What a compiled entry must not keep alive, and how it is held: by a weak reference, with whose end the entry ends."""

import gc
import sys
import weakref
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from . import _C

_HEAP_TYPE = 1 << 9  # among the flags of a class that is not one of C's for good
_MADE_ANEW = (MethodType, BuiltinFunctionType, CodeType)
"""Methods are made anew at each look, and code holds nothing but constants."""
_OURS = __name__.partition(".")[0]


def may_die(obj: Any) -> bool:
    """Whether the object dies once the program drops it, if nothing of ours holds it: classes, functions (of C, too) and modules but for
    those that modules have under their own names, and what else weak references are to."""
    kind = type(obj)
    if kind is BuiltinFunctionType and type(obj.__self__) is ModuleType:
        return vars(obj.__self__).get(obj.__name__) is not obj
    if issubclass(kind, _MADE_ANEW):
        return False
    if kind is FunctionType or issubclass(kind, (type, ModuleType)):
        return _is_of_program(obj)
    try:
        weakref.ref(obj)
    except TypeError:
        return False
    return True


def _is_of_program(obj: Any) -> bool:
    """Whether it is a class, a function or a module of the program's that no module has under its own name."""
    kind = type(obj)
    if issubclass(kind, type):
        return bool(type.__dict__["__flags__"].__get__(obj) & _HEAP_TYPE) and not _is_named(
            obj, type.__dict__["__module__"].__get__(obj), type.__dict__["__qualname__"].__get__(obj)
        )
    if kind is FunctionType:
        return not _is_named(obj, obj.__module__, obj.__qualname__)
    return issubclass(kind, ModuleType) and sys.modules.get(vars(obj).get("__name__")) is not obj


def _is_named(obj: Any, module: Any, path: str) -> bool:
    """Whether the object lies where its names say, or is one of this package, whose functions nothing else holds."""
    if type(module) is not str:
        return False
    if module.partition(".")[0] == _OURS:
        return True
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        if type(found) is not ModuleType and not issubclass(type(found), type):
            return False
        names = vars(found) if type(found) is ModuleType else type.__dict__["__dict__"].__get__(found)
        found = names.get(name)
    return getattr(found, "__func__", found) is obj if type(found) in (staticmethod, classmethod) else found is obj


def held(obj: Any) -> Any:
    """The object, or the WeakKey that stands for it where it may die."""
    return _C.WeakKey(obj) if may_die(obj) else obj


def held_if_of_program(obj: Any) -> Any:
    """As `held`, but for instances of classes that last: the object may have been made while tracing, and nobody else may hold it. A
    WeakKey stays what it is."""
    return held(obj) if _is_of_program(obj) or _is_of_program(type(obj)) else obj


def is_held(holder: Any) -> bool:
    """Whether the object is alive."""
    return type(holder) is not _C.WeakKey or holder() is not None


def there(holder: Any) -> Any:
    """The object that `held` was given, None when it is dead."""
    return holder() if type(holder) is _C.WeakKey else holder


@dataclass(frozen=True, eq=False)
class Parts:
    """Stands for an object to which no weak references are, such as a property: where it was, its class, and what it is made of."""

    address: int
    kind: Any
    parts: tuple[Any, ...]


def held_in_parts(obj: Any, depth: int = 3) -> Any:
    """As `held`; what weak references are not to is held part by part, where it may hold what dies."""
    if may_die(obj):
        return _C.WeakKey(obj)
    if depth == 0 or not gc.is_tracked(obj) or issubclass(type(obj), (type, FunctionType, ModuleType)):
        return obj
    inside = gc.get_referents(obj)
    return Parts(id(obj), held(type(obj)), tuple(held_in_parts(part, depth - 1) for part in inside))


def is_there(holder: Any, obj: Any) -> bool:
    """Whether the object is the one that `held_in_parts` was given."""
    if type(holder) is not Parts:
        return there(holder) is obj and is_held(holder)
    if id(obj) != holder.address or type(obj) is not there(holder.kind):
        return False
    inside = gc.get_referents(obj)
    return len(inside) == len(holder.parts) and all(map(is_there, holder.parts, inside))
