"""What functions of NumPy work on: arrays that are there, and those made of constants, of tensors, of numbers and of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...arrays import DTYPES, NUMPY_DTYPES, backwards, numpy, tensor_of_array
from ...errors import NotPlain
from ...graph.constant_data import Known
from ...sources import ArrayTensor, Source
from ..number.floats import FloatValue
from ..number.symint import SymNumber
from ..objects.existing import wrap_object
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import calls
from ..protocol.constant import ConstantValue, fold_plain, force_plain, literal, plain
from ..protocol.kinds import AbstractTensor
from ..protocol.make import make
from ..protocol.value import Frame, Value
from ..protocol.wraps import wraps
from ..torch.tensor import TensorValue, existing_tensor
from .arguments import Argument, one_axis
from .array import IN_A_TENSOR, ArrayValue
from .breaks import refuse
from .layouts import in_c_order, ordered_as
from .nodes import call, call_method
from .views import SpecialView, held_sizes, inside_of

LARGEST_CONSTANT = 1 << 20
"""Bytes of an array that is computed while tracing and kept with the graph."""
KNOWN = 16
"""Numbers of an array whose data stays known while tracing."""


@wraps(numpy.ndarray)
def wrap_array(frame: Frame, obj: Any, source: Source) -> Value:
    """An array of the user's program: an input of the graph that shares its memory."""
    frame.guard("TYPE", source, type(obj))
    flips, writeable = backwards(obj), obj.flags.writeable
    tensor = tensor_of_array(obj, flips, writeable)
    if tensor is None or any(obj.shape[dim] == 1 for dim in flips):  # of one item both directions are in order
        return wrap_object(frame, obj, source)
    frame.memory.keep.append(tensor)
    memory = existing_tensor(frame, tensor, ArrayTensor(source, flips, writeable))
    special = flips or not writeable
    return SpecialView(frame, memory, flips, writeable, None, source) if special else ArrayValue(memory, source=source)


def constant_array(frame: Frame, array: Any) -> ArrayValue:
    """A new array with data that is known now."""
    if not isinstance(array, numpy.ndarray) or array.dtype not in DTYPES or array.nbytes > LARGEST_CONSTANT:
        return refuse(frame, "an array that NumPy makes")
    real = torch.from_numpy(array.copy(order="K"))
    node = frame.graph.tensor_constant(real)
    frame.memory.keep.append(real)
    made = call_method(frame, "clone", TensorValue(node, node.meta["example_value"]))
    if real.numel() <= KNOWN and real.ndim <= 1:
        made.node.meta["known"] = Known(real, made.example.storage.version)
    sizes = held_sizes(array)
    return ArrayValue(made) if sizes is None else inside_of(frame, ArrayValue(made), sizes)


def array_from_tensor(frame: Frame, tensor: AbstractTensor) -> ArrayValue:
    """tensor.numpy(): an array over its memory. Writes to it are not counted by the tensor."""
    example = tensor.example
    turned = example.is_conj() or example.is_neg()
    if example.device.type != "cpu" or example.dtype not in NUMPY_DTYPES or example.requires_grad or turned:
        return frame.break_graph("tensor_to_numpy", f"numpy() of a {tensor.describe()}")
    return ArrayValue(call(frame, getattr, tensor, "data"), base=IN_A_TENSOR)


