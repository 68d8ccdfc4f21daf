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
import itertools
import operator
import sys
import types
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import torch

from .. import _C, _torch
from ..code_origin import is_of_torch
from .addresses import address_of, asked_of, digest_of_attribute, digest_of_member
from .classes import HEAP_TYPE, IMMUTABLE, attributes_of, find, module_of
from .functions import digest_of_code
from .store import NotPortable

TORCHS = ("aten", "prims", "prim")
"""Namespaces of operators whose rules are torch's."""
_MODULES = ("torch", "math", "operator", "numpy")
"""Modules whose own functions and classes are the same wherever the key is."""
_UNDER_WAY: ContextVar[tuple[Any, ...]] = ContextVar("_UNDER_WAY", default=())
"""Operators whose digests are being made, each of which the one before reads."""


def digest_of_operator(operator: Any) -> str:
    """Of an overload, a packet of overloads, or what torch.library.custom_op gave. Raises NotPortable."""
    made = _torch.operators.custom_operator(operator)
    around, looked_at = _UNDER_WAY.get(), operator if made is None else made
    if looked_at in around:  # a gradient may be computed by the operator itself
        return f"the {around.index(looked_at)}th around"
    under_way = _UNDER_WAY.set((*around, looked_at))
    try:
        parts = _parts_of_defined(operator) if made is None else _parts_of_made(made)
    finally:
        _UNDER_WAY.reset(under_way)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _parts_of_made(operator: Any) -> list[Any]:
    return [
        _torch.operators.schema_of_custom_operator(operator),
        _Reading().all_of(_torch.operators.rules_of_custom_operator(operator)),
    ]


def _parts_of_defined(operator: Any) -> list[Any]:
    """Of an operator that torch.library.define made, whose rules are a fake and gradients in Python. Raises NotPortable."""
    parts: list[Any] = []
    for overload in _torch.operators.overloads_of(operator):
        fake, gradients, rest = _torch.operators.rules_of_defined_operator(overload)
        if rest:
            raise NotPortable(f"{overload} has a rule for {', '.join(rest)}, whose function cannot be seen")
        if fake is None:
            raise NotPortable(f"no function of Python's says what {overload} gives (torch.library.register_fake)")
        parts.append((_torch.operators.schema_of_operator(overload), _Reading().all_of([fake, *gradients])))
    return parts


class _Reading:
    """What functions read. Of a module, and of torch's classes, those attributes are read that have a name which some of the functions ask
    anything for: a module may come to code by a global, an import, an argument."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}  # functions, classes and objects that were met, with their numbers, by id
        self._spaces: dict[str, types.ModuleType | type] = {"torch.Tensor": torch.Tensor}  # which all rules are given
        self._names: set[str] = set()

    def all_of(self, functions: Iterable[Any]) -> list[Any]:
        """Raises NotPortable where it cannot be told."""
        parts = [self.reached(function) for function in functions]
        done: set[tuple[str, str]] = set()
        while asked := sorted({*itertools.product(self._spaces, self._names)} - done):
            done.update(asked)
            for space, name in asked:
                if space == torch.ops.__name__ and name in self._namespaces:
                    self.reached(getattr(torch.ops, name))
                found, is_there = _attribute(self._spaces[space], name)
                described = self.reached(found) if is_there else None
                if is_there and described != f"{space}.{name}":  # a module in its place may be there since anybody imported it
                    parts.append((space, name, described))
        return parts

    @functools.cached_property
    def _namespaces(self) -> set[str]:
        return _torch.operators.namespaces()

    def reached(self, value: Any) -> Any:
        """A value that is read."""
        kind: Any = type(value)
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if kind in _CONTAINERS:
            parts = [self.reached(part) for part in (value.items() if kind is dict else value)]
            return [kind.__name__, sorted(parts, key=repr) if kind in (set, frozenset) else parts]
        held = {name: getattr(value, name) for name in _HOLDERS.get(kind, ())}
        if held:
            own = address_of(value) if kind is functools._lru_cache_wrapper else kind.__qualname__
            return [own, [(name, self.reached(part)) for name, part in held.items() if part is not None]]
        for unseen in _READ_UNSEEN:
            if value is unseen or kind is unseen:
                raise NotPortable(f"{unseen.__name__}() is called by the rule of an operator")
        is_class = isinstance(value, type)
        if not is_class and kind is not types.FunctionType and not _is_plain_object(value):
            return address_of(value) if isinstance(value, types.BuiltinFunctionType) else digest_of_attribute(value)
        if id(value) in self._seen:
            return self._seen[id(value)][0]
        self._seen[id(value)] = len(self._seen), value
        if len(self._seen) > _MOST_READ:
            raise NotPortable("too much is read by the rule of an operator")
        if is_class:
            return self._class(value)
        return (
            self._function(value) if kind is types.FunctionType else [self.reached(kind), self.reached(_C.instance_dict(value))]
        )

    def _module(self, module: types.ModuleType) -> str:
        name = module.__name__
        top = name.partition(".")[0]
        is_libraries = top in _MODULES
        if not is_libraries and (
            top in sys.stdlib_module_names or type(module) is not types.ModuleType or "__getattr__" in vars(module)
        ):
            raise NotPortable(f"module {name} is read by the rule of an operator")
        self._spaces[name] = module
        return name

    def _class(self, cls: type) -> Any:
        """All that a class of the program's has, and its bases."""
        top = module_of(cls).partition(".")[0]
        if not cls.__flags__ & HEAP_TYPE or top in (*_MODULES, *sys.stdlib_module_names):
            if top == "torch" and not cls.__flags__ & IMMUTABLE:
                self._spaces[f"{module_of(cls)}.{cls.__qualname__}"] = cls
            return address_of(cls)
        if issubclass(cls, enum.Enum):
            members = [digest_of_member(member) for member in cls.__members__.values()]
            return [address_of(cls), members, [self.reached(each) for each in asked_of(cls)]]
        attributes = sorted((name, static) for name, static in attributes_of(cls).items() if name not in _SAYS_NOTHING)
        above = [self.reached(base) for base in (type(cls), *cls.__bases__)]
        return [module_of(cls), cls.__qualname__, above, [(name, self.reached(static)) for name, static in attributes]]

    def _function(self, function: types.FunctionType) -> Any:
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
        if is_of_torch(function.__code__):  # what torch wraps a function of the program's in may note whether it was called
            return [function.__qualname__, [self.reached(each) for each in cells if type(each) is not bool]]
        given = [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), vars(function)]
        names = sorted({*self._globals_of(function.__code__, function.__globals__)})
        read = [(name, function.__globals__.get(name, vars(builtins).get(name))) for name in names]
        return [
            digest_of_code(function.__code__),
            [self.reached(each) for each in given],
            [(name, self.reached(each)) for name, each in read if each is not None],
        ]

    def _globals_of(self, code: types.CodeType, names: dict[str, Any]) -> Iterator[str]:
        """Names of the globals that code reads; those of attributes are noted, as are modules that it imports."""
        read = [each for each in dis.get_instructions(code) if each.opname not in _BETWEEN]
        for at, each in enumerate(read):
            if each.opname == "IMPORT_NAME":
                self._imported(each.argval, names)
            elif each.opname in _ATTRIBUTES:
                if each.argval in _GIVE_ALL:
                    raise NotPortable(f"{each.argval} is asked for by the rule of an operator")
                self._names.add(each.argval)
            elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                if each.argval in _ASKING and each.argval not in names:
                    self._names.add(_name_asked_for(read[at + 1 :], each.argval))
                else:
                    yield each.argval
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from self._globals_of(constant, names)

    def _imported(self, name: str, names: dict[str, Any]) -> None:
        """The module of an import that code makes, and those that it is in. One that is not there yet may become anything."""
        parts = name.split(".")
        for module in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):
            if module not in sys.modules:
                raise NotPortable(f"module {name} is imported by the rule of an operator")
            self._module(sys.modules[module])


