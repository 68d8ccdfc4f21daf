"""In which dtypes eager computes, and what is done to compute in them."""

from __future__ import annotations

from typing import cast

import torch

from ..number.float_formulas import answer
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value


def as_kind(frame: Frame, tensor: AbstractTensor, dtype: torch.dtype) -> AbstractTensor:
    """The tensor in this dtype; itself when it has it."""
    if tensor.example.dtype == dtype:
        return tensor
    return cast("AbstractTensor", frame.graph.call_method(frame, "to", (tensor, ConstantValue(dtype))))


def fits(frame: Frame, number: Value, largest: float) -> bool:
    """Whether a float that changes is as large at most, infinite or no number."""
    return answer(frame, f"not {largest!r} < abs({{0}}) < inf", number) is not False
