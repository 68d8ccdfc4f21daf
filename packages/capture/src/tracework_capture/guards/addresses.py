"""Where the objects are that stored entries name, and what else was taken from them.

Nothing is trusted but what is compared: an object has an address (module and qualified name, a descriptor's class and name) that leads to
this very object here and is looked up there; of a function and of a class the digest of what was traced of it is stored, too, and compared.
Nothing is imported but this stack's own modules. What has no address raises NotPortable when it is written, and what is not the same any
more raises Changed when it is read.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, cast

import torch

from .. import _torch
from .classes import attributes_of, module_of
from .functions import LAYERS, address_of_function, digest_of_code, digest_of_function, digest_of_layer, functions_held
from .paths import Changed, address_of_module, address_of_namespace, object_below, path_to, path_to_class
from .store import NotPortable

PLAIN = (type(None), bool, int, str)
TORCH_NAMES = (torch.dtype, torch.layout, torch.memory_format)
_DESCRIPTORS: tuple[type, ...] = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)
_PROPERTIES = (property, types.DynamicClassAttribute, enum.property)
_BUILTIN_OWNERS = ("torch", "torch._C._nn", "torch.nn.functional", "torch._C", "builtins", "math", "operator")
"""Modules that have functions of C whose own names do not lead to them."""
_GENERATORS = (("random", "_inst"), ("numpy.random.mtrand", "_rand"))
"""What functions of modules draw from."""
_FIELD_OF_TUPLE = type(vars(collections.namedtuple("_", "a"))["a"])
_DATACLASS_FLAGS = type(vars(dataclasses.make_dataclass("_", []))["__dataclass_params__"])
_GENERIC = tuple(
    kind
    for kind in (getattr(typing, "_GenericAlias", None), types.GenericAlias, typing.TypeVar, types.UnionType)
    if kind is not None
)
"""Annotations, which say nothing of what a class does."""


def digest_of_attribute(static: Any, depth: int = 4) -> str:
    """What a class has under a name, in words that another process gives, too. Raises NotPortable."""
    kind: Any = type(static)
    if kind is dataclasses.Field:
        return f"field {facts_of_field(static)}"
    if kind is _DATACLASS_FLAGS:
        return repr(static)
    if kind is types.FunctionType:
        return f"function {digest_of_function(static)}"
    if kind is _FIELD_OF_TUPLE:
        return f"field {static.__reduce__()[1]!r}"
    if kind is functools.cached_property:
        return f"cached_property {static.attrname} {digest_of_attribute(static.func)}"
    if kind in (staticmethod, classmethod):
        return f"{kind.__name__} {digest_of_attribute(static.__func__, depth)}"
    if kind in _PROPERTIES:
        member = vars(static).get("member") if kind is enum.property else None  # a member of an enumeration
        return f"{kind.__qualname__} {digest_of_attribute(member)} {[digest_of_attribute(part, depth) for part in (static.fget, static.fset, static.fdel)]}"
    if kind in (*PLAIN, float, complex, bytes, types.EllipsisType):
        return f"{kind.__name__} {static!r}"
    if kind in (list, tuple, set, frozenset) and depth:
        parts = [digest_of_attribute(part, depth - 1) for part in static]
        return f"{kind.__name__} {sorted(parts) if kind in (set, frozenset) else parts}"
    if isinstance(static, TORCH_NAMES) or kind is torch.device:
        return repr(static)
    if kind is dict and depth:
        return f"dict {[(digest_of_attribute(k, depth - 1), digest_of_attribute(v, depth - 1)) for k, v in static.items()]}"
    if kind in _GENERIC or module_of(kind) == "typing_extensions":
        return f"annotation {kind.__name__}"
    if kind.__name__ == "PyCapsule":
        return "capsule"
    if kind.__name__ in ("instancemethod", "pybind11_static_property"):  # of a class in C++, which no program makes
        return f"{kind.__name__} {getattr(static, '__name__', '')}"
    return repr(address_of(static))


_OF_ENUMERATIONS = frozenset({"_missing_", "_generate_next_value_"})
"""Functions that an enumeration calls when it is asked for a member, or made."""


def functions_of(kind: type[enum.Enum]) -> Iterator[tuple[type, str, Any]]:
    """The program's own functions and properties in an enumeration: the class that has it, its name, and as the class has it."""
    for cls in kind.__mro__:
        if module_of(cls) in ("enum", "builtins"):
            continue
        for name, static in attributes_of(cls).items():
            code = getattr(getattr(static, "__func__", static), "__code__", None)
            if isinstance(static, property) or code is not None and code.co_filename != enum.__file__:
                yield cls, name, static


def asked_of(kind: type[enum.Enum]) -> list[Any]:
    """What the program has put in for the search of members, and for their values."""
    return [static for _, name, static in functions_of(kind) if name in _OF_ENUMERATIONS]


