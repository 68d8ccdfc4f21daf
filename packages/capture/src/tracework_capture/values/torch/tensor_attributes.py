"""Attributes of tensors that describe them: name -> fn(frame, tensor, name)."""

from __future__ import annotations

import torch

from ..._torch.tensors import TENSORS_HAVE_NAMES
from ...sources import Attr
from ..number.symint import size_value
from ..plain.sequence import NONE, SequenceValue, TupleValue
from ..protocol.binding import class_value
from ..protocol.constant import ConstantValue, literal
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import known_values
from ..protocol.operators import binary
from ..protocol.value import Frame, Value
from .leaves import leaf_of
from .nested_size import is_nested_size, nested_numel, nested_size

OTHER_NAMES = {"_grad": "grad"}
"""Attributes of tensors that are others under another name."""


def shape(frame: Frame, self: AbstractTensor, name: str) -> SequenceValue:
    sizes = [nested_size(frame, self, d) if is_nested_size(s) else size_value(frame, s) for d, s in enumerate(self.example.shape)]
    return TupleValue(sizes, cls=torch.Size)


def fact(frame: Frame, self: AbstractTensor, name: str) -> Value:
    return literal(frame, getattr(self.example, name))


def view_attribute(frame: Frame, self: AbstractTensor, name: str) -> Value:
    return frame.graph.call(frame, getattr, (self, name))


def grad(frame: Frame, self: AbstractTensor, name: str) -> Value:
    """tensor.grad of an existing tensor; a tensor made in the traced program has none unless it was given one."""
    return NONE if self.obj is None else frame.wrap(self.obj.grad, Attr(self.source, "grad"))


def is_leaf(frame: Frame, self: AbstractTensor, name: str) -> Value:
    return ConstantValue(leaf_of(frame, self))


def grad_fn(frame: Frame, self: AbstractTensor, name: str) -> Value:
    if leaf_of(frame, self):
        return NONE
    return frame.break_graph("attribute_unknown", "grad_fn of a tensor")


def version(frame: Frame, self: AbstractTensor, name: str) -> Value:
    """Tensor._version: of an input what it is before the graph runs, and what the graph adds."""
    if self.example.is_inference():
        return frame.break_graph("attribute_unknown", "Tensor._version in a frame that began in inference mode")
    if self.obj is None:
        if self.of_inference or getattr(self.example.storage, "real", False):
            return frame.break_graph(
                "attribute_unknown", "Tensor._version of an inference tensor, or of another view of an input"
            )
        return ConstantValue(self.example._version)
    others = [v.example.storage for v in known_values(frame).values() if v.obj is not None and v is not self]
    if self.versions or self.obj.is_inference() or any(storage is self.example.storage for storage in others):
        return frame.break_graph(
            "attribute_unknown", "Tensor._version of an inference tensor, or of one that shares its memory, or got other data"
        )
    if any(storage.version for storage in others):  # in a later call they may be one memory
        return frame.break_graph("attribute_unknown", "Tensor._version after a write to another input")
    before = frame.wrap(self.obj._version, Attr(self.source, name))
    return binary(frame, "+", before, ConstantValue(self.example._version))


def is_on_kind(frame: Frame, self: AbstractTensor, name: str) -> Value:
    """is_cuda and its like: whether it is on such a device, guarded with the tensor."""
    return ConstantValue(self.example.device.type == name.removeprefix("is_"))


def is_never(frame: Frame, self: AbstractTensor, name: str) -> Value:
    """What no tensor in a graph is."""
    return ConstantValue(False)


def numel(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if self.example.is_nested:
        return nested_numel(frame, self)
    total: Value = ConstantValue(1)
    for item in shape(frame, self, name).items:
        total = binary(frame, "*", total, item)
    return total


def nbytes(frame: Frame, self: AbstractTensor, name: str) -> Value:
    return binary(frame, "*", numel(frame, self, name, [], {}), ConstantValue(self.example.element_size()))


def class_of(frame: Frame, self: AbstractTensor, name: str) -> Value:
    return class_value(frame, self.python_type())


TENSOR_ATTRIBUTES = {
    "shape": shape,
    **dict.fromkeys(("ndim", "dtype", "device", "layout", "requires_grad", "itemsize", "is_nested"), fact),
    "is_leaf": is_leaf,
    "nbytes": nbytes,
    # data is not detach(), whose result shares the version: a write to it must not upset what autograd has saved
    **dict.fromkeys(("T", "mT", "H", "mH", "real", "imag", "data"), view_attribute),
    "grad": grad,
    "grad_fn": grad_fn,
    **dict.fromkeys(("is_cuda", "is_cpu", "is_meta", "is_mps", "is_xpu", "is_xla", "is_hpu"), is_on_kind),
    **dict.fromkeys(("is_mkldnn", "is_quantized", "is_sparse", "is_sparse_csr", "is_vulkan"), is_never),
    "__class__": class_of,
    "_version": version,
    "names": lambda frame, self, name: TupleValue([NONE] * self.example.ndim),
}
if not TENSORS_HAVE_NAMES:
    del TENSOR_ATTRIBUTES["names"]
