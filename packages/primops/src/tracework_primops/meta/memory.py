"""Result specs of copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..elementwise import same_layout
from ..op import Op
from ..spec import TensorSpec
from ..symbols import Size
from ..tables import rules_into
from .creation import placed

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


@rule()
def clone(x: TensorSpec) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, x.sizes, same_layout(x))


@rule()
def copy_into(dst: TensorSpec, src: TensorSpec) -> TensorSpec:
    return dst


@rule()
def contiguous(x: TensorSpec, strides: tuple[Size, ...]) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, x.sizes, tuple(strides))


@rule()
def device_put(x: TensorSpec, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(x.dtype, placed(device), x.sizes, same_layout(x))
