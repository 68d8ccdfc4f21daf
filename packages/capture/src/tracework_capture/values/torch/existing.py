"""Rows of WRAP: tensors and modules that are there."""

from __future__ import annotations

from typing import Any

import torch

from ..._torch import disabled_torch_function
from ...sources import Source
from ..protocol.value import Frame, Value
from ..protocol.wraps import guard_type, wraps, wraps_derived
from .module import ModuleValue
from .opaque_tensor import foreign_tensor, why_foreign
from .subclass import existing_subclass_tensor, is_traced
from .tensor import existing_tensor


@wraps(torch.Tensor, torch.nn.Parameter)
def wrap_tensor(frame: Frame, obj: Any, source: Source) -> Value:
    why = why_foreign(obj)
    return existing_tensor(frame, obj, source) if why is None else foreign_tensor(frame, obj, source, why)


@wraps_derived(torch.Tensor)
def wrap_tensor_subclass(frame: Frame, obj: Any, source: Source) -> Value:
    cls = type(obj)
    if cls.__torch_function__ is disabled_torch_function and (
        cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ or issubclass(cls, (torch.nn.Parameter, torch.nn.Buffer))
    ):
        return wrap_tensor(frame, obj, source)
    if is_traced(cls):
        return existing_subclass_tensor(frame, obj, source)
    return foreign_tensor(frame, obj, source, ("tensor_subclass", f"a {cls.__name__}"))


@wraps_derived(torch.nn.Module)
def wrap_module(frame: Frame, obj: Any, source: Source) -> Value:
    guard_type(frame, obj, source)
    return ModuleValue(type(obj), obj, source)
