"""What a capture looked up on classes: one guard for all of them, which compares a version tag a class while nothing changed.

Names that were looked up give what they gave. Of each class that was met, beside that, the bases are the same, and so are the special
names (`__copy__`, `__match_args__`, ...) of all that it derives from, since Python asks for those without saying so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Collection, Iterator
from typing import Any

from .. import _C
from ..errors import BreakGraph
from ..weakly_held import held, held_in_parts, is_held, is_there, there

NO_ATTRIBUTE = object()
_BINDS_TO_NOTHING = object()
HEAP_TYPE = 1 << 9  # among the flags of a class that is made at run time
IMMUTABLE = 1 << 8  # of one that nothing can be stored in
DESCRIPTOR_METHODS = ("__get__", "__set__", "__delete__")
_WRITTEN_BY_PYTHON = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__annotations__", "__annotations_cache__", "__slotnames__"}
)
"""Special names that are no methods, of which some are set when they are first asked for."""
_current = threading.local()
# a metaclass may say something else
_mro_of, attributes_of, module_of = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__module__"))


class ClassLookups:
    """Names looked up on classes and what was found; a function or descriptor by identity, another value by the class that has it and
    by being no descriptor (the value itself is guarded where it is used). `orders`: the resolution order of each class that was met;
    `special`: the special names of each class in those. `stored`: what the traced program stored in classes since."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, str], tuple[type, type | None, Any]] = {}  # by id, as a metaclass may refuse to hash
        self.orders: dict[int, tuple[type, tuple[type, ...]]] = {}
        self.special: dict[int, tuple[type, dict[str, Any]]] = {}
        self.stored: dict[tuple[int, str], Stored] = {}

    def add(self, cls: type, name: str, owner: type | None, static: Any) -> None:
        """Remember one lookup."""
        if cls.__flags__ & IMMUTABLE:
            return
        self.meet(cls)
        self.found.setdefault((id(cls), name), (cls, owner, static if is_descriptor(static) else _BINDS_TO_NOTHING))
        if owner is not None:
            self.meet(type(static))  # which may come to bind, or in another way

    def meet(self, cls: type) -> None:
        """Remember the bases of a class, and its special names."""
        if cls.__flags__ & IMMUTABLE or id(cls) in self.orders:
            return
        self.orders[id(cls)] = cls, _mro_of(cls) or ()
        for base in _mro_of(cls) or ():
            if not base.__flags__ & IMMUTABLE and id(base) not in self.special:
                self.special[id(base)] = base, special_names(base)

    def without(self, made: Collection[type]) -> ClassLookups:
        """The same, with what was looked up on classes that only the trace has told of the existing classes behind them."""
        kept = ClassLookups()
        templates = set(map(id, made))
        for (key, name), (cls, owner, static) in self.found.items():
            if key not in templates:
                kept.found[key, name] = cls, owner, static
                continue
            for base in _mro_of(cls)[1:]:
                if id(base) not in templates:
                    found, has = find(base, name)
                    kept.add(base, name, has, found)
                if base is owner:
                    break
        kept.special = {key: met for key, met in self.special.items() if key not in templates}
        for cls, _ in self.orders.values():
            for base in _mro_of(cls) or () if id(cls) in templates else (cls,):
                if id(base) not in templates:
                    kept.meet(base)
        return kept

    def sealed(self) -> SealedLookups:
        """The same, for an entry."""
        return SealedLookups(
            tuple(
                (held(cls), name, held(owner), held_in_parts(static)) for (_, name), (cls, owner, static) in self.found.items()
            ),
            tuple((held(cls), tuple(map(held, order))) for cls, order in self.orders.values()),
            tuple((held(cls), {n: held_in_parts(value) for n, value in names.items()}) for cls, names in self.special.values()),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class SealedLookups:
    """Lookups as an entry keeps them: nothing that may die is kept alive. `found`: class, name, the class that has it, what it is;
    `orders` and `special`: class, and its resolution order or special names."""

    found: tuple[tuple[Any, str, Any, Any], ...]
    orders: tuple[tuple[Any, tuple[Any, ...]], ...]
    special: tuple[tuple[Any, dict[str, Any]], ...]

    def classes(self) -> list[Any]:
        """The classes that were looked up on, each once, as they are held."""
        asked = [*(cls for cls, *_ in self.found), *(cls for cls, _ in self.orders)]
        return list({id(there(cls)): cls for cls in asked if is_held(cls)}.values())

    def changed(self) -> str | None:
        """The first lookup that would give something else now."""
        if not all(is_held(cls) for rows in (self.found, self.orders, self.special) for cls, *_ in rows):
            return "what is gone"
        for cls, name, owner, static in self.found:
            now, has = find(there(cls), name)
            if not is_there(owner, has) or (is_descriptor(now) if static is _BINDS_TO_NOTHING else not is_there(static, now)):
                return f"{there(cls).__qualname__}.{name}"
        for cls, order in self.orders:
            now = _mro_of(there(cls)) or ()
            if len(now) != len(order) or not all(map(is_there, order, now)):
                return f"{there(cls).__qualname__}.__bases__"
        for cls, names in self.special:
            now = special_names(there(cls))
            if now.keys() != names.keys() or not all(is_there(names[name], now[name]) for name in names):
                return f"a special method of {there(cls).__qualname__}"
        return None

    def hold(self) -> bool:
        """Whether all lookups give the same."""
        return self.changed() is None

    def native(self) -> Any:
        """The check for the native program."""
        return _C.ClassVersions(tuple(self.classes()), self.hold)

    def __repr__(self) -> str:
        named = [(cls, f".{name}") for cls, name, *_ in self.found] + [(cls, "") for cls, _ in self.orders]
        return ", ".join(f"{there(cls).__qualname__}{name}" for cls, name in named if is_held(cls))


@dataclasses.dataclass(frozen=True, eq=False)
class Stored:
    """Stands in a class for what the traced program stored there, which is not in place yet and is no descriptor."""

    value: Any


def is_descriptor(static: Any) -> bool:
    """Whether a class attribute says itself what it is on an instance."""
    return defines(type(static), *DESCRIPTOR_METHODS)


def special_names(cls: type) -> dict[str, Any]:
    """What a class itself has under names such as `__init__`."""
    attributes = attributes_of(cls)
    if not all(type(n) is str for n in attributes):
        raise BreakGraph(
            "attribute_unknown", f"{cls.__qualname__} has attributes under what is no str, and asks those at each lookup"
        )
    names = [n for n in attributes if n[:2] == "__" == n[-2:] and n not in _WRITTEN_BY_PYTHON]
    return {name: attributes[name] for name in names}


def find(cls: type, name: str) -> tuple[Any, type | None]:
    """(what the MRO of cls holds under name, the class that has it)."""
    for owner in _mro_of(cls) or ():  # there is none while the metaclass computes it
        attributes = attributes_of(owner)
        if name in attributes:
            return attributes[name], owner
    return NO_ATTRIBUTE, None


def defines(cls: type, *names: str) -> bool:
    """Whether the MRO of cls has one of the names, where Python looks for special methods: a metaclass's __getattr__ is not asked."""
    return any(name in attributes_of(owner) for owner in _mro_of(cls) or () for name in names)


def class_attribute(cls: type, name: str) -> Any:
    """What the MRO of cls holds under name, descriptors not applied. Raises AttributeError."""
    found, owner = find(cls, name)
    if owner is None:
        raise AttributeError(name)
    return found


def lookup_class(cls: type, name: str) -> tuple[Any, Any]:
    """(what the MRO of cls holds under name, the class that has it); (NO_ATTRIBUTE, None) when there is none. Guarded."""
    meet(cls)
    static, owner = find(cls, name)
    seen = getattr(_current, "lookups", None)
    if seen is not None:
        seen.add(cls, name, owner, static)
        for base in _mro_of(cls) or () if seen.stored else ():
            if (id(base), name) in seen.stored:
                return seen.stored[id(base), name], base
            if base is owner:
                break
    return static, owner


def store(cls: type, name: str, value: Any) -> None:
    """Lookups find `value` in the class from here on."""
    _current.lookups.stored[id(cls), name] = Stored(value)


def is_stored_to(cls: type) -> bool:
    """Whether anything was stored in the class itself."""
    return any(key == id(cls) for key, _ in _current.lookups.stored)


def resolution_order(cls: type) -> tuple[type, ...]:
    """The MRO of a class, empty while its metaclass computes it. Guarded."""
    meet(cls)
    return _mro_of(cls) or ()


def meet(cls: type) -> None:
    """The bases and special names of a class are guarded from here on."""
    seen = getattr(_current, "lookups", None)
    if seen is not None:
        seen.meet(cls)


@contextlib.contextmanager
def recorded_lookups(lookups: ClassLookups) -> Iterator[None]:
    """Lookups of this thread go to `lookups`."""
    outer = getattr(_current, "lookups", None)
    _current.lookups = lookups
    try:
        yield
    finally:
        _current.lookups = outer
