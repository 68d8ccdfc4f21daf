"""Ints that are inputs of a graph: any number where tensors are only computed with them; not below 0 as places, sizes and offsets, where what
they are the size of has 1 item at least; elsewhere a size of 2 or more. What is none of these is fixed.

What takes an int as a place or a size treats negative numbers, and nothing, by rules of their own; sums and products do not.
Neither are divisors that give integers, and exponents, left open: integers cannot be divided by 0 or raised to a negative power.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..dims import SMALLEST
from .opaque_operators import NAMESPACE

__all__ = ["UnspecialisedNumbers"]

OPERATORS = "add sub mul iadd isub imul truediv itruediv true_divide eq ne lt le gt ge"
METHODS = "add sub mul roll rsub eq ne lt le gt ge where masked_fill fill clamp clamp_min clamp_max _foreach_add _foreach_sub _foreach_mul"
TAKES_ANY = frozenset([*OPERATORS.split(), *(name + end for name in METHODS.split() for end in ("", "_"))])
PLACES = (
    "getitem setitem narrow select tril triu diagonal arange linspace eye pad kthvalue full zeros ones empty rand randn"
    " new_zeros new_ones new_full new_empty expand repeat view reshape unflatten topk split chunk tensor_split"
)
TAKES_PLACES = frozenset([*PLACES.split(), "tril_", "triu_"])


class UnspecialisedNumbers:
    """The ints of one capture that may still be any number, and those that turned out to be fixed."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.values: dict[Any, int | None] = {}

    def add(self, symbol: Any) -> None:
        """An int that became an input."""
        self.values[symbol] = None

    def settle(self, frame: Any, target: Any, arg: Any) -> Any:
        """The arguments of a call of `target`, whose numbers are sizes or places from now on unless it takes any number."""
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        is_traced = getattr(target, "namespace", None) == NAMESPACE  # settled where its graphs were traced
        if not self.values or name in TAKES_ANY or is_traced:
            return arg
        return self.settled(frame, arg, 0 if name in TAKES_PLACES else SMALLEST)

    def settled(self, frame: Any, arg: Any, least: int) -> Any:
        if isinstance(arg, fx.Node):
            return self.settled_node(frame, arg, least)
        if type(arg) is slice:
            return slice(*(self.settled(frame, part, least) for part in (arg.start, arg.stop, arg.step)))
        if isinstance(arg, dict):
            return {key: self.settled(frame, item, least) for key, item in arg.items()}
        if type(arg) in (list, tuple, torch.Size):
            return type(arg)(self.settled(frame, item, least) for item in arg)
        return arg

    def settled_node(self, frame: Any, node: fx.Node, least: int) -> Any:
        example = node.meta["example_value"]
        if not isinstance(example, torch.SymInt):
            return node
        size = self.builder.symbols.from_symint(example)
        found = self.maybe_below_two(size)
        if not found:
            return node
        fixed = {s: value for s in found if (value := self.decided(frame, s, least)) is not None}
        return self.builder.size_node(size.substitute(fixed)) if fixed else node

    def maybe_below_two(self, size: Any) -> list[Any]:
        """The ints in a size that may be less than 2."""
        return [s for s in getattr(size, "free_symbols", ()) if s in self.values]

    def decided(self, frame: Any, symbol: Any, least: int) -> int | None:
        """The value that the symbol is fixed to, or None when it is `least` or more; a guard says which."""
        from tracework_primops import Condition

        symbols = self.builder.symbols
        value = self.values[symbol]
        if value is None and symbols.hint(symbol) >= least:
            symbols.guard(Condition.compare(">=", symbol, least), frame.user_location())
            if least == SMALLEST:
                del self.values[symbol]
        elif value is None:
            value = self.values[symbol] = symbols.fix(symbol, frame.user_location())
        return value

    def fix_for_nothing(self, frame: Any, example: Any) -> bool:
        """Whether the result of a call has no items for some ints, which are fixed then; where it has, a guard says so."""
        from tracework_primops import Condition

        if isinstance(example, (list, tuple)):
            return any([self.fix_for_nothing(frame, item) for item in example])
        if not self.values or not isinstance(example, torch.Tensor) or example.layout is not torch.strided:
            return False
        symbols, fixed = self.builder.symbols, False
        for size in example.shape:
            expression = size if type(size) is int else symbols.from_symint(size)
            found = [s for s in self.maybe_below_two(expression) if self.values[s] is None]
            if found and symbols.hint(expression) > 0:
                symbols.guard(Condition.compare(">=", expression, 1), frame.user_location())
                continue
            for symbol in found:
                self.values[symbol], fixed = symbols.fix(symbol, frame.user_location()), True
        return fixed
