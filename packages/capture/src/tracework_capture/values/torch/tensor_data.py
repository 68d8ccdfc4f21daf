"""Tensors of what the program gives. torch.tensor(data), as_tensor and asarray: data of plain numbers or sizes goes into the graph as it is,
single tensors in it are stacked. torch.Tensor(...), torch.FloatTensor(...) and the other tensor types, and Tensor.new(...) take sizes, data, or
another tensor; one argument decides what is meant: an int or a torch.Size is a size, any other sequence or array is data, a tensor is aliased.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

from ...atoms import NUMPY_NUMBERS
from ...errors import NotPlain
from ..number.floats import FloatValue, NumpyFloat
from ..number.numpy_ints import NumpyInt
from ..number.symint import SymNumber, size_value
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import CALLS, Handler, call, calls, method
from ..protocol.constant import ConstantValue, fold_plain, force_plain, plain
from ..protocol.kinds import AbstractArray, AbstractTensor
from ..protocol.value import Frame, Value
from .call import call_torch

NUMBER_DTYPES = {bool: torch.bool, int: torch.int64, complex: torch.complex64}


def factory_row(fn: Callable[..., Any]) -> Handler:
    """The row of one of these functions."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        data: Any = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        if isinstance(data, AbstractArray):
            return tensor_of_array(frame, fn, data, args[1:], {k: v for k, v in kwargs.items() if k not in ("data", "obj")})
        if isinstance(data, SequenceValue) and holds(frame, data, (NumpyFloat, NumpyInt)):
            force_plain(frame, data)  # NumPy's numbers among others decide on the dtype
        if isinstance(data, SequenceValue) and holds(frame, data, (AbstractTensor, SymNumber, FloatValue)):
            found = tensor_of_leaves(frame, data, args, kwargs)
            if found is not None:
                return found
            if holds(frame, data, AbstractTensor):
                return frame.break_graph(
                    "tensor_to_python", f"torch.{fn.__name__} of tensors, other than single ones of its dtype"
                )
        if len(args) < 2 and "dtype" not in kwargs and (dtype := numpy_dtype(frame, fn, data)) is not None:
            kwargs = {**kwargs, "dtype": ConstantValue(dtype)}
        return factory_of_plain(frame, fn, data, args, kwargs) or call_torch(frame, fn, args, kwargs)

    return handler


