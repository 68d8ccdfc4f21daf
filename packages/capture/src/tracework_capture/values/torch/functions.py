"""Functions and classes of the torch namespaces: CALLS has what is answered while tracing or breaks; every other function that
graph_functions.py names becomes a node of the graph; other Python code of torch is traced into."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.nn.utils import rnn
from tracework_primops import Condition

from ... import _torch
from ..._torch.functions import failed_check
from ..._torch.operators import function_of_custom_operator
from ...graph.inputs import mark_stated_conditions
from ...graph.sizes import RAISED, state
from ...polyfills.torch_functions import all_checked
from ...sources import Const, Source
from ..number.symint import SizeRelation, SymNumber, size_value
from ..objects.class_value import ClassValue
from ..objects.lru_cache import has_written, waits_for_writes
from ..objects.row_value import RowValue
from ..plain.sequence import NONE, SequenceValue, TupleValue
from ..protocol.calls import CALLS, Handler, Policy, breaks, call, method, traced
from ..protocol.constant import ConstantValue, fold, fold_literal, force_plain, literal
from ..protocol.iteration import iterate_all
from ..protocol.kinds import AbstractTensor
from ..protocol.known_function import KnownFunction
from ..protocol.operators import compare
from ..protocol.program_code import check_frame_hooks
from ..protocol.value import Frame, Value
from .call import call_torch
from .indices import is_out_of_data
from .metadata_mutation import TURNING_METHODS
from .overrides import dispatch, dispatch_function, is_overridden
from .tensor import TensorValue


class TorchFunctionValue(KnownFunction):
    """A function whose calls are nodes of the graph."""

    def __init__(self, fn: Any, source: Source | None = None) -> None:
        super().__init__(fn, source if source is not None else Const(fn, torch_name(fn)))

    def describe(self) -> str:
        return torch_name(self.fn)

    def getattr(self, frame: Frame, name: str) -> Value:
        try:
            found = getattr(self.fn, name)
        except AttributeError as error:
            return frame.raise_new(AttributeError, *error.args)
        if callable(found) and isinstance(self.fn, (_torch.operators.OpOverloadPacket, _torch.operators.OpOverload)):
            return torch_function(found)
        return literal(frame, found)

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if is_overridden(frame, args, kwargs):
            return dispatch_function(frame, self, args, kwargs)
        program = function_of_custom_operator(self.fn)
        if program is not None and waits_for_writes(frame, program, [*args, *kwargs.values()]):
            return frame.break_graph("call_unknown", f"{self.describe()}, whose function reads what was written here")
        if program is not None and has_written(frame):
            frame.memory.only_now = f"the function of {self.describe()} is called behind a write, which it might read elsewhere"
        if args and isinstance(args[0], TensorValue) and (name := metadata_operator(self.fn)):
            return args[0].call_method(frame, name, args[1:], kwargs)
        if is_of_numbers(self.fn, args, kwargs):
            return fold(frame, self.fn, args, kwargs)
        return call_torch(frame, self.fn, args, kwargs)


class CustomOperatorValue(TorchFunctionValue):
    """What torch.library.custom_op gave: its calls are calls of the operator; what else it has changes the operator, and is plain Python's."""

    def __init__(self, definition: Any, source: Source) -> None:
        super().__init__(definition._opoverload, source)
        self.definition = definition

    def real(self) -> Any:
        return self.definition

    as_plain = real

    def python_type(self) -> type:
        return type(self.definition)

    def hash_key(self, frame: Frame) -> Any:
        return self.definition

    def same_object(self, other: Value) -> bool | None:
        return isinstance(other, CustomOperatorValue) and other.definition is self.definition

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        check_frame_hooks(frame)  # the operator may call a module
        return super().call(frame, args, kwargs)

    def getattr(self, frame: Frame, name: str) -> Value:
        try:
            getattr(self.definition, name)
        except AttributeError as error:
            return frame.raise_new(AttributeError, *error.args)
        return frame.break_graph("call_unknown", f"{name} of the custom operator {self.describe()}")


def torch_name(fn: Any) -> str:
    """A printable name."""
    return getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or str(fn)


