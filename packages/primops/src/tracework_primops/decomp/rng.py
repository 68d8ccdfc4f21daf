"""Random ops: thin names for eager's kernels, so that values and the generator's state equal eager's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..op import PrimValue, prims
from ..symbols import Size
from .table import aten, decomposition, to, wide
from .view import expected


@decomposition(aten.bernoulli)
def bernoulli(p: PrimValue, *, generator: torch.Generator | None = None) -> PrimValue:
    return prims.bernoulli(p) if generator is None else NotImplemented


@decomposition(aten.bernoulli.p)
def bernoulli_p(x: PrimValue, p: float, *, generator: torch.Generator | None = None) -> PrimValue:
    return prims.bernoulli_p(x, p) if generator is None else NotImplemented


@decomposition(aten.poisson)
def poisson(x: PrimValue, generator: torch.Generator | None = None) -> PrimValue:
    return prims.poisson(x) if generator is None else NotImplemented


@decomposition(aten.native_dropout)
def native_dropout(x: PrimValue, p: float, train: bool | None = True) -> tuple[PrimValue, PrimValue]:
    if train is False:
        return NotImplemented
    return prims.native_dropout(x, p)


@decomposition(aten.native_dropout_backward)
def native_dropout_backward(grad: PrimValue, mask: PrimValue, scale: float) -> PrimValue:
    if not grad.dtype.is_floating_point:
        return NotImplemented
    return to(prims.mul(prims.mul(wide(grad), to(mask, wide(grad).dtype)), scale), grad.dtype)


def _like(draw: Callable[[PrimValue], PrimValue]) -> Callable[..., PrimValue]:
    """Draws into an empty tensor like x; another dtype or device needs the kernel."""

    def rule(
        x: PrimValue,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
        memory_format: torch.memory_format | None = None,
    ) -> PrimValue:
        same = dtype in (None, x.dtype) and device in (None, x.device) and memory_format in (None, torch.preserve_format)
        return draw(x) if same and x.dtype.is_floating_point else NotImplemented

    return rule


decomposition(aten.rand_like)(_like(lambda x: prims.uniform(x, 0.0, 1.0)))
decomposition(aten.randn_like)(_like(lambda x: prims.normal(x, 0.0, 1.0)))


def _drawn(draw: Callable[..., PrimValue]) -> Callable[..., PrimValue]:
    def rule(
        sizes: Sequence[Size],
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> PrimValue:
        wanted = expected()
        if wanted is None:
            return draw(tuple(sizes), dtype or torch.get_default_dtype(), device or torch.device("cpu"))
        return draw(tuple(sizes), wanted.dtype, wanted.device)

    return rule


decomposition(aten.rand)(_drawn(prims.rand))
decomposition(aten.randn)(_drawn(prims.randn))


@decomposition(aten.randint.low)
def randint(
    low: Size,
    high: Size,
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return _drawn(lambda n, dtype, device: prims.randint(low, high, n, dtype, device))(
        sizes, dtype=dtype or torch.int64, device=device
    )


@decomposition(aten.randint)
def randint_below(high: Size, sizes: Sequence[Size], **options: Any) -> PrimValue:
    return randint(0, high, sizes, **options)


@decomposition(aten.randperm)
def randperm(
    n: Size,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> PrimValue:
    return _drawn(lambda _, dtype, device: prims.randperm(n, dtype, device))((), dtype=dtype or torch.int64, device=device)
