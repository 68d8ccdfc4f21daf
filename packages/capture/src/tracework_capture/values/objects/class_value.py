"""Class objects: their attributes, construction of instances by running __new__ and __init__, and super()."""

from __future__ import annotations

import abc
import collections
import enum
import functools
import inspect
import types
import weakref

import torch
from torch.distributions.utils import lazy_property

from ...bytecode.resume import original_code
from ...guards.classes import (
    DESCRIPTOR_METHODS,
    IMMUTABLE,
    attributes_of,
    defines,
    is_descriptor,
    is_stored_to,
    module_of,
    resolution_order,
    store,
)
from ...sources import Attr, Const
from ..plain.mapping import factory_of
from ..plain.sequence import NONE, ListValue, TupleValue, is_record
from ..protocol.arguments import call_row
from ..protocol.binding import (
    ATOMS,
    C_METHODS,
    NATIVE_BASES,
    WITHOUT_PART,
    BoundBuiltin,
    bind_static,
    class_attribute,
    function_value,
    held_function,
    is_data_descriptor,
    native_base,
    python_new,
    refuse_method,
)
from ..protocol.calls import CALLS
from ..protocol.constant import ConstantValue, attribute_name, fold, fold_plain, force_plain, literal
from ..protocol.iteration import iterate_all
from ..protocol.kinds import AbstractClass
from ..protocol.lifetimes import let_go
from ..protocol.make import make
from ..protocol.pure import is_pure
from ..protocol.value import NEW, SymbolicRaise, Value
from .controls import forbid
from .enum_member import EnumMember
from .exception import ExceptionValue, make_exception
from .function import bind_arguments
from .instance import HEAP_TYPE, NO_ATTRIBUTE, ObjectValue, has_own_instance, implemented, lookup_class

PLAIN_CLASS_ATTRIBUTES = (
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__mro__",
    "__bases__",
    "__base__",
    "__abstractmethods__",
)


def subclasses(frame, cls):
    """cls.__subclasses__(), of which a guard sees whether there are others."""
    if type(cls).__subclasses__ is not type.__subclasses__ or not cls.__flags__ & HEAP_TYPE or frame.root.made:
        return frame.break_graph("call_unknown", "__subclasses__")
    found = [weakref.ref(each) for each in type.__subclasses__(cls)]

    def unchanged(now):
        """it has the same subclasses"""
        each_now = type.__subclasses__(now)
        return len(each_now) == len(found) and all(each is known() for each, known in zip(each_now, found))

    value = class_value(frame, cls)
    frame.guard("PREDICATE", value.source, unchanged)
    return ListValue([class_value(frame, known()) for known in found])


TYPE_METHODS = {
    "mro": lambda frame, cls: ListValue([class_value(frame, c) for c in fold_plain(frame, type.mro, cls)]),
    "__subclasses__": subclasses,
}


OF_CLASSES = ("__repr__", "__str__", "__eq__", "__ne__", "__hash__", "__instancecheck__", "__subclasscheck__")
"""Methods of type that say something of a class, and change nothing."""


def class_value(frame, cls):
    """The value of a class that is known."""
    return frame.wrap(cls, Const(cls, cls.__name__))


