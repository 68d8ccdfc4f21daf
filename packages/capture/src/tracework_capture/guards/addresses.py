"""Objects, sources and guards as data that another process reads: what stored entries are made of.

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
import hashlib
import importlib
import operator
import re
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from .. import _C, _torch, sources
from ..formulas import ComputedNumber
from ..marks import mark_of
from ..own_packages import PACKAGES
from ..signals import let_through
from ..sources import Const, Source
from ..weakly_held import there
from .access import Scope, fetch
from .classes import HEAP_TYPE, ClassLookups, SealedLookups, attributes_of, find, is_descriptor, module_of, special_names
from .guard import Guard, TensorFacts
from .kinds import same_constant
from .store import NotPortable

_PLAIN = (type(None), bool, int, str)
_TORCH_NAMES = (torch.dtype, torch.layout, torch.memory_format)
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
BY_PLAIN_PAYLOAD = frozenset(
    "STATE CONSTANT IS_NONE NOT_NONE TENSOR LENGTH DICT_KEYS DICT_HAS DICT_LACKS TRUTH HAS_ATTR LACKS_ATTR TEXT ORDER CONSTANT_RANGE"
    " DIES_UNSEEN TYPE IDENTITY NOT_IDENTITY SAME DISTINCT SET_MEMBERS".split()
)
"""Kinds of guards whose payload says by itself what is compared; CODE and CLASSES are stored by digests, others are not."""


class Changed(Exception):
    """What is stored does not hold in this process."""


class Asks(Exception):
    """A function of the program has to be called."""


OF_MODULE = "<class>"
"""In the place of a name: the class of the module."""
BREAKING = "disallow_in_graph"
"""The mark with which nothing is taken from a function while tracing."""


# --- digests -----------------------------------------------------------------------------------------------------------------

_code_digests: dict[int, tuple[weakref.ref[types.CodeType], str]] = {}


def digest_of_code(code: types.CodeType) -> str:
    """What a code object does and where it is: messages and tracebacks name its file and lines."""
    known = _code_digests.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    key = id(code)
    parts = (
        *(
            code.co_code,
            code.co_linetable,
            code.co_exceptiontable,
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_cellvars,
        ),
        *(code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_firstlineno),
        *(file_of(code.co_filename), code.co_qualname, [_constant_text(c) for c in code.co_consts]),
    )
    found = hashlib.sha256(repr(parts).encode()).hexdigest()
    _code_digests[key] = weakref.ref(code, lambda dead: _code_digests.pop(key, None)), found
    return found


def file_of(name: str) -> str:
    """The name of a file as another process has it: cells of a notebook are in a folder that is named after the process."""
    return _OF_KERNEL.sub("", name)


_OF_KERNEL = re.compile(r"(?<=[/\\]ipykernel_)\d+(?=[/\\][^/\\]*$)")


def _constant_text(constant: Any) -> str:
    """The same text in each process, whatever order it has the members of a set in."""
    kind = type(constant)
    if kind is types.CodeType:
        return digest_of_code(constant)
    if kind is tuple:
        return f"({', '.join(map(_constant_text, constant))})"
    if kind is frozenset:
        return f"{{{', '.join(sorted(map(_constant_text, constant)))}}}"
    return f"{kind.__name__} {constant!r}"


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
    if kind in (*_PLAIN, float, complex, bytes, types.EllipsisType):
        return f"{kind.__name__} {static!r}"
    if kind in (list, tuple, set, frozenset) and depth:
        parts = [digest_of_attribute(part, depth - 1) for part in static]
        return f"{kind.__name__} {sorted(parts) if kind in (set, frozenset) else parts}"
    if isinstance(static, _TORCH_NAMES) or kind is torch.device:
        return repr(static)
    if kind is dict and depth:
        return f"dict {[(digest_of_attribute(k, depth - 1), digest_of_attribute(v, depth - 1)) for k, v in static.items()]}"
    if kind in _GENERIC or module_of(kind) == "typing_extensions":
        return f"annotation {kind.__name__}"
    if kind.__name__ == "PyCapsule":
        return "capsule"
    return repr(address_of(static))


def digest_of_function(function: types.FunctionType) -> str:
    """The digest of its code. Its defaults and cells are guarded where they are read; marks of a program's own say what a capture makes
    of a call. Raises NotPortable for a function with one, but for that which breaks the graph."""
    mark = mark_of(function)
    if mark is not None and mark.kind != BREAKING:
        raise NotPortable(f"{function.__qualname__} is marked with {mark.kind}")
    return digest_of_code(function.__code__) if mark is None else f"{BREAKING} {digest_of_code(function.__code__)}"


_OF_ENUMERATIONS = frozenset({"_missing_", "_generate_next_value_"})
"""Functions that an enumeration calls when it is asked for a member, or made."""


def functions_of(kind: type[enum.Enum]) -> Iterator[tuple[str, Any]]:
    """The program's own functions and properties in an enumeration, by name: qualified, and as its class has it."""
    for cls in kind.__mro__:
        if module_of(cls) in ("enum", "builtins"):
            continue
        for name, static in attributes_of(cls).items():
            code = getattr(getattr(static, "__func__", static), "__code__", None)
            if isinstance(static, property) or code is not None and code.co_filename != enum.__file__:
                yield f"{cls.__qualname__}.{name}", static


