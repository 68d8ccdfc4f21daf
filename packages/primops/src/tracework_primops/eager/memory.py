"""Reference execution of copies, layouts, devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule()
def clone(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@rule()
def copy_into(dst: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    return dst.copy_(src)


@rule()
def contiguous(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)


@rule()
def device_put(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return x.to(device)