class ClassValue(AbstractClass):
    """A class, known by identity."""

    def __init__(self, cls, source=None):
        super().__init__(source if source is not None else Const(cls, cls.__name__))
        self.cls = cls

    def python_type(self):
        return type(self.cls)

    def real(self):
        return self.cls

    def describe(self):
        return f"class {self.cls.__name__}"

    def hash_key(self, frame):
        if lookup_class(type(self.cls), "__hash__")[0] is not object.__hash__:
            return frame.break_graph("unhashable_value", f"{self.describe()}, whose metaclass says how it is hashed")
        return self.cls

    def special(self, frame, name, args):
        """type(cls).__name__(cls, *args) for what a metaclass defines in Python; None when only `type` has it, or nobody."""
        static, owner = lookup_class(type(self.cls), name)
        if owner in (type, object) or static is NO_ATTRIBUTE:
            return None
        if isinstance(static, types.FunctionType):
            return function_value(frame, static).call(frame, [self, *args], {})
        return frame.break_graph("operation_unknown", f"{name} of {self.describe()}, which is a {type(static).__name__}")

    def truth(self, frame):
        if has_members(frame, self.cls, "__bool__"):
            return True
        for name, kind in (("__bool__", bool), ("__len__", int)):
            found = self.special(frame, name, [])
            if found is not None and found.python_type() is not kind:
                frame.break_graph("operation_unknown", f"{name} of {self.describe()} gives a {found.python_type().__name__}")
            if found is not None:
                return found.truth(frame)
        return True

    def same_object(self, other):
        try:
            return other.real() is self.cls
        except LookupError:
            return False

    def as_graph_arg(self, frame):
        if (
            lookup_class(self.cls, "__torch_function__")[0] is not NO_ATTRIBUTE
        ):  # torch looks for it in the object that it is given
            return frame.break_graph("tensor_subclass", f"{self.describe()} as an argument of a function of torch")
        return self.cls

    def as_plain(self):
        return self.cls

    def getattr(self, frame, name):
        getter, _ = lookup_class(type(self.cls), "__getattribute__")
        if not isinstance(getter, types.FunctionType):
            return self.plain_getattr(frame, name)
        try:
            return function_value(frame, getter).call(frame, [self, ConstantValue(name)], {})
        except SymbolicRaise as raised:
            hook, _ = lookup_class(type(self.cls), "__getattr__")
            if not issubclass(raised.value.python_type(), AttributeError) or not isinstance(hook, types.FunctionType):
                raise
        return function_value(frame, hook).call(frame, [self, ConstantValue(name)], {})

    def plain_getattr(self, frame, name):
        """cls.name, where the metaclass has no __getattribute__ of its own."""
        cls = self.cls
        if name in PLAIN_CLASS_ATTRIBUTES:
            found = fold_plain(frame, getattr, cls, name)
            fixed = not cls.__flags__ & HEAP_TYPE or self.mutability is NEW
            return literal(frame, found) if fixed else frame.wrap(found, Attr(Const(cls, cls.__name__), name))
        if name == "__class__":
            return class_value(frame, type(cls))
        if name == "__dict__":
            if is_stored_to(cls):
                return frame.break_graph("attribute_unknown", f"{cls.__name__}.__dict__ after a change")
            return frame.wrap(cls.__dict__, Const(cls.__dict__, f"{cls.__name__}.__dict__"))
        hook, _ = lookup_class(type(cls), "__getattr__")
        if not isinstance(hook, types.FunctionType):
            return self.looked_up(frame, name)
        try:
            return self.looked_up(frame, name)
        except SymbolicRaise as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
        return function_value(frame, hook).call(frame, [self, ConstantValue(name)], {})

    def looked_up(self, frame, name):
        """What type.__getattribute__ gives."""
        cls = self.cls
        meta_static, meta_owner = lookup_class(type(cls), name)
        if meta_static is not NO_ATTRIBUTE and is_data_descriptor(meta_static) and defines(type(meta_static), "__get__"):
            return bind_static(frame, self, type(cls), meta_owner, meta_static, name)
        static, owner = lookup_class(cls, name)
        if static is NO_ATTRIBUTE:
            return self.from_metaclass(frame, name)
        return self.bind(frame, static, owner, name)

    def bind(self, frame, static, owner, name):
        """cls.name for what the MRO holds."""
        from .function import BoundMethodValue

        kind = type(static)
        if kind is types.FunctionType:
            return function_value(frame, static)
        if kind is classmethod and not isinstance(static.__func__, types.FunctionType):
            return frame.break_graph("attribute_unknown", f"{self.cls.__name__}.{name} is a class method of no function")
        if kind is classmethod:
            return BoundMethodValue(function_value(frame, held_function(frame, static)), self)
        if kind is staticmethod:
            return function_value(frame, held_function(frame, static))
        if isinstance(static, types.ClassMethodDescriptorType):
            return BoundBuiltin(self, name)
        if isinstance(static, C_METHODS) or kind is property:
            return frame.wrap(static, Const(static, f"{self.cls.__name__}.{name}"))
        getter, _ = lookup_class(kind, "__get__")
        if isinstance(getter, types.FunctionType) and kind not in LIBRARY_DESCRIPTORS:
            descriptor = class_attribute(frame, static, owner, name)
            return function_value(frame, getter).call(frame, [descriptor, NONE, self], {})
        if getter is not NO_ATTRIBUTE:  # not getattr: super() begins further up
            return literal(frame, fold_plain(frame, getter, static, None, self.cls))
        return class_attribute(frame, static, owner, name)

    def from_metaclass(self, frame, name):
        """Attributes of type(cls)."""
        meta = type(self.cls)
        static, owner = lookup_class(meta, name)
        if static is NO_ATTRIBUTE:
            return frame.raise_new(AttributeError, f"type object '{self.cls.__name__}' has no attribute '{name}'")
        if isinstance(static, C_METHODS):
            return BoundBuiltin(self, name)
        return bind_static(frame, self, meta, owner, static, name)

    def native_attribute(self, frame, static, name):
        """A getset of a metaclass."""
        try:
            return literal(frame, getattr(self.cls, name))
        except AttributeError as error:
            return frame.raise_new(AttributeError, *error.args)

    def setattr(self, frame, name, value):
        setter, _ = lookup_class(type(self.cls), "__setattr__")
        if isinstance(setter, types.FunctionType):
            function_value(frame, setter).call(frame, [self, ConstantValue(name), value], {})
        elif setter is type.__setattr__:
            self.plain_setattr(frame, name, value)
        else:
            frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")

    def plain_setattr(self, frame, name, value):
        """type.__setattr__, for what does not bind to instances and stands in place of nothing that does."""
        cls = self.cls
        before = [lookup_class(kind, name)[0] for kind in (cls, type(cls))]
        binds = any(lookup_class(value.python_type(), method)[0] is not NO_ATTRIBUTE for method in DESCRIPTOR_METHODS)
        if (
            self.mutability is NEW
            or not cls.__flags__ & HEAP_TYPE
            or cls.__flags__ & IMMUTABLE
            or issubclass(cls, KNOWN_BY_TORCH)
            or name[:2] == "__" == name[-2:]
            or binds
            or any(map(is_descriptor, before))
        ):
            frame.break_graph("side_effect_unknown", f"assignment to {cls.__name__}.{name}")
        let_go(frame, cls, self.source, name)
        store(cls, name, value)
        frame.mutations.attribute(class_value(frame, cls), name, value)

    def call_method(self, frame, name, args, kwargs):
        row = TYPE_METHODS.get(name)
        if row is not None and not args and lookup_class(self.cls, name)[0] is NO_ATTRIBUTE:
            return row(frame, self.cls)
        if name in ("__instancecheck__", "__subclasscheck__"):
            return fold(frame, getattr(self.cls, name), args)
        if name == "fromkeys" and self.cls in (dict, collections.OrderedDict, collections.defaultdict):
            from ..plain.mapping import METHODS, DictValue

            if self.cls is collections.OrderedDict and args and {*kwargs} == {"value"}:
                args, kwargs = [*args, *kwargs.values()], {}
            return call_row(frame, DictValue(cls=self.cls), "fromkeys", METHODS["fromkeys"], args, kwargs)
        if name == "__new__" and python_new(self.cls) is None:
            return new_object(frame, args, kwargs)
        static, _ = lookup_class(self.cls, name)
        if isinstance(static, (types.ClassMethodDescriptorType, types.BuiltinMethodType)):
            row = CALLS.get(static)
            if row is not None:
                return row.handler(frame, [self, *args], kwargs)
            row = CALLS.get(getattr(self.cls, name))
            if row is not None:
                return row.handler(frame, args, kwargs)
            if not is_pure(getattr(self.cls, name)):
                return frame.break_graph("call_unknown", f"{self.cls.__module__}.{self.cls.__name__}.{name}")
            return fold(frame, getattr(self.cls, name), args, kwargs)
        return super().call_method(frame, name, args, kwargs)

    def of_type(self, frame, descriptor, name, args, kwargs):
        """type.name(cls, ...): past what the class itself and its metaclass have under the name."""
        if name == "__setattr__" and len(args) == 2 and not kwargs:
            self.plain_setattr(frame, attribute_name(frame, args[0]), args[1])
            return NONE
        if name == "__getattribute__" and len(args) == 1 and not kwargs:
            return self.looked_up(frame, force_plain(frame, args[0]))
        if name in TYPE_METHODS or lookup_class(self.cls, name)[0] is NO_ATTRIBUTE:
            return self.call_method(frame, name, args, kwargs)
        if name in OF_CLASSES and self.mutability is not NEW:
            return fold(frame, descriptor, [self, *args], kwargs)
        return frame.break_graph("call_unknown", f"type.{name} of {self.cls.__name__}")

    def getitem(self, frame, key):
        alias = lookup_class(type(self.cls), "__getitem__")[0] is NO_ATTRIBUTE and hasattr(self.cls, "__class_getitem__")
        if alias and has_own_instance(key):
            return frame.break_graph("builtin_unsupported", f"{self.cls.__name__}[...] that holds an instance of an own class")
        if alias or has_members(frame, self.cls, "__getitem__"):
            return fold(frame, lambda k: self.cls[k], [key])
        return self.special(frame, "__getitem__", [key]) or super().getitem(frame, key)

    def setitem(self, frame, key, value):
        if self.special(frame, "__setitem__", [key, value]) is None:
            super().setitem(frame, key, value)

    def iterate(self, frame):
        from ..plain.iterators import SequenceIterator

        if has_members(frame, self.cls, "__iter__"):
            return SequenceIterator([literal(frame, m) for m in self.cls])
        return self.special(frame, "__iter__", []) or super().iterate(frame)

    def own_reversed(self, frame):
        return None if has_members(frame, self.cls, "__reversed__") else self.special(frame, "__reversed__", [])

    def contains(self, frame, item):
        if has_members(frame, self.cls, "__contains__"):
            return fold(frame, lambda i: i in self.cls, [item])
        found = self.special(frame, "__contains__", [item])
        return super().contains(frame, item) if found is None else ConstantValue(found.truth(frame))

    def length(self, frame):
        if has_members(frame, self.cls, "__len__"):
            return ConstantValue(len(self.cls))
        found = self.special(frame, "__len__", [])
        if found is None or found.python_type() is not int:
            return super().length(frame)
        return found

    def binary(self, frame, op, other, reverse=False):
        from ..protocol.operators import SPECIAL

        prefix = "__r" if reverse else "__i" if op.endswith("=") else "__"
        found = self.special(frame, f"{prefix}{SPECIAL[op.rstrip('=')]}__", [other])
        if found is None and op == "|":
            return fold(frame, (lambda a, b: b | a) if reverse else (lambda a, b: a | b), [self, other])
        return implemented(found)

    def compare(self, frame, op, other):
        from ..protocol.operators import COMPARE_SPECIAL

        found = implemented(self.special(frame, COMPARE_SPECIAL[op], [other]))
        if found is None and op == "!=":
            equal = implemented(self.special(frame, "__eq__", [other]))
            return None if equal is None else ConstantValue(not equal.truth(frame))
        return found

    def unary(self, frame, op):
        from ..protocol.operators import UNARY_SPECIAL

        return self.special(frame, UNARY_SPECIAL[op], []) or super().unary(frame, op)

    def call(self, frame, args, kwargs):
        return construct(frame, self, args, kwargs)


