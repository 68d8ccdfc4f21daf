"""Operators that run traced graphs as the data asks for: an arm of a condition, the rounds of a loop.

What they give lies in memory of its own. The gradient is an operator, too, made when it is first asked for; it runs the graphs again,
with history this time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from .opaque_operators import ResultFacts, operator_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["own", "traced_operator"]


def traced_operator(function: Any, text: Any, count: int, facts: Sequence[ResultFacts]) -> Any:
    """The operator of a function of `count` tensors that gives a tuple of tensors; `text` says what it computes, `function.name` names it."""

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = function(*[t.detach() for t in tensors])  # the kernel gets them with the program's history
        return tuple(map(own, found, facts))

    call.__name__ = call.__qualname__ = function.name
    operator = operator_of(function, call, text, count, tuple(facts))
    gradients: dict[tuple[int, ...], tuple[_Gradient, Any]] = {}

    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        followed = tuple(i for i in range(count) if ctx.needs_input_grad[i])
        if followed not in gradients:
            made = _Gradient(function, followed, ctx.saved_tensors, facts)
            total = count + len(made.results)
            gradients[followed] = made, traced_operator(made, ("gradient", text, followed), total, made.facts)
        gradient, of_inputs = gradients[followed]
        found = of_inputs(*ctx.saved_tensors, *[given[i] for i in gradient.results])
        left = iter((found,) if isinstance(found, torch.Tensor) else found)
        return tuple(next(left) if i in followed else None for i in range(count))

    torch.library.register_autograd(
        operator._schema.name, backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    return operator


def own(tensor: torch.Tensor, facts: ResultFacts) -> torch.Tensor:
    """The tensor in memory of its own, as an operator gives it."""
    return torch.empty_strided(facts.sizes, facts.strides, dtype=facts.dtype, device=facts.device).copy_(tensor)


class _Gradient:
    """The gradients of the followed inputs, from all inputs and the gradients of those results that may have one. They have history where
    the gradient of a gradient calls this: the tensors are leaves then, or depend on nothing but themselves.
    """

    def __init__(
        self, function: Any, followed: tuple[int, ...], inputs: Sequence[torch.Tensor], facts: Sequence[ResultFacts]
    ) -> None:
        self.name = f"gradient_of_{function.name}"
        self.function, self.followed, self.count = function, followed, len(inputs)
        self.results = [i for i, f in enumerate(facts) if f.dtype.is_floating_point or f.dtype.is_complex]
        self.facts = tuple(_dense(ResultFacts.of(inputs[i])) for i in followed)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs, gradients = tensors[: self.count], tensors[self.count :]
        again = any(t.requires_grad for t in tensors)
        with _torch.autograd_on():
            given = [t if t.requires_grad else t.detach().requires_grad_(i in self.followed) for i, t in enumerate(inputs)]
            results = self.function(*given)
            pairs = [(results[i], g) for i, g in zip(self.results, gradients, strict=True) if results[i].requires_grad]
            wanted = [given[i] for i in self.followed]
            found: Any = [None] * len(wanted)
            if pairs:
                givers, taken = zip(*pairs)
                found = torch.autograd.grad(givers, wanted, taken, allow_unused=True, create_graph=again)
            return tuple(torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found))


def _dense(facts: ResultFacts) -> ResultFacts:
    return replace(facts, strides=tuple(torch.empty(facts.sizes, device="meta").stride()))
