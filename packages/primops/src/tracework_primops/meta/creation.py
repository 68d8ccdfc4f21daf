"""Result specs of creation prims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op, Scalar
from ..spec import TensorSpec
from ..symbols import Size
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


def placed(device: torch.device | str | None) -> torch.device:
    """A torch.device with an index where the device type has one."""
    given = torch.device(device) if device is not None else torch.device("cpu")
    if given.type == "cuda" and given.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return given


@rule()
def iota(n: Size, start: Scalar, step: Scalar, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (n,))


@rule()
def full(sizes: Sequence[Size], value: Scalar, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes))


@rule()
def empty(sizes: Sequence[Size], dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes))


@rule()
def empty_strided(
    sizes: Sequence[Size], strides: Sequence[Size], dtype: torch.dtype, device: torch.device | str | None
) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes), tuple(strides))


@rule()
def scalar_tensor(value: Scalar, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), ())


@rule()
def linspace(start: Scalar, end: Scalar, steps: Size, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (steps,))


@rule()
def logspace(
    start: Scalar, end: Scalar, steps: Size, base: Scalar, dtype: torch.dtype, device: torch.device | str | None
) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (steps,))


@rule()
def eye(n: Size, m: Size, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (n, m))


def _lower_count(row: int, col: int, offset: int) -> int:
    return sum(max(0, min(col, i + offset + 1)) for i in range(row))


@rule()
def tril_indices(row: int, col: int, offset: int, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (2, _lower_count(row, col, offset)))


@rule()
def triu_indices(row: int, col: int, offset: int, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (2, row * col - _lower_count(row, col, offset - 1)))