# --- construction ----------------------------------------------------------------------------------------------------


def construct(frame, class_val, args, kwargs):
    """cls(*args, **kwargs)"""
    cls = class_val.cls
    if "_dynamo_forbidden" in attributes_of(cls):
        forbid(cls, None, frame, args, kwargs)
    row = CALLS.get(cls)
    if row is not None:
        return row.handler(frame, args, kwargs)
    if has_members(frame, cls, "__call__"):
        return member_of(frame, cls, args, kwargs)
    if issubclass(cls, BaseException):
        return make_exception(frame, cls, args, kwargs)
    if is_record(cls):
        return make_namedtuple(frame, cls, args, kwargs)
    if module_of(cls) == "torch.return_types":
        return make_result(frame, cls, args, kwargs)
    if not makes_tensor_subclass(cls):
        refuse_class(frame, cls)
    meta_call, owner = lookup_class(type(cls), "__call__")
    if owner is not type and not isinstance(meta_call, types.WrapperDescriptorType):  # which binary classes have
        if isinstance(meta_call, C_METHODS):
            frame.break_graph("call_unknown", f"{type(cls).__name__}.__call__ is a {type(meta_call).__name__}")
        return bind_static(frame, class_val, type(cls), owner, meta_call, "__call__").call(frame, args, kwargs)
    return type_call(frame, class_val, args, kwargs)