def digest_of_member(member: enum.Enum) -> str:
    """Of a member of an enumeration, which tracing takes for a constant: whatever it is asked is evaluated. Raises NotPortable where code of
    the program's would answer."""
    for cls, name, _ in functions_of(type(member)):
        if name not in _OF_ENUMERATIONS:
            raise NotPortable(f"{cls.__qualname__}.{name} answers for members")
    if set(vars(member)) - {"_value_", "_name_", "__objclass__", "_sort_order_"}:
        raise NotPortable(f"{member.name} has attributes of its own")
    asked = [digest_of_code(getattr(each, "__func__", each).__code__) for each in asked_of(type(member))]
    return " ".join([digest_of_attribute(member.value), *asked])


_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
FOUND = (types.FunctionType, functools._lru_cache_wrapper, types.CodeType, types.CellType, dataclasses.Field, *_GETTERS)


def facts_of(found: Any) -> list[Any]:
    """What is taken from one of FOUND without a guard of its own. Raises NotPortable."""
    if isinstance(found, types.CodeType):
        return [digest_of_code(found)]
    if isinstance(found, types.CellType):  # guards see what it holds
        return []
    if isinstance(found, functools._lru_cache_wrapper):
        return [digest_of_layer(found), _digest_of_remembering(found)]
    if isinstance(found, _GETTERS):
        make, given, *_ = cast("tuple[Any, ...]", found.__reduce__())
        named = [make.args, make.keywords] if type(make) is functools.partial else []
        return [type(found).__name__, digest_of_attribute((*named, given))]
    return facts_of_field(found) if isinstance(found, dataclasses.Field) else facts_of_function(found)


def facts_of_field(field: dataclasses.Field[Any]) -> list[Any]:
    """What a dataclass says of a field. Raises NotPortable."""
    asked = (field.default, field.default_factory, field.init, field.repr, field.hash, field.compare, field.kw_only)
    given = ["nothing" if value is dataclasses.MISSING else digest_of_attribute(value) for value in asked]
    kind: Any = vars(dataclasses.Field)["_field_type"].__get__(field)  # of a field, a class variable, or what only __init__ takes
    return [field.name, repr(field.type), repr(kind), *given, digest_of_attribute(dict(field.metadata))]


def facts_of_function(function: types.FunctionType) -> list[Any]:
    """What is taken from a function without a guard of its own. Raises NotPortable."""
    return [
        digest_of_function(function),
        address_of(function.__globals__),
        function.__name__,
        function.__qualname__,
        function.__module__,
    ]


def address_of(obj: Any) -> list[Any]:
    """Where the object is found in any process. Raises NotPortable."""
    kind: Any = type(obj)
    if kind in _DESCRIPTORS:
        owner, name = obj.__objclass__, obj.__name__
        if attributes_of(owner).get(name) is obj:
            return ["descriptor", *path_to_class(owner), name]
    elif issubclass(kind, types.ModuleType):
        if (found := address_of_module(obj)) is not None:
            return found
    elif issubclass(kind, type):
        return ["class", *path_to_class(obj), *_members_of(obj)]
    elif kind is types.FunctionType:
        if (found := address_of_function(obj)) is not None:
            return found
    elif kind in (types.BuiltinFunctionType, types.BuiltinMethodType):
        if (found := _builtin_address(obj)) is not None:
            return found
    elif kind in (*_PROPERTIES, staticmethod, classmethod):
        made_of = obj.fget if kind in _PROPERTIES else obj.__func__
        path = path_to(obj, getattr(made_of, "__module__", None), getattr(made_of, "__qualname__", None), bare=True)
        if path is not None:
            return ["attribute", *path, digest_of_attribute(obj)]
    elif (address := _made_address(obj, kind)) is not None:
        return address
    elif issubclass(kind, (_torch.operators.OpOverload, _torch.operators.OpOverloadPacket, _torch.operators.CustomOpDef)):
        return _operator_address(obj)
    elif kind is dict and (place := address_of_namespace(obj)) is not None:
        return place
    raise NotPortable(f"{kind.__qualname__} {getattr(obj, '__qualname__', '')} has no address")


def _builtin_address(function: Any) -> list[Any] | None:
    owner, name = function.__self__, function.__name__
    places = []
    if isinstance(owner, type):
        module, path_to_owner = path_to_class(owner)
        places.append((module, f"{path_to_owner}.{name}"))
    places += [(module, each) for module in (function.__module__, *_BUILTIN_OWNERS) for each in (function.__qualname__, name)]
    path = next((path for place in places if (path := path_to(function, *place)) is not None), None)
    return None if path is None else ["builtin", *path]


