"""Subclasses of torch.Tensor and other objects with __torch_function__: calls of torch with them run that function, which is traced.

In the graph such a tensor is a plain one; the class is known while tracing, and given again to what leaves. An operation that does not
come through here breaks the graph, since a value of this kind is no argument of a node unless torch functions of subclasses are off.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import types

import torch

from .._torch import as_subclass, make_subclass, torch_functions_are_on, torch_functions_off
from ..guards.classes import NO_ATTRIBUTE, lookup_class
from ..guards.guard import TensorFacts
from ..guards.kinds import tensor_sizes
from ..sources import InstanceAttr
from .constant import BINARY_FUNCTIONS, COMPARE_FUNCTIONS, UNARY_FUNCTIONS, ConstantValue, force_plain
from .context import ContextValue
from .mapping import dict_of
from .sequence import ListValue, SequenceValue, TupleValue
from .tensor import INPLACE_FUNCTIONS, TENSOR_ATTRIBUTES, TensorValue, remember
from .user_object import BoundBuiltin, ObjectValue, bind_static, is_data_descriptor

Tensor = torch.Tensor


def is_traced(cls):
    """Whether tensors of this class can be modelled: all that is special about them is their __torch_function__ and Python attributes."""
    if issubclass(cls, (torch.nn.Parameter, torch.nn.Buffer)) or cls.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    return hasattr(cls.__torch_function__, "__func__") and not hasattr(cls, "__getattr__")


def existing_subclass_tensor(frame, obj, source):
    """The value of a tensor of the user's program; its graph input is an alias of class Tensor."""
    cls = type(obj)
    if not torch_functions_are_on():
        return frame.break_graph(
            "tensor_subclass", f"{cls.__name__} while torch functions of subclasses are switched off outside"
        )
    with torch_functions_off():
        facts = TensorFacts.of(obj)
        alias = obj.as_subclass(Tensor)
        if obj.layout is not torch.strided:
            return frame.break_graph("tensor_layout", f"{source} has layout {obj.layout}")

    def holds(value):
        """the tensor is as it was"""
        if type(value) is not cls or not torch_functions_are_on():
            return False
        with torch_functions_off():
            return tensor_sizes(value, facts) is not None

    frame.guard("PREDICATE", source, holds)
    node = frame.root.graph.tensor_input(alias, source, "tensor")
    frame.root.graph.aliased_inputs.add(node.name)
    value = SubclassTensorValue(node, node.meta["example_value"], cls, source, obj)
    remember(frame, value)
    return value


