"""What copy.copy and copy.deepcopy make of a module, and copy.deepcopy of a tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tracework_primops.broadcasting import is_dense

from ..objects.copies import copy_by_state, has_a_state
from ..plain.rows_copies import COPIES, DEEP_COPIES, has_attributes
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.program_code import check_frame_hooks
from ..protocol.value import Frame, Value, is_none
from .metadata_mutation import PLAIN
from .module import ModuleValue
from .subclass import parameter_row
from .tensor import TensorValue


def copy_module(frame: Frame, value: ModuleValue, copy_part: Callable[[Value], Value]) -> Value:
    """A new module, by its state."""
    check_frame_hooks(frame, value)
    if value.part is None and has_a_state(value.cls):
        return copy_by_state(frame, value, copy_part)
    return frame.break_graph("builtin_unsupported", f"copy of {value.describe()}")


def fills_its_memory(tensor: torch.Tensor) -> bool:
    """Whether a dense tensor is all that its memory has room for, which a copy has as well."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize


def deep_tensor(frame: Frame, value: TensorValue) -> Value:
    """copy.deepcopy of a parameter, or of another leaf that fills its memory and has nothing else to it."""
    if frame.modes.function_modes:
        return frame.break_graph("function_mode", "copy.deepcopy of a tensor")
    example, kind = value.example, value.python_type()
    spec, asks = example.spec, example.requires_grad
    if kind not in PLAIN or asks and not value.is_leaf() or frame.modes.transforms or value.hooks or value.versions:
        return frame.break_graph("builtin_unsupported", f"copy.deepcopy of {value.describe()}, which is no plain leaf")
    made = frame.graph.call_method(frame, "clone", (frame.graph.call(frame, getattr, (value, "data")),))
    if kind is torch.nn.Parameter:
        return parameter_row(frame, [made, ConstantValue(asks)], {})
    whole = is_dense(spec.sizes, spec.strides) and not example._is_view() and not (type(spec.offset) is int and spec.offset)
    first = example.storage.first  # of what was resized there is more
    whole = whole and (first is None or tuple(first.sizes) == tuple(spec.sizes))
    if whole and value.obj is not None:
        whole = fills_its_memory(value.obj)
        frame.guard("RELATION", value.source, (fills_its_memory, (value.source,)))
    if has_attributes(value) or not whole or not is_none(value.getattr(frame, "grad")):
        return frame.break_graph("builtin_unsupported", f"copy.deepcopy of {value.describe()}, with more than its data")
    return made.call_method(frame, "requires_grad_", [], {}) if asks else made


COPIES[ModuleValue] = copy_module
DEEP_COPIES[AbstractTensor] = deep_tensor