_CONTAINERS = (tuple, list, dict, set, frozenset)
_HOLDERS: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools._lru_cache_wrapper: ("__wrapped__",),
    functools.partial: ("func", "args", "keywords"),
    types.MethodType: ("__self__", "__func__"),
}
"""What is made of functions, and where they are held."""
_READ_UNSEEN: tuple[Any, ...] = (
    *(globals, locals, vars, eval, exec, open, input, __import__, getattr, hasattr),
    *(operator.attrgetter, operator.methodcaller),
)
"""What gives what no name in the code leads to."""
_MOST_READ = 200
"""Functions, classes and objects."""
_SAYS_NOTHING = frozenset(
    "__module__ __doc__ __dict__ __weakref__ __annotations__ __annotate_func__ __annotations_cache__ __static_attributes__"
    " __firstlineno__ __abstractmethods__ _abc_impl".split()
)


_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR")
_GIVE_ALL = ("__dict__", "__globals__", "__getattr__", "__getattribute__")
"""Attributes that give what no name in the code leads to."""
_ASKING = ("getattr", "hasattr")
_BETWEEN = ("PUSH_NULL", "CACHE", "PRECALL")
"""Instructions that read nothing."""


def _name_asked_for(after: list[dis.Instruction], function: str) -> str:
    """What getattr is asked for where it is a constant, of something that names lead to. Raises NotPortable."""
    given = [*itertools.takewhile(lambda each: each.opname.startswith("LOAD_"), after)]
    parts = [each for each in given if each.opname not in _ATTRIBUTES]  # the object, the name, what is given instead
    is_call = after[len(given)].opname.startswith("CALL") and len(parts) in (2, 3) and given[-1].opname not in _ATTRIBUTES
    if not is_call or parts[1].opname != "LOAD_CONST":
        raise NotPortable(f"{function}() is called by the rule of an operator with a name that is computed")
    return str(parts[1].argval)


def _attribute(space: types.ModuleType | type, name: str) -> tuple[Any, bool]:
    """What a module or a class has under a name, with nothing of the program run, and whether it is there."""
    if type(space) is _torch.operators.OpNamespace:
        found = _torch.operators.operator_under(space, name)
        return found, found is not None
    if isinstance(space, type):
        found, owner = find(space, name)
        return found, owner is not None
    return vars(space).get(name), name in vars(space)


def _is_plain_object(value: Any) -> bool:
    """Whether all that an object has is what its class has, and a dict."""
    kind = type(value)
    if isinstance(value, enum.Enum) or module_of(kind).partition(".")[0] in (*_MODULES, *sys.stdlib_module_names):
        return False
    return all(
        base is object or base.__flags__ & HEAP_TYPE and "__slots__" not in attributes_of(base)
        for base in type.__dict__["__mro__"].__get__(kind)
    )
