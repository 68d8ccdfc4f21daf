"""The tensors of host programs: the memory that they make, what they expect of library calls, and what is done to those that they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from . import _torch, huge_pages
from ._C import Expected, set_tensor_api
from .errors import ResultMismatch

__all__ = ["LARGE", "difference", "empty_cpu", "empty_cuda", "expected", "in_memory", "large_cpu", "restride", "unwritten"]

# (sizes, strides, dtype): memory that a kernel fills, on the CPU or the current GPU, without the ways through torch that do not matter for it
empty_cpu, empty_cuda = _torch.empty_strided_cpu, _torch.empty_strided_cuda

Sizes = tuple[int, ...]
_DEVICES = {"cpu": 1, "cuda": 2}  # in DLPack, which counts from 1
set_tensor_api(
    _torch.EXCHANGE_API,
    torch.Tensor,
    torch.Tensor.dtype,
    torch.Tensor.storage_offset,
    torch.Tensor.is_conj,
    torch.Tensor.is_neg,
)
_TENSORS = (torch.Tensor, torch.nn.Parameter)

LARGE = 1 << 25
"""Bytes of what the C library always has mapped anew and gives back to the system as soon as it is freed: no other memory lies there."""


def large_cpu(sizes: Sizes, strides: Sizes, dtype: torch.dtype) -> torch.Tensor:
    """empty_cpu for what is large, or might be."""
    made = empty_cpu(sizes, strides, dtype)
    if (nbytes := made.untyped_storage().nbytes()) >= LARGE:
        huge_pages.ask(made.data_ptr(), nbytes)
    return made


def unwritten(*tensors: torch.Tensor) -> None:
    """New results are at version 0, as eager's are, whatever wrote to their memory; those of inference mode have no versions."""
    counted = tuple([t for t in tensors if not t.is_inference()])
    _torch.set_versions(counted, (0,) * len(counted))


def restride(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy with these strides, which may overlap or leave gaps."""
    out = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    target = out
    for dim, stride in enumerate(strides):
        if stride == 0 and value.shape[dim] > 1:
            target, value = target.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
    target.copy_(value)
    unwritten(out)
    return out


def in_memory(number: int | torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """An int, as int64, or a tensor of one number on the CPU, on a device that nobody waits for; what lies there already as it is."""
    if not isinstance(number, torch.Tensor):
        return torch.full((), number, dtype=torch.int64, device=device)
    if number.device.type == torch.device(device).type:
        return number
    return torch.full((), number.item(), dtype=number.dtype, device=device)


def difference(value: Any, dtype: torch.dtype, device: torch.device | None) -> tuple[str, object, object] | None:
    """(the property, what was expected, what was given) of the first way in which something is no strided tensor of a dtype on a device;
    None where it is one. device: None for any, and one without an index for any of its kind.
    """
    if not isinstance(value, torch.Tensor):
        return "type", "torch.Tensor", type(value).__name__
    if value.layout is not torch.strided:
        return "layout", torch.strided, value.layout
    if value.dtype is not dtype:
        return "dtype", dtype, value.dtype
    if device is not None and (value.device.type != device.type or device.index not in (None, value.device.index)):
        return "device", device, value.device
    return None


def expected(
    dtype: torch.dtype, device: torch.device | None, operator: str, places: Mapping[str, Iterable[str]], *, is_own: bool = False
) -> Callable[[Any, Sizes, Sizes], torch.Tensor]:
    """What a host program asks of each result of a library call that is read later: `expected(...)(value, sizes, strides)`.

    It gives the value, or a copy of it, with these strides from the begin of its memory on, and raises ResultMismatch where dtype, device or
    sizes differ: kernels would read other memory than there is. What was planned as a vector of no elements is a workspace whose size only
    the library knows. is_own: the results are given as `out`, so that no more than their size can have changed.
    places: where the program calls operators, for messages. device: None where the library chooses it.
    """

    def differs(what: str, wanted: object, given: object) -> ResultMismatch:
        return ResultMismatch(operator, what, wanted, given, tuple(places.get(operator, ())))

    def fitted(value: Any, sizes: Sizes, strides: Sizes) -> torch.Tensor:
        if type(value) not in _TENSORS:
            raise differs("type", "torch.Tensor", type(value).__name__)
        if (found := difference(value, dtype, device)) is not None:
            raise differs(*found)
        if value.shape != sizes and sizes != (0,):
            raise differs("size", sizes, tuple(value.shape))
        if value.numel() == 0 or sizes == (0,):
            return value
        if value.storage_offset() or value.is_conj() or value.is_neg() or not value.data_ptr():  # no data: zeros without memory
            return restride(value, strides)
        if value.stride() == strides:
            return value
        if all(mine == wanted or size == 1 for size, mine, wanted in zip(sizes, value.stride(), strides)):
            return value.as_strided(sizes, strides).detach()
        return restride(value, strides)

    if device is None:
        return Expected(dtype, 0, 0, is_own, fitted)
    index = 0 if device.type == "cpu" else -1 if device.index is None else device.index
    return Expected(dtype, _DEVICES.get(device.type, -1), index, is_own, fitted)
