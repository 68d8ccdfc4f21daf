"""Dtype promotion, by ATen's rules: dimensioned tensors outrank 0-dim tensors, which outrank Python numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.bfloat16: torch.complex64,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}
_REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_COMPUTE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """The complex dtype with `dtype` parts."""
    return dtype if dtype.is_complex else _COMPLEX_OF[dtype]


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a complex dtype's parts; any other dtype is itself."""
    return _REAL_OF.get(dtype, dtype)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """What eager computes in: float32 for half precisions."""
    return _COMPUTE.get(dtype, dtype)


def is_float(dtype: torch.dtype) -> bool:
    """Floating or complex."""
    return dtype.is_floating_point or dtype.is_complex


def number_dtype(value: object) -> torch.dtype:
    """The dtype a Python number counts as; a symbolic size counts as an int."""
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, float):
        return torch.get_default_dtype()
    if isinstance(value, complex):
        return complex_of(torch.get_default_dtype())
    return torch.int64


promote = cache(torch.promote_types)


def result_dtype(*operands: Any) -> torch.dtype:
    """Common dtype of tensors (anything with .dtype and .sizes) and Python numbers; None operands are skipped."""
    dimensioned = zero = number = None
    for x in operands:
        if x is None:
            continue
        dtype = getattr(x, "dtype", None)
        if dtype is None:
            number = number_dtype(x) if number is None else promote(number, number_dtype(x))
        elif len(x.sizes):
            dimensioned = dtype if dimensioned is None or dimensioned is dtype else promote(dimensioned, dtype)
        else:
            zero = dtype if zero is None or zero is dtype else promote(zero, dtype)
    if zero is None and number is None:
        return dimensioned
    return _outrank(dimensioned, _outrank(zero, number))


@cache
def _outrank(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return complex_of(higher) if lower.is_complex else higher
    if higher is torch.bool or is_float(lower):
        return promote(higher, lower)
    return higher


def float_dtype(*operands: Any) -> torch.dtype:
    """result_dtype, with the default float dtype instead of integers and bool."""
    dtype = result_dtype(*operands)
    return dtype if is_float(dtype) else torch.get_default_dtype()
