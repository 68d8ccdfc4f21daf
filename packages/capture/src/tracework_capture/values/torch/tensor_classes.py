"""torch.Tensor(...), torch.FloatTensor(...) and the other tensor types, and Tensor.new(...): sizes, data, or another tensor.

One argument decides what is meant: an int or a torch.Size is a size, any other sequence or array is data, a tensor is aliased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..number.symint import SymNumber
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import CALLS, calls, method
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractArray, AbstractTensor
from .call import call_torch

if TYPE_CHECKING:
    from ..protocol.calls import Handler
    from ..protocol.value import Frame, Value


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
