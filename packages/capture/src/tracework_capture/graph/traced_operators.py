"""Operators that run traced graphs as the data asks for: an arm of a condition, the rounds of a loop.

What they give lies in memory of its own. Sizes that are symbols are arguments. The gradient is an operator, too, made when it is first asked
for; it runs the graphs again, with history this time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch
from .opaque_operators import ResultFacts, operator_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["own", "traced_operator"]


def traced_operator(function: Any, text: Any, count: int, facts: Sequence[Any], numbers: frozenset[int] = frozenset()) -> Any:
    """The operator of a function of `count` tensors, or ints at the places `numbers`, that gives a tuple of tensors; `text` says what it
    computes, `function.name` names it."""

    def call(*given: Any) -> tuple[torch.Tensor, ...]:
        found = function(
            *[g.detach() if isinstance(g, torch.Tensor) else g for g in given]
        )  # the kernel gets the program's history
        return tuple(own(t, f.among(given)) for t, f in zip(found, facts, strict=True))

    call.__name__ = call.__qualname__ = function.name
    operator = operator_of(function, call, text, count, tuple(facts), numbers)
    gradients: dict[tuple[int, ...], tuple[_Gradient, Any]] = {}

    def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        ctx.save_for_backward(*[None if i in numbers else given for i, given in enumerate(inputs)])
        ctx.numbers = {i: inputs[i] for i in numbers}

    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        followed = tuple(i for i in range(count) if ctx.needs_input_grad[i])
        inputs = [ctx.numbers.get(i, kept) for i, kept in enumerate(ctx.saved_tensors)]
        if followed not in gradients:
            made = _Gradient(function, followed, inputs, facts)
            total = count + len(made.results)
            gradients[followed] = made, traced_operator(made, ("gradient", text, followed), total, made.facts, numbers)
        gradient, of_inputs = gradients[followed]
        found = of_inputs(*inputs, *[given[i] for i in gradient.results])
        left = iter((found,) if isinstance(found, torch.Tensor) else found)
        return tuple(next(left) if i in followed else None for i in range(count))

    torch.library.register_autograd(operator._schema.name, backward, setup_context=keep)
    return operator


def own(tensor: torch.Tensor, facts: ResultFacts) -> torch.Tensor:
    """The tensor in memory of its own, as an operator gives it."""
    return torch.empty_strided(facts.sizes, facts.strides, dtype=facts.dtype, device=facts.device).copy_(tensor)


@dataclass(frozen=True)
class _Like:
    """A tensor of the sizes of an argument, row by row."""

    place: int
    dtype: torch.dtype
    device: torch.device

    def among(self, arguments: Sequence[Any]) -> ResultFacts:
        made = torch.empty(arguments[self.place].shape, device="meta")
        return ResultFacts(self.dtype, self.device, tuple(made.shape), tuple(made.stride()))


class _Gradient:
    """The gradients of the followed inputs, from all inputs and the gradients of those results that may have one. They have history where
    the gradient of a gradient calls this: the tensors are leaves then, or depend on nothing but themselves.
    """

    def __init__(self, function: Any, followed: tuple[int, ...], inputs: Sequence[Any], facts: Sequence[Any]) -> None:
        self.name = f"gradient_of_{function.name}"
        self.function, self.followed, self.count = function, followed, len(inputs)
        self.results = [i for i, f in enumerate(facts) if f.dtype.is_floating_point or f.dtype.is_complex]
        self.facts = tuple(_Like(i, inputs[i].dtype, inputs[i].device) for i in followed)

    def __call__(self, *arguments: Any) -> tuple[torch.Tensor, ...]:
        inputs, gradients = arguments[: self.count], arguments[self.count :]
        again = any(t.requires_grad for t in arguments if isinstance(t, torch.Tensor))
        with _torch.autograd_on():
            given = [self._with_history(i, t) for i, t in enumerate(inputs)]
            results = self.function(*given)
            pairs = [(results[i], g) for i, g in zip(self.results, gradients, strict=True) if results[i].requires_grad]
            wanted = [given[i] for i in self.followed]
            found: Any = [None] * len(wanted)
            if pairs:
                givers, taken = zip(*pairs)
                found = torch.autograd.grad(givers, wanted, taken, allow_unused=True, create_graph=again)
            return tuple(torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found))

    def _with_history(self, place: int, given: Any) -> Any:
        if not isinstance(given, torch.Tensor) or given.requires_grad:
            return given
        return given.detach().requires_grad_(place in self.followed)