def is_of_numbers(fn: object, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a call of an operator of ATen is one of Python's own operators on known numbers, which TorchScript has under that name."""
    if not args or kwargs or not isinstance(fn, _torch.operators.OpOverloadPacket):
        return False
    name: str = fn.__name__
    if getattr(torch.ops.aten, name, None) is not fn or not (hasattr(operator, name) or hasattr(math, name) or name == "div"):
        return False
    return all(type(a) is ConstantValue and type(a.constant()) in (bool, int, float) for a in args)


def metadata_operator(fn: Any) -> str | None:
    """The name of the method that an operator of ATen is, where that turns its tensor into another one."""
    if not isinstance(fn, (_torch.operators.OpOverload, _torch.operators.OpOverloadPacket)):
        return None
    name = fn.__name__.partition(".")[0]
    return name if name in TURNING_METHODS and getattr(torch.ops.aten, name) is getattr(fn, "overloadpacket", fn) else None


def torch_function(fn: Any) -> Value:
    """The value of a function that goes into the graph, or has a row."""
    row = CALLS.get(fn)
    return TorchFunctionValue(fn) if row is None else RowValue(fn, row.handler)


# --- rows: function or class -> fn(frame, args, kwargs) -----------------------------------------------------------------


@call(torch.device)
def device_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if frame.modes.function_modes:
        return dispatch(frame, RowValue(torch.device, device_class), args, kwargs)
    return fold(frame, torch.device, args, kwargs)


@call(torch.get_default_device)
def default_device(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if frame.modes.function_modes:
        return frame.break_graph("function_mode", "torch.get_default_device, which makes a torch.device")
    return fold(frame, torch.get_default_device, args, kwargs)


@call(_torch.modules.arguments_of_to)
def parse_to(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What Module.to's arguments mean; of a tensor only its dtype and its device count."""
    if frame.modes.function_modes:
        return dispatch(frame, RowValue(_torch.modules.arguments_of_to, parse_to), args, kwargs)

    def like(value: Value) -> Any:
        example = value.example if isinstance(value, TensorValue) else None
        return force_plain(frame, value) if example is None else torch.empty(0, dtype=example.dtype, device=example.device)

    given = [like(a) for a in args]
    return fold_literal(frame, _torch.modules.arguments_of_to, *given, **{k: like(v) for k, v in kwargs.items()})


def always(obj: bool | None) -> Handler:
    """A query with one answer."""

    def evaluates(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return ConstantValue(obj)

    return evaluates


for _query, _answer in {
    torch.compiler.is_compiling: True,
    torch.compiler.is_dynamo_compiling: True,
    torch.compiler.is_exporting: False,
    torch.backends.mha.get_fastpath_enabled: False,  # its fused layers fix symbolic sizes and hide what can be fused
    _torch.modules.log_api_usage_once: None,
    _torch.modes.jit_is_scripting: False,
    torch.jit.is_scripting: False,  # type: ignore[attr-defined]
    "torch._dynamo.external_utils.is_compiling": True,
}.items():
    call(_query, policy=Policy.EVALUATED)(always(_answer))


@call(_torch.functions.torch_assert)
def assert_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[0], TensorValue):
        return call_torch(frame, _torch.functions.assert_async, [args[0]], {}) and NONE
    if isinstance(args[0], SymNumber) or not args[0].truth(frame):
        message = force_plain(frame, args[1]) if len(args) > 1 else ""
        return NONE if args[0].truth(frame) else frame.raise_new(AssertionError, message)
    return NONE


def mark_stated(frame: Frame) -> None:
    """What was decided on sizes in this line is the program's own statement; mark_unbacked asks for the difference."""
    mark_stated_conditions(frame.symbols, frame.user_location())


def check_row(error: type) -> Handler:
    """torch._check and its like: a condition on sizes is guarded, one that fails raises as in plain Python."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        condition = args[0] if args else kwargs["cond"]
        if isinstance(condition, TensorValue):
            return frame.break_graph("data_dependent_branch", "torch._check of a tensor")
        if isinstance(condition, SizeRelation):
            state(frame, condition.condition, error, f"torch._check({condition.condition}) does not hold")
            return NONE
        if condition.truth(frame):
            mark_stated(frame)
            return NONE
        message = args[1] if len(args) > 1 else kwargs.get("message", NONE)
        if message.is_constant():
            raised = failed_check(message.constant())
            return frame.raise_new(error if type(raised) is RuntimeError else type(raised), str(raised))
        return frame.raise_new(error, force_plain(frame, message.call(frame, [], {})))

    return handler


for _name, _error in {
    "_check": RuntimeError,
    "_check_index": IndexError,
    "_check_value": ValueError,
    "_check_type": TypeError,
    "_check_not_implemented": NotImplementedError,
}.items():
    call(getattr(torch, _name))(check_row(_error))
call(_torch.functions.assert_scalar)(
    check_row(RuntimeError)
)  # what torch.export makes of torch._check and of the ranges of sizes


@call(_torch.functions.check_with)
def check_with(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("error_type", "cond", "message"), args)) | kwargs
    error, condition = given.pop("error_type"), given["cond"]
    if isinstance(error, ClassValue) and error.cls in RAISED.values():
        return check_row(error.cls)(frame, [], given)
    if isinstance(condition, (TensorValue, SizeRelation)) or not condition.truth(frame):
        return frame.break_graph("exception", f"torch._check_with of {error.describe()}")
    mark_stated(frame)
    return NONE


@call(_torch.functions.check_tensor_all_with)
def check_tensor_all_with(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(("error_type", "cond", "message"), args)) | kwargs
    condition = given["cond"]
    if not isinstance(condition, TensorValue) or condition.example.dtype is not torch.bool:
        return frame.break_graph("exception", "torch._check_tensor_all of what is no tensor of bools")
    return traced(all_checked)(frame, [], given)


@call(_torch.functions.check_is_size)
def check_is_size(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return check_row(RuntimeError)(frame, [compare(frame, ">=", args[0], ConstantValue(0)), *args[1:2]], {})


@call(torch.is_inference_mode_enabled)
def inference_mode_enabled(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    blocks = frame.modes.inference
    return ConstantValue(blocks[-1] if blocks else torch.is_inference_mode_enabled())


@call(_torch.functions.shape_as_tensor)
def shape_as_tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return CALLS[torch.tensor].handler(frame, [args[0].getattr(frame, "shape")], {"dtype": ConstantValue(torch.int64)})


@call(torch.typename)
def typename(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) == 1 and not kwargs and isinstance(args[0], TensorValue):
        return args[0].call_method(frame, "type", [], {})
    return fold(frame, torch.typename, args, kwargs)


@call(torch.is_tensor)
def is_tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(issubclass(args[0].python_type(), torch.Tensor))


def states_split(frame: Frame, tensor: Value | None, sizes: Value | None, dim: Value | None = None) -> None:
    """What torch asks of the sizes that a tensor is split into: stated where they are read from data, and looked at when the graph runs."""
    if not isinstance(tensor, TensorValue) or not isinstance(sizes, SequenceValue):
        return
    parts, place = sizes.all_items(frame), 0 if dim is None else force_plain(frame, dim)
    if not any(isinstance(part, SymNumber) and is_out_of_data(frame, part) for part in parts):
        return
    if type(place) is not int or not -tensor.example.ndim <= place < tensor.example.ndim:
        return
    whole = size_value(frame, tensor.example.shape[place])
    exprs = [value.expr if isinstance(value, SymNumber) else value.constant() for value in (whole, *parts)]
    for part in exprs[1:]:
        state(frame, Condition.compare(">=", part, 0), RuntimeError, "split_with_sizes expects sizes that are not negative")
    text = f"split_with_sizes expects sizes whose sum is that of the dim {place}"
    state(frame, Condition.compare("==", sum(exprs[1:]), exprs[0]), RuntimeError, text)


@method(torch.Tensor, "split", "split_with_sizes")
def split_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.split and Tensor.split_with_sizes"""
    given: dict[str, Any] = dict(zip(("split_size", "dim"), args)) | kwargs
    states_split(frame, self, given.get("split_size", given.get("split_sizes")), given.get("dim"))
    return frame.graph.call_method(frame, name, (self, *args), kwargs)


@call(torch.split)
def split_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given: dict[str, Any] = dict(zip(("tensor", "split_size_or_sections", "dim"), args)) | kwargs
    states_split(frame, given.get("tensor"), given.get("split_size_or_sections"), given.get("dim"))
    return call_torch(frame, torch.split, args, kwargs)


@method(torch.Tensor, "istft")
def istft_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.istft(...), as the function"""
    return CALLS[torch.istft].handler(frame, [self, *args], kwargs)


def method_row(name: str) -> Handler:
    """A function that is the method of its first argument."""

    def call_method(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        first, *others = args or [kwargs["input"]]
        return first.call_method(frame, name, others, {k: v for k, v in kwargs.items() if k != "input"})

    return call_method


for _name in ("is_floating_point", "is_complex", "is_inference", "numel", "as_strided_", "detach_"):
    call(getattr(torch, _name))(method_row(_name))


@call(torch.Size)
def size_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return TupleValue(iterate_all(frame, args[0]) if args else [], cls=torch.Size)


@call(_torch.modes.set_grad_mode)
def set_grad_enabled(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frame.graph.call(frame, _torch.modes.set_grad_mode, (force_plain(frame, args[0]),))


@call(torch.broadcast_shapes)
def broadcast_shapes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return fold(frame, torch.broadcast_shapes, args, kwargs)


breaks("random_state", torch.initial_seed, within="torch")
breaks("random_state", torch.cuda.manual_seed, torch.cuda.manual_seed_all, within="torch.cuda")
breaks("tensor_to_python", torch.equal, torch.allclose, torch.is_nonzero, within="torch")
breaks("packed_sequence", *_torch.functions.PACKED_SEQUENCES, within="torch")
breaks("packed_sequence", rnn.pack_padded_sequence, rnn.pad_packed_sequence, within="torch.nn.utils.rnn")
breaks("serialization", torch.save, torch.load, within="torch")
breaks("call_unknown", torch.cuda.synchronize, torch.cuda.empty_cache, within="torch.cuda")
breaks("call_unknown", torch.jit.script, torch.jit.trace, within="torch.jit")
breaks(
    "call_unknown",
    torch.set_printoptions,
    torch.set_default_tensor_type,
    torch.set_deterministic_debug_mode,
    torch.set_warn_always,
    torch.from_dlpack,  # type: ignore[attr-defined]
    torch.frombuffer,
    torch.resize_as_,
    within="torch",
)