def has_members(frame, cls, method):
    """Whether the class is an enumeration that does this as enumerations do. Its class statement may still be adding members."""
    if not issubclass(type(cls), enum.EnumMeta) or lookup_class(type(cls), method)[0] is not enum.EnumMeta.__dict__[method]:
        return False
    members = attributes_of(cls).get("_member_map_")
    if members is not None:
        frame.guard("LENGTH", Attr(Const(cls, cls.__name__), "_member_map_"), len(members))
    return members is not None


def member_of(frame, cls, args, kwargs):
    """cls(value)"""
    if len(args) != 1 or kwargs or python_new(cls) is not enum.Enum.__new__:
        return frame.break_graph("call_unknown", f"{cls.__name__} with these arguments")
    value = force_plain(frame, args[0])
    try:
        known = type(value) is cls or value in cls._value2member_map_
    except TypeError:
        return frame.break_graph("call_unknown", f"{cls.__name__} of a value without a hash")
    if not known and lookup_class(cls, "_missing_")[1] not in (enum.Enum, enum.Flag):
        return frame.break_graph("call_unknown", f"{cls.__name__}._missing_")
    return literal(frame, fold_plain(frame, cls, value))


def makes_tensor_subclass(cls):
    """Whether the class is a traced subclass of Tensor with a __new__ in Python."""
    from ..torch.subclass import is_traced

    return issubclass(cls, torch.Tensor) and is_traced(cls) and python_new(cls) is not None


