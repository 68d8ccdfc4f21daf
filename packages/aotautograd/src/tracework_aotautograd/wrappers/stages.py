"""A backward in stages: autograd nodes one behind the other, each of which gives the gradients of its own inputs.

The engine runs what takes the gradients of leaves before any other node: a bucket of them is on its way to other processes while the next
stage is computed. What goes from node to node is the gradient of an empty tensor, which carries the computation that is to go on: it
is gone with that where nobody asks for the gradients behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import GeneratorType
from typing import Any, Protocol

import torch

from .. import _torch
from ..contracts import Compiled
from ..signature import StageFacts

__all__ = ["Chain", "Give", "defined", "stage_by_stage"]

Give = Callable[[Any, Sequence[int]], tuple[Any, ...]]


class Whole(Protocol):
    """A backward that computes all gradients."""

    def takes_several(self, inputs: Sequence[Any]) -> bool: ...

    def __call__(self, inputs: list[Any]) -> Sequence[Any]: ...


def defined(gradients: Sequence[Any], reaching: Sequence[int], undefined: Sequence[int]) -> list[Any]:
    """The gradients, None where all that a gradient would come from is undefined: an optimizer passes over such parameters."""
    missing = sum(1 << place for place in undefined)
    return [None if bits and not bits & ~missing else gradient for gradient, bits in zip(gradients, reaching, strict=True)]


def in_turn(stages: Sequence[StageFacts], runs: Sequence[Compiled], values: list[Any]) -> Iterator[list[Any]]:
    """The gradients of each stage; values: what the backward takes, in a list that is emptied on the way."""
    last = {number: place for place, stage in enumerate(stages) for number in stage.takes}
    for place, (stage, run) in enumerate(zip(stages, runs, strict=True)):
        given = [values[number] for number in stage.takes]
        for number in stage.takes:
            if last[number] == place:  # freed by the stage, which empties the list that it is given
                values[number] = None
        yield _gradients(stage, run, given, values)  # which nothing here refers to: the engine copies what it does not have alone


def _gradients(stage: StageFacts, run: Compiled, given: list[Any], values: list[Any]) -> list[Any]:
    """Those of one stage; what it hands on is put at the end of the values."""
    found = list(run(given))
    count = len(stage.gradients)
    values += found[count:]
    del found[count:]
    for number in stage.lent:  # whoever gets a gradient may write to it
        found[number] = found[number].clone()
    return found


def stage_by_stage(stages: Sequence[StageFacts], runs: Sequence[Compiled], whole: Whole) -> Callable[[list[Any]], Any]:
    """What gives an iterator of the gradients of each stage, or all of them at once where several are computed for each."""

    def call(inputs: list[Any]) -> Any:
        return whole(inputs) if whole.takes_several(inputs) else in_turn(stages, runs, inputs)

    return call


class Chain:
    """The nodes of one component's backward. stages: the places of the gradients that each gives; reaching: for each gradient the tangents
    that it is computed from; device: that of the component's results, by which the engine has one queue of nodes."""

    def __init__(self, stages: Sequence[Sequence[int]], reaching: Sequence[int], device: torch.device) -> None:
        self._stages, self._device = stages, device
        self._reaching = [[reaching[place] for place in places] for places in stages]
        # as a forward applies them
        self._later = [_torch.direct_apply(self._function(number), []) for number in range(len(stages) - 1, 0, -1)]

    def applied(self, first: Callable[..., Any]) -> Callable[..., Any]:
        """Applies all nodes to what the component takes, that of the first stage last: (values, originals, *inputs) -> results."""
        stages, later = self._stages, self._later

        def apply(values: Any, originals: Any, *given: Any) -> Any:
            link: tuple[Any, ...] = ()
            for places, node in zip(reversed(stages[1:]), later, strict=True):
                link = (node(*[given[place] for place in places], *link),)
            return first(values, originals, given, *[given[place] for place in stages[0]], *link)

        return apply

    def first(self, found: Any, undefined: Sequence[int]) -> tuple[Any, ...]:
        """What the node of the first stage gives."""
        going_on = found if isinstance(found, GeneratorType) else ([found[place] for place in places] for places in self._stages)
        link: Any = torch.empty(0, device=self._device)
        link.going_on = going_on, undefined
        return (None, None, None, *self._next(0, link), link)

    def _next(self, number: int, link: Any) -> Sequence[Any]:
        going_on, undefined = link.going_on
        found: list[Any] = next(going_on)
        return defined(found, self._reaching[number], undefined) if undefined else found

    def _function(self, number: int) -> Any:
        chain, device, is_last = self, self._device, number == len(self._stages) - 1

        class LaterStage(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
                ctx.set_materialize_grads(False)
                return torch.empty(0, device=device)

            @staticmethod
            @_torch.untraced_by_torch_compile
            def backward(ctx: Any, link: Any) -> tuple[Any, ...]:
                found = chain._next(number, link)
                return (*found,) if is_last else (*found, link)

        return LaterStage
