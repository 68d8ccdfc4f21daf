"""Reference execution of random prims: eager's own kernels on the default generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule()
def rand(sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.rand(sizes, dtype=dtype, device=device)


@rule()
def randn(sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.randn(sizes, dtype=dtype, device=device)


@rule()
def randint(low: int, high: int, sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.randint(low, high, sizes, dtype=dtype, device=device)


@rule()
def randperm(n: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.randperm(n, dtype=dtype, device=device)


@rule()
def bernoulli(p: torch.Tensor) -> torch.Tensor:
    return torch.bernoulli(p)


@rule()
def bernoulli_p(x: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(x).bernoulli_(p)


@rule()
def uniform(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return torch.empty_like(x).uniform_(low, high)


@rule()
def normal(x: torch.Tensor, mean: float, std: float) -> torch.Tensor:
    return torch.empty_like(x).normal_(mean, std)


@rule()
def exponential(x: torch.Tensor, rate: float) -> torch.Tensor:
    return torch.empty_like(x).exponential_(rate)


@rule()
def geometric(x: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(x).geometric_(p)


@rule()
def cauchy(x: torch.Tensor, median: float, sigma: float) -> torch.Tensor:
    return torch.empty_like(x).cauchy_(median, sigma)


@rule()
def log_normal(x: torch.Tensor, mean: float, std: float) -> torch.Tensor:
    return torch.empty_like(x).log_normal_(mean, std)


@rule()
def poisson(x: torch.Tensor) -> torch.Tensor:
    return torch.poisson(x)


@rule()
def binomial(count: torch.Tensor, prob: torch.Tensor) -> torch.Tensor:
    return torch.binomial(count, prob)


@rule()
def multinomial(x: torch.Tensor, num_samples: int, replacement: bool) -> torch.Tensor:
    return torch.multinomial(x, num_samples, replacement)


@rule()
def native_dropout(x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.native_dropout(x, p, True)


@rule()
def rrelu_noise(x: torch.Tensor, lower: float, upper: float) -> torch.Tensor:
    # the kernel itself: it draws a number for each negative element and none for the others
    return torch.ops.aten.rrelu_with_noise_functional(
        x, torch.empty_like(x, memory_format=torch.contiguous_format), lower, upper, True
    )[1]
