"""Result specs of elementwise prims, with the strides eager's iterator would choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..elementwise import elementwise as over
from ..elementwise import same_layout
from ..op import OPS, Op, Scalar, Tag
from ..promotion import complex_of, real_of
from ..spec import TensorSpec
from ..tables import rules_into

META: dict[Op, Callable[..., Any]] = {}
rule = rules_into(META)


def elementwise(dtype: torch.dtype | None, *operands: object) -> TensorSpec:
    """The result of an elementwise op over specs and numbers; dtype None means the first operand's."""
    specs = [x for x in operands if isinstance(x, TensorSpec)]
    return over(specs[0].dtype if dtype is None else dtype, specs, len(specs) < len(operands))


def _same(*operands: object) -> TensorSpec:
    return elementwise(None, *operands)


def _bool(*operands: object) -> TensorSpec:
    return elementwise(torch.bool, *operands)


def _real(x: TensorSpec) -> TensorSpec:
    return elementwise(real_of(x.dtype), x)


@rule("convert", "bitcast")
def convert(x: TensorSpec, dtype: torch.dtype) -> TensorSpec:
    return TensorSpec(dtype, x.device, x.sizes, same_layout(x))


@rule()
def round(x: TensorSpec, decimals: int) -> TensorSpec:
    return elementwise(None, x)


@rule()
def polygamma(n: int, x: TensorSpec) -> TensorSpec:
    return elementwise(None, x)


@rule()
def complex(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    return elementwise(complex_of(a.dtype), a, b)


@rule()
def frexp(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return elementwise(None, x), elementwise(torch.int32, x)


@rule()
def where(cond: TensorSpec, a: TensorSpec | Scalar, b: TensorSpec | Scalar) -> TensorSpec:
    specs = [x for x in (a, b) if x.__class__ is TensorSpec]
    if not specs:
        raise TypeError("prims.where: give at least one of a, b as a tensor (prims.full makes one)")
    return elementwise(specs[0].dtype, cond, *specs)


for _op in OPS.values():
    if _op.family == "pointwise" and _op not in META:
        META[_op] = _bool if Tag.BOOL_RESULT in _op.tags else _real if Tag.REAL_RESULT in _op.tags else _same
