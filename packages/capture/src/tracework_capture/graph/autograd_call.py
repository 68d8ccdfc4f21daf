"""What a node that stands for `SomeFunction.apply(...)` calls: an autograd.Function whose two halves are captured graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from torch import fx

__all__ = ["AutogradCall", "Halves", "INPUT", "KEPT", "SAVED", "TANGENT"]

INPUT, SAVED, KEPT, TANGENT = "input", "saved", "kept", "tangent"
"""Where the backward graph finds a value: an argument of the call, what save_for_backward or an attribute of ctx held, a gradient."""


@dataclass(frozen=True)
class Halves:
    """The two graphs and how values travel between them."""

    forward: fx.GraphModule
    forward_inputs: tuple[int, ...]  # places among the call's arguments, one for each placeholder
    results: int  # leading outputs of forward that the call gives; then what is saved, then what is kept
    saved: int
    without_gradient: tuple[int, ...]  # results marked as not differentiable
    backward: fx.GraphModule
    backward_inputs: tuple[tuple[str, int], ...]
    arguments: int  # leading arguments of the call that take part in autograd; the others are only read
    once: bool  # whether the backward was marked once_differentiable
    dirty: tuple[int, ...]  # arguments that the forward writes to, and which are results


class AutogradCall:
    """Calls a captured autograd.Function; target of a call_function node."""

    def __init__(self, name: str, halves: Halves) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self.halves = halves
        self.runs = halves.forward
        self.function = _function(name, halves)

    def __repr__(self) -> str:
        return f"{self.__name__}.apply"

    def __call__(self, *args: Any) -> Any:
        count = self.halves.arguments
        read = [a.detach() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args[count:]]
        return self.function.apply(*args[:count], *read)


def _function(name: str, halves: Halves) -> Any:
    """The class."""

    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        found = halves.forward.forward(*[args[i] for i in halves.forward_inputs])
        results, rest = found[: halves.results], found[halves.results :]
        read = dict.fromkeys(i for kind, i in halves.backward_inputs if kind == INPUT)
        tensors = [i for i in read if isinstance(args[i], torch.Tensor)]
        ctx.tensors = tensors
        ctx.others = {i: args[i] for i in read if i not in tensors}
        ctx.kept = rest[halves.saved :]
        ctx.save_for_backward(*rest[: halves.saved], *[args[i] for i in tensors])
        ctx.mark_dirty(*[args[i] for i in halves.dirty])
        ctx.mark_non_differentiable(*[results[i] for i in halves.without_gradient])
        return results

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        held = ctx.saved_tensors
        places = {
            SAVED: held[: halves.saved],
            KEPT: ctx.kept,
            TANGENT: [g.contiguous() for g in gradients],
            INPUT: {**ctx.others, **dict(zip(ctx.tensors, held[halves.saved :]))},
        }
        found = halves.backward.forward(*[places[kind][i] for kind, i in halves.backward_inputs])
        return (*found, *(None for _ in range(len(ctx.needs_input_grad) - len(found))))

    body = {
        "forward": staticmethod(forward),
        "backward": staticmethod(once_differentiable(backward) if halves.once else backward),
    }
    return type(name, (torch.autograd.Function,), body)
