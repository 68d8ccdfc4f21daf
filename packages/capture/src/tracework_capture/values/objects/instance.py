"""Instances of classes of the program: what operations do by the special methods of the class, as keys, as texts, after the graph.

A subclass of a built-in container has the container as its `part`; methods defined by the container act on that.
"""

from __future__ import annotations

import collections
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from ... import _C
from ...errors import NotPlain
from ...guards.classes import NO_ATTRIBUTE, attributes_of, defines, lookup_class
from ..plain.iterators import ItemIterator
from ..plain.mapping import DictValue
from ..plain.rows_copies import copy_of_subclass
from ..plain.sequence import TupleValue
from ..plain.sets import makes_of_subclass, set_part
from ..plain.str_repr import shown
from ..protocol.binding import ALIASES, ATOMS, C_METHODS, DELETED, GETSET, NATIVE_BASES, SLOT, bind_static, native_base
from ..protocol.calls import method_handler
from ..protocol.constant import ConstantValue, fold_literal, force_plain, implemented, plain
from ..protocol.iteration import each_of
from ..protocol.keys import IdentityKey
from ..protocol.kinds import holds_own_instance
from ..protocol.operators import call_dunder, compare, equal, is_atomic, is_operation, operand_of, past_its_class
from ..protocol.properties import function_value
from ..protocol.record_keys import key_of_parts, record_fields
from ..protocol.special_methods import COMPARE_SPECIAL, SPECIAL, UNARY_SPECIAL
from ..protocol.user_keys import hash_of, user_key
from ..protocol.value import Emitter, Frame, SymbolicRaise, Value, builtin_part
from .instance_attributes import InstanceAttributes
from .object_methods import opposite
from .refused_classes import refuse_class

NAMELESS = (dict, list, tuple, *ATOMS)
"""Built-in classes whose texts do not show the class of an instance."""
DEQUE_OPERATORS = frozenset(
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __add__ __mul__ __imul__ __getitem__ __setitem__ __delitem__".split()
)
"""Methods of deques that ask for their length, or go over them, as the class of an instance has it."""
RETURNS_SUBCLASS = (collections.deque, collections.OrderedDict, collections.defaultdict)
"""Containers that make more of the class of the instance, not all of them in the same methods."""


PART_LEAVES_TO_OBJECT = frozenset(
    "__setattr__ __delattr__ __getattribute__ __init_subclass__ __class__ __reduce__ __reduce_ex__ __getstate__ __sizeof__".split()
)
"""What follows from the class and the attributes of an instance, which its built-in part has not."""
LOOKED_UP_ON_INSTANCES = frozenset(
    "__new__ __init__ __init_subclass__ __class_getitem__ __set_name__ __getnewargs__ __getnewargs_ex__ __getstate__ __setstate__ "
    "__reduce__ __reduce_ex__ __copy__ __deepcopy__ __replace__ __getattr__ __setattr__ __delattr__ __dir__".split()
)
"""Methods of an instance that functions of C which take numbers, texts and tuples do not call."""


def behaves_as_its_part(cls: type, native: type) -> bool:
    """Whether what C computes of an instance of a subclass of `native` follows from its built-in part alone."""
    own = {n: static for c in cls.__mro__[: cls.__mro__.index(native)] for n, static in attributes_of(c).items()}
    return not any(
        name.startswith("__") and name not in LOOKED_UP_ON_INSTANCES and (callable(static) or defines(type(static), "__get__"))
        for name, static in own.items()
        if type(static) not in (GETSET, str)
    )


