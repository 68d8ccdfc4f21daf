"""set and frozenset."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

from ...errors import BreakGraph, NotPlain
from ...guards.kinds import COMPARE_FUNCTIONS
from ..protocol.calls import CALLS, Handler, method, methods
from ..protocol.constant import ConstantValue, literal
from ..protocol.finalizers import drop_reference, refuse_to_drop
from ..protocol.iteration import each_of, iterate_all
from ..protocol.keys import (
    IdentityKey,
    MethodKey,
    NumberKey,
    ReferenceKey,
    among,
    guard_tensors,
    hashed_here,
    is_input_tensor,
    key_of_existing,
    typed_key,
)
from ..protocol.kinds import AbstractInstance
from ..protocol.native import NativeValue
from ..protocol.operators import call_dunder, is_none_of, is_open_int
from ..protocol.pure import ordered_anew
from ..protocol.record_keys import RecordKey
from ..protocol.user_keys import UserKey, refuse_rebuilding_user_keys, refuse_user_keys
from ..protocol.value import EXISTING, NEW, Emitter, Frame, Value, builtin_part
from .mapping import DictValue
from .sequence import SequenceValue
from .table_iterators import SetIterator

NONE = ConstantValue(None)
RealSet = set[Any] | frozenset[Any]


@dataclass(frozen=True)
class Step:
    """A call of a method of sets, the first of several that of the class: with one of the members, a list or a dict of them, a set that
    `steps` make, the set itself, one that was there and was changed, whose order is not known, or nothing. What holds the members decides
    how much room they get, and so in which order the set has them."""

    name: str
    members: dict[Hashable, Value]
    form: str
    steps: tuple[Step, ...] = ()
    existing: SetValue | None = None  # the set itself that is given, which was there before and is as it was
    created_at: int = -1  # the step of the frame that asked for a set that was changed

    def real(self, made: RealSet | None = None) -> list[Any]:
        """The arguments for a call of a method of `made`, of objects that exist while tracing."""
        if self.form == "itself":
            return [made]
        if self.existing is not None:
            return [self.existing.as_it_was()]
        if self.form == "set":
            return [real_steps(set, self.steps)]
        keys = [real_key(hashed) for hashed in self.members]
        return {"item": keys, "list": [keys], "dict": [dict.fromkeys(keys)], "nothing": []}[self.form]

    def unknown_order(self) -> BreakGraph:
        """The break where the order of a set that was changed is needed: before it was asked for, which leaves it to plain Python."""
        stop = BreakGraph("cannot_rebuild", "a set that was made of one which was changed before")
        stop.created_at = self.created_at
        return stop

    def text(self, emit: Emitter, made: str = "") -> str:
        """The arguments for a call of a method of `made` as an expression."""
        if self.form == "itself":
            return made
        if self.form == "changed":
            raise self.unknown_order()
        if self.existing is not None:
            self.existing.as_it_was()
            return emit.load(self.existing)
        if self.form == "set":
            return text_of_steps(emit, set, self.steps)
        members = ", ".join(map(emit.load, self.members.values()))
        return {"list": f"[{members}]", "dict": f"{emit.const(dict)}.fromkeys([{members}])"}.get(self.form, members)


def real_steps(cls: type, steps: tuple[Step, ...]) -> RealSet:
    """The set that these calls make."""
    first, *others = steps
    made: RealSet = cls(*first.real())
    for step in others:
        given = getattr(made, step.name)(*step.real(made))
        made = made if given is None else given
    return made


def text_of_steps(emit: Emitter, cls: type, steps: tuple[Step, ...]) -> str:
    """Expression of the set that these calls make."""
    first, *others = steps
    made = f"{emit.known(cls)}({first.text(emit)})"
    for step in others:
        made = emit.temp(made)
        call = f"{made}.{step.name}({step.text(emit, made)})"
        if step.name in CHANGING:
            emit.line(call)
        else:
            made = call
    return made


def of_a_changed_set(steps: tuple[Step, ...]) -> Step | None:
    """The step in which one that was there and was changed became part of a set; None where none did."""
    for step in steps:
        found = step if step.form == "changed" else of_a_changed_set(step.steps)
        if found is not None:
            return found
    return None


def alike(made: RealSet, other: RealSet) -> bool:
    """Whether two real sets lie in tables of one size in the same order."""
    return list(made) == list(other) and sys.getsizeof(made) == sys.getsizeof(other)


class AbstractView(Value):
    """A view of a mapping (dict_views.py): a set is made of what it shows without iterating over it."""

    is_set: bool
    """Whether operators of sets take it as one."""

    def as_set(self, frame: Frame) -> SetValue:
        """A new set of what it shows."""
        raise NotImplementedError


class SetValue(NativeValue):
    """A set: hash key -> member Value. An existing set of constants is guarded as a whole when it is wrapped.

    Python iterates over a set in an order that follows from hashes and from all that was done to the set. `order` is a real set
    to which the same was done; None when that is not to be had, and then nothing may depend on the order. `steps` are what was done
    to a new set, and what changed an existing one. Which input tensors are in a new set is guarded once something depends on it.
    """

    rows = (set,)
    owner = None  # the object of a subclass that this is the built-in part of

    def __init__(
        self,
        frame: Frame,
        members: Iterable[Value],
        source: Any = None,
        cls: type = set,
        order: RealSet | None = None,
        steps: tuple[Step, ...] | None = None,
    ) -> None:
        super().__init__(source)
        self.cls, self.memory = cls, frame.memory
        self.members: dict[Hashable, Value] = {}
        self.structure = 0  # counts changes, for the iterators
        self.unidentified: dict[int, Value] = {}  # the input tensors that are, or were, in it, where no guard says which they are
        self.mutability = None if cls is frozenset else NEW if source is None else EXISTING
        for member in members:
            self.members.setdefault(self.hashed(frame, member), member)
        self.order = order if order is not None else real_set(cls, self.members)
        self.steps = steps or (() if source is not None else (Step("", self.members, "list"),))

    def hashed(self, frame: Frame, member: Value) -> Any:
        """The hash key of a member."""
        if self.source is not None or not is_input_tensor(member):
            return among(frame, hashed_here(frame, member), self.members, self.source is not None)
        self.unidentified[id(member)] = member
        return typed_key(frame, member)

    def pin(self, frame: Frame) -> None:
        """Guards which input tensors the set has: their order, or another container, is asked for."""
        for member in self.unidentified.values():
            guard_tensors(frame, member)
        self.unidentified = {}

    def held(self) -> Iterable[Any]:
        return self.members.values()

    def as_plain(self) -> Any:
        if self.order is None or self.unidentified:
            raise NotPlain(self)
        if self.mutability is not NEW:
            return self.order
        native: Any = self.cls  # past what the class of an existing set has
        made: RealSet = native.copy(self.order)
        if not alike(made, self.order):  # a copy may have another order
            made = real_steps(self.cls, self.steps)
        if not alike(made, self.order):
            raise NotPlain(self)
        return made

    def truth(self, frame: Frame) -> bool:
        return bool(self.members)

    def length(self, frame: Frame) -> Value:
        return ConstantValue(len(self.members))

    def unpack(self, frame: Frame) -> list[Value]:
        if len(self.members) < 2:
            return list(self.members.values())
        self.pin(frame)
        if self.order is None:
            return frame.break_graph("iterator_unsupported", "the order of a set of new objects, or of a set that was changed")
        self.ask_order()
        known = [self.members.get(key_of_existing(key)) for key in self.order]
        found = [member for member in known if member is not None]
        if len(found) < len(known):
            return frame.break_graph("iterator_unsupported", "the order of a set of objects that compare by their contents")
        return found

    def ask_order(self) -> None:
        """Something depends on the order that sets of these members have in this process."""
        if len(self.members) > 1 and (self.order is None or ordered_anew(self.order)):
            self.memory.only_now = "the order of a set is another one in each process"

    def in_any_order(self) -> list[Value] | None:
        """The members, where they are ints or texts, of which no two are sorted alike; else None."""
        members = list(self.members.values())
        kinds = {type(m.constant()) if m.is_constant() else None for m in members}
        return members if kinds <= {int} or kinds <= {str} else None

    def iterate(self, frame: Frame) -> Value:
        return SetIterator(self, self.unpack(frame), frame.progress.step)

    def contains(self, frame: Frame, item: Value) -> Value:
        if is_open_int(item) and is_none_of(frame, item, list(self.members.values())):
            return ConstantValue(False)
        return ConstantValue(member_key(frame, self, item) in self.members)

    def hash_key(self, frame: Frame) -> Any:
        if self.cls is frozenset:
            self.pin(frame)
            return frozenset(self.members)
        return super().hash_key(frame)

    def changed(self, frame: Frame, members: dict[Hashable, Value], step: Step) -> None:
        """New contents, and what makes them of the old ones."""
        if self.mutability is EXISTING:
            for key in self.members.keys() - members.keys():
                if self.members[key].mutability is NEW:
                    refuse_to_drop(frame, self.members[key])
            if self.members.keys() - members.keys() and self.order is not None:
                drop_reference(frame, self.order, self.source, True)
        if members.keys() != self.members.keys():
            self.structure += 1
        if self.mutability is EXISTING:
            refuse_user_keys(frame, [*members, *self.members])
        self.members = members
        self.steps += (step,)
        if self.mutability is EXISTING:
            self.order = None
            frame.mutations.contents(self)
        elif self.order is not None:
            getattr(self.cls, step.name)(self.order, *step.real(self.order))

    def take(self, frame: Frame, hashed: Hashable) -> None:
        """Without the member of this key."""
        kept = {k: m for k, m in self.members.items() if k != hashed}
        self.changed(frame, kept, Step("discard", {hashed: self.members[hashed]}, "item"))

    def as_it_was(self) -> RealSet:
        """The set that was there before; breaks where the program has changed it since."""
        if self.order is None:
            raise BreakGraph("cannot_rebuild", "a set that was made of one which was changed afterwards")
        return self.order

    def construction_steps(self, frame: Frame) -> tuple[Step, ...]:
        """The steps that make a new set like this one."""
        return self.steps if self.source is None else (step_of(frame, "", self),)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name not in OF_ONE_MEMBER:
            self.pin(frame)
            args = args if name == "isdisjoint" else [set_part(arg) for arg in args]
        if self.cls is frozenset and name in CHANGING:
            return call_dunder(frame, self, name, args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if isinstance(other, AbstractView):  # no set to the operators of sets
            self.pin(frame)
            return other.binary(frame, op, self, not reverse)
        other_set = as_set(frame, other, strict=True)
        if other_set is None:
            return None
        self.pin(frame)
        if op in OPERATORS:
            left, right = (other_set, self) if reverse else (self, other_set)
            return CALLS[set, OPERATORS[op]].handler(frame, left, right)
        if op[:-1] in OPERATORS and not reverse and self.cls is set:
            CALLS[set, IN_PLACE[OPERATORS[op[:-1]]]].handler(frame, self, other_set)
            return self
        return None

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        other_set = as_set(frame, other, strict=True)
        if other_set is None:
            return None
        self.pin(frame)
        return ConstantValue(COMPARE_FUNCTIONS[op](self.members.keys(), other_set.members.keys()))

    def reload(self, emit: Emitter) -> str:
        refuse_rebuilding_user_keys(self.members)
        self.ask_order()  # the calls that make it are chosen, and their arguments ordered, by that of this process
        steps: tuple[Step, ...] = (Step("", self.members, "list"),)
        if self.unidentified or of_a_changed_set(self.steps) is not None:
            return text_of_steps(emit, self.cls, self.steps)
        leaves_gaps = any(step.name in ("discard", "difference_update", "symmetric_difference_update") for step in self.steps)
        if self.order is not None and (leaves_gaps or not alike(real_steps(self.cls, steps), self.order)):
            steps = self.steps
            self.check_order(real_steps(self.cls, steps))
        return text_of_steps(emit, self.cls, steps)

    def check_order(self, made: RealSet) -> None:
        """Breaks where a set that is made anew has its members in another order."""
        if self.order is not None and list(made) != list(self.order):
            raise BreakGraph("cannot_rebuild", "a set in an order that follows from what was done to another one")

    def refill(self, emit: Emitter, name: str) -> None:
        """Puts the members into the new, empty instance of a subclass of set that `name` is."""
        lost = of_a_changed_set(self.steps)
        if lost is not None:
            raise lost.unknown_order()
        self.ask_order()
        members = f"[{', '.join(map(emit.load, self.members.values()))}]"
        if self.order is not None and list(set(map(real_key, self.members))) != list(self.order):
            members = self.reload(emit)
            self.check_order(set(real_steps(set, self.steps)))
        refuse_rebuilding_user_keys(self.members)
        emit.line(f"{emit.const(set)}.update({name}, {members})")

    def replay(self, emit: Emitter) -> None:
        """Does to the existing set what the program does to it."""
        name = emit.temp(emit.source(self.source))
        if any(step.form not in ("item", "nothing") for step in self.steps):
            self.ask_order()
        for step in self.steps:
            emit.line(f"{emit.const(set)}.{step.name}({', '.join(filter(None, (name, step.text(emit, name))))})")


def set_part(value: Value) -> Value:
    """The built-in set of an instance of a subclass, which functions of sets read past what the class overrides; else the value."""
    part = builtin_part(value)
    return part if isinstance(part, SetValue) else value


def makes_of_subclass(made_of: SetValue, name: str, args: list[Value]) -> bool:
    """Whether the method of an instance of a subclass of set or frozenset gives one of that class, and not the built-in one: with some it
    depends on the number of members. Tried out on sets of as many."""
    native, count = made_of.cls, len(made_of.members)
    like = _LIKE[native](range(count))
    others: list[Any] = []
    for arg in args:
        given = arg.cls(range(len(arg.members))) if isinstance(arg, SetValue) else []
        others.append(like if arg is made_of else given)
    return type(getattr(like, name)(*others)) is _LIKE[native]


_LIKE: dict[type, type] = {native: type("Like", (native,), {}) for native in (set, frozenset)}


def real_key(hashed: Hashable) -> Any:
    """The object whose hash orders a set.

    Raises:
        NotPlain: it does not exist while tracing.
    """
    if isinstance(hashed, IdentityKey):
        hashed = hashed.obj
    elif isinstance(hashed, tuple):
        return tuple(map(real_key, hashed))
    elif isinstance(hashed, ReferenceKey) and hashed.value is None:
        return hashed.reference
    if isinstance(hashed, (Value, frozenset, MethodKey, NumberKey, RecordKey, ReferenceKey, UserKey)):
        raise NotPlain(hashed)
    return hashed


def real_set(cls: type, members: Iterable[Hashable]) -> RealSet | None:
    """A real set of the members, added one by one; None when they do not exist while tracing."""
    try:
        made: RealSet = cls([real_key(hashed) for hashed in members])
        return made
    except NotPlain:
        return None


def member_key(frame: Frame, owner: SetValue, item: Value) -> Any:
    """The hash key of a member that is looked for in a set; a set stands for the frozenset that equals it."""
    part = builtin_part(item)
    if part is not item and getattr(item.python_type(), "__hash__", None) not in (None, frozenset.__hash__):
        return owner.hashed(frame, item)
    if isinstance(part, SetValue):
        part.pin(frame)
        owner.pin(frame)
        return frozenset(part.members)
    return owner.hashed(frame, item)


def as_set(frame: Frame, value: Value, strict: bool = False) -> Any:
    """A SetValue of any iterable; with `strict` only of sets and dict views, else None."""
    value = set_part(value)
    if isinstance(value, SetValue):
        value.pin(frame)
        return value
    if isinstance(value, AbstractView) and not (strict and not value.is_set):
        return value.as_set(frame)
    return None if strict else SetValue(frame, iterate_all(frame, value))


OF_ONE_MEMBER = frozenset(("add", "discard", "remove", "__contains__", "__len__"))
CHANGING = frozenset(
    "add discard remove pop clear update intersection_update difference_update symmetric_difference_update __init__".split()
)


@method(set, "add")
def add(frame: Frame, self: SetValue, item: Value) -> Value:
    hashed = self.hashed(frame, item)
    if hashed not in self.members:
        if self.order is not None and real_set(set, [hashed]) is None:
            self.order = None
        self.changed(frame, {**self.members, hashed: item}, Step("add", {hashed: item}, "item"))
    return NONE


@method(set, "discard")
def discard(frame: Frame, self: SetValue, item: Value) -> Value:
    hashed = member_key(frame, self, item)
    if hashed in self.members:
        self.take(frame, hashed)
    return NONE


@method(set, "remove")
def remove(frame: Frame, self: SetValue, item: Value) -> Value:
    if member_key(frame, self, item) not in self.members:
        return frame.raise_new(KeyError, item)
    return discard(frame, self, item)


@method(set, "pop")
def pop(frame: Frame, self: SetValue) -> Value:
    if not self.members:
        return frame.raise_new(KeyError, "pop from an empty set")
    if self.mutability is EXISTING or self.order is None:
        return frame.break_graph("call_unknown", "set.pop takes an arbitrary member")
    self.ask_order()
    native: Any = self.cls
    hashed = key_of_existing(native.pop(self.order))
    found = self.members[hashed]
    self.take(frame, hashed)
    return found


@method(set, "clear")
def clear(frame: Frame, self: SetValue) -> Value:
    self.changed(frame, {}, Step("clear", {}, "nothing"))
    return NONE


@method(set, "__init__")
def init(frame: Frame, self: SetValue, *others: Value) -> Value:
    clear(frame, self)
    return update(frame, self, *others)


@method(set, "copy")
def copy(frame: Frame, self: SetValue) -> SetValue:
    self.pin(frame)
    if self.cls is frozenset:
        return self
    made = SetValue(frame, self.members.values(), cls=set, steps=(*self.construction_steps(frame), Step("copy", {}, "nothing")))
    made.order = None if self.order is None else self.cls.copy(self.order)  # type: ignore[attr-defined]
    return made


def step_with(frame: Frame, name: str, other: Value, made: SetValue) -> tuple[Step, SetValue, bool]:
    """The call of a method of `made` with another container; its members as a SetValue; whether they exist while tracing."""
    given = as_set(frame, other)
    if other is made:
        return Step(name, given.members, "itself"), given, given.order is not None
    if isinstance(other, SetValue):
        given.pin(frame)
        return step_of(frame, name, given), given, given.order is not None
    form = "dict" if is_plain_dict(other) else "list"
    return Step(name, given.members, form), given, real_set(set, given.members) is not None


def step_of(frame: Frame, name: str, given: SetValue) -> Step:
    """The call of a method with a set."""
    if given.source is not None:
        if given.order is None:
            return Step(name, given.members, "changed", created_at=frame.progress.step)
        return Step(name, given.members, "set", existing=given)
    return Step(name, given.members, "set" if given.source is None else "list", given.steps)


def combine(self: SetValue, given: SetValue, name: str, of_sets: bool) -> dict[Hashable, Value]:
    """The members of self.name(given)."""
    left, right = self.members, given.members
    if (
        name == "intersection"
    ):  # of equal members those of the second; those of the first where both are sets and the second has more
        walked, other = (left, right) if of_sets and len(right) > len(left) else (right, left)
        return {k: m for k, m in walked.items() if k in other}
    kept = left if name == "union" else {k: m for k, m in left.items() if k not in right}
    return kept if name == "difference" else {**kept, **{k: m for k, m in right.items() if k not in left}}


def members_of(frame: Frame, value: Value) -> list[Value]:
    """The members of an iterable in its order."""
    return value.unpack(frame) if isinstance(value, (SetValue, AbstractView)) else iterate_all(frame, value)


def new_set(frame: Frame, cls: type, given: Value) -> SetValue:
    """cls(given), in Python's order: that of a copied set, of a dict's keys, or of members added one by one."""
    given = set_part(given)
    if isinstance(given, SetValue):
        if cls is frozenset is given.cls and given.owner is None:
            return given
        given.pin(frame)
        made = SetValue(frame, given.members.values(), cls=cls, steps=(step_of(frame, "", given),))
        made.order = None if given.order is None else cls(given.order)
        return made
    made = SetValue(frame, members_of(frame, given), cls=cls)
    if is_plain_dict(given):
        made.steps = (Step("", made.members, "dict"),)
        made.order = None if made.order is None else real_steps(cls, made.steps)
    return made


def is_plain_dict(value: Value) -> TypeGuard[DictValue]:
    """Whether a set makes room for all keys at once: of a dict, not of a subclass."""
    return isinstance(value, DictValue) and value.python_type() is dict and value.owner is None


def combining(name: str) -> Handler:
    """The four operations that give a new set."""

    def handler(frame: Frame, self: SetValue, *others: Value) -> Value:
        self.pin(frame)
        made = self if others else copy(frame, self)
        if len(others) > 1 and self.cls is frozenset:
            return frame.break_graph("builtin_unsupported", f"frozenset.{name} of several others")
        for number, other in enumerate(others):
            if number and name in ("union", "difference"):  # they change the set that the first other gave
                if other is self and name == "union":  # which is passed over
                    continue
                CALLS[set, IN_PLACE[name]].handler(frame, made, other)
                continue
            step, given, exists = step_with(frame, name, other, made)
            order = getattr(made.cls, name)(made.order, *step.real(made.order)) if exists and made.order is not None else None
            members = combine(made, given, name, isinstance(other, SetValue))
            made = SetValue(frame, members.values(), cls=self.cls, order=order, steps=(*made.construction_steps(frame), step))
            made.order = order
        return made

    return handler


def updating(name: str, real_name: str) -> Handler:
    """The four operations that change the set."""

    def handler(frame: Frame, self: SetValue, *others: Value) -> Value:
        for other in others:
            if name == "union" and not isinstance(other, (SetValue, AbstractView, DictValue, SequenceValue)):
                for item in each_of(frame, other):
                    add(frame, self, item)
                continue
            step, given, exists = step_with(frame, real_name, other, self)
            if not exists:
                self.order = None
            self.changed(frame, combine(self, given, name, True), step)
        return NONE

    return handler


OPERATORS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
IN_PLACE = {
    "union": "update",
    "intersection": "intersection_update",
    "difference": "difference_update",
    "symmetric_difference": "symmetric_difference_update",
}
for _name, _changing in IN_PLACE.items():
    method(set, _name)(combining(_name))
    method(set, _changing)(updating(_name, _changing))
update = CALLS[set, "update"].handler


def comparing(op: str) -> Handler:
    """issubset and issuperset, which take any iterable."""

    def handler(frame: Frame, self: SetValue, other: Value) -> Value:
        return ConstantValue(COMPARE_FUNCTIONS[op](self.members.keys(), as_set(frame, other).members.keys()))

    return handler


methods(set, {"issubset": comparing("<="), "issuperset": comparing(">=")})


@method(set, "isdisjoint")
def isdisjoint(frame: Frame, self: SetValue, other: Value) -> Value:
    if isinstance(other, AbstractInstance):  # instances of own classes of sets are iterated over, too
        return ConstantValue(not any(self.contains(frame, item).truth(frame) for item in each_of(frame, other)))
    return literal(frame, self.members.keys().isdisjoint(as_set(frame, other).members.keys()))