class SubclassTensorValue(TensorValue):
    """A tensor of a subclass."""

    def __init__(self, node, example, cls, source=None, obj=None):
        super().__init__(node, example, source, obj)
        self.cls = cls

    def python_type(self):
        return self.cls

    def is_on(self, frame):
        """Whether operations go to __torch_function__."""
        return not frame.root.subclass_functions_off

    def as_graph_arg(self, frame):
        if self.is_on(frame):
            return frame.break_graph("tensor_subclass", f"an operation with a {self.cls.__name__}")
        return super().as_graph_arg(frame)

    def reload(self, emit):
        if self.example.requires_grad and self.example.is_leaf:
            text = super().reload(emit).removesuffix(".requires_grad_()")
            return f"{emit.const(make_subclass, 'make_subclass')}({emit.const(self.cls, self.cls.__name__)}, {text}, True)"
        return f"{emit.const(as_subclass, 'as_subclass')}({super().reload(emit)}, {emit.const(self.cls, self.cls.__name__)})"

    # --- attributes ---------------------------------------------------------------------------------------------
    def users_attribute(self, frame, name):
        """What the user's classes or the instance say; None when it is torch's."""
        if name in self.attributes:
            return self.attributes[name]
        static, owner = lookup_class(self.cls, name)
        from_user = static is not NO_ATTRIBUTE and not issubclass(Tensor, owner)
        if from_user and is_data_descriptor(static):
            return bind_static(frame, self, self.cls, owner, static, name)
        if self.obj is not None and name in self.obj.__dict__:
            return frame.wrap(self.obj.__dict__[name], InstanceAttr(self.source, name))
        return bind_static(frame, self, self.cls, owner, static, name) if from_user else None

    def getattr(self, frame, name):
        found = self.users_attribute(frame, name)
        if found is not None or name == "__class__" or not self.is_on(frame):
            return found if found is not None else super().getattr(frame, name)
        if name in TENSOR_ATTRIBUTES:
            return dispatch(frame, attribute_function(name), [self], {})
        if callable(getattr(Tensor, name, None)):
            return BoundBuiltin(self, name)
        return super().getattr(frame, name)

    def setattr(self, frame, name, value):
        if isinstance(lookup_class(self.cls, name)[0], property) or lookup_class(self.cls, "__setattr__")[1] is not object:
            return frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")
        return super().setattr(frame, name, value)

    def call_method(self, frame, name, args, kwargs):
        found = self.users_attribute(frame, name)
        if found is not None:
            return found.call(frame, args, kwargs)
        if not self.is_on(frame):
            return super().call_method(frame, name, args, kwargs)
        if name.startswith("__") or not callable(getattr(Tensor, name, None)):
            return frame.break_graph("tensor_subclass", f"{name} of a {self.cls.__name__}")
        return dispatch(frame, method_function(name), [self, *args], kwargs)

    # --- operators ----------------------------------------------------------------------------------------------
    def operate(self, frame, function, values):
        """A Python operator."""
        for value in values:
            if isinstance(value, SubclassTensorValue):
                value.refuse_own_operators(frame)
        func, order = operator_function(function, tuple(stand_in(v) for v in values))
        return dispatch(frame, method_function(func), [values[i] for i in order], {})

    def binary(self, frame, op, other, reverse=False):
        if not self.is_on(frame) or not isinstance(other, TensorValue) and not is_number(other):
            return super().binary(frame, op, other, reverse)
        function = INPLACE_FUNCTIONS[op[:-1]] if op.endswith("=") else BINARY_FUNCTIONS[op]
        return self.operate(frame, function, [other, self] if reverse else [self, other])

    def compare(self, frame, op, other):
        if not self.is_on(frame) or not isinstance(other, TensorValue) and not is_number(other):
            return super().compare(frame, op, other)
        return self.operate(frame, COMPARE_FUNCTIONS[op], [self, other])

    def unary(self, frame, op):
        if not self.is_on(frame):
            return super().unary(frame, op)
        return self.operate(frame, UNARY_FUNCTIONS[op], [self])

    def getitem(self, frame, key):
        if not self.is_on(frame):
            return super().getitem(frame, key)
        return self.operate(frame, operator.getitem, [self, key])

    def setitem(self, frame, key, value):
        if not self.is_on(frame):
            return super().setitem(frame, key, value)
        self.refuse_own_operators(frame)
        dispatch(frame, method_function("__setitem__"), [self, key, value], {})

    def length(self, frame):
        if not self.is_on(frame):
            return super().length(frame)
        self.refuse_own_operators(frame)
        return dispatch(frame, method_function("__len__"), [self], {})

    def unpack(self, frame):
        if not self.is_on(frame):
            return super().unpack(frame)
        self.refuse_own_operators(frame)
        if force_plain(frame, self.call_method(frame, "dim", [], {})) == 0:
            return frame.raise_new(TypeError, "iteration over a 0-d tensor")
        return self.call_method(frame, "unbind", [ConstantValue(0)], {}).unpack(frame)

    def refuse_own_operators(self, frame):
        if own_operators(self.cls):
            frame.break_graph("tensor_subclass", f"an operator of a {self.cls.__name__}, which has operators of its own")


def own_operators(cls):
    """Whether a class of the user defines Python's operators itself."""
    names = {n for base in cls.__mro__ if not issubclass(Tensor, base) for n in vars(base) if n.startswith("__")}
    return bool(names - PLAIN_NAMES)


PLAIN_NAMES = {
    *(
        "__module__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__new__",
        "__init__",
        "__torch_function__",
        "__slots__",
        "__annotations__",
    ),
    *("__repr__", "__str__", "__reduce_ex__", "__static_attributes__", "__firstlineno__", "__deepcopy__", "__orig_bases__"),
    *("__parameters__", "__abstractmethods__", "__annotate__", "__annotate_func__", "__classcell__", "__format__"),
}
"""Names of a class that no operator looks up."""