def asked_of(kind: type[enum.Enum]) -> list[Any]:
    """What the program has put in for the search of members, and for their values."""
    return [static for name, static in functions_of(kind) if name.rpartition(".")[2] in _OF_ENUMERATIONS]


def digest_of_member(member: enum.Enum) -> str:
    """Of a member of an enumeration, which tracing takes for a constant: whatever it is asked is evaluated. Raises NotPortable where code of
    the program's would answer."""
    for name, _ in functions_of(type(member)):
        if name.rpartition(".")[2] not in _OF_ENUMERATIONS:
            raise NotPortable(f"{name} answers for members")
    if set(vars(member)) - {"_value_", "_name_", "__objclass__", "_sort_order_"}:
        raise NotPortable(f"{member.name} has attributes of its own")
    asked = [digest_of_code(getattr(each, "__func__", each).__code__) for each in asked_of(type(member))]
    return " ".join([digest_of_attribute(member.value), *asked])


_FOUND = (types.FunctionType, functools._lru_cache_wrapper, types.CodeType, types.CellType, dataclasses.Field)


def facts_of(found: Any) -> list[Any]:
    """What is taken from one of _FOUND without a guard of its own. Raises NotPortable."""
    if isinstance(found, types.CodeType):
        return [digest_of_code(found)]
    if isinstance(found, types.CellType):  # guards see what it holds
        return []
    if isinstance(found, functools._lru_cache_wrapper):
        return [_digest_of_layer(found), _digest_of_remembering(found)]
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


# --- addresses ---------------------------------------------------------------------------------------------------------------


def address_of(obj: Any) -> list[Any]:
    """Where the object is found in any process. Raises NotPortable."""
    kind: Any = type(obj)
    if kind in _DESCRIPTORS:
        owner, name = obj.__objclass__, obj.__name__
        if attributes_of(owner).get(name) is obj:
            return ["descriptor", *_class_address(owner), name]
    elif issubclass(kind, types.ModuleType):
        if (found := _module_address(obj)) is not None:
            return found
    elif issubclass(kind, type):
        return ["class", *_class_address(obj), *_members_of(obj)]
    elif kind is types.FunctionType:
        if (found := _function_address(obj)) is not None:
            return found
    elif kind in (types.BuiltinFunctionType, types.BuiltinMethodType):
        if (found := _builtin_address(obj)) is not None:
            return found
    elif kind in (*_PROPERTIES, staticmethod, classmethod):
        made_of = obj.fget if kind in _PROPERTIES else obj.__func__
        path = _path_to(obj, getattr(made_of, "__module__", None), getattr(made_of, "__qualname__", None), bare=True)
        if path is not None:
            return ["attribute", *path, digest_of_attribute(obj)]
    elif (address := _made_address(obj, kind)) is not None:
        return address
    elif issubclass(kind, (_torch.operators.OpOverload, _torch.operators.OpOverloadPacket, _torch.operators.CustomOpDef)):
        return _operator_address(obj)
    elif kind is dict and (place := _place_of_namespace(obj)) is not None:
        return place
    raise NotPortable(f"{kind.__qualname__} {getattr(obj, '__qualname__', '')} has no address")


def _builtin_address(function: Any) -> list[Any] | None:
    owner, name = function.__self__, function.__name__
    places = [(module_of(owner), f"{owner.__qualname__}.{name}")] if isinstance(owner, type) else []
    places += [(module, each) for module in (function.__module__, *_BUILTIN_OWNERS) for each in (function.__qualname__, name)]
    path = next((path for place in places if (path := _path_to(function, *place)) is not None), None)
    return None if path is None else ["builtin", *path]


def _module_address(module: types.ModuleType) -> list[Any] | None:
    if type(module) is _torch.operators.OpNamespace:
        return ["operators", module.name]
    name = vars(module).get("__name__")
    return ["module", name] if type(name) is str and sys.modules.get(name) is module else None


