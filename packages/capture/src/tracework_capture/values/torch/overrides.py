"""The __torch_function__ protocol: which modes and classes a call of torch is dispatched to, in which order, and with which function.

TorchFunctionModes that are on stand in `frame.modes.function_modes`, the innermost last; while one is asked, it is off. A DeviceContext,
which is what a default device is, stays torch's own: its only effect is on functions that make tensors, and they run under it.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ... import _torch
from ..._torch.modes import torch_functions_on
from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...guards.kinds import COMPARE_FUNCTIONS
from ..number.deferred import DeferredValue
from ..number.symint import SymNumber
from ..objects.function import FunctionValue
from ..objects.instance import ObjectValue
from ..objects.row_value import OVERRIDES, RowValue
from ..plain.mapping import dict_of
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.binding import BoundBuiltin, class_value
from ..protocol.calls import calls
from ..protocol.constant import BINARY_FUNCTIONS, GETTERS, UNARY_FUNCTIONS, ConstantValue, force_plain
from ..protocol.operators import call_dunder
from ..protocol.value import Value
from .opaque_tensor import ForeignTensor
from .tensor_attributes import OTHER_NAMES, TENSOR_ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..protocol.calls import Handler
    from ..protocol.kinds import AbstractTensor
    from ..protocol.value import Frame
    from .modes import Modes

Tensor = torch.Tensor


class Dispatching(Value):
    """Operations of a tensor that ask a __torch_function__ first, where one is on; a base before the class that has them themselves."""

    overrides_torch_function = False

    def is_on(self, frame: Frame) -> bool:
        """Whether operations go to __torch_function__."""
        return bool(frame.modes.function_modes)

    def users_attribute(self, frame: Frame, name: str) -> Value | None:
        """What the user's classes or the instance say; None when it is torch's."""
        return None

    def refuse_own_operators(self, frame: Frame) -> None:
        """Breaks the graph where the class of the tensor has operators of its own."""

    def not_modelled(self, frame: Frame, what: str) -> NoReturn:
        frame.break_graph(reason_of(frame), f"{what} of a {self.python_type().__name__}")

    def getattr(self, frame: Frame, name: str) -> Value:
        found = self.users_attribute(frame, name)
        return self.torch_attribute(frame, name) if found is None else found

    def torch_attribute(self, frame: Frame, name: str) -> Value:
        """What torch.Tensor has under a name."""
        if name == "__class__" or not self.is_on(frame):
            return super().getattr(frame, name)
        if OTHER_NAMES.get(name, name) in TENSOR_ATTRIBUTES:
            return dispatch(frame, attribute_function(OTHER_NAMES.get(name, name)), [self], {})
        if callable(getattr(Tensor, name, None)):
            return BoundBuiltin(self, name)
        return super().getattr(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        if frame.modes.function_modes and hasattr(Tensor, name):
            self.not_modelled(frame, f"assignment to {name}")
        return super().setattr(frame, name, value)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found: Value | None = self.users_attribute(frame, name)
        if found is not None:
            return found.call(frame, args, kwargs)
        if not self.is_on(frame) or getattr(Tensor, name, None) in silent_methods():
            return super().call_method(frame, name, args, kwargs)
        if name.startswith("__") or not callable(getattr(Tensor, name, None)):
            return self.not_modelled(frame, name)
        if redispatches(getattr(Tensor, name)):
            return inline(frame, getattr(Tensor, name), [self, *args], kwargs)
        return dispatch(frame, method_function(name), [self, *args], kwargs)

    # --- operators ----------------------------------------------------------------------------------------------
    def operate(self, frame: Frame, function: Callable[..., Any], values: list[Value]) -> Value:
        """A Python operator."""
        tensors = [value for value in values if isinstance(value, Dispatching)]
        for value in tensors:
            value.refuse_own_operators(frame)
        alone = not any(value.overrides_torch_function for value in tensors)
        func, order = operator_function(function, tuple(stand_in(v, alone) for v in values))
        return dispatch(frame, method_function(func), [values[i] for i in order], {})

    def takes(self, frame: Frame, other: Value) -> bool:
        """Whether an operator with this operand is dispatched to a __torch_function__."""
        if not self.is_on(frame):
            return False
        if isinstance(other, DeferredValue):
            return other.needed(frame)
        if isinstance(other, (Dispatching, SymNumber)) or is_number(other):
            return True
        if frame.modes.function_modes:
            return type(other).as_operand is not Value.as_operand or self.not_modelled(frame, "an operator")
        return False

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        if not self.takes(frame, other):
            return super().binary(frame, op, other, reverse)
        return self.operate(frame, BINARY_FUNCTIONS[op], [other, self] if reverse else [self, other])

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        if not self.takes(frame, other):
            return super().compare(frame, op, other)
        return self.operate(frame, COMPARE_FUNCTIONS[op], [self, other])

    def unary(self, frame: Frame, op: str) -> Value:
        return self.operate(frame, UNARY_FUNCTIONS[op], [self]) if self.is_on(frame) else super().unary(frame, op)

    def getitem(self, frame: Frame, key: Value) -> Value:
        return self.operate(frame, operator.getitem, [self, key]) if self.is_on(frame) else super().getitem(frame, key)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        if not self.is_on(frame):
            return super().setitem(frame, key, value)
        self.refuse_own_operators(frame)
        dispatch(frame, method_function("__setitem__"), [self, key, value], {})

    def length(self, frame: Frame) -> Value:
        if not self.is_on(frame):
            return super().length(frame)
        self.refuse_own_operators(frame)
        return dispatch(frame, method_function("__len__"), [self], {})

    def unpack(self, frame: Frame) -> list[Value]:
        if not self.is_on(frame):
            return super().unpack(frame)
        self.refuse_own_operators(frame)
        if force_plain(frame, self.call_method(frame, "dim", [], {})) == 0:
            return frame.raise_new(TypeError, "iteration over a 0-d tensor")
        return self.call_method(frame, "unbind", [ConstantValue(0)], {}).unpack(frame)

    def truth(self, frame: Frame) -> bool:
        return self.not_modelled(frame, "truth") if frame.modes.function_modes else super().truth(frame)


def reason_of(frame: Frame) -> str:
    """The id of a break at what is not modelled."""
    return "function_mode" if frame.modes.function_modes else "tensor_subclass"


def is_number(value: Value) -> bool:
    return value.is_constant() and type(value.constant()) in (int, float, bool)


class _Found(Exception):
    pass


class _DispatchRecorder(torch.Tensor):
    """Tells which function of torch an operator calls, with which of its operands."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: tuple[type],
        args: tuple[torch.Tensor | int, ...] = (),
        kwargs: dict[Any, Any] | None = None,
    ) -> NoReturn:
        raise _Found(func, args)


