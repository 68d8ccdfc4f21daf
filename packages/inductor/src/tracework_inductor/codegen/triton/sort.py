"""How rows held in registers are sorted: a signed integer has the order of the elements, and its lower bits say which lane each came from.

A network sorts such integers as they are, and leaves equal elements in their order; the values are taken from their lanes afterwards.
"""

import torch

__all__ = ["argsort_text", "take_text"]

_HALF = {torch.float16: "tl.float16", torch.bfloat16: "tl.bfloat16"}
_BITS = {torch.float32: "tl.int32", torch.float64: "tl.int64"}


def _width(dtype: torch.dtype) -> int:
    return max(16, dtype.itemsize * 8)


def _order(value: str, dtype: torch.dtype) -> str:
    """A signed integer that grows with the value: NaN above all numbers, both zeros alike. A half type as it is in memory."""
    most = (1 << _width(dtype) - 1) - 1
    if dtype in _HALF:
        rounded = f"{value}.to({_HALF[dtype]})"
        return f"_number_order({rounded}.to(tl.float32), {rounded}.to(tl.int16, bitcast=True).to(tl.int32), 15, {most:#x})"
    if dtype in _BITS:
        return f"_number_order({value}, {value}.to({_BITS[dtype]}, bitcast=True), {_width(dtype) - 1}, {most:#x})"
    return f"{value}.to(tl.int32)" if dtype.itemsize < 4 else value


def argsort_text(value: str, dtype: torch.dtype, descending: bool, mask: str | None) -> str:
    """For each lane of dimension 1 the lane (int32) whose element comes there; lanes where the mask is false come last."""
    width = _width(dtype)
    order = f"(~{_order(value, dtype)})" if descending else _order(value, dtype)
    if mask is not None:
        order = f"tl.where({mask}, {order}, {(1 << width - 1) - 1:#x})"
    return f"_argsort_{width}({order}, tl.arange(0, RBLOCK)[None, :])"


def take_text(value: str, dtype: torch.dtype, lane: str) -> str:
    """The value of the lane with that number."""
    if dtype == torch.bool:
        return f"(tl.gather({value}.to(tl.int8), {lane}, 1) != 0)"
    return f"tl.gather({value}, {lane}, 1)"