def _made_address(obj: Any, kind: Any) -> list[Any] | None:
    """Of members of enumerations, and of what is under a name in a module that does not make it."""
    if kind is functools._lru_cache_wrapper:
        path = _path_to(obj, obj.__module__, obj.__qualname__)
        return None if path is None else ["cached", *path, _digest_of_layer(obj), _digest_of_remembering(obj)]
    if obj is NotImplemented:  # which code of Python's library asks for
        return ["builtin", "builtins", "NotImplemented"]
    for module, name in _GENERATORS:
        if vars(sys.modules.get(module, operator)).get(name) is obj:
            return ["builtin", module, name]
    if kind.__module__ == "numpy" or kind.__name__ == "cython_function_or_method" and obj.__module__.startswith("numpy."):
        path = _path_to(obj, "numpy", getattr(obj, "__name__", None)) or _path_to(obj, obj.__module__, obj.__qualname__)
        return None if path is None else ["builtin", *path]
    if issubclass(kind, _torch.operators.HigherOrderOperator):
        is_torchs = module_of(kind).partition(".")[0] == "torch" and getattr(torch.ops.higher_order, obj.name(), None) is obj
        return ["higher order", obj.name()] if is_torchs else None
    if not issubclass(kind, enum.Enum):
        return None
    if issubclass(kind, enum.Flag) and obj.name not in kind.__members__:  # several at once
        return ["flags", *_class_address(kind), obj.value, digest_of_member(obj)]
    return ["member", *_class_address(kind), obj.name, digest_of_member(obj)]


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


def _place_of_namespace(names: dict[Any, Any]) -> list[Any] | None:
    """Of all modules, or of the names that one has."""
    if names is sys.modules:
        return ["modules", "sys"]
    # collections.abc is another module than it says
    for name in (names.get("__name__"), getattr(names.get("__spec__"), "name", None)):
        if type(name) is str and getattr(sys.modules.get(name), "__dict__", None) is names:
            return ["namespace", name]
    name = names.get("name")
    return (
        ["packets", name] if type(name) is str and name in vars(torch.ops) and vars(getattr(torch.ops, name)) is names else None
    )


def _class_address(cls: type) -> tuple[str, str]:
    path = _path_to(cls, module_of(cls), type.__dict__["__qualname__"].__get__(cls))
    if path is None:
        for name, known in vars(types).items():  # the types of Python have other names there
            if known is cls:
                return "types", name
        name = module_of(cls)
        if type(sys.modules.get(name)) is cls:  # a module's own, whose name led to it before the module took its own place
            return name, OF_MODULE
        raise NotPortable(f"class {cls.__qualname__} has no address")
    return path


def _members_of(cls: type) -> list[Any]:
    """What an enumeration has members for, in their order: tracing takes them from the class. Raises NotPortable."""
    members = attributes_of(cls).get("_member_map_") if issubclass(type(cls), enum.EnumMeta) else None
    return [] if not members else [[name, member._name_, digest_of_attribute(member._value_)] for name, member in members.items()]


def _path_to(obj: Any, module: Any, name: Any, bare: bool = False) -> tuple[str, str] | None:
    """The two, where they lead to the object. bare: what a class has there, as it is."""
    if type(module) is not str or type(name) is not str or "<locals>" in name:
        return None
    try:
        return (module, name) if _at(module, name, bare) is obj else None
    except Changed:
        return None


def _function_address(function: types.FunctionType) -> list[Any] | None:
    path = _path_to(function, function.__module__, function.__qualname__) or _named_here(function)
    if path is not None:
        return ["function", *path, digest_of_function(function)]
    inside = _inside_of_decorated(function)
    return None if inside is None else ["decorated", *inside, digest_of_function(function)]


def _inside_of_decorated(function: types.FunctionType) -> tuple[str, str, list[str], str] | None:
    """The path that leads to what decorators made of the function, the free variables that lead from there to it, and what the decorators do."""
    module, name = function.__module__, function.__qualname__
    if type(module) is not str or type(name) is not str or "<locals>" in name:
        return None
    try:
        outer = _at(module, name)
    except Changed:
        return None
    names: list[str] = []
    digests: list[str] = []
    while type(outer) in _LAYERS and len(names) < _MOST_DECORATORS:
        held = _functions_held(outer)
        inside = next((n for n, f in held.items() if f is function), None) or next(iter(held), None)
        if inside is None:
            return None
        names.append(inside)
        digests.append(_digest_of_layer(outer))
        if (outer := held[inside]) is function:
            return module, name, names, hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return None


