"""Subclasses of torch.Tensor and other objects with __torch_function__: calls of torch with them run that function, which is traced.

In the graph such a tensor is a plain one; the class is known while tracing, and given again to what leaves. An operation that does not
come through here breaks the graph, since a value of this kind is no argument of a node unless torch functions of subclasses are off.

nn.Parameter(data) in the traced program is a leaf, in the graph and for the code after it; so are nn.Buffer(data) and Variable(data).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor

from ... import _torch
from ..._torch.modes import as_subclass
from ..._torch.tensors import make_subclass
from ...graph.regions import leaf
from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...guards.guard import TensorFacts
from ...guards.subclasses import IsSubclassTensor
from ...sources import InstanceAttr, Source
from ..objects.construction import MODELLED_BASES
from ..objects.function import call_own_code
from ..plain.sequence import ListValue, SequenceValue, TupleValue
from ..protocol.binding import bind_static, is_data_descriptor
from ..protocol.calls import call, method
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import remember
from ..protocol.value import Emitter, Frame, Value
from .context import Blocks, ContextValue, manager
from .tensor import TensorValue

Tensor = torch.Tensor


def is_traced(cls: Any) -> bool:
    """Whether tensors of this class can be modelled: all that is special about them is their __torch_function__ and Python attributes."""
    if issubclass(cls, (torch.nn.Parameter, torch.nn.Buffer)) or cls.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    if any(getattr(cls, name) is not getattr(Tensor, name) for name in FACTS):
        return False
    return hasattr(cls.__torch_function__, "__func__") and not hasattr(cls, "__getattr__")


MODELLED_BASES[torch.Tensor] = is_traced

FACTS = "shape dtype device layout requires_grad size stride dim is_conj is_neg is_inference".split()
"""What guards and shape rules ask of a tensor itself."""


def existing_subclass_tensor(frame: Frame, obj: torch.Tensor, source: Source) -> AbstractTensor:
    """The value of a tensor of the user's program; its graph input is an alias of class Tensor."""
    cls = type(obj)
    if not frame.services.torch_functions_on:
        return frame.break_graph(
            "tensor_subclass", f"{cls.__name__} while torch functions of subclasses are switched off outside"
        )
    if frame.modes.modes_at_start:  # guards are checked where neither mode nor class is asked
        return frame.break_graph("tensor_subclass", f"{cls.__name__} under a mode that began outside")
    facts = TensorFacts.of(obj)
    alias = obj.as_subclass(Tensor)
    if obj.layout is not torch.strided:
        return frame.break_graph("tensor_layout", f"{source} has layout {obj.layout}")

    frame.guard("PREDICATE", source, IsSubclassTensor(facts))
    node = frame.graph.tensor_input(alias, source, "tensor")
    frame.graph.aliased_inputs.add(node.name)
    value = SubclassTensorValue(node, node.meta["example_value"], cls, source, obj)
    remember(frame, value)
    return value


