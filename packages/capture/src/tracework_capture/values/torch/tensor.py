"""Tensors: every operation is a node of the graph, what describes the tensor (shape, dtype, device) is read from its fake.

TENSOR_ATTRIBUTES (tensor_attributes.py) and CALLS hold what is not simply a node.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any, cast

import numpy
import torch
from torch import fx
from tracework_primops import FakeTensor

from ... import _C
from ..._torch.tensors import MODULE_OF_TENSOR
from ...atoms import NUMPY_NUMBERS
from ...errors import BreakGraph
from ...graph.constant_data import data_of_numbers, known_tensor
from ...graph.inputs import lift_tensor
from ...graph.replaced import identity_observed, memory_observed
from ...graph.specialised import keep_data, specialised_tensor, truth_of_state
from ...graph.tensor_formulas import number_of_formula, truth_of_formula
from ...guards.classes import NO_ATTRIBUTE, lookup_class, meet
from ...guards.kinds import COMPARE_FUNCTIONS
from ...sources import Const, InstanceAttr, InstanceDict, ModuleEntry, Source, TensorOffset
from ..number.deferred import read_deferred
from ..number.floats import number_of_tensor
from ..number.symint import SymNumber, size_value
from ..objects.function import BoundMethodValue
from ..plain.sequence import NONE, ListValue, SequenceValue, TupleValue
from ..protocol.binding import BoundBuiltin, bind_static, is_data_descriptor
from ..protocol.calls import CALLS, Handler, Policy, method, methods
from ..protocol.constant import BINARY_FUNCTIONS, UNARY_FUNCTIONS, ConstantValue, force_plain, literal
from ..protocol.finalizers import drop_reference
from ..protocol.keys import IdentityKey
from ..protocol.kinds import AbstractArray, AbstractTensor, is_plain_tensor
from ..protocol.make import make
from ..protocol.memory import known_values, remember
from ..protocol.operators import call_dunder
from ..protocol.value import EXISTING, NEW, Emitter, Frame, Value
from .backward import is_freed, reload_freed, write_grad
from .float_forms import element, tensor_form
from .hooks import keeps_gradient
from .indices import first_such, select_by_data, select_symbolic, slice_by_data, store_by_data
from .inference_tensors import as_inference_tensor, is_for_inference, is_input_for_inference, is_inside
from .leaves import is_new_leaf
from .metadata_mutation import assign_data, change_requires_grad
from .overrides import Dispatching
from .tensor_attributes import OTHER_NAMES, TENSOR_ATTRIBUTES, numel, shape
from .tensor_data import tensor_of_leaves
from .tensor_text import text_of_tensor

NUMBERS = (int, float, bool, complex, *NUMPY_NUMBERS)
REFUSED_AS_ITEMS = frozenset(n for n in NUMPY_NUMBERS if not issubclass(n, (numpy.integer, float)))
"""Numbers of NumPy that torch's assignment to items takes for no number."""