_MOST_DECORATORS = 4
_LAYERS: dict[type, str] = {
    types.FunctionType: "",
    functools._lru_cache_wrapper: "__wrapped__",
    functools.cached_property: "func",
    property: "fget",
    _torch.operators.CustomOpDef: "_abstract_fn",  # which torch.library.triton_op makes the operator of
}
"""What decorators make of a function, and where it is in that; in the free variables of one."""


def _functions_held(layer: Any) -> dict[str, Any]:
    """What is held by one of _LAYERS and is one, by name."""
    if type(layer) is not types.FunctionType:
        name = _LAYERS[type(layer)]
        held = {name: getattr(layer, name)}
    else:
        cells = zip(layer.__code__.co_freevars, layer.__closure__ or ())
        held = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
    return {name: value for name, value in held.items() if type(value) in _LAYERS}


def _digest_of_layer(layer: Any) -> str:
    """What a decorator made, without the function that it made it of. Raises NotPortable."""
    if type(layer) is functools._lru_cache_wrapper:
        return f"remembers {sorted(layer.cache_parameters().items())}"
    return digest_of_function(layer) if type(layer) is types.FunctionType else type(layer).__name__


def _digest_of_remembering(layer: functools._lru_cache_wrapper[Any]) -> str:
    """Of the function that is asked for what is not remembered. A mark says nothing, as a guard asks it, too."""
    function = layer.__wrapped__
    return digest_of_code(function.__code__) if type(function) is types.FunctionType else repr(address_of(function))


def function_of_code(code: types.CodeType) -> types.FunctionType | None:
    """A function that runs the code and has an address."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) != code.co_filename:
            continue
        try:
            found = _at(module.__name__, code.co_qualname)
        except Changed:
            continue
        for _ in range(_MOST_DECORATORS):
            if getattr(found, "__code__", None) is code:
                return found
            held = _functions_held(found) if type(found) in _LAYERS else {}
            found = next((f for f in held.values() if getattr(f, "__code__", None) is code), next(iter(held.values()), None))
    return None


def _named_here(function: types.FunctionType) -> tuple[str, str] | None:
    """The name that this package has for a function of torch's which is reached by no name of its own."""
    families = [getattr(_torch, name) for name in _torch.__all__]
    return next(((f.__name__, name) for f in families for name, known in vars(f).items() if known is function), None)


def _at(module: str, path: str, bare: bool = False) -> Any:
    """What is at a path of names below a module, with nothing of the program run. Raises Changed."""
    found: Any = sys.modules.get(module)
    if found is None and module.partition(".")[0] in PACKAGES:
        found = importlib.import_module(module)
    if path == OF_MODULE:
        return type(found)
    for name in path.split("."):
        if issubclass(type(found), types.ModuleType):
            names = vars(found)
        elif issubclass(type(found), type):
            names = attributes_of(found)
        else:
            raise Changed(f"{module} has no {path}")
        if name not in names:
            found, owner = find(found, name) if issubclass(type(found), type) else (None, None)
            if owner is None:
                raise Changed(f"{module} has no {path}")
        else:
            found = names[name]
        if not bare and type(found) in (staticmethod, classmethod):
            found = found.__func__
    return found


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
        found = _at(module, path, kind == "attribute")
    if kind == "decorated":
        for name in rest[0]:
            found = _functions_held(found).get(name) if type(found) in _LAYERS else None
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


def _parts_of(static: Any) -> dict[str, Any]:
    """What a class has under a name where that is a method or the like, and the functions in it by their attributes there."""
    parts = {name: getattr(static, name) for name in _METHOD_PARTS.get(type(static), ())}
    functions = {name: part for name, part in parts.items() if type(part) is types.FunctionType}
    return functions | {"": static} if type(static) in _METHOD_PARTS else {}


_METHOD_PARTS: dict[type, tuple[str, ...]] = {
    types.FunctionType: (),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    property: ("fget", "fset", "fdel"),
}


def _names_of_class(cls: type) -> list[str]:
    """What identifies a class where guards find it, as they see what it does."""
    return [module_of(cls), type.__dict__["__qualname__"].__get__(cls)]


def _flags_of(cls: Any, value: int) -> Any:
    """Several flags at once. None where there are none of that value."""
    try:
        return cls(value) if issubclass(type(cls), enum.EnumMeta) and issubclass(cls, enum.Flag) else None
    except ValueError:
        return None


class Predicate:
    """A payload of PREDICATE, or the one of a RELATION, that says in data what it asks."""

    runs_program = False

    def __call__(self, value: Any) -> bool:
        raise NotImplementedError

    def gives(self) -> list[Any]:
        """Objects that what is at the guard's place gives, and which have no other name."""
        return []

    def digest(self) -> Any:
        """What Writer.value takes and is the same in another process. Raises NotPortable."""
        raise NotImplementedError

    @classmethod
    def of(cls, found: Any, digest: Any) -> Predicate:
        """The one of this digest, which holds for what is found where the guard looks. Raises Changed."""
        raise NotImplementedError