def stand_in(value: Value, alone: bool) -> str:
    """The kind of an operand, as far as it decides which function is called; alone: no class is dispatched to, but a mode is."""
    if not isinstance(value, Dispatching):
        return "number"
    return "self" if alone or value.overrides_torch_function else "tensor"


@functools.cache
def operator_function(function: Callable[..., Any], kinds: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
    """(name of the function of torch.Tensor that a Python operator calls on operands of these kinds, the order of its arguments)."""
    made = {
        "self": lambda: torch.zeros(2).as_subclass(_DispatchRecorder),
        "tensor": lambda: torch.zeros(2),
        "number": lambda: int("1000"),
    }
    operands = [made[kind]() for kind in kinds]
    try:
        with torch_functions_on():
            function(*operands)
    except _Found as found:
        func, args = found.args
        return func.__name__, tuple(next(i for i, o in enumerate(operands) if o is a) for a in args)
    raise LookupError(function)


# --- functions of torch as values ------------------------------------------------------------------------------------


def method_function(name: str) -> Value:
    """torch.Tensor.name, which acts on its first argument."""
    function = getattr(Tensor, OTHER_METHODS.get(name, name))
    return RowValue(function, lambda frame, args, kwargs: by_protocol(frame, args[0], name, list(args[1:]), kwargs))


OTHER_METHODS = {"ndimension": "dim", "nelement": "numel"}
"""Methods of tensors -> those as which __torch_function__ gets them."""


def by_protocol(frame: Frame, owner: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """owner.name(*args) of a tensor; special methods go by the operators' protocol."""
    if not isinstance(owner, Dispatching):
        return frame.break_graph("tensor_subclass", f"Tensor.{name} of a {owner.describe()}")
    if name.startswith("__"):
        return call_dunder(frame, owner, name, args, kwargs)
    return owner.call_method(frame, name, args, kwargs)


def attribute_function(name: str) -> Value:
    """torch.Tensor.name.__get__"""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not args or not isinstance(args[0], Dispatching) or kwargs:
            return frame.break_graph("call_unknown", f"Tensor.{name}.__get__ with these arguments")
        return args[0].torch_attribute(frame, name)

    return RowValue(getattr(Tensor, name).__get__, row)


def overloaded(args: Sequence[Value], kwargs: dict[str, Value]) -> list[Value]:
    """The arguments whose classes are dispatched to, one for each class, subclasses first."""
    found: list[Value] = []
    for value in [*args, *kwargs.values()]:
        items = value.items if isinstance(value, SequenceValue) else [value]
        for item in items:
            if not has_function(item) or any(item.python_type() is other.python_type() for other in found):
                continue
            before = (i for i, other in enumerate(found) if issubclass(item.python_type(), other.python_type()))
            found.insert(next(before, len(found)), item)
    return found


def has_function(value: Any) -> bool:
    if type(value) is ConstantValue:
        return False
    if isinstance(value, (Dispatching, ForeignTensor)):
        return value.overrides_torch_function
    return isinstance(value, ObjectValue) and lookup_class(value.cls, "__torch_function__")[0] is not NO_ATTRIBUTE


def is_overridden(frame: Frame, args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a call of torch with these arguments goes to a __torch_function__."""
    return bool(frame.modes.function_modes) or not frame.modes.subclass_functions_off and bool(overloaded(args, kwargs))


def dispatch_function(frame: Frame, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A call of a function in torch's namespaces with such arguments, or under a mode."""
    fn = function.real()
    reason, what = reason_of(frame), "under a mode" if frame.modes.function_modes else "of a subclass"
    if isinstance(fn, (_torch.operators.OpOverload, _torch.operators.OpOverloadPacket)):
        return frame.break_graph(reason, f"{fn} {what}")
    if not isinstance(fn, types.BuiltinFunctionType) and not is_listed(frame, fn):
        if not redispatches(fn):
            return frame.break_graph(reason, f"{fn.__name__} {what}, in whose Python code torch functions are called")
    return inline(frame, fn, args, kwargs) if redispatches(fn) else dispatch(frame, function, args, kwargs)


def override(frame: Frame, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """A call of a function that has a row, where it is dispatched to a __torch_function__; else None."""
    if is_overridden(frame, args, kwargs) and is_overridable(frame, function.fn):
        return dispatch_function(frame, function, args, kwargs)
    return None


OVERRIDES["torch_function"] = override


def redispatches(fn: Callable[..., Any]) -> bool:
    """Whether a function of torch is Python code that hands its call over, with the arguments in a form of its own."""
    if not isinstance(fn, types.FunctionType):
        return False
    return "handle_torch_function" in fn.__code__.co_names or {"if_true", "if_false"} <= {
        *fn.__code__.co_freevars
    }  # boolean_dispatch


def inline(frame: Frame, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    return frame.inline(FunctionValue(fn, None), args, kwargs)


def is_overridable(frame: Frame, fn: Callable[..., Any]) -> bool:
    """Whether torch asks __torch_function__ about calls of it; functions that make tensors ask modes only."""
    try:
        return redispatches(fn) or is_listed(frame, fn) or (bool(frame.modes.function_modes) and fn in makers())
    except TypeError:
        return False


def is_listed(frame: Frame, fn: Callable[..., Any]) -> bool:
    """Whether it is one of the overridable functions, which torch cannot list while a mock stands for one: it asks all for their names."""
    try:
        return fn in overridable_functions()
    except AttributeError:
        return frame.break_graph(reason_of(frame), f"{fn.__name__} while something else stands for a function of torch")


@functools.cache
def makers() -> frozenset[Callable[..., Any]]:
    """Functions without a tensor among their arguments that ask modes."""
    return frozenset({torch.device, *_torch.modes.device_constructors()})


@functools.cache
def silent_methods() -> frozenset[bool | Callable[..., Any]]:
    """Methods of a tensor that never look for __torch_function__. torch's list has some that do, as it need not test them."""
    asking = "new new_empty new_empty_strided new_full new_ones new_tensor new_zeros stride unflatten".split()
    return frozenset(torch.overrides.get_ignored_functions()) - {getattr(Tensor, name) for name in asking} | {Tensor.set_}


@functools.cache
def overridable_functions() -> frozenset[Callable[..., Any]]:
    """Functions of torch that look for __torch_function__."""
    return frozenset(fn for functions in torch.overrides.get_overridable_functions().values() for fn in functions)


def dispatch(frame: Frame, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Asks the innermost mode, or else the classes of the arguments, one after the other."""
    asked = [] if frame.modes.subclass_functions_off else overloaded(args, kwargs)
    if asked and not frame.modes.modes_at_start:
        guard_functions(frame)
    kinds = TupleValue([class_value(frame, value.python_type()) for value in asked]) if asked else UnknownTypes()
    rest = [dict_of(frame, [(ConstantValue(k), v) for k, v in kwargs.items()])] if kwargs else []
    given = [function, kinds, TupleValue(list(args)), *rest]
    modes = frame.modes.function_modes
    if modes:
        found = dispatch_to_mode(frame, modes, given)
        if not is_not_implemented(found):
            return found
        return frame.break_graph("function_mode", f"a mode does not implement {function.describe()}")
    for value in asked:
        if isinstance(value, ForeignTensor):
            value.used()
        handler = class_value(frame, value.python_type()).getattr(frame, "__torch_function__")
        found = handler.call(frame, given, {})
        if not is_not_implemented(found):
            return found
    return frame.break_graph("tensor_subclass", f"no __torch_function__ takes {function.describe()}")


class UnknownTypes(Value):
    """What a mode gets as `types` where no class is dispatched to: torch gives the type of a plain tensor for some functions, nothing for others."""

    cls = tuple


def dispatch_to_mode(frame: Frame, modes: list[Value], given: list[Value]) -> Value:
    """The innermost mode's answer; it is off meanwhile."""
    mode = modes.pop()
    try:
        return mode.getattr(frame, "__torch_function__").call(frame, given, {})
    finally:
        modes.append(mode)


def is_not_implemented(value: Value) -> bool:
    return value.is_constant() and value.constant() is NotImplemented


# --- the stack of modes: rows -------------------------------------------------------------------------------------------


def push_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch._C._push_on_torch_function_stack"""
    if frame.modes.all_functions_off:
        return frame.break_graph("function_mode", "a mode is entered where it is asked nothing")
    frame.modes.function_modes.append(args[0])
    return ConstantValue(None)


def pop_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch._C._pop_torch_function_stack"""
    if not frame.modes.function_modes:
        return frame.break_graph("function_mode", "the mode of a default device is taken off the stack")
    return frame.modes.function_modes.pop()


def at_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch._C._get_function_stack_at"""
    place = force_plain(frame, args[0]) - has_device_context()
    if not 0 <= place < len(frame.modes.function_modes):
        return frame.break_graph("function_mode", "the mode of a default device is asked for")
    mode: Value = frame.modes.function_modes[place]
    return mode


def has_device_context() -> bool:
    """Whether the bottom of the stack is the mode of a default device, the only one that is left there while tracing."""
    return _torch.modes.function_mode_count() > 0


def mode_count(frame: Frame) -> int:
    """How many modes are on."""
    return len(frame.modes.function_modes) + has_device_context()


def guard_functions(frame: Frame) -> None:
    """Calls of torch are answered by the same as now where the frame runs."""
    if frame.modes.modes_at_start:  # guards are checked where no mode sees it
        frame.break_graph("function_mode", "under a mode it is asked who is asked about calls of torch")
    frame.guards.state("torch_functions_off_for", frame.services.torch_functions_off_for, frame.user_location())


def has_function_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(is_overridden(frame, args, kwargs))


def handle_function_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.overrides.handle_torch_function(function, relevant arguments, *args, **kwargs)"""
    function, _, *given = args
    return dispatch(frame, function, given, kwargs)


def dispatch_state_row(answer: Callable[[Modes], bool]) -> Handler:
    """A query whether __torch_function__ of classes, or of anything, is dispatched to."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        guard_functions(frame)
        return ConstantValue(answer(frame.modes))

    return row


calls(
    {
        _torch.modes.push_function_mode: push_row,
        _torch.modes.pop_function_mode: pop_row,
        _torch.modes.function_mode_count: lambda frame, args, kwargs: ConstantValue(mode_count(frame)),
        _torch.modes.function_mode_at: at_row,
        _torch.modes.function_modes_are_on: lambda frame, args, kwargs: ConstantValue(mode_count(frame) > 0),
        _torch.modes.torch_functions_are_on: dispatch_state_row(lambda modes: not modes.subclass_functions_off),
        _torch.modes.all_torch_functions_are_off: dispatch_state_row(lambda modes: modes.all_functions_off > 0),
        # where Python code of torch is traced that asks these
        torch.overrides.has_torch_function: has_function_row,
        torch.overrides.has_torch_function_unary: has_function_row,
        torch.overrides.has_torch_function_variadic: has_function_row,
        torch.overrides.handle_torch_function: handle_function_row,
    }
)


for _name in TENSOR_ATTRIBUTES:
    _static, _ = lookup_class(Tensor, _name)
    if isinstance(_static, types.GetSetDescriptorType) and _name != "__class__":
        GETTERS[_static] = functools.partial(attribute_function, _name)