def type_call(frame, class_val, args, kwargs):
    """type.__call__: __new__, then __init__."""
    cls = class_val.cls
    new = python_new(cls)
    if new is not None:
        made = function_value(frame, new).call(frame, [class_val, *args], kwargs)
    else:
        made_by, _ = lookup_class(cls, "__new__")
        if not isinstance(made_by, types.BuiltinFunctionType) or made_by.__name__ != "__new__":
            frame.break_graph("call_unknown", f"{cls.__name__}.__new__ is a {type(made_by).__name__}")
        made = new_object(frame, [class_val, *args], kwargs)
    if cls in made.python_type().__mro__:  # issubclass would ask the metaclass
        init, owner = lookup_class(made.python_type(), "__init__")
        if isinstance(init, types.FunctionType):
            returned = function_value(frame, init).call(frame, [made, *args], kwargs)
            if returned is not NONE and not (returned.is_constant() and returned.constant() is None):
                kind = returned.python_type().__name__
                return frame.raise_new(TypeError, f"__init__() should return None, not '{kind}'")
        elif not isinstance(init, C_METHODS):
            frame.break_graph("call_unknown", f"{cls.__name__}.__init__ is a {type(init).__name__}")
        elif init is object.__init__ and (args or kwargs) and lookup_class(cls, "__new__")[1] is object:
            return frame.raise_new(TypeError, f"{cls.__name__}() takes no arguments")
        elif init is not object.__init__ and getattr(made, "part", None) is not None:
            init_part(frame, made, args, kwargs)
        elif owner is types.SimpleNamespace:
            init_namespace(frame, made, args, kwargs)
        elif init is not object.__init__:  # of a class in C that makes do with object.__new__
            frame.break_graph("call_unknown", f"construction of {cls.__module__}.{cls.__name__}")
    return made


