"""Ints that are inputs of a graph: any number where tensors are only computed with them, elsewhere a size of 2 or more, or fixed.

What takes an int as a size, an index or a dim treats 0, 1 and negative numbers by rules of their own; sums and products do not.
Neither are divisors and exponents left open: integers cannot be divided by 0 or raised to a negative power.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..dims import SMALLEST

__all__ = ["OpenNumbers"]

OPERATORS = "add sub mul iadd isub imul eq ne lt le gt ge"
METHODS = (
    "add sub mul rsub eq ne lt le gt ge where masked_fill fill clamp clamp_min clamp_max _foreach_add _foreach_sub _foreach_mul"
)
TAKES_ANY = frozenset([*OPERATORS.split(), *(name + end for name in METHODS.split() for end in ("", "_"))])


class OpenNumbers:
    """The ints of one capture that may still be any number, and those that turned out to be fixed."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.values: dict[Any, int | None] = {}

    def add(self, symbol: Any) -> None:
        """An int that became an input."""
        self.values[symbol] = None

    def settle(self, frame: Any, target: Any, arg: Any) -> Any:
        """The arguments of a call of `target`, whose numbers are sizes from now on unless it takes any number."""
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        return arg if not self.values or name in TAKES_ANY else self.settled(frame, arg)

    def settled(self, frame: Any, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return self.settled_node(frame, arg)
        if type(arg) is slice:
            return slice(*(self.settled(frame, part) for part in (arg.start, arg.stop, arg.step)))
        if isinstance(arg, dict):
            return {key: self.settled(frame, item) for key, item in arg.items()}
        if type(arg) in (list, tuple, torch.Size):
            return type(arg)(self.settled(frame, item) for item in arg)
        return arg

    def settled_node(self, frame: Any, node: fx.Node) -> Any:
        example = node.meta["example_value"]
        if not isinstance(example, torch.SymInt):
            return node
        size = self.builder.symbols.from_symint(example)
        found = [s for s in getattr(size, "free_symbols", ()) if s in self.values]
        if not found:
            return node
        fixed = {s: value for s in found if (value := self.decided(frame, s)) is not None}
        return self.builder.size_node(size.substitute(fixed)) if fixed else node

    def decided(self, frame: Any, symbol: Any) -> int | None:
        """The value that the symbol is fixed to, or None when it is a size of 2 or more; a guard says which."""
        from tracework_primops import Condition

        symbols = self.builder.symbols
        value = self.values[symbol]
        if value is None and symbols.hint(symbol) >= SMALLEST:
            symbols.guard(Condition.compare(">=", symbol, SMALLEST), frame.user_location())
            del self.values[symbol]
        elif value is None:
            value = self.values[symbol] = symbols.fix(symbol, frame.user_location())
        return value
