"""Result specs of creation prims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op
from ..spec import TensorSpec
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


def placed(device: Any) -> torch.device:
    """A torch.device with an index where the device type has one."""
    device = torch.device(device) if device is not None else torch.device("cpu")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


@rule()
def iota(n: Any, start: Any, step: Any, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (n,))


@rule()
def full(sizes: Sequence[Any], value: Any, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes))


@rule()
def empty(sizes: Sequence[Any], dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes))


@rule()
def empty_strided(sizes: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes), tuple(strides))


@rule()
def scalar_tensor(value: Any, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), ())


@rule()
def linspace(start: Any, end: Any, steps: Any, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (steps,))


@rule()
def logspace(start: Any, end: Any, steps: Any, base: Any, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (steps,))


@rule()
def eye(n: Any, m: Any, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (n, m))


def _lower_count(row: int, col: int, offset: int) -> int:
    return sum(max(0, min(col, i + offset + 1)) for i in range(row))


@rule()
def tril_indices(row: int, col: int, offset: int, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (2, _lower_count(row, col, offset)))


@rule()
def triu_indices(row: int, col: int, offset: int, dtype: torch.dtype, device: Any) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (2, row * col - _lower_count(row, col, offset - 1)))
