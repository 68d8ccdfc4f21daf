"""What operators of DTensors do beside giving results, while they run on fakes: it must not be seen outside.

Masks: an embedding whose rows are shared among processes leaves a mask in an object that torch keeps for all such calls, until its result is
summed up. Generators: random numbers of a DTensor are drawn by setting the state of the device's generator.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

from .. import _torch
from ..errors import BreakGraph
from ..plan import Again, Learnt

__all__ = ["Masks", "fix_sizes", "refuse_draws"]


def fix_sizes(frame: Any) -> None:
    """Captures the frame again with numbers for all sizes, if it was not yet."""
    if not frame.plan.learnt.fixed_sizes:
        raise Again("sizes_fixed", Learnt(fixed_sizes=True))


class Masks:
    """A block in which operators run on fakes: masks of calls before are where operators look for them, and afterwards nowhere."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, Any, int]] = []  # object, its mask, how many results read it

    def __enter__(self) -> Masks:
        for buffer, data, count in self._kept:
            buffer.data, buffer.refcount = data, count
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self._kept = [(buffer, buffer.data, buffer.refcount) for buffer, *_ in self._kept if buffer.refcount]
        for buffer, *_ in self._kept:
            buffer.data, buffer.refcount = None, 0

    def leave(self, result: Any) -> None:
        """What a call left for the readers of its result; before the block ends."""
        for buffer in (placement.mask_buffer for placement in _placements(result) if hasattr(placement, "mask_buffer")):
            if all(buffer is not known for known, *_ in self._kept):
                self._kept.append((buffer, None, 0))


def _placements(result: Any) -> Iterator[Any]:
    for item in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(item, torch.Tensor) and _torch.distributed.is_distributed_tensor(type(item)):
            yield from item.placements  # type: ignore[attr-defined]


RANDOM = frozenset(
    "alpha_dropout bernoulli bernoulli_ cauchy_ dropout dropout_ exponential_ feature_alpha_dropout feature_dropout geometric_ log_normal_"
    " multinomial native_dropout normal normal_ rand_like randint_like randn_like random_ rrelu uniform_".split()
)
"""Names of functions, methods and operators that draw numbers, unless they are told not to."""


def refuse_draws(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Breaks the graph before a call that draws numbers for a DTensor."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    asked = name.partition(".")[0]
    attends = asked == "scaled_dot_product_attention" and ((args[4:5] or (kwargs.get("dropout_p", 0.0),))[0] != 0.0)
    if not attends and asked not in RANDOM:
        return
    if asked in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"):
        given = dict(zip(("input", "p", "training"), args)) | kwargs
        if given.get("training", given.get("train", True)) is False or given.get("p") in (0, 0.0):
            return
    tensors = [
        t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor) and _torch.distributed.is_distributed_tensor(type(t))
    ]
    if any(_torch.distributed.sets_generators(tensor) for tensor in tensors):
        raise BreakGraph("tensor_subclass", f"{name} of a DTensor, which sets the state of a generator")
