"""MutationLog: what the traced program did to objects that exist outside it, and the statements that do it again.

An entry has a key and a `write(emit)`; a second entry with the same key replaces the first and goes to the end. Contents of
containers and attributes are written in their final state, calls (a print, a log line) one by one. So the order of entries is
the program's order of last writes, and every entry sees the same final objects. But an attribute that is stored again stays where
it was, as it does in the instance's dict.
"""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from .. import _C
from ..guards.classes import attributes_of, defines, lookup_class, resolution_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..values.protocol.value import Emitter, Value

    Key = tuple[Any, ...]
    """Which effect it is; the first item is its kind."""
    Write = Callable[[Emitter], object]


class MutationLog:
    """The side effects of one capture."""

    def __init__(self) -> None:
        self.entries: dict[Key, Write] = {}
        self.written: dict[
            Key, tuple[Value, str, Value]
        ] = {}  # key of an attribute -> where it was stored last, its name, its value
        self.stored: dict[Key, int] = {}  # key of an attribute that was stored -> the calls before that
        self.deleted: dict[Key, Write] = {}  # key of an attribute that was deleted -> the entry that deletes it
        self.keep: list[Any] = []  # Values that are changed, and calls as (function, args, kwargs)
        self.results: dict[int, Value] = {}
        self.calls = 0
        self.changes = 0  # how often anything was added

    def __len__(self) -> int:
        return len(self.entries)

    def end(self) -> None:
        """The attempt is over: drops the user's objects."""
        self.entries.clear()
        self.written.clear()
        self.keep.clear()

    def effect(self, key: Key, write: Write) -> None:
        """Adds an entry; `write(emit)` emits its statements."""
        self.changes += 1
        self.entries.pop(key, None)
        self.stored.pop(key, None)
        self.entries[key] = write

    def drop(self, key: Key) -> None:
        """Takes an entry back."""
        self.changes += 1
        self.entries.pop(key, None)
        self.stored.pop(key, None)

    def changed(self) -> list[Any] | None:
        """The values whose contents or attributes entries change, or that calls are made with, and the objects that are called; None where
        one is not known."""
        if not {key[0] for key in self.entries} <= {"attribute", "contents", "call", "cell", "global"}:
            return None
        found: list[Any] = []
        for kept in self.keep:
            if isinstance(kept, tuple):
                function, args, kwargs = kept
                found += [function, getattr(function, "__self__", None), *args, *(kwargs or {}).values()]
            elif issubclass(kept.python_type(), type):  # which its instances, subclasses and theirs show, too
                return None
            else:
                found.append(kept)
        return found

    def described(self, is_as_before: Callable[[Value, str, Value], bool]) -> tuple[str, ...]:
        """Each entry in a few words, but for attributes that end with the value that they had: is_as_before(owner, name, value)."""
        places = {id(v): v.source or v.describe() for v in self.keep if not isinstance(v, tuple)}
        calls = [function for function, *_ in filter(lambda kept: isinstance(kept, tuple), self.keep)]
        texts = []
        for kind, *rest in self.entries:
            if kind == "attribute":
                if (key := (kind, *rest)) in self.written and is_as_before(*self.written[key]):
                    continue
                texts.append(f"sets {places.get(rest[0], 'an object')}.{rest[1]}")
            elif kind == "contents":
                texts.append(f"changes what is in {places.get(rest[0], 'a container')}")
            elif kind == "call" and rest[0] <= len(calls):
                texts.append(f"calls {getattr(calls[rest[0] - 1], '__qualname__', 'a function')}")
            else:
                texts.append(f"changes a {kind}")
        return tuple(dict.fromkeys(texts))

    def contents(self, value: Value) -> None:
        """The contents of an existing container changed; the value knows how to replay them."""
        self.changes += 1
        self.keep.append(value)
        self.entries.setdefault(("contents", id(value)), value.replay)

    def attribute(self, target: Value, name: str, value: Value) -> None:
        """target.name = value on an existing object."""
        self.keep.append(target)

        key = ("attribute", id(target), name)
        self.written[key] = target, name, value
        deleted = self.deleted.get(key)

        def write(emit: Emitter) -> None:
            if deleted is not None:  # stored again it is behind the others in the instance's dict
                deleted(emit)
            write_attribute(emit, target, emit.load(target), name, value)

        if self.stored.get(key) == self.calls:
            self.changes += 1
            self.entries[key] = write
        else:
            self.effect(key, write)
            self.stored[key] = self.calls

    def attribute_of_result(self, target: Value, name: str, value: Value) -> None:
        """target.name = value on what the graph gives: done where somebody gets it."""
        self.attribute(target, name, value)
        self.results[id(target)] = target

    def deleted_attribute(self, target: Value, name: str, stored_before: bool) -> None:
        """del target.name on an existing object; stored_before: after a store, so that it may not be there when this is replayed."""
        self.keep.append(target)

        def write(emit: Emitter) -> None:
            owner = emit.load(target)
            if stored_before:
                emit.line(f"{emit.const(object)}.__setattr__({owner}, {name!r}, None)")
            emit.line(f"{emit.const(object)}.__delattr__({owner}, {name!r})")

        key = ("attribute", id(target), name)
        self.written.pop(key, None)
        self.effect(key, write)
        self.deleted[key] = write

    def call(self, function: Any, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> None:
        """A call to be made after the graph: function is a Python object, args are Values."""
        self.calls += 1
        self.keep.append((function, args, kwargs))

        def write(emit: Emitter) -> None:
            parts = [emit.load(a) for a in args] + [f"{k}={emit.load(v)}" for k, v in (kwargs or {}).items()]
            emit.line(f"{emit.const(function)}({', '.join(parts)})")

        self.effect(("call", self.calls), write)

    def replay(self, emit: Emitter) -> None:
        """Emits all entries but those on results."""
        for key, write in list(self.entries.items()):
            if not self._is_on_result(key):
                write(emit)

    def replay_on_results(self, emit: Emitter) -> None:
        """Emits what is set on results of the graph that somebody gets; nobody sees the others (gradients, say)."""
        left = [(self.results[key[1]], write) for key, write in self.entries.items() if self._is_on_result(key)]
        while ready := [entry for entry in left if emit.is_built(entry[0])]:
            left = [entry for entry in left if entry not in ready]
            for _, write in ready:
                write(emit)

    def _is_on_result(self, key: Key) -> bool:
        return key[0] == "attribute" and key[1] in self.results


def write_attribute(emit: Emitter, target: Value, owner: str, name: str, value: Value) -> None:
    """Stores past __setattr__: what a user-defined __setattr__ does was traced already."""
    base = next(
        c for c in resolution_order(target.python_type()) if type(attributes_of(c).get("__setattr__")) is WrapperDescriptorType
    )
    static, _ = lookup_class(target.python_type(), name)
    of_c = isinstance(static, MemberDescriptorType | GetSetDescriptorType)  # the store is its own: nothing of Python runs
    if not of_c and defines(type(static), "__set__"):  # the program stored past the descriptor
        emit.line(f"{emit.const(_C.instance_dict)}({owner})[{name!r}] = {emit.load(value)}")
    else:
        emit.line(f"{emit.const(base)}.__setattr__({owner}, {name!r}, {emit.load(value)})")