def is_number(value):
    return value.is_constant() and type(value.constant()) in (int, float, bool)


class _Found(Exception):
    pass


class _Asked(Tensor):
    """Tells which function of torch an operator calls, with which of its operands."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise _Found(func, args)


def stand_in(value):
    """The kind of an operand, as far as it decides which function is called."""
    if isinstance(value, SubclassTensorValue):
        return "self"
    return "tensor" if isinstance(value, TensorValue) else "number"


@functools.cache
def operator_function(function, kinds):
    """(name of the function of torch.Tensor that a Python operator calls on operands of these kinds, the order of its arguments)."""
    with torch_functions_off():
        made = {
            "self": lambda: torch.zeros(2).as_subclass(_Asked),
            "tensor": lambda: torch.zeros(2),
            "number": lambda: int("1000"),
        }
        operands = [made[kind]() for kind in kinds]
    try:
        function(*operands)
    except _Found as found:
        func, args = found.args
        return func.__name__, tuple(next(i for i, o in enumerate(operands) if o is a) for a in args)
    raise LookupError(function)


# --- functions of torch as values ------------------------------------------------------------------------------------


def method_function(name):
    """torch.Tensor.name, which acts on its first argument."""
    from .wrap import RowValue

    function = getattr(Tensor, name)
    return RowValue(function, lambda frame, args, kwargs: by_protocol(frame, function, args[0], name, list(args[1:]), kwargs))


def by_protocol(frame, function, owner, name, args, kwargs):
    """owner.name(*args) of a tensor; special methods go by the operators' protocol."""
    if not isinstance(owner, TensorValue):
        return frame.break_graph("tensor_subclass", f"Tensor.{name} of a {owner.describe()}")
    if name.startswith("__"):
        from .builtins.arithmetic import call_dunder

        return call_dunder(frame, owner, name, args, kwargs)
    return owner.call_method(frame, name, args, kwargs)


def attribute_function(name):
    """torch.Tensor.name.__get__"""
    from .wrap import RowValue

    return RowValue(getattr(Tensor, name).__get__, lambda frame, args, kwargs: args[0].getattr(frame, name))


def overloaded(args, kwargs):
    """The arguments whose classes are asked, one for each class, subclasses first."""
    found = []
    for value in [*args, *kwargs.values()]:
        items = value.items if isinstance(value, SequenceValue) else [value]
        for item in items:
            if not has_function(item) or any(item.python_type() is other.python_type() for other in found):
                continue
            before = (i for i, other in enumerate(found) if issubclass(item.python_type(), other.python_type()))
            found.insert(next(before, len(found)), item)
    return found


def has_function(value):
    if isinstance(value, SubclassTensorValue):
        return True
    return isinstance(value, ObjectValue) and lookup_class(value.cls, "__torch_function__")[0] is not NO_ATTRIBUTE


def is_overridden(frame, args, kwargs):
    """Whether a call of torch with these arguments goes to a __torch_function__."""
    return not frame.root.subclass_functions_off and bool(overloaded(args, kwargs))


def dispatch_function(frame, function, args, kwargs):
    """A call of a function in torch's namespaces with such arguments."""
    fn = function.real()
    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return frame.break_graph("tensor_subclass", f"{fn} of a subclass")
    if not isinstance(fn, types.BuiltinFunctionType) and fn not in overridable_functions():
        return frame.break_graph(
            "tensor_subclass", f"{fn.__name__} of a subclass, in whose Python code torch functions are called"
        )
    return dispatch(frame, function, args, kwargs)


def is_overridable(fn):
    """Whether torch asks __torch_function__ about calls of it."""
    try:
        return fn in overridable_functions()
    except TypeError:
        return False


@functools.cache
def overridable_functions():
    """Functions of torch that look for __torch_function__."""
    return frozenset(fn for functions in torch.overrides.get_overridable_functions().values() for fn in functions)


