"""What tracing takes from an operator of the program's: its schema, the functions that say what it gives and what its gradients are, and all
that these read, as digests.

What an operator computes is asked when it runs, and is no part of that. Functions outside of torch are looked into as far as names lead; what
cannot be told raises NotPortable.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from .. import _torch
from ..code_origin import is_of_torch
from .addresses import address_of, digest_of_attribute, digest_of_code, digest_of_member
from .classes import HEAP_TYPE, attributes_of, module_of
from .store import NotPortable

TORCHS = ("aten", "prims", "prim")
"""Namespaces of operators whose rules are torch's."""
_MODULES = ("torch", "math", "operator")
"""Modules that nothing of the program's is in."""
_UNDER_WAY: ContextVar[tuple[Any, ...]] = ContextVar("_UNDER_WAY", default=())
"""Operators whose digests are being made, each of which the one before reads."""


def digest_of_operator(operator: Any) -> str:
    """Of an overload, a packet of overloads, or what torch.library.custom_op gave. Raises NotPortable."""
    made = _torch.custom_operator(operator)
    if made is None:
        return _digest_of_defined(operator)
    functions = _torch.rules_of_custom_operator(made)
    around = _UNDER_WAY.get()
    if made in around:  # a gradient may be computed by the operator itself
        return f"the {around.index(made)}th around"
    seen: dict[int, int] = {}
    under_way = _UNDER_WAY.set((*around, made))
    try:
        parts = [_torch.schema_of_custom_operator(made), *(_reached(function, seen) for function in functions)]
    finally:
        _UNDER_WAY.reset(under_way)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _digest_of_defined(operator: Any) -> str:
    """Of an operator that torch.library.define made, whose one rule is a fake in Python. Raises NotPortable."""
    parts: list[Any] = []
    for overload in _torch.overloads_of(operator):
        fake, rest = _torch.fake_of_operator(overload)
        if rest:
            raise NotPortable(f"{overload} has a rule for {', '.join(rest)}, whose function cannot be seen")
        if fake is None:
            raise NotPortable(f"no function of Python's says what {overload} gives (torch.library.register_fake)")
        parts.append((_torch.schema_of_operator(overload), _reached(fake, {})))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _reached(value: Any, seen: dict[int, int]) -> Any:
    """What a function reads. seen: numbers of the functions and classes that were met, by id."""
    kind: Any = type(value)
    if isinstance(value, types.ModuleType):
        return _named(value.__name__)
    if kind in _CONTAINERS:
        parts = [_reached(part, seen) for part in (value.items() if kind is dict else value)]
        return [kind.__name__, sorted(parts, key=repr) if kind in (set, frozenset) else parts]
    held = {name: getattr(value, name) for name in _HOLDERS.get(kind, ())}
    if held:
        own = address_of(value) if kind is functools._lru_cache_wrapper else kind.__qualname__
        return [own, [(name, _reached(part, seen)) for name, part in held.items() if part is not None]]
    if isinstance(value, types.BuiltinFunctionType) and value in _READ_UNSEEN:
        raise NotPortable(f"{value.__name__}() is called by the rule of an operator")
    if not isinstance(value, (type, types.FunctionType)):
        return address_of(value) if isinstance(value, types.BuiltinFunctionType) else digest_of_attribute(value)
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    return _reached_by_class(value, seen) if isinstance(value, type) else _reached_by_function(value, seen)


_CONTAINERS = (tuple, list, dict, set, frozenset)
_HOLDERS: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools._lru_cache_wrapper: ("__wrapped__",),
}
"""What decorators make of functions, and where they hold them."""
_READ_UNSEEN = (globals, locals, vars, eval, exec, open, input, __import__)
"""Functions that give what no name in the code leads to."""
_SAYS_NOTHING = frozenset(
    "__module__ __doc__ __dict__ __weakref__ __annotations__ __annotate_func__ __annotations_cache__ __static_attributes__"
    " __firstlineno__ __abstractmethods__ _abc_impl".split()
)


def _named(module: str) -> str:
    if module.partition(".")[0] not in _MODULES:
        raise NotPortable(f"module {module} is read by the rule of an operator")
    return module


def _reached_by_class(cls: type, seen: dict[int, int]) -> Any:
    """All that a class of the program's has, and its bases."""
    if not cls.__flags__ & HEAP_TYPE or module_of(cls).partition(".")[0] in (*_MODULES, *sys.stdlib_module_names):
        return address_of(cls)
    if issubclass(cls, enum.Enum):
        return [address_of(cls), [digest_of_member(member) for member in cls.__members__.values()]]
    attributes = sorted((name, static) for name, static in attributes_of(cls).items() if name not in _SAYS_NOTHING)
    above = [_reached(base, seen) for base in (type(cls), *cls.__bases__)]
    return [module_of(cls), cls.__qualname__, above, [(name, _reached(static, seen)) for name, static in attributes]]


def _reached_by_function(function: types.FunctionType, seen: dict[int, int]) -> Any:
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    if is_of_torch(function.__code__):  # what torch wraps a function of the program's in may note whether it was called
        return [function.__qualname__, [_reached(each, seen) for each in cells if type(each) is not bool]]
    given = [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), vars(function)]
    read = [(name, function.__globals__.get(name, vars(builtins).get(name))) for name in sorted({*_names(function.__code__)})]
    return [
        digest_of_code(function.__code__),
        [_reached(each, seen) for each in given],
        [(name, _reached(each, seen)) for name, each in read if each is not None],
    ]


def _names(code: types.CodeType) -> Iterator[str]:
    """Names of the globals that code reads. Raises NotPortable for a module of the program's that it imports."""
    for read in dis.get_instructions(code):
        if read.opname == "IMPORT_NAME":
            _named(read.argval)
        if read.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield read.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
