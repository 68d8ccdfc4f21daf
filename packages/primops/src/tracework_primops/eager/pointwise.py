"""Reference execution of elementwise prims: the torch function of the same name, on operands of one dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..op import OPS, Op
from ..tables import rules_into

EAGER: dict[Op, Callable[..., Any]] = {}
rule = rules_into(EAGER)


_SPECIAL = (
    "i0e i1 i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 "
    "scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai ndtri log_ndtr erfcx zeta chebyshev_polynomial_t "
    "chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p"
)
_RENAMED = {
    "logical_and": "logical_and", "shift_left": "bitwise_left_shift", "shift_right": "bitwise_right_shift",
    "floor_divide": "floor_divide", "div": "true_divide", "conj": "conj_physical",
}  # fmt: skip
_NO_NUMBERS = frozenset(
    "maximum minimum fmax fmin atan2 hypot nextafter logaddexp logaddexp2 heaviside gcd lcm igamma igammac logical_and "
    "logical_or logical_xor copysign".split()
)


def _tensors(*operands: torch.Tensor | complex) -> list[torch.Tensor]:
    """Numbers as 0-dim tensors of the tensor operand's dtype, for functions that take no numbers."""
    like = next(x for x in operands if isinstance(x, torch.Tensor))
    return [x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=like.dtype, device=like.device) for x in operands]


def _with_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(*_tensors(a, b))


@rule()
def trunc_divide(a: torch.Tensor | complex, b: torch.Tensor | complex) -> torch.Tensor:
    return torch.div(*_tensors(a, b), rounding_mode="trunc")


@rule()
def round(x: torch.Tensor, decimals: int) -> torch.Tensor:
    return torch.round(x, decimals=decimals) if decimals else torch.round(x)


@rule()
def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


@rule()
def real(x: torch.Tensor) -> torch.Tensor:
    return torch.real(x).clone()


@rule()
def imag(x: torch.Tensor) -> torch.Tensor:
    return torch.imag(x).clone() if x.is_complex() else torch.zeros_like(x)


@rule()
def convert(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype)


@rule()
def bitcast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.view(dtype)


@rule()
def sub(a: torch.Tensor | complex, b: torch.Tensor | complex) -> torch.Tensor:
    return torch.sub(a, b) if isinstance(a, torch.Tensor) else torch.rsub(b, a)


@rule()
def ldexp(a: torch.Tensor | complex, b: torch.Tensor | complex) -> torch.Tensor:
    return torch.ldexp(*_tensors(a, b))


@rule()
def where(cond: torch.Tensor, a: torch.Tensor | complex, b: torch.Tensor | complex) -> torch.Tensor:
    return torch.where(cond, *_tensors(a, b))


@rule()
def fma(a: torch.Tensor | complex, b: torch.Tensor | complex, c: torch.Tensor | complex) -> torch.Tensor:
    return torch.add(torch.mul(a, b), c)


@rule()
def polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    return torch.polygamma(n, x)


def _flipped(name: str) -> Callable[..., Any]:
    """Comparisons with a number on the left."""
    mirror = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[name]
    straight, turned = getattr(torch, name), getattr(torch, mirror)
    return lambda a, b: straight(a, b) if isinstance(a, torch.Tensor) else turned(b, a)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    EAGER[OPS[_name]] = _flipped(_name)
for _op in OPS.values():
    if _op.family == "pointwise" and _op not in EAGER:
        _home = torch.special if _op.name in _SPECIAL.split() else torch
        _function = getattr(_home, _RENAMED.get(_op.name, _op.name), None)
        if _function is not None:  # else it is without a rule, which merge_families says
            EAGER[_op] = _with_tensors(_function) if _op.name in _NO_NUMBERS else _function