# --- writing -----------------------------------------------------------------------------------------------------------------

_FIELDS: dict[str, tuple[type, tuple[str, ...]]] = {
    name: (kind, tuple(f.name for f in dataclasses.fields(kind)))  # type: ignore[arg-type]
    for name, kind in vars(sources).items()
    if isinstance(kind, type) and issubclass(kind, Source) and dataclasses.is_dataclass(kind)
}
_FACTS = tuple(f.name for f in dataclasses.fields(TensorFacts))


class Writer:
    """Values as JSON data; sources, objects and texts are written once and named by number."""

    def __init__(self, tensor_places: Callable[[], Mapping[int, Source]] = dict) -> None:
        """tensor_places: gives for the id of each tensor of the program that guards see where they find it."""
        self._tensor_places = tensor_places
        self.sources: list[Any] = []
        self.objects: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._objects: dict[int, tuple[Any, int]] = {}
        self._methods: dict[int, tuple[type, str, str]] = {}
        self._classes: dict[int, tuple[Source, int]] = {}
        self._found: dict[int, Source] = {}
        self._given: dict[int, tuple[Guard, int]] = {}
        self.codes: dict[int, types.CodeType] = {}
        """The codes whose digests are written, by id."""

    def source(self, source: Source) -> int:
        """The number of a source. Raises NotPortable."""
        number = self._numbers.get(source)
        if number is not None:
            return number
        if type(source) is Const:
            row: list[Any] = ["Const", self.value(source.value), source.text]
        else:
            name = type(source).__name__
            if name not in _FIELDS:
                raise NotPortable(f"{source} is found by {name}")
            fields = [getattr(source, field) for field in _FIELDS[name][1]]
            row = [name, *(self.source(f) if isinstance(f, Source) else self.value(f) for f in fields)]
        number = self._numbers[source] = len(self.sources)
        self.sources.append(row)
        return number

    def value(self, value: Any) -> Any:
        """A constant, or an object with an address. Raises NotPortable."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return ["float", value.hex()]
        if kind is complex:
            return ["complex", value.real.hex(), value.imag.hex()]
        if kind is bytes:
            return ["bytes", value.hex()]
        if kind in (tuple, list, torch.Size):
            return [kind.__name__, *map(self.value, value)]
        if kind is frozenset:
            return ["frozenset", *sorted(map(self.value, value), key=repr)]
        if isinstance(value, _TORCH_NAMES):
            return ["torch", str(value).removeprefix("torch.")]
        if kind is torch.device:
            return ["device", str(value)]
        if isinstance(value, Source):
            return ["source", self.source(value)]
        if kind is ComputedNumber:
            return ["computed", value.text, value.names, *value.places]
        if kind is TensorFacts:
            facts = dataclasses.replace(value, type_held=value.type)
            return ["facts", *(self.value(getattr(facts, name)) for name in _FACTS)]
        return ["weak" if kind is _C.WeakKey else "object", self.object(there(value))]

    def object(self, obj: Any) -> int:
        """The number of an object. Raises NotPortable."""
        known = self._objects.get(id(obj))
        if known is not None:
            return known[1]
        if id(obj) in self._given:
            guard, place = self._given[id(obj)]
            return self._add(obj, ["given", self.source(guard.source), self._predicate(guard.payload[0]), place])
        if issubclass(type(obj), torch.Tensor):
            return self._add(obj, self._place_of(obj))
        try:
            address = address_of(obj)
        except NotPortable:
            if id(obj) in self._methods:
                cls, *names = self._methods[id(obj)]
                address = ["method", self.object(cls), *names, digest_of_attribute(obj)]
            elif id(obj) in self._classes:
                where, index = self._classes[id(obj)]
                address = ["type", self.source(where), index, *_names_of_class(obj)]
            elif type(obj) is types.UnionType:
                address = ["union", *map(self.object, obj.__args__)]
            elif type(obj) is types.GenericAlias:
                address = ["alias", self.object(obj.__origin__), self.value(obj.__args__)]
            elif id(obj) in self._found:
                address = ["found", self.source(self._found[id(obj)]), *facts_of(obj)]
            else:
                raise
        if isinstance(code := getattr(obj, "__code__", obj), types.CodeType):
            self.covers(code)
        return self._add(obj, address)

    def _place_of(self, tensor: torch.Tensor) -> list[Any]:
        """A tensor is the one that guards find where they found this one: an optimizer's state has parameters for keys."""
        place = self._tensor_places().get(id(tensor))
        if place is None:
            raise NotPortable(f"a {type(tensor).__qualname__} that no guard sees has no address")
        return ["tensor", self.source(place)]

    def _add(self, obj: Any, address: list[Any]) -> int:
        number = len(self.objects)
        self._objects[id(obj)] = obj, number
        self.objects.append(address)
        return number

    def covers(self, code: types.CodeType) -> None:
        """The digest of the code, and of those in it, is written."""
        if id(code) not in self.codes:
            self.codes[id(code)] = code
            for constant in code.co_consts:
                if type(constant) is types.CodeType:
                    self.covers(constant)

    def meet(self, guard: Guard) -> None:
        """Notes where objects are found that have no names of their own."""
        if guard.kind == "CLASSES":
            for _, name, owner, _ in guard.payload.found:
                has = there(owner)
                for part, found in {} if has is None else _parts_of(attributes_of(has).get(name)).items():
                    self._methods.setdefault(id(found), (has, name, part))
        if guard.kind == "IDENTITY" and type(there(guard.payload)) in _FOUND:
            self._found.setdefault(id(there(guard.payload)), guard.source)
        if guard.kind in ("TYPE", "IDENTITY") and isinstance(cls := there(guard.payload), type):
            order = [cls] if guard.kind == "IDENTITY" else type.__dict__["__mro__"].__get__(cls)
            for index, base in enumerate(order):
                self._classes.setdefault(id(base), (guard.source, -1 if guard.kind == "IDENTITY" else index))
        if guard.kind == "RELATION" and isinstance(guard.payload[0], Predicate):
            for place, given in enumerate(guard.payload[0].gives()):
                self._given.setdefault(id(given), (guard, place))

    def guard(self, guard: Guard) -> list[Any]:
        """Raises NotPortable for what cannot be asked elsewhere."""
        try:
            return [guard.kind, self.source(guard.source), self._payload(guard), guard.origin]
        except NotPortable as why:
            raise NotPortable(f"{why}, which is compared with {guard.source}") from why

    def _payload(self, guard: Guard) -> Any:
        if guard.kind == "CODE":
            self.covers(guard.payload)
            return digest_of_code(guard.payload)
        if guard.kind == "CLASSES":
            return self.lookups(guard.payload)
        if guard.kind == "RELATION":
            holds, sources = guard.payload
            given = holds.gives() if isinstance(holds, Predicate) else []
            return [self._predicate(holds), [self.source(source) for source in sources], [self.object(obj) for obj in given]]
        if guard.kind == "PREDICATE" and isinstance(guard.payload, Predicate):
            return self._predicate(guard.payload)
        if guard.kind in BY_PLAIN_PAYLOAD or guard.kind == "PREDICATE" and callable(guard.payload):
            return self.value(guard.payload)
        raise NotPortable(f"a guard of kind {guard.kind}")

    def _predicate(self, holds: Any) -> list[Any]:
        if not isinstance(holds, Predicate):
            return ["plain", self.value(holds)]
        return ["predicate", *_class_address(type(holds)), self.value(holds.digest())]

    def lookups(self, lookups: SealedLookups) -> dict[str, Any]:
        """What was looked up on classes, by digests of what was found."""
        found = []
        for cls, name, owner, _ in lookups.found:
            static, has = find(there(cls), name)
            if has is not there(owner):
                raise NotPortable(f"{there(cls).__qualname__}.{name} has changed")
            binds = is_descriptor(static)
            if binds:
                self._covers_functions_of(static)
            digest = _digest_of_descriptor(static) if binds else None
            of_type = self.object(type(static)) if owner is not None and not binds else None
            found.append([self.object(there(cls)), name, None if has is None else self.object(has), digest, of_type])
        orders = [[self.object(there(cls)), *(self.object(there(base)) for base in order)] for cls, order in lookups.orders]
        special = [[self.object(there(cls)), digest_of_specials(there(cls))] for cls, _ in lookups.special]
        return {"found": found, "orders": orders, "special": special}

    def _covers_functions_of(self, static: Any) -> None:
        """A method's code is written by its digest."""
        for part in _parts_of(static).values():
            if type(part) is types.FunctionType:
                self.covers(part.__code__)

    def document(self, **parts: Any) -> dict[str, Any]:
        """All that the numbers of `parts` lead to, and these."""
        return {"sources": self.sources, "objects": self.objects, **parts}