LIBRARY_DESCRIPTORS = {functools.cached_property, functools.partialmethod, functools.singledispatchmethod, lazy_property}
"""Descriptors written in Python that do nothing that could be seen when they are read of the class."""

KNOWN_BY_TORCH = (torch.Tensor, torch.autograd.Function, tuple)
"""Classes whose attributes are read by other code than the program's and torch's in Python."""

REFUSED = (torch.Tensor, type, types.ModuleType)
ALLOWED_NATIVE = {object, *NATIVE_BASES, abc.ABC}


def refuse_class(frame, cls):
    """Breaks for classes whose instances have state that only C knows, or notice that they die."""
    if defines(cls, "__del__"):
        frame.break_graph("call_unknown", f"construction of {cls.__name__}, whose __del__ runs when it dies")
    if issubclass(cls, REFUSED):
        frame.break_graph("call_unknown", f"construction of {cls.__name__}")
    new = cls.__new__
    if isinstance(new, types.BuiltinFunctionType) and new.__self__ not in ALLOWED_NATIVE:
        frame.break_graph("call_unknown", f"construction of {cls.__module__}.{cls.__name__}")
    for base in cls.__mro__:
        if not (base.__flags__ & (1 << 9)) and base not in ALLOWED_NATIVE:
            frame.break_graph("call_unknown", f"construction of {cls.__module__}.{cls.__name__}")


def new_object(frame, args, kwargs):
    """object.__new__(cls) or that of a built-in container."""
    from ..plain.mapping import DictValue
    from ..plain.sequence import DequeValue
    from ..plain.sets import SetValue, made_set

    if not args or not isinstance(args[0], ClassValue):
        return frame.break_graph("call_unknown", "__new__ of no class")
    cls = args[0].cls
    refuse_class(frame, cls)
    native = native_base(cls)
    if native is object and (len(args) > 1 or kwargs) and takes_no_arguments(cls):
        frame.break_graph("call_unknown", f"object.__new__({cls.__name__}, ...)")
    if native is object and cls.__flags__ & inspect.TPFLAGS_IS_ABSTRACT:
        return fold_plain(frame, object.__new__, cls)  # raises
    if native is object or native in WITHOUT_PART:
        return ObjectValue(cls)
    if native in (tuple, frozenset):
        if kwargs and lookup_class(cls, "__init__")[0] is object.__init__:  # as tuple has it; another __init__ takes them
            return frame.raise_new(TypeError, f"{native.__name__}() takes no keyword arguments")
        if native is frozenset:
            part = made_set(frame, frozenset, args[1] if len(args) > 1 else TupleValue([]))
        else:
            part = TupleValue(iterate_all(frame, args[1], asks_length=True) if len(args) > 1 else [])
    elif native in ATOMS:
        part = CALLS[native].handler(frame, args[1:], kwargs)
        if part.python_type() is not native:
            frame.break_graph("call_unknown", f"{native.__name__}.__new__({cls.__name__}, ...) of {part.describe()}")
    elif issubclass(native, dict):
        part = DictValue(cls=native)
    else:
        part = {list: lambda: ListValue([]), set: lambda: SetValue(frame, []), collections.deque: lambda: DequeValue([])}[
            native
        ]()
    return part if cls is native else ObjectValue(cls, part=part)


def takes_no_arguments(cls):
    """Whether object.__new__ refuses arguments for cls: they are for an __init__ that takes them, and only if __new__ is its own."""
    return python_new(cls) is not None or lookup_class(cls, "__init__")[0] is object.__init__


def init_part(frame, made, args, kwargs):
    """list.__init__, dict.__init__, ... on a new instance of a subclass."""
    native = native_base(made.cls)
    if native in (tuple, frozenset):
        return NONE
    if native is collections.defaultdict and args:
        made.part.default_factory = factory_of(frame, args[0])
        args = args[1:]
    if args or kwargs:
        name = "extend" if native is list else "update" if native is not collections.deque else "extend"
        made.part.call_method(frame, name, list(args), kwargs)
    return NONE