class SubclassTensorValue(TensorValue):
    """A tensor of a subclass."""

    overrides_torch_function = True
    is_plain = False

    def __init__(
        self, node: fx.Node, example: FakeTensor, cls: type, source: Source | None = None, obj: torch.Tensor | None = None
    ) -> None:
        super().__init__(node, example, source, obj)
        self.cls = cls

    def is_on(self, frame: Frame) -> bool:
        return not frame.modes.subclass_functions_off or super().is_on(frame)

    def as_graph_arg(self, frame: Frame) -> Any:
        if self.is_on(frame):
            return frame.break_graph("tensor_subclass", f"an operation with a {self.cls.__name__}")
        return super().as_graph_arg(frame)

    def reload(self, emit: Emitter) -> str:
        if self.example.requires_grad and self.example.is_leaf:
            text = super().reload(emit).removesuffix(".requires_grad_()")
            return f"{emit.const(make_subclass, 'make_subclass')}({emit.known(self.cls, self.cls.__name__)}, {text}, True)"
        return f"{emit.const(as_subclass, 'as_subclass')}({super().reload(emit)}, {emit.known(self.cls, self.cls.__name__)})"

    # --- attributes ---------------------------------------------------------------------------------------------
    def users_attribute(self, frame: Frame, name: str) -> Value | None:
        """What the user's classes or the instance say; None when it is torch's."""
        if name in self.attributes:
            return self.attributes[name]
        owner: Any
        static, owner = lookup_class(self.cls, name)
        from_user = static is not NO_ATTRIBUTE and not issubclass(Tensor, owner)
        if from_user and is_data_descriptor(static):
            return bind_static(frame, self, self.cls, owner, static, name)
        if self.obj is not None and name in self.obj.__dict__:
            return frame.wrap(self.obj.__dict__[name], InstanceAttr(self.source, name))
        return bind_static(frame, self, self.cls, owner, static, name) if from_user else None

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if isinstance(lookup_class(self.cls, name)[0], property) or lookup_class(self.cls, "__setattr__")[1] is not object:
            frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")
        return super().setattr(frame, name, value)

    def refuse_own_operators(self, frame: Frame) -> None:
        if own_operators(self.cls):
            frame.break_graph("tensor_subclass", f"an operator of a {self.cls.__name__}, which has operators of its own")


def own_operators(cls: type) -> bool:
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


# --- what torch's own __torch_function__ does ---------------------------------------------------------------------------


@contextlib.contextmanager
def functions_off(frame: Frame) -> Iterator[None]:
    """Torch functions of subclasses are off."""
    frame.modes.subclass_functions_off += 1
    try:
        yield
    finally:
        frame.modes.subclass_functions_off -= 1


@call(vars(Tensor)["__torch_function__"].__func__)
def default_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.Tensor.__torch_function__(cls, func, types, args=(), kwargs=None): results are of the class, too."""
    given = dict(zip(("cls", "func", "types", "args", "kwargs"), args)) | kwargs
    cls, func = given["cls"].real(), given["func"]
    if not all(issubclass(cls, kind.real()) for kind in given["types"].unpack(frame)):
        return ConstantValue(NotImplemented)
    named: Any = given.get("kwargs")
    if named is None or (named.is_constant() and named.constant() is None):
        named = {}
    else:
        named = {force_plain(frame, k): v for k, v in named.all_items(frame)}
    with functions_off(frame):
        found = func.call(frame, given["args"].unpack(frame) if "args" in given else [], named)
    if func.real() in torch.overrides.get_default_nowrap_functions():
        return found
    return converted(frame, found, cls)


@call(_torch.modes.disabled_torch_function, binds=False)
def disabled_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch._C._disabled_torch_function_impl(func, types, args=(), kwargs=None), what super().__torch_function__ is of a class with a
    __torch_dispatch__: results are as they are."""
    given: dict[str, Any] = dict(zip(("func", "types", "args", "kwargs"), args)) | kwargs
    named = given.get("kwargs")
    none = named is None or named.is_constant() and named.constant() is None
    names = {} if none else {force_plain(frame, key): value for key, value in given["kwargs"].all_items(frame)}
    with functions_off(frame):
        found: Value = given["func"].call(frame, given["args"].unpack(frame) if "args" in given else [], names)
        return found


def converted(frame: Frame, value: Value, cls: type) -> Value:
    """Tensors as ones of the class, also in tuples and lists."""
    if isinstance(value, TensorValue):
        return value if issubclass(value.python_type(), cls) else of_class(frame, value, cls)
    if isinstance(value, SequenceValue) and issubclass(value.python_type(), (tuple, list)) and value.source is None:
        items = [converted(frame, item, cls) for item in value.unpack(frame)]
        return ListValue(items) if value.python_type() is list else TupleValue(items, cls=value.python_type())
    return value


