"""Result specs of scans and sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..op import Op
from ..spec import TensorSpec
from ..symbols import Size
from ..tables import rules_into
from .pointwise import elementwise

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


@rule("cumsum", "cumprod", "logcumsumexp")
def cumsum(x: TensorSpec, dim: int) -> TensorSpec:
    return elementwise(None, x)


@rule("cummax", "cummin")
def cummax(x: TensorSpec, dim: int) -> tuple[TensorSpec, TensorSpec]:
    return elementwise(None, x), elementwise(torch.int64, x)


@rule()
def associative_scan(combine: Callable[..., Any], xs: Iterable[TensorSpec], dim: int, reverse: bool) -> tuple[TensorSpec, ...]:
    return tuple(elementwise(None, x) for x in xs)


@rule()
def sort(x: TensorSpec, dim: int, descending: bool, stable: bool) -> tuple[TensorSpec, TensorSpec]:
    return elementwise(None, x), elementwise(torch.int64, x)


@rule()
def topk(x: TensorSpec, k: Size, dim: int, largest: bool, sorted: bool) -> tuple[TensorSpec, TensorSpec]:
    sizes = (*x.sizes[:dim], k, *x.sizes[dim + 1 :]) if x.sizes else ()
    return TensorSpec(x.dtype, x.device, sizes), TensorSpec(torch.int64, x.device, sizes)
