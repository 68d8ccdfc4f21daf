"""DECOMPS and the decorator that fills it; what decomposition functions share: conversion, promotion, dims.

A decomposition gets an ATen call's arguments with tensors as PrimValues and sizes as `int | Expr`, and gives PrimValues
(a tuple for several results, None where ATen gives an undefined tensor). `NotImplemented` leaves the op to the eager kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from .._torch import OpOverload, OpOverloadPacket
from ..errors import SealedTable
from ..op import PrimValue, Scalar, prims
from ..promotion import compute_dtype, float_dtype, result_dtype

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)
aten = torch.ops.aten
Operand = PrimValue | Scalar
"""What an elementwise op takes, at least one of its operands being a tensor."""
DECOMPS: dict[OpOverload, Rule] = {}


def decomposition(*overloads: OpOverload | OpOverloadPacket) -> Callable[[R], R]:
    """File a function under ATen overloads; a packet stands for its `default`."""

    def file(function: R) -> R:
        for overload in overloads:
            key = overload.default if isinstance(overload, OpOverloadPacket) else overload
            if key in DECOMPS:
                raise SealedTable(f"DECOMPS: a second row for {key} in {function.__module__}")
            DECOMPS[key] = function
        return function

    return file


def overloads_of(name: str, *wanted: str) -> list[OpOverload]:
    """The overloads of aten.<name> with these overload names that this torch has."""
    packet = getattr(aten, name, None)
    return [] if packet is None else [getattr(packet, w) for w in wanted if w in packet.overloads()]


def to(x: Any, dtype: torch.dtype) -> Any:
    """x in dtype; numbers and values that have it already are left alone."""
    return prims.convert(x, dtype) if x.__class__ is PrimValue and x.dtype is not dtype else x


def promoted(*operands: Operand | None) -> tuple[list[Any], torch.dtype]:
    """Operands in their common dtype, and the dtype."""
    dtype = result_dtype(*operands)
    return [to(x, dtype) for x in operands], dtype


def promoted_float(*operands: Operand) -> tuple[list[Any], torch.dtype]:
    """As `promoted`, integers and bools becoming the default float dtype."""
    dtype = float_dtype(*operands)
    return [to(x, dtype) for x in operands], dtype


def wide(x: PrimValue) -> PrimValue:
    """x in the dtype eager computes in: float32 for half precisions."""
    return to(x, compute_dtype(x.dtype))


def dim_of(x: PrimValue, dim: int) -> int:
    """dim as a non-negative number; 0 for 0-dim tensors. Raises IndexError as eager does."""
    n = max(x.ndim, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim + n if dim < 0 else dim


def dims_of(x: PrimValue, dims: Sequence[int] | int | None) -> tuple[int, ...]:
    """Dims as sorted non-negative numbers; None and () mean all. Raises IndexError and RuntimeError as eager does."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return tuple(range(x.ndim))
    found: set[int] = set()
    for given in (dims,) if isinstance(dims, int) else dims:
        dim = dim_of(x, given)
        if dim in found:
            raise RuntimeError(f"dim {dim} appears multiple times in the list of dims")
        found.add(dim)
    return tuple(sorted(found)) if x.ndim else ()