def _digest_of_descriptor(static: Any) -> str:
    """Of what says itself what it is on an instance. Guards see the methods of one whose class is Python's, and what it holds."""
    kinds = type.__dict__["__mro__"].__get__(type(static))
    if type(static) not in _METHOD_PARTS and all(kind is object or kind.__flags__ & HEAP_TYPE for kind in kinds):
        return f"descriptor {address_of(type(static))}"
    return digest_of_attribute(static)


def digest_of_specials(cls: type) -> str:
    """What the class itself has under special names, and its metaclass."""
    names = special_names(cls)
    parts = [(name, digest_of_attribute(names[name])) for name in sorted(names)]
    return hashlib.sha256(repr((address_of(type(cls)), parts)).encode()).hexdigest()


# --- reading -----------------------------------------------------------------------------------------------------------------


_NOT_YET = object()


class Reader:
    """What a Writer wrote, for a frame that is about to run in this process."""

    def __init__(self, document: dict[str, Any], scope: Scope, answers: dict[Any, Any] | None = None) -> None:
        """answers: what functions of the program gave when they were asked for this run, which are not asked again (guards.remembered)."""
        self.scope = scope
        self._answers = {} if answers is None else answers
        self._rows: list[list[Any]] = document["sources"]
        self._sources: list[Source | None] = [None] * len(self._rows)
        self._objects: list[Any] = [_NOT_YET] * len(document["objects"])
        self._addresses: list[list[Any]] = document["objects"]
        self.may_ask = False
        """Whether functions of the program may be called, which only is where all else holds."""
        self._predicates: dict[tuple[int, str], Any] = {}
        self._apart: dict[int, int] = {}
        """The numbers of objects whose addresses may be of the same one."""

    def source(self, number: int) -> Source:
        """The source of a number."""
        found = self._sources[number]
        if found is None:
            name, *fields = self._rows[number]
            if name == "Const":
                found = Const(self.value(fields[0]), fields[1])
            else:
                kind, names = _FIELDS[name]
                based = names[:1] == ("base",)
                found = kind(self.source(fields[0]), *map(self.value, fields[1:])) if based else kind(*map(self.value, fields))
            self._sources[number] = found
        return found

    def object(self, number: int) -> Any:
        """The object of a number. Raises Changed where it is another one."""
        found = self._objects[number]
        if found is _NOT_YET:
            address = self._addresses[number]
            find = _FINDERS.get(address[0])
            found = object_at(address) if find is None else find(self, *address[1:])
            if address[0] in _APART and self._apart.setdefault(id(found), number) != number:
                raise Changed("two objects are one")
            self._objects[number] = found
        return found

    def value(self, data: Any) -> Any:
        """The inverse of Writer.value."""
        return _READERS[data[0]](self, data) if type(data) is list else data

    def values(self, data: Iterable[Any]) -> list[Any]:
        """Several."""
        return [self.value(part) for part in data]

    def guard(self, row: list[Any]) -> Guard:
        """Raises Changed where the guard holds for nothing here."""
        kind, number, data, origin = row
        source = self.source(number)
        payload: Any
        if kind == "CODE":
            payload = self._code_at(source, data)
        elif kind == "CLASSES":
            payload = self.lookups(data)
        elif kind == "PREDICATE" and type(data) is list and data[0] == "predicate":
            payload = self._predicate(data, number)
        elif kind == "RELATION":
            payload = self._predicate(data[0], number), tuple(map(self.source, data[1]))
            if any(self.object(n) is not obj for n, obj in zip(data[2], payload[0].gives() if data[2] else ())):
                raise Changed("functions remember one object, or several")
        else:
            payload = self.value(data)
        if kind == "STATE" and not same_constant(
            self._at(source), payload
        ):  # function modes count, though they are set aside here
            raise Changed(f"{source} is another one")
        return Guard(kind, source, payload, origin)

    def _predicate(self, data: list[Any], number: int) -> Any:
        """One for each place, as it may have asked what is there."""
        if data[0] == "plain":
            return self.value(data[1])
        key = number, repr(data)
        if key not in self._predicates:
            kind = _at(data[1], data[2])
            if kind.runs_program and not self.may_ask:
                raise Asks
            answers = (self._answers,) if kind.runs_program else ()
            self._predicates[key] = kind.of(self._at(self.source(number)), self.value(data[3]), *answers)
        return self._predicates[key]

    def _at(self, source: Source) -> Any:
        try:
            return fetch(source, self.scope)
        except Exception as error:
            let_through(error)
            raise Changed(f"{source} is not there") from error

    def given_by(self, number: int, predicate: list[Any], place: int) -> Any:
        """What a predicate gives."""
        return self._predicate(predicate, number).gives()[place]

    def class_at(self, number: int, index: int, *names: str) -> Any:
        """The class of what is at a source, one of its bases, or what is there."""
        found = self._at(self.source(number))
        order = (*type.__dict__["__mro__"].__get__(type(found)), found)
        cls: Any = order[index] if index < len(order) else None
        if not issubclass(type(cls), type) or tuple(_names_of_class(cls)) != names:
            raise Changed(f"{self.source(number)} is of another class")
        return cls

    def union_of(self, *classes: int) -> types.UnionType:
        """A union of classes, which the program makes anew wherever it writes one."""
        made: types.UnionType = functools.reduce(operator.or_, map(self.object, classes))
        return made

    def alias_of(self, origin: int, args: Any) -> types.GenericAlias:
        """A class with arguments, which is made anew, too."""
        return types.GenericAlias(self.object(origin), self.value(args))

    def method_of(self, cls: int, name: str, part: str, digest: str) -> Any:
        """What a class has under a name, or a function in it."""
        found = _parts_of(attributes_of(self.object(cls)).get(name)).get(part)
        try:
            if found is not None and digest_of_attribute(found) == digest:
                return found
        except NotPortable as error:
            raise Changed(str(error)) from error
        raise Changed(f"{self.object(cls).__qualname__}.{name} is not what it was")

    def tensor_at(self, number: int) -> torch.Tensor:
        """The tensor at a source."""
        source = self.source(number)
        found = self._at(source)
        if not issubclass(type(found), torch.Tensor):
            raise Changed(f"{source} is no tensor")
        tensor: torch.Tensor = found
        return tensor

    def found_at(self, number: int, *facts: Any) -> Any:
        """What is at a source and has no address."""
        source = self.source(number)
        found = self._at(source)
        try:
            if type(found) in _FOUND and facts_of(found) == list(facts):
                return found
        except NotPortable as error:
            raise Changed(str(error)) from error
        raise Changed(f"{source} is another one")

    def _code_at(self, source: Source, digest: str) -> types.CodeType:
        found = self._at(source)
        if type(found) is not types.FunctionType or digest_of_code(found.__code__) != digest or mark_of(found) is not None:
            raise Changed(f"{source} runs other code")
        return found.__code__

    def lookups(self, data: dict[str, Any]) -> SealedLookups:
        """The lookups as they are here. Raises Changed where one gives something else than it did."""
        made, at = ClassLookups(), self.object
        try:
            for cls, name, owner, digest, kind in data["found"]:
                static, has = find(at(cls), name)
                binds = is_descriptor(static)
                same = (
                    has is (None if owner is None else at(owner)) and (_digest_of_descriptor(static) if binds else None) == digest
                )
                if not same or kind is not None and type(static) is not at(kind):
                    raise Changed(f"{at(cls).__qualname__}.{name} is something else")
                made.add(at(cls), name, has, static)
            for cls, *order in data["orders"]:
                if list(at(cls).__mro__) != [at(base) for base in order]:
                    raise Changed(f"{at(cls).__qualname__} has other bases")
                made.meet(at(cls))
            for cls, digest in data["special"]:
                if digest_of_specials(at(cls)) != digest:
                    raise Changed(f"a special method of {at(cls).__qualname__} is another one")
        except NotPortable as error:
            raise Changed(str(error)) from error
        return made.sealed()