def _made_address(obj: Any, kind: Any) -> list[Any] | None:
    """Of members of enumerations, and of what is under a name in a module that does not make it."""
    if kind is functools._lru_cache_wrapper:
        path = path_to(obj, obj.__module__, obj.__qualname__)
        return None if path is None else ["cached", *path, digest_of_layer(obj), _digest_of_remembering(obj)]
    if obj is NotImplemented:  # which code of Python's library asks for
        return ["builtin", "builtins", "NotImplemented"]
    for module, name in _GENERATORS:
        if vars(sys.modules.get(module, operator)).get(name) is obj:
            return ["builtin", module, name]
    if kind.__module__ == "numpy":
        path = path_to(obj, "numpy", getattr(obj, "__name__", None))
        return None if path is None else ["builtin", *path]
    if kind.__name__ == "cython_function_or_method" and obj.__module__.startswith("numpy."):
        path = path_to(obj, obj.__module__, obj.__qualname__)
        return None if path is None else ["builtin", *path]
    is_torchs = module_of(kind).partition(".")[0] == "torch"
    if is_torchs and "__members__" in attributes_of(kind) and not issubclass(kind, enum.Enum):  # an enumeration of C++
        path = path_to(obj, "torch._C", f"{kind.__qualname__}.{obj.name}")
        return None if path is None else ["builtin", *path]
    if issubclass(kind, _torch.operators.HigherOrderOperator):
        is_found = is_torchs and getattr(torch.ops.higher_order, obj.name(), None) is obj
        return ["higher order", obj.name()] if is_found else None
    if not issubclass(kind, enum.Enum):
        return None
    if issubclass(kind, enum.Flag) and obj.name not in kind.__members__:  # several at once
        return ["flags", *path_to_class(kind), obj.value, digest_of_member(obj)]
    return ["member", *path_to_class(kind), obj.name, digest_of_member(obj)]


def _operator_address(operator: Any) -> list[Any]:
    from .operators import TORCHS, digest_of_operator  # which looks at functions

    if isinstance(operator, _torch.operators.CustomOpDef):
        return ["operator", operator._qualname, "made", digest_of_operator(operator)]
    is_overload = isinstance(operator, _torch.operators.OpOverload)
    packet = operator.overloadpacket if is_overload else operator
    name, overload = packet._qualified_op_name, operator._overloadname if is_overload else None
    if _torch.operators.named_operator(name, overload) is not operator:
        raise NotPortable(f"{operator} is not found by its name")
    return ["operator", name, overload, "" if name.partition("::")[0] in TORCHS else digest_of_operator(operator)]


def _members_of(cls: type) -> list[Any]:
    """What an enumeration has members for, in their order: tracing takes them from the class. Raises NotPortable."""
    members = attributes_of(cls).get("_member_map_") if issubclass(type(cls), enum.EnumMeta) else None
    return [] if not members else [[name, member._name_, digest_of_attribute(member._value_)] for name, member in members.items()]


def _digest_of_remembering(layer: functools._lru_cache_wrapper[Any]) -> str:
    """Of the function that is asked for what is not remembered. A mark says nothing, as a guard asks it, too."""
    function = layer.__wrapped__
    return digest_of_code(function.__code__) if type(function) is types.FunctionType else repr(address_of(function))


def object_at(address: list[Any]) -> Any:
    """The object at an address. Raises Changed where it is another one, or none."""
    kind, module, *rest = address
    if kind == "modules":
        return sys.modules
    if kind == "operators":
        return _torch.operators.operators_of(module)
    if kind == "higher order":
        return getattr(torch.ops.higher_order, module)
    if kind == "packets":
        return vars(_torch.operators.operators_of(module))
    if kind in ("module", "namespace"):
        known = sys.modules.get(module)
        if known is None:
            raise Changed(f"module {module} is not there")
        return known if kind == "module" else vars(known)
    path, *rest = rest
    if kind == "operator":
        operator = _torch.operators.named_operator(module, None if path == "made" else path)
        found: Any = _torch.operators.custom_operator(operator) if path == "made" else operator
    else:
        found = object_below(module, path, kind == "attribute")
    if kind == "decorated":
        for name in rest[0]:
            found = functions_held(found).get(name) if type(found) in LAYERS else None
    if kind == "descriptor":
        if not issubclass(type(found), type):
            raise Changed(f"{module}.{path} is no class")
        return attributes_of(found).get(rest[0])
    if kind == "flags":
        found = _flags_of(found, rest[0])
    if kind == "member":
        found = found.__members__.get(rest[0]) if issubclass(type(found), enum.EnumMeta) else None
    try:
        now = address_of(found)
    except NotPortable as error:
        raise Changed(f"{module}.{path} is another one: {error}") from error
    if now != address:
        raise Changed(f"{module}.{path} is not what it was")
    return found


def _flags_of(cls: Any, value: int) -> Any:
    """Several flags at once. None where there are none of that value."""
    try:
        return cls(value) if issubclass(type(cls), enum.EnumMeta) and issubclass(cls, enum.Flag) else None
    except ValueError:
        return None