def init_namespace(frame, made, args, kwargs):
    """types.SimpleNamespace.__init__"""
    if args:
        frame.break_graph("call_unknown", "types.SimpleNamespace with positional arguments")
    for name, value in kwargs.items():
        made.set_field(frame, name, value)


def make_namedtuple(frame, cls, args, kwargs):
    """cls(...) of a namedtuple class; subclasses with their own __new__ run it."""
    new, owner = python_new(cls), lookup_class(cls, "__new__")[1]
    made_by_collections = "_fields" in owner.__dict__
    if not made_by_collections:
        return function_value(frame, new).call(frame, [class_value(frame, cls), *args], kwargs)
    called = class_value(frame, cls)
    if called.source is None:  # made here: nobody else sees its defaults, and it may be gone when guards are asked
        known = {
            name: literal(frame, default) for name, default in cls._field_defaults.items() if name not in cls._fields[: len(args)]
        }
        kwargs = known | kwargs
    bound = bind_arguments(frame, function_value(frame, new), [called, *args], kwargs)
    return TupleValue([bound[n] for n in cls._fields], cls=cls)


def make_result(frame, cls, args, kwargs):
    """cls(sequence) of a structure that torch functions return; C says what it takes."""
    items = iterate_all(frame, args[0]) if len(args) == 1 and not kwargs else []
    if len(items) != cls.n_fields or cls.n_fields != cls.n_sequence_fields:
        frame.break_graph("call_unknown", f"{cls.__name__} with these arguments")
    return TupleValue(items, cls=cls)


# --- super() ----------------------------------------------------------------------------------------------------------


def is_among_bases(base, cls):
    """Whether `base` is in the method resolution order of `cls`, which a class whose metaclass is computing it has not got yet."""
    return base in resolution_order(cls)


class SuperValue(Value):
    """super(start, owner)"""

    def __init__(self, start, owner):
        super().__init__(None)
        self.start = start
        self.owner = owner

    def python_type(self):
        return super

    def mro(self):
        """Classes after `start` in the MRO of the owner's type (or of the owner, when that is a class)."""
        cls = (
            self.owner.cls
            if isinstance(self.owner, ClassValue) and is_among_bases(self.start, self.owner.cls)
            else self.owner.python_type()
        )
        order = resolution_order(cls)
        return cls, order[order.index(self.start) + 1 :]

    def getattr(self, frame, name):
        if name == "__class__":  # the one name that is not looked up in the owner's classes
            return class_value(frame, super)
        cls, order = self.mro()
        for base in order:
            static, owner = lookup_class(base, name)  # which guards what the class has, or that it has nothing
            if owner is base:
                return self.bind(frame, cls, base, static, name)
        if name in ("__thisclass__", "__self_class__"):
            return class_value(frame, self.start if name == "__thisclass__" else cls)
        if name == "__self__":
            return self.owner
        return frame.raise_new(AttributeError, f"'super' object has no attribute '{name}'")

    def bind(self, frame, cls, base, static, name):
        """Binds what was found to the owner."""
        from .function import BoundMethodValue

        owner = self.owner
        if isinstance(owner, ClassValue):
            if name == "__new__":
                if isinstance(static, (staticmethod, types.FunctionType)):
                    return function_value(frame, getattr(static, "__func__", static))
                return NewBuiltin(base)
            if isinstance(static, classmethod):
                return BoundMethodValue(function_value(frame, held_function(frame, static)), owner)
            if is_among_bases(self.start, owner.cls) and isinstance(static, types.ClassMethodDescriptorType):
                return NativeClassMethod(owner.cls, base, static)
            if is_among_bases(self.start, owner.cls):
                return owner.bind(frame, static, base, name)
        if isinstance(static, C_METHODS):
            return NativeMethod(owner, base, static, name)
        return bind_static(frame, owner, cls, base, static, name)

    def call_method(self, frame, name, args, kwargs):
        return self.getattr(frame, name).call(frame, args, kwargs)