def tensor_of_array(
    frame: Frame, fn: Callable[..., Any], array: AbstractArray, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """tensor() copies, as_tensor and asarray share the memory of an array where its dtype is the one asked for."""
    dtype = kwargs.get("dtype", ConstantValue(None))
    if args or set(kwargs) - {"dtype"} or not dtype.is_constant() or torch.get_default_device().type != "cpu":
        return frame.break_graph("tensor_to_numpy", f"torch.{fn.__name__} of an array with these arguments")
    wanted = dtype.constant() or array.example.dtype
    array.shared(frame)
    if fn is torch.tensor or array.scalar or wanted is not array.example.dtype:
        return frame.graph.call_method(frame, "to", (array.tensor, wanted), {"copy": True})
    return over_memory(frame, array)


def over_memory(frame: Frame, array: AbstractArray) -> Value:
    """A tensor without a history over the memory of an array."""
    tensor = cast(AbstractTensor, frame.graph.call(frame, getattr, (array.shared(frame), "data")))
    if 0 not in tensor.example.shape:
        return tensor
    sizes, strides = (tuple(size_value(frame, s) for s in given) for given in (tensor.example.shape, array.strides()))
    return frame.graph.call_method(frame, "as_strided", (tensor, TupleValue(list(sizes)), TupleValue(list(strides))))


@call(torch.from_numpy)
def from_numpy(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.from_numpy(array): a tensor over its memory"""
    if len(args) != 1 or kwargs or not isinstance(args[0], AbstractArray) or args[0].scalar:
        return frame.break_graph("tensor_to_numpy", "torch.from_numpy with these arguments")
    return over_memory(frame, args[0])


def factory_of_plain(
    frame: Frame, fn: Callable[..., Any], data: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """torch.tensor(number) and torch.tensor([]) as a factory call, which needs no real tensor when it is traced; None for other data."""
    if fn is torch.asarray or len(args) > 1 or not set(kwargs) <= {"data", "dtype", "device"}:
        return None
    options = {k: v for k, v in kwargs.items() if k != "data"}
    if isinstance(data, (SymNumber, FloatValue)) and not data.is_constant() and is_known_device(options.get("device")):
        return single(frame, data, requested_dtype(kwargs) or number_dtype(data.python_type()), options.get("device"))
    if data.is_constant() and type(data.constant()) in (bool, int, float, *NUMPY_NUMBERS):
        options.setdefault("dtype", ConstantValue(number_dtype(type(data.constant()))))
        return call_torch(frame, torch.full, [TupleValue([]), data], options)
    if data.python_type() in (list, tuple) and not getattr(data, "items", True):
        return call_torch(frame, torch.empty, [TupleValue([ConstantValue(0)])], options)
    return None


def is_known_device(device: Value | None) -> bool:
    """Whether it is known where a tensor is made that is asked for on this device, or on none: the CPU then."""
    known = device is None or device.is_constant() and type(device.constant()) in (str, torch.device, type(None))
    return known and torch.get_default_device().type == "cpu"


def number_dtype(kind: type) -> torch.dtype:
    """The dtype that torch finds for a Python number."""
    return NUMBER_DTYPES.get(kind, torch.get_default_dtype())


def numpy_dtype(frame: Frame, fn: Callable[..., Any], data: Value) -> Value | None:
    """The dtype that torch finds for data with NumPy's numbers in it; None for other data, of which the graph finds it itself."""
    try:
        known = data.hint if isinstance(data, NumpyFloat) else plain(data)
    except NotPlain:
        return None
    has_numbers = any(type(leaf) in NUMPY_NUMBERS for leaf in leaves_of(known))
    return fold_plain(frame, fn, known).dtype if has_numbers else None


def leaves_of(known: list[int] | float) -> list[float]:
    if isinstance(known, (list, tuple)):
        return [leaf for item in known for leaf in leaves_of(item)]
    return [known]


def holds(frame: Frame, value: Value, kinds: type | tuple[type, ...]) -> bool:
    """Whether a nested sequence has values of these classes in it."""
    if isinstance(value, SequenceValue):
        return any(holds(frame, v, kinds) for v in value.all_items(frame))
    return isinstance(value, kinds) and not (isinstance(value, FloatValue) and value.known)


def requested_dtype(kwargs: dict[str, Value]) -> torch.dtype | None:
    """The dtype that is asked for, or None."""
    asked = kwargs.get("dtype")
    return asked.constant() if asked is not None and asked.is_constant() else None


# --- tensors and numbers that change among the data ----------------------------------------------------------------------


def tensor_of_leaves(frame: Frame, data: SequenceValue, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Numbers of the tensors and of Python, side by side; None where converting them would not be exact."""
    leaves: list[Value] = []
    shape = nested_shape(frame, data)
    if shape is None or not collect(frame, data, shape, leaves):
        return None
    device = kwargs.get("device")
    if len(args) > 1 or set(kwargs) - {"data", "dtype", "device"} or not is_known_device(device):
        return None
    dtype = requested_dtype(kwargs) or functools.reduce(torch.promote_types, map(leaf_dtype, leaves))
    if not all(is_exact(leaf, dtype) for leaf in leaves):
        return None
    flat = call_torch(frame, torch.stack, [TupleValue([single(frame, leaf, dtype, device) for leaf in leaves])], {})
    if len(shape) == 1:
        return flat
    shaped = frame.graph.call_method(frame, "reshape", (flat, tuple(shape)))
    return frame.graph.call_method(frame, "clone", (shaped,))  # nobody's view, as what torch.tensor gives


def single(frame: Frame, leaf: Value, dtype: torch.dtype, device: Value | None = None) -> Value:
    """A tensor of one number, in memory of its own. device: None for the CPU."""
    if isinstance(leaf, FloatValue) and not leaf.known:
        leaf = leaf.as_tensor(frame)
    if isinstance(leaf, AbstractTensor):
        where = {"device": device.constant()} if device is not None and device.constant() is not None else {}
        return frame.graph.call_method(frame, "to", (leaf,), {**where, "dtype": dtype, "copy": True})
    where = {"device": device} if device is not None else {}
    return call_torch(frame, torch.full, [TupleValue([]), leaf], {**where, "dtype": ConstantValue(dtype)})


def nested_shape(frame: Frame, data: Value) -> list[int] | None:
    """Lengths of the sequences, from their first items down; None when one is empty."""
    shape = []
    while isinstance(data, SequenceValue):
        items = data.all_items(frame)
        if not items:
            return None
        shape.append(len(items))
        data = items[0]
    return shape


def collect(frame: Frame, data: Value, shape: list[int], leaves: list[Value]) -> bool:
    """Gathers the leaves; False when lengths differ or a leaf is no single number on the CPU without history."""
    if shape:
        if not isinstance(data, SequenceValue) or len(items := data.all_items(frame)) != shape[0]:
            return False
        return all(collect(frame, item, shape[1:], leaves) for item in items)
    leaves.append(data)
    if isinstance(data, AbstractTensor):
        example = data.example
        return example.ndim == 0 and not example.requires_grad and example.device.type == "cpu"
    return isinstance(data, (SymNumber, FloatValue)) or (data.is_constant() and type(data.constant()) in (bool, int, float))


def leaf_dtype(leaf: Value) -> torch.dtype:
    return leaf.example.dtype if isinstance(leaf, AbstractTensor) else number_dtype(leaf.python_type())


EXACT_DTYPES = {
    torch.float32: {torch.float32, torch.float16, torch.bfloat16},
    torch.float64: {torch.float64, torch.float32, torch.float16, torch.bfloat16},
    torch.int64: {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8},
}


def is_exact(leaf: Value, dtype: torch.dtype) -> bool:
    """Whether the leaf becomes the same number in this dtype whichever way it is converted."""
    if isinstance(leaf, AbstractTensor):
        return leaf.example.dtype is dtype or leaf.example.dtype in EXACT_DTYPES.get(dtype, ())
    return dtype.is_floating_point or leaf.python_type() is not float


calls({fn: factory_row(fn) for fn in (torch.tensor, torch.as_tensor, torch.asarray)})


# --- tensor types --------------------------------------------------------------------------------------------------------------


def class_row(cls: type) -> Handler:
    """The row of a tensor type; torch.Tensor stands for the default one."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        like = torch.Tensor() if cls is torch.Tensor else cls()
        return legacy_tensor(frame, like.dtype, like.device, args, kwargs)

    return handler


@method(torch.Tensor, "new")
def new_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.new(...)"""
    return legacy_tensor(frame, self.example.dtype, self.example.device, args, kwargs)


@method(torch.Tensor, "new_tensor")
def new_tensor_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.new_tensor(data): torch.tensor with this one's dtype and device where no others are given."""
    options = {k: v for k, v in kwargs.items() if not (k in ("dtype", "device") and v.is_constant() and v.constant() is None)}
    options.setdefault("dtype", ConstantValue(self.example.dtype))
    if self.example.device != torch.get_default_device():
        options.setdefault("device", ConstantValue(self.example.device))
    return CALLS[torch.tensor].handler(frame, args, options)


def legacy_tensor(frame: Frame, dtype: torch.dtype, device: torch.device, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A tensor of this dtype on this device; what torch refuses is left to plain Python, which raises."""
    given = kwargs.get("device", ConstantValue(None))
    if set(kwargs) - {"device"} or not given.is_constant() or not is_same_device(given.constant(), device):
        return frame.break_graph("call_unknown", "a tensor type called with these arguments")
    options: dict[str, Value] = {"dtype": ConstantValue(dtype), "device": ConstantValue(device)}
    if all(is_size(a) for a in args):
        return call_torch(frame, torch.empty, [TupleValue(list(args) or [ConstantValue(0)])], options)
    data = args[0] if len(args) == 1 else None
    if isinstance(data, TupleValue) and data.python_type() is torch.Size:
        return call_torch(frame, torch.empty, [data], options)
    if isinstance(data, AbstractTensor):
        if (data.example.dtype, data.example.device) != (dtype, device):
            return frame.break_graph("call_unknown", f"a tensor type of {dtype} called with a {data.describe()}")
        return call_torch(frame, torch.ops.aten.alias.default, [data], {})
    if isinstance(data, AbstractArray):
        return CALLS[torch.as_tensor].handler(frame, [data], {"dtype": options["dtype"]})
    if isinstance(data, SequenceValue):
        return CALLS[torch.tensor].handler(frame, [data], options)
    return frame.break_graph("call_unknown", "a tensor type called with these arguments")


def is_same_device(given: str | None, device: torch.device) -> bool:
    try:
        return given is None or torch.device(given) == device
    except (RuntimeError, TypeError):
        return False


def is_size(value: Value) -> bool:
    """Whether the value is an int, known or not."""
    if isinstance(value, SymNumber):
        return value.python_type() is int
    return value.is_constant() and type(value.constant()) is int


def tensor_types() -> list[type]:
    """torch.Tensor and the types by dtype, of strided tensors on the CPU and on CUDA."""
    spaces = [torch] + ([torch.cuda] if torch.cuda.is_available() else [])
    found = [kind for space in spaces for kind in vars(space).values() if isinstance(kind, type(torch.FloatTensor))]
    return [torch.Tensor, *dict.fromkeys(found)]


calls({cls: class_row(cls) for cls in tensor_types()})