def dispatch(frame, function, args, kwargs):
    """Asks the classes of the arguments, one after the other."""
    from .user_class import class_value

    asked = overloaded(args, kwargs)
    kinds = TupleValue([class_value(frame, value.python_type()) for value in asked])
    rest = [dict_of(frame, [(ConstantValue(k), v) for k, v in kwargs.items()])] if kwargs else []
    for value in asked:
        handler = class_value(frame, value.python_type()).getattr(frame, "__torch_function__")
        found = handler.call(frame, [function, kinds, TupleValue(list(args)), *rest], {})
        if not (found.is_constant() and found.constant() is NotImplemented):
            return found
    return frame.break_graph("tensor_subclass", f"no __torch_function__ takes {function.describe()}")


# --- what torch's own __torch_function__ does ---------------------------------------------------------------------------


@contextlib.contextmanager
def functions_off(frame):
    """Torch functions of subclasses are off."""
    frame.root.subclass_functions_off += 1
    try:
        yield
    finally:
        frame.root.subclass_functions_off -= 1


def default_row(frame, args, kwargs):
    """torch.Tensor.__torch_function__(cls, func, types, args=(), kwargs=None): results are of the class, too."""
    given = dict(zip(("cls", "func", "types", "args", "kwargs"), args)) | kwargs
    cls, func = given["cls"].real(), given["func"]
    if not all(issubclass(cls, kind.real()) for kind in given["types"].unpack(frame)):
        return ConstantValue(NotImplemented)
    named = given.get("kwargs")
    if named is None or (named.is_constant() and named.constant() is None):
        named = {}
    else:
        named = {force_plain(frame, k): v for k, v in named.all_items(frame)}
    with functions_off(frame):
        found = func.call(frame, given["args"].unpack(frame) if "args" in given else [], named)
    if func.real() in torch.overrides.get_default_nowrap_functions():
        return found
    return converted(frame, found, cls)


def converted(frame, value, cls):
    """Tensors as ones of the class, also in tuples and lists."""
    if isinstance(value, TensorValue):
        return value if issubclass(value.python_type(), cls) else of_class(frame, value, cls)
    if isinstance(value, SequenceValue) and issubclass(value.python_type(), (tuple, list)) and value.source is None:
        items = [converted(frame, item, cls) for item in value.unpack(frame)]
        return ListValue(items) if value.python_type() is list else TupleValue(items, cls=value.python_type())
    return value


def of_class(frame, value, cls):
    """The same tensor as an object of another class."""
    made = TensorValue(value.node, value.example) if cls is Tensor else SubclassTensorValue(value.node, value.example, cls)
    made.may_be_freed, made.of_inference = value.may_be_freed, value.of_inference
    remember(frame, made)
    return made


def as_subclass_method(frame, self, name, args, kwargs):
    """Tensor.as_subclass(cls)"""
    cls = (args[0] if args else kwargs["cls"]).real()
    if cls is not Tensor and not is_traced(cls):
        return frame.break_graph("tensor_subclass", cls.__name__)
    with functions_off(frame):
        alias = frame.graph.call_method(frame, "view_as", (self, self))
    return of_class(frame, alias, cls)


def make_subclass_row(frame, args, kwargs):
    """Tensor._make_subclass(cls, data, require_grad=False)"""
    given = dict(zip(("cls", "data", "require_grad"), args)) | kwargs
    cls, data = given["cls"].real(), given["data"]
    if not is_traced(cls) or not isinstance(data, TensorValue) or set(given) > {"cls", "data", "require_grad"}:
        return frame.break_graph("tensor_subclass", cls.__name__)
    with functions_off(frame):
        made = frame.graph.call_method(frame, "detach", (data,))
        if "require_grad" in given and given["require_grad"].truth(frame):
            frame.graph.call_method(frame, "requires_grad_", (made, True))
    return of_class(frame, made, cls)


class FunctionsOff(ContextValue):
    """torch._C.DisableTorchFunctionSubclass()"""

    def enter(self, frame):
        frame.root.subclass_functions_off += 1

    def leave(self, frame):
        frame.root.subclass_functions_off -= 1


SUBCLASS_CONTEXTS = {
    torch._C.DisableTorchFunctionSubclass: lambda frame, args, kwargs: FunctionsOff(torch._C.DisableTorchFunctionSubclass, [], {})
}
SUBCLASS_ROWS = {Tensor.__torch_function__.__func__: default_row}