def of_class(frame: Frame, value: Any, cls: type) -> AbstractTensor:
    """The same tensor as an object of another class."""
    made = TensorValue(value.node, value.example) if cls is Tensor else SubclassTensorValue(value.node, value.example, cls)
    made.may_be_freed, made.of_inference = value.may_be_freed, value.of_inference
    remember(frame, made)
    return made


@method(Tensor, "as_subclass")
def as_subclass_method(
    frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]
) -> AbstractTensor:
    """Tensor.as_subclass(cls)"""
    cls = (args[0] if args else kwargs["cls"]).real()
    if cls is not Tensor and not is_traced(cls):
        return frame.break_graph("tensor_subclass", cls.__name__)
    with functions_off(frame):
        alias = frame.graph.call(frame, torch.ops.aten.alias.default, (self,))
    return of_class(frame, alias, cls)


@call(Tensor._make_subclass, binds=False)  # a static method in C, which does not say whose
def make_subclass_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
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


@manager(_torch.modes.torch_functions_off)
def functions_off_block(frame: Frame, manager: ContextValue) -> Blocks:
    """torch._C.DisableTorchFunctionSubclass()"""
    with functions_off(frame):
        yield None


@manager(_torch.modes.all_torch_functions_off)
def all_functions_off_block(frame: Frame, manager: ContextValue) -> Blocks:
    """torch._C.DisableTorchFunction(), which switches modes off, too"""
    modes = frame.modes
    held, modes.function_modes = modes.function_modes, []
    modes.all_functions_off += 1
    with functions_off(frame):
        yield None
    modes.all_functions_off -= 1
    modes.function_modes = held


# --- parameters, buffers, variables ----------------------------------------------------------------------------------------------


class NewParameterValue(TensorValue):
    """A parameter that the traced program made."""

    cls = torch.nn.Parameter
    is_plain = False

    def reload(self, emit: Emitter) -> str:
        text = super().reload(emit).removesuffix(".requires_grad_()")
        return f"{emit.const(as_parameter, 'as_parameter')}({text}, {self.example.requires_grad})"


def as_parameter(made: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """What a graph made of `leaf`, as a parameter."""
    return made if type(made) is torch.nn.Parameter else make_subclass(torch.nn.Parameter, made, requires_grad)


@call(torch.nn.Parameter)
def parameter_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
    """nn.Parameter(data, requires_grad=True)"""
    given = dict(zip(("data", "requires_grad"), args)) | kwargs
    data = given.get("data")
    if not isinstance(data, TensorValue) or not isinstance(data.example, FakeTensor) or frame.modes.transforms:
        return frame.break_graph("call_unknown", "construction of nn.Parameter without a tensor, or of a wrapper subclass")
    wanted = given.get("requires_grad", ConstantValue(True)).truth(frame)
    made: Any = frame.graph.call(frame, leaf, (data, wanted))
    value = NewParameterValue(made.node, made.example)
    value.may_be_freed = made.may_be_freed
    remember(frame, value)
    return value


@call(torch.nn.Buffer)
def buffer_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """nn.Buffer(data, persistent=True) is a tensor with attributes: its __new__ is traced."""
    return call_own_code(frame, torch.nn.Buffer.__new__, [frame.constant(torch.nn.Buffer), *args], kwargs)


@call(torch.autograd.Variable)
def variable_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.autograd.Variable(data, requires_grad=False) of programs older than torch 0.4: the tensor without its history, or a leaf."""
    given = dict(zip(("data", "requires_grad"), args)) | kwargs
    data, asks = given.get("data"), given.get("requires_grad", ConstantValue(False))
    known = isinstance(data, TensorValue) and data.python_type() in (torch.Tensor, torch.nn.Parameter) and len(args) < 3
    if not known or set(given) > {"data", "requires_grad"} or frame.modes.transforms:
        return frame.break_graph("call_unknown", "construction of a Variable of something else than a tensor")
    with functions_off(frame):
        made = frame.graph.call_method(frame, "detach", (data,))
        return made.call_method(frame, "requires_grad_", [], {}) if asks.truth(frame) else made
