"""Sources, guards and objects as data that another process reads: what stored entries are made of."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .. import _C, sources
from ..formulas import ComputedNumber
from ..marks import mark_of
from ..signals import let_through
from ..sources import Const, Source
from ..weakly_held import there
from .access import Scope, fetch
from .addresses import FOUND, PLAIN, TORCH_NAMES, address_of, digest_of_attribute, facts_of, object_at
from .classes import HEAP_TYPE, ClassLookups, SealedLookups, attributes_of, find, is_descriptor, module_of, special_names
from .functions import digest_of_code
from .guard import Guard, TensorFacts
from .kinds import same_constant
from .paths import Changed, object_below, path_to_class
from .store import NotPortable

BY_PLAIN_PAYLOAD = frozenset(
    "STATE CONSTANT IS_NONE NOT_NONE TENSOR LENGTH DICT_KEYS DICT_HAS DICT_LACKS TRUTH HAS_ATTR LACKS_ATTR TEXT ORDER CONSTANT_RANGE"
    " DIES_UNSEEN TYPE IDENTITY NOT_IDENTITY SAME DISTINCT SET_MEMBERS".split()
)
"""Kinds of guards whose payload says by itself what is compared; CODE and CLASSES are stored by digests, others are not."""


class Asks(Exception):
    """A function of the program has to be called."""


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


class MadeAnew:
    """What a trace makes for its code, and another process for the same code."""

    def made_of(self) -> tuple[Any, ...]:
        """What the class is called with there: what Writer.value takes."""
        raise NotImplementedError


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
        if kind in PLAIN:
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
        if isinstance(value, TORCH_NAMES):
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
        if isinstance(obj, MadeAnew):
            return self._add(obj, ["made", *path_to_class(type(obj)), self.value(obj.made_of())])
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
        if guard.kind == "IDENTITY" and type(there(guard.payload)) in FOUND:
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
        return ["predicate", *path_to_class(type(holds)), self.value(holds.digest())]

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
            kind = object_below(data[1], data[2])
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

    def made_anew(self, module: str, name: str, given: Any) -> MadeAnew:
        """What the trace made."""
        made: MadeAnew = object_below(module, name)(*self.value(given))
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
            if type(found) in FOUND and facts_of(found) == list(facts):
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
    "made": Reader.made_anew,
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
