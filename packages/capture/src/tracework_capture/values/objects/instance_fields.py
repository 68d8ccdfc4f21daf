"""What an instance holds: its __dict__, and the slots and other members that classes in C give it.

An existing object is read lazily from its source, a new one has only `fields`.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, NoReturn

from ... import _C
from ...atoms import ATOM_TYPES
from ...bytecode.facts import VERSION
from ...guards.classes import HEAP_TYPE, NO_ATTRIBUTE, lookup_class
from ...signals import let_through
from ...sources import Attr, InstanceAttr, InstanceDict, Member, Source
from ..plain.instance_dict import InstanceDictValue
from ..plain.sequence import NONE
from ..protocol.binding import DELETED, LOOKUP_HOOKS, SLOT, native_base
from ..protocol.constant import is_evaluated_lazily
from ..protocol.finalizers import drop_reference, may_have_died, refuse_to_drop
from ..protocol.kinds import AbstractInstance
from ..protocol.operators import index_of, is_atomic
from ..protocol.value import EXISTING, NEW, Frame, Value
from .exception import raise_no_attribute


def own_dict(obj: Any) -> dict[str, Any] | None:
    """The __dict__ of an object, past what its class makes of it; None where it has none."""
    try:
        return _C.instance_dict(obj)
    except AttributeError:
        return None


class InstanceFields(AbstractInstance):
    """An instance, past every descriptor and hook of its class."""

    is_unique = True
    two_phase = True
    is_holder = True
    part: Any  # a ListValue, DictValue ..., a ConstantValue, or None
    is_referred_to = False
    """Whether weak references to it were made here, which its __weakref__ gives."""

    def __init__(self, cls: type, obj: Any = None, source: Source | None = None, part: Any = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.obj = obj
        self.part = part
        if part is not None and not is_atomic(part):
            part.owner = self
        self.fields: dict[str, Value] = {}
        self.seen: dict[str, Value | None] = {}
        self.mutability = NEW if source is None else EXISTING

    def held(self) -> Iterable[Any]:
        return self.part, *self.fields.values()

    def identity(self, frame: Frame) -> Any:
        """The existing object, its identity guarded; None for a new one."""
        if self.obj is not None:
            frame.guard("IDENTITY", self.source, self.obj)
        return self.obj

    def as_index(self, frame: Frame) -> Value:
        has_index = lookup_class(self.python_type(), "__index__")[0] is not NO_ATTRIBUTE
        return index_of(frame, [self], {}) if has_index else self

    def instance_dict(self) -> dict[str, Any] | None:
        """The __dict__ of the existing object, or None."""
        return own_dict(self.obj) if self.obj is not None else None

    def has_hidden_dict(self) -> bool:
        """Whether the object has attributes of its own that its class shows no __dict__ of, as a ParamSpec of 3.12 and newer has."""
        return self.obj is not None and type(self.obj).__dictoffset__ != 0 and self.instance_dict() is None

    def field(self, frame: Frame, name: str) -> Value | None:
        """What the instance holds under name, or None."""
        if name in self.fields:
            held = self.fields[name]
            return None if held is DELETED else held
        if self.obj is None:
            return None
        if name in self.seen:
            return self.seen[name]
        attributes = self.instance_dict()
        found: Value | None = None
        if attributes is not None:
            if not self.seen:
                self.meet_dict(frame, attributes)
                if any(type(key) is not str for key in attributes):  # looking for a name may run code of the key
                    frame.break_graph("attribute_unknown", f"{name} of {self.describe()}, which has a key that is no str")
            if name in attributes:
                found = frame.wrap(attributes[name], InstanceAttr(self.source, name))
            else:
                frame.guard("DICT_LACKS", InstanceDict(self.source), name)
        self.seen[name] = found
        return found

    def meet_dict(self, frame: Frame, attributes: dict[str, Any]) -> None:
        """Whoever reaches the __dict__ of the existing object in another way finds these fields."""
        known = frame.memory.memo.setdefault(id(attributes), InstanceDictValue(self))
        if not isinstance(known, InstanceDictValue):
            frame.break_graph("attribute_unknown", f"attributes of {self.describe()}, whose __dict__ is used as a dict, too")

    def may_drop(self, frame: Frame, name: str) -> None:
        """What the existing object holds under a name goes."""
        if self.mutability is not EXISTING:
            return
        if name in self.fields:
            if self.fields[name] is not DELETED:
                refuse_to_drop(frame, self.fields[name])
            return
        slot, _ = lookup_class(self.cls, name)
        if type(slot) is SLOT:
            drop_reference(frame, self.obj, self.source, slot)
        elif self.instance_dict() is not None:
            drop_reference(frame, self.instance_dict(), InstanceDict(self.source), name)

    def set_field(self, frame: Frame, name: str, value: Value) -> None:
        """Stores into the instance, past every descriptor and __setattr__."""
        self.may_drop(frame, name)
        self.fields[name] = value
        if self.mutability is EXISTING:
            attributes = self.instance_dict()
            if attributes is not None:
                self.meet_dict(frame, attributes)
            frame.mutations.attribute(self, name, value)

    def native_attribute(self, frame: Frame, static: Any, name: str) -> Value:
        """A slot, or a getset of a C base class."""
        hidden = lookup_class(self.cls, name)[0] is not static  # by what super() passes over
        if name in self.fields and not hidden:
            found = self.fields[name]
            return self.empty_slot(frame, name) if found is DELETED else found
        if name == "__dict__":
            return InstanceDictValue(self)
        if name == "__weakref__":
            if self.mutability is NEW and not self.is_referred_to:
                return NONE
            known = self.obj is not None and self.part is None and not self.is_referred_to
            reference = static.__get__(self.obj, self.cls) if known else None
            if not known or reference is not None and may_have_died(frame, reference):
                return frame.break_graph("attribute_unknown", f"__weakref__ of {self.describe()}")
        part: Value | None = self.part
        if part is not None and is_atomic(part):
            return part.getattr(frame, name)
        if self.obj is None:
            if part is not None and lookup_class(native_base(self.cls), name)[0] is static:
                return part.getattr(frame, name)
            return self.empty_slot(frame, name) if type(static) is SLOT else self.only_c_knows(frame, name)
        if is_evaluated_lazily(self.obj, name):
            return frame.break_graph("attribute_unknown", f"{name} of {self.describe()} runs what the program wrote there")
        try:
            found = static.__get__(self.obj, self.cls)
        except AttributeError as error:
            if any(isinstance(lookup_class(self.cls, hook)[0], types.FunctionType) for hook in LOOKUP_HOOKS):
                return frame.break_graph("attribute_unknown", f"{name} of {self.describe()}, which is not set and may be made")
            if hidden:
                return frame.break_graph("attribute_unknown", f"{name} of a base of {self.describe()}, which is not set")
            frame.guard("LACKS_ATTR", self.source, name)
            return frame.raise_new(AttributeError, *error.args)
        except Exception as error:  # a released memoryview has no shape
            let_through(error)
            return frame.break_graph("attribute_unknown", f"{name} of {self.describe()}, which raises {type(error).__name__}")
        if type(found) not in (tuple, *ATOM_TYPES) and static.__get__(self.obj, self.cls) is not found:
            return frame.break_graph("attribute_unknown", f"{name} of {self.describe()}, which is another object each time")
        return frame.wrap(found, Member(self.source, static) if hidden else Attr(self.source, name))

    def no_attribute(self, frame: Frame, name: str, more: str = "") -> NoReturn:
        """Raises AttributeError, which knows what was asked for, and of which object."""
        raise_no_attribute(frame, self, name, f"'{_C.type_name(self.cls)}' object has no attribute '{name}'{more}")

    def only_c_knows(self, frame: Frame, name: str) -> Value:
        """What a base in C says of an instance that the graph has not made."""
        return frame.break_graph("attribute_unknown", f"{name} of a new {self.cls.__name__}")

    def empty_slot(self, frame: Frame, name: str) -> Value:
        """A slot is read in which nothing was stored: 3.13 says where the class was made."""
        cls = self.cls
        if VERSION >= (3, 13) and cls.__flags__ & HEAP_TYPE:
            place = "" if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}."
            raise_no_attribute(frame, self, name, f"'{place}{cls.__qualname__}' object has no attribute '{name}'")
        self.no_attribute(frame, name)

    def fills(self, frame: Frame, slot: Any, name: str) -> bool:
        """Whether there is something in a slot."""
        if name in self.fields or self.obj is None:
            return self.fields.get(name, DELETED) is not DELETED
        try:
            frame.wrap(slot.__get__(self.obj, self.cls), Attr(self.source, name))
        except AttributeError:
            frame.guard("LACKS_ATTR", self.source, name)
            return False
        return True