_FINDERS: dict[str, Callable[..., Any]] = {
    "given": Reader.given_by,
    "type": Reader.class_at,
    "method": Reader.method_of,
    "union": Reader.union_of,
    "alias": Reader.alias_of,
    "tensor": Reader.tensor_at,
    "found": Reader.found_at,
}
"""Of addresses that lead from places of guards."""
_APART = ("given", "type", "found")
_READERS: dict[str, Callable[[Reader, Any], Any]] = {
    "float": lambda reader, data: float.fromhex(data[1]),
    "complex": lambda reader, data: complex(float.fromhex(data[1]), float.fromhex(data[2])),
    "bytes": lambda reader, data: bytes.fromhex(data[1]),
    "tuple": lambda reader, data: tuple(reader.values(data[1:])),
    "list": lambda reader, data: reader.values(data[1:]),
    "Size": lambda reader, data: torch.Size(data[1:]),
    "frozenset": lambda reader, data: frozenset(reader.values(data[1:])),
    "torch": lambda reader, data: getattr(torch, data[1]),
    "device": lambda reader, data: torch.device(data[1]),
    "source": lambda reader, data: reader.source(data[1]),
    "computed": lambda reader, data: ComputedNumber(data[1], data[2], tuple(data[3:])),
    "facts": lambda reader, data: TensorFacts(*reader.values(data[1:])),
    "object": lambda reader, data: reader.object(data[1]),
    "weak": lambda reader, data: _C.WeakKey(reader.object(data[1])),
}
