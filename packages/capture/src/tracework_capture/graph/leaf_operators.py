"""Operators for functions that leaf_function marks: the function itself runs, once for each call, whatever the backend.

Where autograd follows an argument, the call keeps what it recorded under a number, which the operator gives besides its results; the
gradient finds it there. It is dropped with the tensor that holds the number.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _torch
from ..errors import OpaqueCallError
from .opaque_operators import ResultFacts, operator_of
from .traced_operators import own

__all__ = ["leaf_operator"]

_numbers = itertools.count()
_NUMBER = ResultFacts(torch.int64, torch.device("cpu"), (), ())


def leaf_operator(
    name: str, function: Callable[..., Any], text: Any, examples: Sequence[Any], facts: tuple[ResultFacts, ...]
) -> Any:
    """(operator, whether it gives a number after its results) for a function of tensors like `examples` that gives tensors."""
    followed = tuple(i for i, e in enumerate(examples) if torch.is_grad_enabled() and e.requires_grad)
    leaf = _Leaf(name, function, followed, facts, tuple(ResultFacts.of(examples[i]) for i in followed))
    kernel = _named(leaf.record if followed else leaf.run, name)
    results = (*facts, _NUMBER) if followed else facts
    operator = operator_of(kernel, kernel, text, len(examples), results)
    if followed:
        _register_gradient(operator, leaf, text, len(examples))
    return operator, bool(followed)


class _Leaf:
    def __init__(self, name: str, function: Any, followed: Any, facts: Any, gradients: Any) -> None:
        self.name, self.function, self.followed, self.facts, self.gradients = name, function, followed, facts, gradients
        self.differentiable = [i for i, f in enumerate(facts) if f.dtype.is_floating_point or f.dtype.is_complex]
        self.kept: dict[int, tuple[list[torch.Tensor], Sequence[torch.Tensor]]] = {}

    def run(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.checked(self.function(*[t.detach() for t in tensors]))

    def record(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with _torch.autograd_on():
            given = [t.detach().requires_grad_(i in self.followed) for i, t in enumerate(tensors)]
            found = self.function(*given)
        number = next(_numbers)
        self.kept[number] = given, found
        token = torch.tensor(number)
        weakref.finalize(token, self.kept.pop, number, None).atexit = False
        return (*self.checked(found), token)

    def gradient(self, token: torch.Tensor, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given, found = self.kept[int(token)]
        pairs = [(found[i], g) for i, g in zip(self.differentiable, gradients, strict=True) if found[i].requires_grad]
        wanted = [given[i] for i in self.followed]
        made: Any = [None] * len(wanted)
        if pairs:
            with _torch.autograd_on():
                givers, taken = zip(*pairs)
                made = torch.autograd.grad(givers, wanted, taken, allow_unused=True, retain_graph=True)
        zeros = (torch.zeros_like(t) if g is None else g for t, g in zip(wanted, made))
        return tuple(map(own, zeros, self.gradients))

    def checked(self, found: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The results in memory of their own, as the fake says that they are."""
        said = [(f.dtype, f.sizes) for f in self.facts]
        if [(getattr(t, "dtype", None), tuple(getattr(t, "shape", ()))) for t in found] != said:
            raise OpaqueCallError(self.name, "it gave other tensors than its fake says")
        return tuple(own(t.detach(), f) for t, f in zip(found, self.facts))


def _named(kernel: Any, name: str) -> Any:
    def call(*tensors: torch.Tensor) -> Any:
        return kernel(*tensors)

    call.__name__ = call.__qualname__ = name
    return call


def _register_gradient(operator: Any, leaf: _Leaf, text: Any, count: int) -> None:
    kernel = _named(leaf.gradient, f"gradient_of_{leaf.name}")
    backward = operator_of(kernel, kernel, ("gradient", text), 1 + len(leaf.differentiable), leaf.gradients)

    def of_inputs(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        found = backward(*ctx.saved_tensors, *[gradients[i] for i in leaf.differentiable])
        left = iter((found,) if isinstance(found, torch.Tensor) else found)
        return tuple(next(left) if i in leaf.followed else None for i in range(count))

    def again(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise OpaqueCallError(leaf.name, "the gradient of a leaf function has no gradient")

    torch.library.register_autograd(
        operator._schema.name, of_inputs, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[-1])
    )
    torch.library.register_autograd(backward._schema.name, again)
