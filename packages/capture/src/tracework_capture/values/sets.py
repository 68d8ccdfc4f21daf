"""set and frozenset."""

from __future__ import annotations

from .constant import ConstantValue, literal, plain
from .value import EXISTING, NEW, Value

NONE = ConstantValue(None)


class SetValue(Value):
    """A set: hash key -> member Value. An existing set of constants is guarded as a whole when it is wrapped."""

    def __init__(self, frame, members, source=None, cls=set):
        super().__init__(source)
        self.cls = cls
        self.members = {}
        for member in members:
            self.members.setdefault(member.hash_key(frame), member)
        self.mutability = None if cls is frozenset else NEW if source is None else EXISTING

    def python_type(self):
        return self.cls

    def as_plain(self):
        return self.cls(plain(m) for m in self.members.values())

    def truth(self, frame):
        return bool(self.members)

    def length(self, frame):
        return ConstantValue(len(self.members))

    def unpack(self, frame):
        return list(self.members.values())

    def iterate(self, frame):
        from .generator import SequenceIterator

        return SequenceIterator(self.unpack(frame))

    def contains(self, frame, item):
        return ConstantValue(item.hash_key(frame) in self.members)

    def hash_key(self, frame):
        if self.cls is frozenset:
            return frozenset(self.members)
        return frame.raise_new(TypeError, "unhashable type: 'set'")

    def changed(self, frame):
        if self.mutability is EXISTING:
            frame.mutations.contents(self)

    def getattr(self, frame, name):
        from .user_object import attribute_of_builtin

        return attribute_of_builtin(frame, self, name)

    def call_method(self, frame, name, args, kwargs):
        handler = METHODS.get(name)
        if handler is not None:
            return handler(frame, self, *args, **kwargs)
        from .builtins.arithmetic import call_dunder

        return call_dunder(frame, self, name, args, kwargs)

    def binary(self, frame, op, other, reverse=False):
        other_set = as_set(frame, other, strict=True)
        if other_set is None:
            return None
        names = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
        if op in names:
            left, right = (other_set, self) if reverse else (self, other_set)
            return METHODS[names[op]](frame, left, right)
        if op[:-1] in names and not reverse and self.cls is set:
            self.members = METHODS[names[op[:-1]]](frame, self, other_set).members
            self.changed(frame)
            return self
        return None

    def compare(self, frame, op, other):
        other_set = as_set(frame, other, strict=True)
        if other_set is None:
            return None
        left, right = self.members.keys(), other_set.members.keys()
        answers = {
            "==": left == right,
            "!=": left != right,
            "<": left < right,
            "<=": left <= right,
            ">": left > right,
            ">=": left >= right,
        }
        return ConstantValue(answers[op])

    def same_object(self, other):
        return self is other

    def reload(self, emit):
        return f"{emit.const(self.cls)}([{', '.join(emit.load(m) for m in self.members.values())}])"

    def replay(self, emit):
        """Brings the existing set to the traced state."""
        name = emit.temp(emit.source(self.source))
        emit.line(f"{name}.clear()")
        emit.line(f"{name}.update([{', '.join(emit.load(m) for m in self.members.values())}])")


def as_set(frame, value, strict=False):
    """A SetValue of any iterable; with `strict` only of sets and dict views, else None."""
    from .mapping import DictView
    from .wrap import iterate_all

    if isinstance(value, SetValue):
        return value
    if isinstance(value, DictView):
        return value.as_set(frame)
    return None if strict else SetValue(frame, iterate_all(frame, value))


METHODS = {}


def method(name):
    """Adds a row to METHODS."""

    def add(handler):
        METHODS[name] = handler
        return handler

    return add


@method("add")
def add(frame, self, item):
    self.members.setdefault(item.hash_key(frame), item)
    self.changed(frame)
    return NONE


@method("discard")
def discard(frame, self, item):
    self.members.pop(item.hash_key(frame), None)
    self.changed(frame)
    return NONE


@method("remove")
def remove(frame, self, item):
    if self.members.pop(item.hash_key(frame), None) is None:
        return frame.raise_new(KeyError, plain(item))
    self.changed(frame)
    return NONE


@method("pop")
def pop(frame, self):
    if not self.members:
        return frame.raise_new(KeyError, "pop from an empty set")
    return frame.break_graph("call_unknown", "set.pop takes an arbitrary member")


@method("clear")
def clear(frame, self):
    self.members.clear()
    self.changed(frame)
    return NONE


@method("copy")
def copy(frame, self):
    return SetValue(frame, self.members.values(), cls=self.cls)


@method("update")
def update(frame, self, *others):
    for other in others:
        for key, member in as_set(frame, other).members.items():
            self.members.setdefault(key, member)
    self.changed(frame)
    return NONE


@method("union")
def union(frame, self, *others):
    made = copy(frame, self)
    for other in others:
        made.members.update({k: m for k, m in as_set(frame, other).members.items() if k not in made.members})
    return made


@method("intersection")
def intersection(frame, self, *others):
    kept = self.members
    for other in others:
        there = as_set(frame, other).members
        kept = {k: m for k, m in kept.items() if k in there}
    return SetValue(frame, kept.values(), cls=self.cls)


@method("difference")
def difference(frame, self, *others):
    kept = self.members
    for other in others:
        there = as_set(frame, other).members
        kept = {k: m for k, m in kept.items() if k not in there}
    return SetValue(frame, kept.values(), cls=self.cls)


@method("symmetric_difference")
def symmetric_difference(frame, self, other):
    there = as_set(frame, other).members
    kept = [m for k, m in self.members.items() if k not in there] + [m for k, m in there.items() if k not in self.members]
    return SetValue(frame, kept, cls=self.cls)


@method("issubset")
def issubset(frame, self, other):
    return literal(frame, self.members.keys() <= as_set(frame, other).members.keys())


@method("issuperset")
def issuperset(frame, self, other):
    return literal(frame, self.members.keys() >= as_set(frame, other).members.keys())


@method("isdisjoint")
def isdisjoint(frame, self, other):
    return literal(frame, self.members.keys().isdisjoint(as_set(frame, other).members.keys()))


def set_of(frame, items):
    """A new set of values."""
    return SetValue(frame, items)