class TensorOperations(AbstractTensor):
    """A tensor, and what its operations do past __torch_function__. `example` is its FakeTensor; `obj` the real one, when it exists already."""

    cls: type = torch.Tensor

    def __init__(self, node: fx.Node, example: FakeTensor, source: Source | None = None, obj: torch.Tensor | None = None) -> None:
        super().__init__(source)
        self.node = node
        self.example = example
        self.obj = obj
        self.mutability = NEW if source is None else EXISTING
        self.attributes = {}
        self.versions = []

    def is_leaf(self) -> bool:
        return self.keeps_leaf or self.example.is_leaf

    def python_type(self) -> type:
        return type(self.obj) if self.obj is not None else self.cls

    def is_buffer(self) -> bool:
        """isinstance(self, nn.Buffer): whether it says so of itself."""
        flag = self.attributes.get("_is_buffer")
        if flag is None:
            return isinstance(self.obj, torch.nn.Buffer)
        return flag.is_constant() and bool(flag.constant())

    def is_instance(self, classes: Any) -> bool | None:
        """What the metaclasses of torch's classes of tensors say."""
        if classes is torch.nn.Buffer:
            return self.is_buffer()
        if classes is torch.autograd.Variable:
            return True
        if classes is torch.nn.Parameter or isinstance(classes, type) and issubclass(classes, torch.nn.Parameter):
            return isinstance(self.obj, classes) if self.obj is not None else issubclass(self.python_type(), classes)
        if type(classes) is type(torch.FloatTensor) and self.obj is None:
            return tensor_type_name(self.example) == f"{classes.__module__}.{classes.__name__}"
        return None

    def describe(self) -> str:
        shape = "x".join(map(str, self.example.shape))
        return f"tensor {self.example.dtype} [{shape}]" + (f" from {self.source}" if self.source is not None else "")

    def real(self) -> Any:
        if self.obj is None:
            raise LookupError("tensor")
        return self.obj

    def hash_key(self, frame: Frame) -> Any:
        identity_observed(frame, self)
        return IdentityKey(self.obj if self.obj is not None else self)

    def same_object(self, other: Value) -> bool | None:
        if self is not other and self.is_chosen and getattr(other, "is_chosen", False):
            return None
        return self is other

    def as_graph_arg(self, frame: Frame) -> Any:
        if self.is_another_kind and torch.is_grad_enabled():
            return frame.break_graph("side_effect_unknown", "a gradient of a tensor whose data became another kind of tensor")
        if self.node is None:
            return frame.break_graph("autograd_function", f"a {self.describe()} made inside is used outside")
        return self.node

    def reload(self, emit: Emitter) -> str:
        if self.node is None:
            return super().reload(emit)
        try:
            new_leaf, freed = is_new_leaf(self.example), self.may_be_freed and is_freed(self.example)
        except RuntimeError as error:  # one of several views, which eager refuses to use once their base was written to
            raise BreakGraph("cannot_rebuild", str(error)) from error
        if freed:
            return reload_freed(self, emit)
        node = self.node
        if self.retains_grad and self.example.requires_grad and "grad" not in self.attributes:  # it may have been detached since
            node = node.graph.call_function(keeps_gradient, (node,))
            node.meta.update(example_value=self.example, val=self.example, data_dependent=True, of_history=True)
        text = emit.graph_output(node)
        if self.of_inference:
            return f"{emit.const(as_inference_tensor, 'as_inference_tensor')}({text})"
        return f"{text}.requires_grad_()" if new_leaf else text

    def deferred_truth(self, frame: Frame) -> Value | None:
        return read_deferred(frame, self, "__bool__") if type(self) is TensorValue and known_tensor(self.node) is None else None

    def truth(self, frame: Frame) -> bool:
        known = known_tensor(self.node)
        if known is not None and known.numel() == 1:
            return bool(known)
        data = None if self.node is None else data_of_numbers(self.node)
        if data is not None and data.numel() == 1:
            return bool(data)
        decided = None if self.node is None else truth_of_state(frame, self.node)
        if decided is not None:
            return decided
        kept = specialised_tensor(frame, self.node)
        if kept is not None and kept.numel() == 1:
            return bool(kept)
        decided = truth_of_formula(frame, self.node)
        if decided is not None:
            return decided
        return frame.break_graph("data_dependent_branch", f"truth of a {self.describe()}")

    # --- attributes ---------------------------------------------------------------------------------------------
    def getattr(self, frame: Frame, name: str) -> Value:
        name = OTHER_NAMES.get(name, name)
        if name in self.attributes:
            return self.attributes[name]
        patch = self.patch(frame, name)
        if patch is not None:
            return patch
        row = TENSOR_ATTRIBUTES.get(name)
        if row is not None:
            found: Value = row(frame, self, name)
            return found
        if self.obj is not None and name in getattr(self.obj, "__dict__", ()):
            return self.own_attribute(frame, name)
        of_its_class = lookup_class(self.python_type(), name)[0] is not NO_ATTRIBUTE
        if of_its_class and ((torch.Tensor, name) in CALLS or callable(getattr(torch.Tensor, name, None))):
            return BoundBuiltin(self, name)
        if hasattr(self.python_type(), name):
            return frame.break_graph("attribute_unknown", f"Tensor.{name}")
        if self.obj is not None:
            frame.guard("LACKS_ATTR", self.source, name)
        return frame.raise_new(AttributeError, f"'{_C.type_name(self.python_type())}' object has no attribute '{name}'")

    def patch(self, frame: Frame, name: str) -> Value | None:
        """The method that the program has put into torch.Tensor, or what its own class of parameters has, None where it is torch's, or the
        tensor's own. Guarded."""
        cls = self.python_type()
        if cls is not torch.Tensor and issubclass(cls, (torch.nn.Parameter, torch.nn.Buffer)):
            static, owner = lookup_class(cls, name)
            if static is not NO_ATTRIBUTE and owner not in torch.Tensor.__mro__ and not owner.__module__.startswith("torch."):
                if self.obj is not None and not is_data_descriptor(static):
                    if name in self.obj.__dict__:
                        return None
                    frame.guard("DICT_LACKS", InstanceDict(self.source), name)
                return bind_static(frame, self, cls, owner, static, name)
        static, _ = lookup_class(torch.Tensor, name)
        if isinstance(static, types.FunctionType) and static.__module__ != MODULE_OF_TENSOR:
            return BoundMethodValue(frame.wrap(static, Const(static, name)), self)
        return None

    def own_attribute(self, frame: Frame, name: str) -> Value:
        return frame.wrap(self.obj.__dict__[name], InstanceAttr(self.source, name))

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        name = OTHER_NAMES.get(name, name)
        static, _ = lookup_class(torch.Tensor, name)
        if static is not NO_ATTRIBUTE and is_data_descriptor(static):
            if name == "grad":
                write_grad(frame, self, value)
                return
            if name == "data":
                assign_data(frame, self, value)
                return
            if name == "requires_grad":
                requires_grad_(frame, self, name, [value], {})
                return
            frame.break_graph("side_effect_unknown", f"assignment to {name} of a tensor")
        if self.obj is not None and self.source is not None and name not in self.attributes:
            drop_reference(frame, self.obj.__dict__, InstanceDict(self.source), name)
        self.attributes[name] = value
        self.log_attribute(frame, name, value)

    def log_attribute(self, frame: Frame, name: str, value: Value) -> None:
        """An attribute that is set when the graph has run."""
        log = frame.mutations.attribute if self.obj is not None else frame.mutations.attribute_of_result
        log(self, name, value)

    # --- items --------------------------------------------------------------------------------------------------
    def getitem(self, frame: Frame, key: Value) -> Value:
        target: Any
        rest: Value | None
        target, rest = select_symbolic(frame, self, key.as_index(frame))
        if rest is not None:
            target, rest = select_by_data(frame, target, rest)
        if rest is not None:
            target, rest = slice_by_data(frame, target, rest)
        if rest is not None:
            target = frame.graph.call(frame, operator.getitem, (target, positions(frame, rest)))
        return cast(Value, target)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        if value.python_type() in REFUSED_AS_ITEMS:
            frame.break_graph("operation_unknown", f"an item of a tensor is set to a {value.python_type().__name__}")
        target, rest = select_symbolic(frame, self, key.as_index(frame))
        key = ConstantValue(Ellipsis) if rest is None else rest
        if store_by_data(frame, target, key, value):
            return
        if isinstance(key, TensorValue) and key.example.ndim == 0 and key.example.dtype is torch.bool:
            # torch would look at its data; a mask over one more dim says the same
            target, key = (frame.graph.call_method(frame, "unsqueeze", (t, ConstantValue(0))) for t in (self, key))
        frame.graph.call(frame, operator.setitem, (target, positions(frame, key), element(frame, value, target)))

    def length(self, frame: Frame) -> Value:
        if self.example.ndim == 0:
            return frame.raise_new(TypeError, "len() of a 0-d tensor")
        return size_value(frame, self.example.shape[0])

    def unpack(self, frame: Frame) -> list[Value]:
        if self.example.ndim == 0:
            return frame.raise_new(TypeError, "iteration over a 0-d tensor")
        force_plain(frame, self.length(frame))
        return frame.graph.call_method(frame, "unbind", (self, 0)).unpack(frame)

    def is_fixed(self) -> bool:
        return True

    def iterate(self, frame: Frame) -> Value:
        return TupleValue(self.unpack(frame)).iterate(frame)

    def own_reversed(self, frame: Frame) -> Value | None:
        if not hasattr(self.python_type(), "__reversed__"):
            return None
        return self.call_method(frame, "flip", [ConstantValue(0)], {}) if self.example.dim() else self

    def contains(self, frame: Frame, item: Value) -> Value:
        return frame.break_graph("tensor_to_python", "membership in a tensor")

    # --- texts --------------------------------------------------------------------------------------------------
    def data_text(self, frame: Frame, fn: Callable[..., str], *rest: Any) -> Value | None:
        return text_of_tensor(frame, self, fn, *rest)

    def format_operand(self, frame: Frame) -> Value:
        is_number = type(self) is TensorValue and self.python_type() is torch.Tensor and not self.example.ndim
        if not is_number or frame.modes.function_modes or self.example.is_meta:
            return self
        return number_row(frame, frame.graph.compute(frame, torch.detach, (self,)), "item", [], {})

    def conversion_operand(self, frame: Frame, kind: str | None) -> Value:
        if kind == "s":
            return self.data_text(frame, str) or self
        is_float = kind is not None and kind in "fFeEgG" and type(self) is TensorValue and not self.example.requires_grad
        if not is_float or not self.example.dtype.is_floating_point or self.example.numel() != 1 or frame.modes.function_modes:
            return self
        return number_row(frame, self, "__float__", [], {})

    # --- operators ----------------------------------------------------------------------------------------------
    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        meet(torch.Tensor)
        if isinstance(other, TensorValue) and other.is_on(frame):
            return other.binary(frame, op, self, not reverse)
        other = other.as_operand(frame, [self], op)
        if not is_operand(other) or op == "@=":  # tensors have no __imatmul__: a new one takes the name
            return None
        if op.endswith("="):
            frame.graph.call(frame, BINARY_FUNCTIONS[op], (self, other))
            return self
        pair = (other, self) if reverse else (self, other)
        return frame.graph.call(frame, BINARY_FUNCTIONS[op], pair)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        meet(torch.Tensor)
        if isinstance(other, TensorValue) and other.is_on(frame):
            return other.operate(frame, COMPARE_FUNCTIONS[op], [self, other])
        other = other.as_operand(frame, [self], op)
        return frame.graph.call(frame, COMPARE_FUNCTIONS[op], (self, other)) if is_operand(other) else None

    def unary(self, frame: Frame, op: str) -> Value:
        meet(torch.Tensor)
        return frame.graph.call(frame, UNARY_FUNCTIONS[op], (self,))

    # --- methods ------------------------------------------------------------------------------------------------
    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        patch = self.patch(frame, name)
        if patch is not None:
            return patch.call(frame, args, kwargs)
        row = CALLS.get((torch.Tensor, name))
        if row is not None:
            return row.handler(frame, self, name, args, kwargs)
        if name in self.attributes or not hasattr(torch.Tensor, name):
            return self.getattr(frame, name).call(frame, args, kwargs)
        if name.startswith("__"):
            return call_dunder(frame, self, name, args, kwargs)
        if name in PLAIN_METHODS:
            return frame.break_graph("call_unknown", f"Tensor.{name}")
        result = tensor_form(frame, name, [self, *args], kwargs)
        if result is None:
            result = frame.graph.call_method(frame, name, (self, *args), kwargs)
        return self if is_inplace(name) else result

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.raise_new(TypeError, "'Tensor' object is not callable")