class NewBuiltin(Value):
    """object.__new__ and its like."""

    def __init__(self, base):
        super().__init__(Const(base.__new__, f"{base.__name__}.__new__"))

    def python_type(self):
        return types.BuiltinFunctionType

    def call(self, frame, args, kwargs):
        return new_object(frame, args, kwargs)


class NativeClassMethod(Value):
    """super().method of a class where C defines it: looked up again by name, it would be that of the class."""

    def __init__(self, cls, base, descriptor):
        super().__init__(None)
        self.cls, self.base, self.descriptor = cls, base, descriptor

    def python_type(self):
        return types.BuiltinMethodType

    def call(self, frame, args, kwargs):
        if self.base is object and self.descriptor.__name__ == "__init_subclass__" and not (args or kwargs):
            return NONE
        row = CALLS.get(self.descriptor)
        if row is not None:
            return row.handler(frame, [class_value(frame, self.cls), *args], kwargs)
        return frame.break_graph("call_unknown", f"{self.base.__name__}.{self.descriptor.__name__} of {self.cls.__name__}")

    def reload(self, emit):
        return emit.const(self.descriptor.__get__(None, self.cls))


class NativeMethod(BoundBuiltin):
    """super().method where C defines it."""

    def __init__(self, owner, base, descriptor, name):
        super().__init__(owner, name, descriptor)
        self.base = base

    def reload(self, emit):
        if isinstance(self.owner, ClassValue):
            return emit.const(self.descriptor.__get__(self.owner.cls, type(self.owner.cls)))
        # its name may lead to an override; without a type, CPython's binding of some methods crashes
        owner = emit.load(self.owner)
        return f"{emit.const(self.descriptor)}.__get__({owner}, {emit.const(type)}({owner}))"

    def call(self, frame, args, kwargs):
        owner = self.owner
        if isinstance(owner, ClassValue) and self.name == "__call__":
            return type_call(frame, owner, list(args), kwargs)
        if self.descriptor is type.__setattr__ and len(args) == 2 and not kwargs:
            owner.plain_setattr(frame, force_plain(frame, args[0]), args[1])
            return NONE
        if isinstance(owner, ExceptionValue):
            return owner.call_native(frame, self.name, args, kwargs)
        if isinstance(owner, ObjectValue):
            if self.name == "__init__" and owner.part is not None and self.base is not object:
                return init_part(frame, owner, args, kwargs)
            if not isinstance(owner, EnumMember):  # whose own way it is to ask its atom
                refuse_method(frame, owner, self.base, self.name)
            return owner.call_native(frame, self.name, args, kwargs)
        return owner.call_method(frame, self.name, args, kwargs)


def super_(frame, args, kwargs):
    """super() and super(cls, obj)."""
    if len(args) == 2 and not kwargs:
        start = args[0].real()
        owner = args[1]
        fits = isinstance(start, type) and (
            is_among_bases(start, owner.python_type()) or isinstance(owner, ClassValue) and is_among_bases(start, owner.cls)
        )
        if fits:
            return SuperValue(start, owner)
    if args or kwargs:
        return frame.break_graph("call_unknown", "super() with these arguments")
    code = original_code(frame.code)  # a continuation has the first argument in its first slot, too (graph/finish.py)
    if not code.co_argcount:
        return frame.raise_new(RuntimeError, "super(): no arguments")
    first = code.co_varnames[0]
    owner = frame.locals.get(first)
    if owner is None and first in frame.cells:
        owner = frame.cells[first].get(frame)
    if owner is None:
        return frame.raise_new(RuntimeError, "super(): arg[0] deleted")
    cell = frame.cells.get("__class__")
    if cell is None:
        return frame.raise_new(RuntimeError, "super(): __class__ cell not found")
    start = cell.get(frame)
    if start is None:
        return frame.raise_new(RuntimeError, "super(): empty __class__ cell")
    return super_(frame, [start, owner], {})


make.provide(class_=class_value)
