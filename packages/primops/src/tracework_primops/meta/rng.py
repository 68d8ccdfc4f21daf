"""Result specs of random prims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op, Scalar
from ..spec import TensorSpec
from ..symbols import Size
from ..tables import rules_into
from .creation import placed
from .pointwise import elementwise

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


@rule("rand", "randn")
def rand(sizes: Sequence[Size], dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes))


@rule()
def randint(low: Size, high: Size, sizes: Sequence[Size], dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), tuple(sizes))


@rule()
def randperm(n: Size, dtype: torch.dtype, device: torch.device | str | None) -> TensorSpec:
    return TensorSpec(dtype, placed(device), (n,))


@rule("bernoulli", "bernoulli_p", "uniform", "normal", "exponential", "geometric", "cauchy", "log_normal")
def bernoulli(x: TensorSpec, *parameters: object) -> TensorSpec:
    return elementwise(None, x)


@rule("poisson", "rrelu_noise")
def poisson(x: TensorSpec, *parameters: object) -> TensorSpec:
    return TensorSpec(x.dtype, x.device, x.sizes)  # eager's kernels fill memory in the order of the indices, whatever x's


@rule()
def binomial(count: TensorSpec, prob: TensorSpec) -> TensorSpec:
    return elementwise(None, count, prob)


@rule()
def multinomial(x: TensorSpec, num_samples: Size, replacement: bool) -> TensorSpec:
    return TensorSpec(torch.int64, x.device, (*x.sizes[:-1], num_samples))


@rule()
def native_dropout(x: TensorSpec, p: Scalar) -> tuple[TensorSpec, TensorSpec]:
    return elementwise(None, x), elementwise(torch.bool, x)