class TensorValue(Dispatching, TensorOperations):
    """A tensor."""

    def as_place(self, frame: Frame) -> Value:
        return self.call_method(frame, "__index__", [], {}) if is_known_int(frame, self) else self


def positions(frame: Frame, key: Value) -> Value:
    """The key of an index with lists of ints, some of them symbols, and arrays of NumPy as tensors; of masks that say the same the first."""
    if type(key) is TupleValue:
        items = key.all_items(frame)
        found = [positions(frame, item) for item in items]
        return key if all(a is b for a, b in zip(items, found)) else TupleValue(found)
    if is_plain_tensor(key) and key.node is not None and key.example.dtype is torch.bool:
        return first_such(frame, key)
    if isinstance(key, AbstractArray) and key.is_plain and not key.scalar and key.example.dtype in (torch.int64, torch.bool):
        return key.shared(frame)
    if type(key) is not ListValue:
        return key
    items = key.all_items(frame)
    if not any(isinstance(i, SymNumber) for i in items) or not all(i.python_type() is int for i in items):
        return key
    return tensor_of_leaves(frame, key, [key], {}) or key


def is_inplace(name: str) -> bool:
    """True for names such as add_."""
    return name.endswith("_") and not name.endswith("__")


def is_operand(value: Value) -> bool:
    """Whether torch computes tensor op value."""
    if isinstance(value, (TensorValue, SymNumber)):
        return True
    return value.is_constant() and isinstance(value.constant(), NUMBERS)


