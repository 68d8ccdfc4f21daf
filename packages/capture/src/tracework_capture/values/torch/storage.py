"""Tensor.untyped_storage(): how many bytes the memory of an input has, which is guarded; all else of a storage breaks the graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ..protocol.calls import method
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Emitter, Frame, Value
from .tensor import TensorValue, break_row

COUNTS = frozenset(("size", "nbytes", "__len__"))
_left_to_python = break_row("tensor_to_python")


class HoldsBytes(NamedTuple):
    """the tensor's memory has as many bytes as before"""

    count: int  # type: ignore[assignment]

    def __call__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().nbytes() == self.count


class StorageValue(Value):
    """The memory of a tensor that the program was given."""

    cls = torch.UntypedStorage

    def __init__(self, tensor: AbstractTensor) -> None:
        super().__init__(None)
        self.tensor = tensor

    def length(self, frame: Frame) -> Value:
        real: Any = self.tensor.obj
        count: int = real.untyped_storage().nbytes()
        frame.guard("PREDICATE", self.tensor.source, HoldsBytes(count))
        return ConstantValue(count)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in COUNTS and not args and not kwargs:
            return self.length(frame)
        return frame.break_graph("tensor_to_python", f"UntypedStorage.{name}")

    def reload(self, emit: Emitter) -> str:
        return f"{emit.load(self.tensor)}.untyped_storage()"


@method(torch.Tensor, "untyped_storage")
def untyped_storage(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.untyped_storage()"""
    known = type(self) is TensorValue and self.obj is not None and self.source is not None and not self.versions
    return StorageValue(self) if known else _left_to_python(frame, self, name, args, kwargs)
