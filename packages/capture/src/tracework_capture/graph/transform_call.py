"""What a node calls that stands for a function under a transform of torch.func: the function is a captured graph over flat tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

__all__ = ["TRANSFORMS", "TransformCall"]


def _with_aux(function: Callable[..., Any]) -> Callable[..., Any]:
    """(first result, the others)"""

    def call(*args: Any) -> Any:
        first, *others = function(*args)
        return first, tuple(others)

    return call


def _vmap(function: Any, args: Any, options: dict[str, Any]) -> Any:
    return torch.vmap(function, **options)(*args)


def _grad(function: Any, args: Any, options: dict[str, Any]) -> Any:
    grads, (value, others) = torch.func.grad_and_value(_with_aux(function), has_aux=True, **options)(*args)
    return (*grads, value, *others)


def _vjp(function: Any, args: Any, options: dict[str, Any]) -> Any:
    count, results = options["primals"], options["results"]
    primals, read, cotangents = args[:count], args[count:-results], args[-results:]

    def call(*given: Any) -> Any:
        return function(*given, *read)[:results]

    return torch.func.vjp(call, *primals)[1](tuple(cotangents))


def _jvp(function: Any, args: Any, options: dict[str, Any]) -> Any:
    count, results = options["primals"], options["results"]
    primals, read, tangents = args[:count], args[count:-count], args[-count:]

    def call(*given: Any) -> Any:
        found = function(*given, *read)
        return found[:results], found[results:]

    made: Any = torch.func.jvp(call, primals, tangents, has_aux=True)
    values, derivatives, others = made
    return (*values, *derivatives, *others)


def _jacobian(transform: Any) -> Any:
    def call(function: Any, args: Any, options: dict[str, Any]) -> Any:
        options = dict(options)
        results = options.pop("results")

        def split(*given: Any) -> Any:
            found = function(*given)
            return found[:results], found[results:]

        rows, others = transform(split, has_aux=True, **options)(*args)
        return (*(column for row in rows for column in row), *others)

    return call


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "call": lambda function, args, options: function(*args),
    "vmap": _vmap,
    "grad": _grad,
    "vjp": _vjp,
    "jvp": _jvp,
    "jacrev": _jacobian(torch.func.jacrev),
    "jacfwd": _jacobian(torch.func.jacfwd),
}
"""Name -> fn(function of flat tensors that gives a tuple, tensors, options), which gives a tuple."""


class TransformCall:
    """Applies a transform to a captured graph; target of a call_function node."""

    def __init__(self, kind: str, name: str, module: fx.GraphModule, places: tuple[int, ...], options: dict[str, Any]) -> None:
        self.__name__ = self.__qualname__ = f"{kind}_{name}" if name.isidentifier() else kind
        self.__module__ = __name__
        self.kind, self.runs, self.places, self.options = kind, module, places, options

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self, *args: Any) -> Any:
        return TRANSFORMS[self.kind](self.function, args, self.options)

    def function(self, *args: Any) -> Any:
        """The captured graph; `places` says which argument is which of its placeholders."""
        return self.runs.forward(*[args[place] for place in self.places])