def existing_tensor(frame: Frame, obj: torch.Tensor, source: Source) -> AbstractTensor:
    """The value of a tensor of the user's program: an input of the graph."""
    is_buffer = isinstance(source, ModuleEntry) and source.table == "_buffers"
    role = "parameter" if isinstance(obj, torch.nn.Parameter) else "buffer" if is_buffer else "tensor"
    node = lift_tensor(frame, obj, source, role)
    keep_data(node, obj, source)
    value = TensorValue(node, node.meta["example_value"], source, obj)
    remember(frame, value)
    if obj.is_inference() and not is_inside(frame):  # which every tensor's guard says, too
        frame.modes.uses_inference = True
        frame.modes.storages.setdefault(value.example.storage, value.example.storage.version)
    return value


def tensor_result(frame: Frame, node: fx.Node, example: FakeTensor) -> AbstractTensor:
    """The value of a node's tensor; the argument itself when the operation gave it back."""
    known = known_values(frame).get(id(example))
    if known is not None and known.example is example:
        return known
    value = TensorValue(node, example)
    value.may_be_freed = frame.graph.history_freed
    if frame.modes.uses_inference:
        value.of_inference = is_for_inference(frame, example)
    remember(frame, value)
    return value


# --- methods: name -> fn(frame, tensor, name, args, kwargs) ------------------------------------------------------------