class ObjectValue(InstanceAttributes):
    """An instance of a class that has no Value class of its own."""

    def as_plain(self) -> Any:
        """What functions of C see of an instance of a subclass of a number, a text or a tuple."""
        native = native_base(self.cls)
        if native not in (*ATOMS, tuple) or not behaves_as_its_part(self.cls, native):
            raise NotPlain(self)
        return plain(self.part)

    def hash_key(self, frame: Frame) -> Any:
        hasher, _ = lookup_class(self.cls, "__hash__")
        if hasher is object.__hash__:
            return IdentityKey(self.identity(frame) if self.obj is not None else self)
        if hasher is None:
            return frame.raise_new(TypeError, f"unhashable type: '{_C.type_name(self.cls)}'")
        if self.part is not None and not isinstance(hasher, types.FunctionType):
            if isinstance(lookup_class(self.cls, "__eq__")[0], types.FunctionType):
                return user_key(frame, self)
            return self.part.hash_key(frame)
        names = record_fields(self.cls)
        if names is not None:
            found = key_of_parts(self.cls, names, [self.getattr(frame, name).hash_key(frame) for name in names])
            if found is not None:
                return found
        if isinstance(hasher, types.FunctionType):
            return user_key(frame, self)
        return frame.break_graph("operation_unknown", f"hash of {self.describe()}")

    def own_hash(self, frame: Frame) -> int | None:
        hasher, _ = lookup_class(self.cls, "__hash__")
        if isinstance(hasher, types.FunctionType):
            number = force_plain(frame, self.call_method(frame, "__hash__", [], {}))
            if not isinstance(number, int):
                return frame.raise_new(TypeError, "__hash__ method should return an integer")
            # what __hash__ gives is taken as it is where it fits, but for -1, which means an error
            fits = -sys.maxsize - 1 <= number <= sys.maxsize
            return hash(int(number)) if not fits else -2 if number == -1 else int(number)
        return hash_of(frame, self.part) if self.part is not None and hasher not in (None, object.__hash__) else None

    # --- special methods ----------------------------------------------------------------------------------------
    def special(self, frame: Frame, name: str, args: list[Value]) -> Value | None:
        """type(self).__name__(self, *args), or None when the class has no such method."""
        static, owner = lookup_class(self.cls, name)
        if static is NO_ATTRIBUTE:
            return None
        if static is None:
            return frame.break_graph("operation_unknown", f"{self.cls.__name__}.{name} is None")
        if isinstance(static, types.FunctionType):
            return function_value(frame, static).call(frame, [self, *args], {})
        if isinstance(static, C_METHODS):
            if owner is object:
                return None
            if self.part is None and owner not in NATIVE_BASES:
                return frame.break_graph("call_unknown", f"{owner.__module__}.{owner.__qualname__}.{name}")
            if (
                static.__objclass__ not in native_base(self.cls).__mro__[:-1]
            ):  # it raises, or is object's although the part has its own
                return frame.break_graph(
                    "call_unknown", f"{self.cls.__name__}.{name}, which is that of {static.__objclass__.__name__}"
                )
            return self.call_native(frame, static.__name__, args, {})
        return bind_static(frame, self, self.cls, owner, static, name).call(frame, list(args), {})

    def required(self, frame: Frame, name: str, args: list[Value], text: str) -> Value:
        found = self.special(frame, name, args)
        return frame.raise_new(TypeError, f"'{self.cls.__name__}' object {text}") if found is None else found

    def call_native(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A method that C defines: on the built-in part, or object's own."""
        row = method_handler(object, name)
        if issubclass(self.cls, types.SimpleNamespace):
            row = method_handler(types.SimpleNamespace, name) or row
        of_the_part = self.part is not None and name not in PART_LEAVES_TO_OBJECT
        if row is not None and not of_the_part:
            return row(frame, self, *args, **kwargs)
        if of_the_part and is_atomic(self.part):
            return self.call_atomic(frame, name, args, kwargs)
        native = native_base(self.cls)
        if of_the_part and native is collections.deque and name in DEQUE_OPERATORS:
            own = any(isinstance(lookup_class(self.cls, asked)[0], types.FunctionType) for asked in ("__iter__", "__len__"))
            if own or args and args[0].python_type() is slice:
                return frame.break_graph("call_unknown", f"{self.cls.__name__}.{name}, which goes over the deque in its own way")
        if of_the_part and native in RETURNS_SUBCLASS and name in ("copy", "__copy__"):
            return copy_of_subclass(frame, self)
        if of_the_part and native not in NAMELESS and name in ("__repr__", "__str__"):
            return frame.break_graph("value_not_known", f"text of {self.describe()}")
        if of_the_part:
            if name == "__getitem__" and self.lacks(frame, args):
                return self.required(frame, "__missing__", args, "has no __missing__")
            found: Value = self.part.call_method(frame, name, args, kwargs)
            if found is self.part and self.part.mutability is None:
                frame.break_graph("call_unknown", f"{self.cls.__name__}.{name} gives another object that is equal")
            if found is not self.part and found.python_type() is self.part.python_type() in (set, frozenset):
                return self.set_result(frame, name, args, found)
            if (
                found is not self.part
                and found.python_type() in RETURNS_SUBCLASS
                and found.python_type() is self.part.python_type()
            ):
                frame.break_graph("call_unknown", f"{self.cls.__name__}.{name} gives an instance of which class?")
            return self if found is self.part else found
        return frame.break_graph("call_unknown", f"{self.cls.__module__}.{self.cls.__qualname__}.{name}")

    def set_result(self, frame: Frame, name: str, args: list[Value], found: Value) -> Value:
        """A new set that a method gives: of the class of the instance or of the built-in one."""
        others = [set_part(arg) for arg in args]
        if any(isinstance(builtin_part(other), DictValue) for other in others):
            frame.break_graph("call_unknown", f"{self.cls.__name__}.{name} gives an instance of which class?")
        if not makes_of_subclass(self.part, name, others):
            return found
        refuse_class(frame, self.cls)
        return ObjectValue(self.cls, part=found)

    def call_atomic(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A method of int, float, str or bytes."""
        if name == "__rmod__" and not behaves_as_its_part(self.cls, self.part.python_type()):  # which asks for its text
            return frame.break_graph("operation_unknown", f"{name} of {self.describe()}")
        args = [operand_of(arg) for arg in args]
        if is_operation(name):
            found: Value = past_its_class(frame, self, call_dunder, self.part, name, args, kwargs)
        else:
            found = past_its_class(frame, self, self.part.call_method, name, args, kwargs)
        return found

    def lacks(self, frame: Frame, args: list[Value]) -> bool:
        """Whether a dict with __missing__ is asked for a key that it does not have."""
        hook, _ = lookup_class(self.cls, "__missing__")
        return isinstance(hook, types.FunctionType) and not self.part.contains(frame, *args).truth(frame)

    def truth(self, frame: Frame) -> bool:
        found = self.special(frame, "__bool__", [])
        if found is None:
            found = self.special(frame, "__len__", [])
            return True if found is None else self.as_length(frame, found).truth(frame)
        return self.given(frame, "__bool__", found, bool).truth(frame)

    def given(self, frame: Frame, name: str, found: Value, *kinds: type) -> Value:
        """What a special method gives, when it is of a type that Python takes from it as it is; refusing others is left to Python."""
        if found.python_type() not in kinds:
            frame.break_graph("operation_unknown", f"{self.cls.__name__}.{name} gives a {found.python_type().__name__}")
        return found

    def length(self, frame: Frame) -> Value:
        return self.as_length(frame, self.required(frame, "__len__", [], "has no len()"))

    def call_length_hint(self, frame: Frame) -> None:
        """A TypeError means that it does not know."""
        for name in ("__len__", "__length_hint__"):
            static, _ = lookup_class(self.cls, name)
            if not isinstance(static, types.FunctionType):
                continue
            try:
                found = function_value(frame, static).call(frame, [self], {})
            except SymbolicRaise as raised:
                if not issubclass(raised.value.python_type(), TypeError):
                    raise
                continue
            if implemented(found) is not None:
                self.as_length(frame, found)
            return

    def as_length(self, frame: Frame, found: Value) -> Value:
        """What __len__ gives, which Python takes when it is a size."""
        self.given(frame, "__len__", found, int)
        for op, limit in (("<", 0), (">", sys.maxsize)):
            outside = compare(frame, op, found, ConstantValue(limit))
            if outside is not None and outside.truth(frame):
                frame.break_graph("operation_unknown", f"{self.cls.__name__}.__len__ gives no size")
        return found

    def getitem(self, frame: Frame, key: Value) -> Value:
        if isinstance(self.obj, ALIASES):  # a type annotation in a body: List[Tensor]
            frame.guard("IDENTITY", self.source, self.obj)
            if holds_own_instance(key):
                return frame.break_graph("builtin_unsupported", f"{self.obj}[...] that holds an instance of an own class")
            return fold_literal(frame, operator.getitem, self.obj, force_plain(frame, key))
        return self.required(frame, "__getitem__", [key], "is not subscriptable")

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        self.required(frame, "__setitem__", [key, value], "does not support item assignment")

    def delitem(self, frame: Frame, key: Value) -> None:
        self.required(frame, "__delitem__", [key], "doesn't support item deletion")

    def contains(self, frame: Frame, item: Value) -> Value:
        found = self.special(frame, "__contains__", [item])
        if found is not None:
            return ConstantValue(found.truth(frame))
        return ConstantValue(any(equal(frame, found, item) for found in each_of(frame, self)))

    def iterate(self, frame: Frame) -> Value:
        found = self.special(frame, "__iter__", [])
        if found is not None and not hasattr(found.python_type(), "__next__"):
            frame.break_graph("operation_unknown", f"{self.cls.__name__}.__iter__ gives no iterator")
        if found is None:
            if lookup_class(self.cls, "__getitem__")[0] is not NO_ATTRIBUTE:
                return ItemIterator(self)
            return frame.raise_new(TypeError, f"'{self.cls.__name__}' object is not iterable")
        return found

    def own_reversed(self, frame: Frame) -> Value | None:
        return self.call_method(frame, "__reversed__", [], {}) if hasattr(self.cls, "__reversed__") else None

    def next_value(self, frame: Frame) -> Value | None:
        try:
            return self.required(frame, "__next__", [], "is not an iterator")
        except SymbolicRaise as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                return None
            raise

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        static, owner = lookup_class(self.cls, "__call__")
        if isinstance(static, types.FunctionType):
            return function_value(frame, static).call(frame, [self, *args], kwargs)
        if static is NO_ATTRIBUTE:
            return frame.raise_new(TypeError, f"'{self.cls.__name__}' object is not callable")
        if isinstance(static, C_METHODS):
            return frame.break_graph("call_unknown", self.describe())
        return bind_static(frame, self, self.cls, owner, static, "__call__").call(frame, args, kwargs)

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        stem = SPECIAL[op.rstrip("=")]
        if op == "*=" and self.part is not None and isinstance(lookup_class(self.cls, "__imul__")[0], C_METHODS):
            if any(isinstance(lookup_class(self.cls, name)[0], types.FunctionType) for name in ("__mul__", "__rmul__")):
                frame.break_graph("operation_unknown", f"*= of {self.describe()}, whose * is its own")
        prefix = "__r" if reverse else "__i" if op.endswith("=") else "__"
        return implemented(self.special(frame, f"{prefix}{stem}__", [other]))

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if op == "!=" and lookup_class(self.cls, "__ne__")[1] is object:
            return implemented(opposite(frame, self, other))
        return implemented(self.special(frame, COMPARE_SPECIAL[op], [other]))

    def unary(self, frame: Frame, op: str) -> Value:
        found = self.special(frame, UNARY_SPECIAL[op], [])
        if found is None:
            frame.raise_new(TypeError, f"bad operand type for unary {op}: '{_C.type_name(self.cls)}'")
        return found

    # --- texts --------------------------------------------------------------------------------------------------
    def own_text(self, frame: Frame, fn: Callable[[object], str]) -> Value | None:
        name = f"__{fn.__name__}__"
        static, owner = lookup_class(self.cls, name)
        if self.part is not None and owner in ATOMS and not isinstance(static, types.FunctionType):
            return shown(frame, self.part, fn)
        if not isinstance(static, types.FunctionType):
            static, _ = lookup_class(self.cls, "__repr__")
            name = "__repr__"
        if isinstance(static, types.FunctionType):
            found = self.call_method(frame, name, [], {})
            if not issubclass(found.python_type(), str):
                frame.break_graph("operation_unknown", f"{name} of {self.describe()} gives no text")
            return found
        if self.part is not None and (is_atomic(self.part) or isinstance(self.part, TupleValue)):
            return shown(frame, self.part, fn)
        if self.part is not None and lookup_class(self.cls, "__repr__")[0] is not object.__repr__:
            return frame.break_graph("value_not_known", f"text of {self.describe()}")
        return None

    def own_format(self, frame: Frame, spec: str) -> Value | None:
        if not isinstance(lookup_class(self.cls, "__format__")[0], types.FunctionType):
            return None
        found = self.required(frame, "__format__", [ConstantValue(spec)], "has no __format__")
        if found.python_type() is str:
            return found
        return frame.raise_new(TypeError, f"__format__ must return a str, not {found.python_type().__name__}")

    def conversion_operand(self, frame: Frame, kind: str | None) -> Value:
        if kind is None or self.is_constant():
            return self
        if kind == "s":
            return shown(frame, self, str)
        names = ("__index__",) if kind in "xXo" else ("__int__", "__index__") if kind in "diu" else ()
        asked = next((name for name in names if isinstance(lookup_class(self.cls, name)[0], types.FunctionType)), None)
        found = self.special(frame, asked, []) if asked and self.part is None else self
        return found if found is not None and found.python_type() is int else self

    # --- leaving the trace --------------------------------------------------------------------------------------
    def as_graph_arg(self, frame: Frame) -> Any:
        if self.part is not None:
            return self.part.as_graph_arg(frame)
        if issubclass(self.cls, torch.Generator):
            return frame.break_graph("random_state", "a torch.Generator of the program")
        return super().as_graph_arg(frame)

    def reload(self, emit: Emitter) -> str:
        cls = emit.known(self.cls, self.cls.__name__)
        native = native_base(self.cls)
        if native is tuple or native is frozenset:
            return f"{emit.const(native)}.__new__({cls}, {self.part.reload(emit)})"
        if native in ATOMS:
            return f"{emit.const(native)}.__new__({cls}, {emit.load(self.part)})"
        return f"{emit.const(native)}.__new__({cls})"

    def fill(self, emit: Emitter, name: str) -> None:
        if self.part is not None and not is_atomic(self.part):
            fill_part(emit, self.part, native_base(self.cls), name)
        for key, value in self.fields.items():
            if value is not DELETED:
                store_field(emit, self, name, key, value)

    def replay(self, emit: Emitter) -> None:
        """Brings the built-in part of an existing object to the traced state."""
        self.part.replay(emit)


def fill_part(emit: Emitter, part: Any, native: type, name: str) -> None:
    """Fills the built-in part of a new object past overridden methods."""
    cls = emit.const(native)
    if isinstance(part, DictValue):
        if part.default_factory is not None:
            place = emit.const(vars(collections.defaultdict)["default_factory"])
            emit.line(f"{place}.__set__({name}, {emit.load(part.default_factory)})")
        for key, value in part.entries.values():
            emit.line(f"{cls}.__setitem__({name}, {part.load_key(emit, key)}, {part.load_item(emit, value)})")
    elif native in (list, collections.deque) and part.items:
        emit.line(f"{cls}.extend({name}, ({''.join(i + ', ' for i in part.loaded_items(emit))}))")
    elif native is set:
        part.refill(emit, name)


def store_field(emit: Emitter, target: Value, name: str, key: str, value: Value) -> None:
    """One field of an object, past __setattr__ and descriptors."""
    text = emit.load(value)
    static, _ = lookup_class(target.python_type(), key)
    odd = isinstance(key, str) and not key.isidentifier()
    if type(static) is SLOT or odd and not hasattr(target.python_type(), "__dict__"):
        emit.line(f"{emit.const(object)}.__setattr__({name}, {key!r}, {text})")
    else:
        emit.line(f"{emit.const(_C.instance_dict)}({name})[{key!r}] = {text}")
