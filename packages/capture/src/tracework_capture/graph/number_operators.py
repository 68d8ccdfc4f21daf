"""Operators that call a function of torch with numbers read from tensors: for functions that take a float which changes from call to call,
and compute with it in a way that no function of tensors does bit by bit.

They have no gradient, write to nothing and give new tensors, whose sizes do not depend on the number.
"""

from __future__ import annotations

from typing import Any

import torch

from .generated_operators import GeneratedOperators

__all__ = ["number_operator"]

_operators = GeneratedOperators("tracework_numbers")


class _Call:
    """The function with its arguments: `places` are those of tensors and of numbers among them, the others are known."""

    def __init__(
        self, function: Any, known: list[Any], names: tuple[str, ...], numbers: dict[int, float], tensors: list[int]
    ) -> None:
        self.function, self.known, self.names, self.numbers, self.tensors = function, known, names, numbers, tensors

    def evaluate(self, values: list[Any], on_meta: bool) -> Any:
        """What it gives with these in the places of tensors and numbers."""
        args = list(self.known)
        for place, value in zip(self.tensors, values, strict=False):
            args[place] = value
        for place, value in zip(self.numbers, values[len(self.tensors) :], strict=True):
            args[place] = self.numbers[place] if on_meta else value.item()
        count = len(args) - len(self.names)
        named = dict(zip(self.names, args[count:], strict=True))
        if on_meta and not self.tensors:
            named["device"] = "meta"
        return self.function(*args[:count], **named)

    def run(self, *values: torch.Tensor) -> Any:
        return self.evaluate(list(values), False)

    def on_meta(self, *values: torch.Tensor) -> Any:
        return self.evaluate(list(values), True)


def number_operator(
    function: Any, known: list[Any], names: tuple[str, ...], numbers: dict[int, float], tensors: list[int]
) -> Any:
    """The operator of function(*known[:-len(names)], **names) with the tensors in their places first, then the numbers, as tensors."""
    key = (id(function), repr(known), names, tuple(numbers), tuple(tensors))
    found = _operators.known(key)
    if found is not None:
        return found
    call = _Call(function, known, names, numbers, tensors)
    schema = f"({', '.join(f'Tensor x{i}' for i in range(len(tensors) + len(numbers)))}) -> Tensor"
    facts = (function.__name__, repr(known), names, tuple(numbers), tuple(tensors))
    return _operators.make(key, function, function.__name__, facts, schema, call.run, call.on_meta)