def size(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return of_dim(frame, shape(frame, self, name), args, kwargs)


def stride(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return of_dim(frame, TupleValue([size_value(frame, s) for s in self.example.stride()]), args, kwargs)


def of_dim(frame: Frame, numbers: SequenceValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """All numbers, or that of one dim."""
    dim = args[0] if args else kwargs.get("dim", NONE)
    if dim.is_constant() and dim.constant() is None:
        return numbers
    index = force_plain(frame, dim)
    if type(index) is not int:
        return frame.break_graph("fake_failed", f"a dim that is {index!r}: eager refuses it, or knows it by name")
    if not -len(numbers.items) <= index < len(numbers.items):
        return frame.raise_new(IndexError, out_of_range(index, len(numbers.items)))
    number: Value = numbers.items[index]
    return number


def out_of_range(dim: int, ndim: int) -> str:
    """What eager says of a dim that a tensor does not have."""
    if ndim == 0:
        return f"Dimension specified as {dim} but tensor has no dimensions"
    return f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})"


def fact_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    plain_args = [force_plain(frame, a) for a in args]
    try:
        found = getattr(self.example, name)(*plain_args, **{k: force_plain(frame, v) for k, v in kwargs.items()})
    except (AttributeError, RuntimeError, TypeError) as error:  # a dim_order that is not unique, say, or what this torch has not
        return frame.break_graph("fake_failed", f"Tensor.{name}: {error}")
    return size_value(frame, found) if isinstance(found, torch.SymInt) else literal(frame, found)


def storage_offset(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Where a tensor begins in its memory; in that of an input that is where the input does, and more."""
    memory_observed(frame, self)
    for value in known_values(frame).values():
        if value.obj is not None and value.example.storage is self.example.storage:
            frame.guard("CONSTANT", TensorOffset(value.source), value.obj.storage_offset())
    return fact_method(frame, self, name, args, kwargs)


def is_inference(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(is_for_inference(frame, self.example) if self.obj is None else is_input_for_inference(frame, self))


def break_row(reason: str) -> Handler:
    """A method that is left to plain Python."""

    def handler(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        memory_observed(frame, self)
        return frame.break_graph(reason, f"Tensor.{name}")

    return handler


def number_row(frame: Frame, self: Any, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """item(), int(), tolist(), ...: known only of tensors made of plain numbers; floats wait until the graph has run."""
    known = known_tensor(self.node)
    if known is None and name in ("item", "__float__") and not args and not kwargs:
        found: Value | None = number_of_tensor(frame, self, name)
        if found is not None:
            return found
    if known is None and frame.options.unbacked and not args and not kwargs:
        found = number_of_data(frame, self, name)
        if found is not None:
            return found
    late = read_deferred(frame, self, name) if known is None and not args and not kwargs else None
    if late is not None:
        return late
    known = specialised_tensor(frame, self.node, name == "tolist") if known is None else known
    number = number_of_formula(frame, self.node) if known is None and name in ("item", "__int__", "__index__") else None
    if number is not None:
        return size_value(frame, number)
    if known is None or args or kwargs or (name != "tolist" and known.numel() != 1):
        return frame.break_graph("tensor_to_python", f"Tensor.{name}")
    return literal(frame, getattr(known, name)())


def is_known_int(frame: Frame, value: Value) -> bool:
    """Whether it is a tensor that is an index, of a number that is known while tracing."""
    known = specialised_tensor(frame, value.node) if is_plain_tensor(value) else None
    return known is not None and known.numel() == 1 and not (known.is_floating_point() or known.is_complex())


def number_of_data(frame: Frame, self: AbstractTensor, name: str) -> Value | None:
    """item(), int() and tolist() of a tensor of whole numbers as symbols without a value; None for others."""
    example = self.example
    whole = not (example.dtype.is_floating_point or example.dtype.is_complex or example.dtype == torch.bool)
    if name == "tolist":
        if example.ndim != 1 or type(example.shape[0]) is not int or example.dtype == torch.bool:
            return None
        items = [number_row(frame, item, "item", [], {}) for item in self.unpack(frame)]
        return ListValue(items)
    if not whole or name not in ("item", "__int__", "__index__") or type(example.numel()) is not int or example.numel() != 1:
        return None
    return frame.graph.call_method(frame, "item", (self,))


def type_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args and not kwargs:
        return literal(frame, tensor_type_name(self.example))
    return frame.graph.call_method(frame, name, (self, *(named_type(a) for a in args)), kwargs)


def named_type(value: Value) -> Value:
    """torch.DoubleTensor and the like by name; other values as they are."""
    try:
        cls = value.real()
    except LookupError:
        return value
    return ConstantValue(f"{cls.__module__}.{cls.__name__}") if type(cls) is type(torch.DoubleTensor) else value


def tensor_type_name(example: FakeTensor) -> str:
    """What type() of the tensor gives: "torch.FloatTensor", say. A fake tensor of a GPU does not know it."""
    if example.device.type == "cpu":
        return example.type()
    return torch.empty((), dtype=example.dtype).type().replace("torch.", f"torch.{example.device.type}.")


def length_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return self.length(frame)


def requires_grad_(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
    wanted = args[0] if args else kwargs.get("requires_grad", ConstantValue(True))
    if self.of_inference:
        return frame.break_graph("fake_failed", "requires_grad_ of an inference tensor")
    if type(force_plain(frame, wanted)) is not bool:
        return frame.break_graph("fake_failed", f"requires_grad_ with a {wanted.python_type().__name__}, which eager refuses")
    of_its_base = (
        self.obj is None and self.example._is_view() and self.example.is_leaf
    )  # a view made under no_grad says what that asks for
    if force_plain(frame, wanted) == self.example.requires_grad and not of_its_base:
        return self
    if not isinstance(self.example, FakeTensor):
        return frame.break_graph("side_effect_unknown", f"requires_grad_ of {self.describe()}, of a wrapper subclass")
    if self.obj is None:
        frame.graph.call_method(frame, "requires_grad_", (self, wanted))
        return self
    changed: AbstractTensor = change_requires_grad(frame, self, force_plain(frame, wanted))
    return changed


def unary_row(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda frame, self, name, args, kwargs: frame.graph.call(frame, fn, (self, *args), kwargs)


PLAIN_METHODS = frozenset(
    "_clear_non_serializable_cached_data _dtensor__new__ _fix_weakref _make_subclass _make_wrapper_subclass _reduce_ex_internal "
    "_rev_view_func_unsafe _typed_storage _use_count _view_func _view_func_unsafe const_data_ptr reinforce storage_type eig lstsq "
    "solve symeig to_sparse_coo _is_view ipu mtia xpu".split()
)
"""Methods that are no operators: about memory, Python objects, or gone from torch. They break the graph."""


def numpy_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args or not kwargs.keys() <= {"force"}:
        return frame.break_graph("tensor_to_numpy", "Tensor.numpy with these arguments")
    if "force" in kwargs and kwargs["force"].truth(frame):
        self = cast(AbstractTensor, frame.graph.call_method(frame, "detach", (self,)))
    return make.array_of(frame, self)


FACTS = (
    "dim ndimension element_size is_floating_point is_complex is_contiguous get_device is_signed is_conj is_neg dim_order has_names"
).split()
AS_NUMBERS = "item tolist __bool__ __int__ __float__ __index__ __complex__ is_nonzero".split()
LEFT_TO_PYTHON = {
    "tensor_to_python": "data_ptr storage is_shared is_pinned equal allclose __repr__ __str__ __format__ __hash__ is_set_to",
    "tensor_to_numpy": "__array__ __dlpack__ __dlpack_device__",
    "call_unknown": "__deepcopy__ share_memory_ pin_memory apply_ map_ map2_ to_sparse to_mkldnn __reduce_ex__ __setstate__ module_load "
    "resize_ resize_as_ names refine_names rename",
}
"""Why -> the methods that break the graph."""
methods(
    torch.Tensor,
    {
        "is_inference": is_inference,
        "size": size,
        "stride": stride,
        **dict.fromkeys(("numel", "nelement"), numel),
        "__len__": length_method,
        "type": type_method,
        "requires_grad_": requires_grad_,
        "__abs__": unary_row(operator.abs),
        "__round__": unary_row(torch.round),
        "mode": unary_row(torch.mode),  # fakes have another attribute of that name
        "storage_offset": storage_offset,
        **dict.fromkeys(FACTS, fact_method),
        **dict.fromkeys(AS_NUMBERS, number_row),
        "numpy": numpy_method,
    },
)
for _reason, _names in LEFT_TO_PYTHON.items():
    method(torch.Tensor, *_names.split(), policy=Policy.BREAK, reason=_reason)(break_row(_reason))
