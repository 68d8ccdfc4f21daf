"""Inputs that are conjugated or negated when they are read: kernels, which read memory, get memory with what eager would read."""

from collections.abc import Callable, Collection
from typing import Any

import torch

from . import _torch

__all__ = ["is_lazy", "resolved"]


def is_lazy(value: Any) -> bool:
    """Whether this is a tensor whose values are not what its memory says."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and (value.is_conj() or value.is_neg())


def resolved(call: Callable[[list[Any]], Any], mutated: Collection[int]) -> Callable[[list[Any]], Any]:
    """A callable of a list of inputs that takes lazy ones, too; what `call` writes to those at the places `mutated` is written back."""

    def run(inputs: list[Any]) -> Any:
        given = list(inputs)
        inputs[:] = [_in_memory(x) if is_lazy(x) else x for x in given]
        written = [(given[n], inputs[n]) for n in mutated if inputs[n] is not given[n]]
        found = call(inputs)
        with torch.no_grad():
            for lazy, values in written:
                lazy.copy_(values)
        return found

    return run


def _in_memory(x: torch.Tensor) -> torch.Tensor:
    """The values in memory of their own, with the strides of x."""
    with torch.no_grad():
        raw = _torch.negated_view(x) if x.is_neg() else x
        raw = raw.conj() if raw.is_conj() else raw
        extent = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
        values = raw.as_strided((extent,), (1,))
        values = values.conj_physical() if x.is_conj() else values
        values = values.neg() if x.is_neg() else values
        return values.as_strided(x.shape, x.stride(), 0).requires_grad_(x.requires_grad)
