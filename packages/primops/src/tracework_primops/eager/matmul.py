"""Reference execution of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _torch, attention
from ..op import Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


@rule()
def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b)


@rule()
def addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: complex, alpha: complex) -> torch.Tensor:
    return torch.addmm(bias, a, b, beta=beta, alpha=alpha)


@rule()
def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.bmm(a, b)


@rule()
def baddbmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: complex, alpha: complex) -> torch.Tensor:
    return torch.baddbmm(bias, a, b, beta=beta, alpha=alpha)


@rule()
def mv(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.mv(a, x)


@rule()
def dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.dot(a, b)


@rule()
def vdot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.vdot(a, b)


@rule()
def scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None,
    scale_result: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> torch.Tensor:
    return _torch.scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)


@rule()
def grouped_mm(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None, bias: torch.Tensor | None, out_dtype: torch.dtype | None
) -> torch.Tensor:
    return _torch.grouped_mm(a, b, offs=offs, bias=bias, out_dtype=out_dtype)


@rule()
def int_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _torch.int_mm(a, b)


rule("attention")(attention.forward_reference)
rule("attention_backward")(attention.backward_reference)
rule("attention_sums")(attention.sums_reference)