def across(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What wrap_numpy does with its arguments and results: nothing, but for what they are called."""
    value = args[0]
    if isinstance(value, ArrayValue):
        return value.shared(frame)
    if not isinstance(value, TensorValue) or value.example.dtype not in NUMPY_DTYPES:
        return frame.break_graph("tensor_to_numpy", f"wrap_numpy of a function with a {value.describe()}")
    return ArrayValue(value, base=IN_A_TENSOR)


calls({"tracework_capture.array_functions.across": across})


def as_operand(frame: Frame, value: Value, refusing: bool = True) -> Any:
    """The array, the Python or NumPy number, or the array made of a list of numbers, that a function of NumPy works on; None else."""
    if isinstance(value, (ArrayValue, SymNumber)) or is_unspecialised_float(value):
        return value
    if is_unspecialised_number(value):
        number: Any = value
        return ArrayValue(number.as_array_tensor(frame), scalar=True)
    try:
        known = plain(value)
    except NotPlain:
        known = None
    if isinstance(known, (bool, int, float, complex, numpy.generic)):
        return known
    if isinstance(known, (list, tuple)):
        return constant_array(frame, numpy.array(known))
    if isinstance(value, SequenceValue):
        return stacked(frame, value)
    return refuse(frame, f"a function of NumPy with a {value.describe()}") if refusing else None


def is_unspecialised_float(value: Value) -> bool:
    """Whether it is a float of Python's that changes from call to call, or that is drawn."""
    return isinstance(value, FloatValue) and not value.known and value.python_type() is float


def is_unspecialised_number(value: Value) -> bool:
    """Whether it is a number of NumPy's that changes from call to call, of a dtype that tensors have."""
    is_number = issubclass(value.python_type(), numpy.generic) and numpy.dtype(value.python_type()) in DTYPES
    return is_number and hasattr(value, "as_array_tensor") and not value.is_constant()


def as_array(frame: Frame, value: Value) -> ArrayValue:
    """as_operand, numbers as arrays of no dims."""
    found = as_operand(frame, value)
    if is_unspecialised_float(found):
        return ArrayValue(found.as_tensor(frame))
    if isinstance(found, SymNumber):
        found = force_plain(frame, found)
    return found if isinstance(found, ArrayValue) else constant_array(frame, numpy.asarray(found))


def cast(frame: Frame, tensor: AbstractTensor, dtype: Any) -> AbstractTensor:
    """The tensor in a dtype of NumPy."""
    wanted = DTYPES.get(dtype)
    if wanted is None:
        return refuse(frame, f"numbers of dtype {dtype}")
    return tensor if tensor.example.dtype is wanted else call_method(frame, "to", tensor, wanted)


def computed_now(frame: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a pure function, None where some argument is not known."""
    try:
        given, named = [plain(a) for a in args], {name: plain(a) for name, a in kwargs.items()}
    except NotPlain:
        return None
    return known_result(frame, function, given, named)


def known_result(frame: Frame, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Value:
    """A pure function of known arguments; an array that it gives becomes a constant of the graph."""
    found = fold_plain(frame, function, *args, **kwargs)
    return constant_array(frame, found) if isinstance(found, numpy.ndarray) else literal(frame, found)


# --- tensors of a dtype ----------------------------------------------------------------------------------------------------


_WIDEST = 8  # bytes of the dtypes that hold any size


def prepared(frame: Frame, operand: Any, dtype: Any) -> AbstractTensor:
    """A tensor of the dtype; NumPy refuses numbers that do not fit."""
    if isinstance(operand, ArrayValue):
        return cast(frame, operand.tensor, dtype)
    if is_unspecialised_float(operand):
        return cast(frame, operand.as_tensor(frame), dtype)
    if dtype not in DTYPES:
        return refuse(frame, f"numbers of dtype {dtype}")
    if isinstance(operand, SymNumber) and dtype.itemsize == _WIDEST:
        return call(frame, torch.full, (), operand, dtype=ConstantValue(DTYPES[dtype]))
    if isinstance(operand, SymNumber):
        operand = force_plain(frame, operand)
    if dtype.kind in "iu" and not numpy.iinfo(dtype).min <= operand <= numpy.iinfo(dtype).max:
        return refuse(frame, f"{operand} does not fit into {dtype}")
    number = dtype.type(operand).item()
    return call(frame, torch.full, (), ConstantValue(number), dtype=ConstantValue(DTYPES[dtype]))


def to_store(frame: Frame, array: ArrayValue, value: Value) -> AbstractTensor:
    """A tensor of what is written to some of the array."""
    source = as_operand(frame, value)
    if isinstance(source, ArrayValue):
        source = cast(frame, source.tensor, array.dtype)
        if source.example.storage is array.example.storage:
            source = call_method(frame, "clone", source)
        return source
    if array.dtype.kind in "iu" and isinstance(source, (float, FloatValue)):
        return refuse(frame, "a float written into an array of integers")
    return prepared(frame, source, array.dtype)


# --- sequences of arrays ---------------------------------------------------------------------------------------------------


def stacked(frame: Frame, sequence: Value, axis: Argument = 0) -> ArrayValue:
    """An array of arrays of equal sizes, of numbers, or of nested sequences of them."""
    return joined(frame, torch.stack, "stack", sequence, axis)


def joined(frame: Frame, fn: Callable[..., Any], name: str, sequence: Value, axis: Argument, least: int = 0) -> ArrayValue:
    """concatenate and stack: of one dtype, which NumPy chooses."""
    items = [
        as_array(frame, v) for v in (sequence.all_items(frame) if isinstance(sequence, SequenceValue) else sequence.unpack(frame))
    ]
    if not items or any(i.example.ndim < least for i in items):
        return refuse(frame, f"numpy.{name} of these arrays")
    dtype = numpy.result_type(*[i.dtype for i in items])
    ndim = items[0].example.ndim + (fn is torch.stack)
    if fn is torch.stack:
        in_c_order(frame, name, items, ndim)
    if any(type(s) is int and s == 0 and n > 1 for i in items for n, s in zip(i.example.shape, i.example.stride(), strict=True)):
        return refuse(frame, f"numpy.{name} of arrays whose items are the same memory")
    tensors = TupleValue([cast(frame, i.tensor, dtype) for i in items])
    return ArrayValue(ordered_as(frame, call(frame, fn, tensors, dim=one_axis(frame, axis, ndim)), items))


make.provide(array=constant_array, array_of=array_from_tensor)
