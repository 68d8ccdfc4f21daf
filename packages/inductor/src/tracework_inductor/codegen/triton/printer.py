"""Index expressions as Triton text, and as Python for the launch record.

Triton's `//` and `%` on integers truncate as C's do; where a numerator may be negative the helpers of PRELUDE are used.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tracework_primops.symbols.expr import Expr, FloorDiv, Max, Min, Mod, Symbol
from tracework_primops.symbols.ranges import bounds

from ...errors import InductorError
from ...ir.index import INT32_LIMIT, Size

__all__ = ["IndexPrinter", "PythonPrinter", "fits_text"]


class IndexPrinter:
    """Writes expressions; `names` maps each symbol to its text, `ranges` to its inclusive range."""

    def __init__(self, names: dict[Any, str], ranges: dict[Any, tuple[Any, Any]]) -> None:
        self.names = names
        self.ranges = ranges

    def text(self, size: Size) -> str:
        """The expression as text, without outer parentheses."""
        if isinstance(size, int):
            return str(size)
        if isinstance(size, Symbol):
            return self._name(size)
        writer = ATOM_TEXT.get(type(size))
        if writer is not None:
            return writer(self, size)
        return self._sum(size)

    def operand(self, size: Size) -> str:
        """The expression as one operand of a product or quotient."""
        text = self.text(size)
        alone = isinstance(size, Symbol) or type(size) in ATOM_TEXT or (isinstance(size, int) and size >= 0)
        return text if alone else f"({text})"

    def is_nonnegative(self, size: Size) -> bool:
        """Whether the value is proven not to be negative."""
        low = bounds(size, self.ranges)[0]
        return isinstance(low, (int, float)) and low >= 0

    def _name(self, symbol: Symbol) -> str:
        name = self.names.get(symbol)
        if name is None:
            raise InductorError(f"Triton kernel: index uses {symbol}, which is neither a loop variable nor a size argument")
        return name

    def _sum(self, size: Expr) -> str:
        parts = []
        for monomial, coefficient in size.terms.items():
            factors = [self.operand(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append(" * ".join(factors))
        return " + ".join(parts).replace("+ -", "- ")

    def _quotient(self, size: Any) -> str:
        top, bottom = size.arguments()
        if self.is_nonnegative(top) and self.is_nonnegative(bottom):
            return f"({self.operand(top)} // {self.operand(bottom)})"
        return f"_floordiv({self.text(top)}, {self.text(bottom)})"

    def _rest(self, size: Any) -> str:
        top, bottom = size.arguments()
        if self.is_nonnegative(top) and self.is_nonnegative(bottom):
            return f"({self.operand(top)} % {self.operand(bottom)})"
        return f"_mod({self.text(top)}, {self.text(bottom)})"

    def _largest(self, size: Any) -> str:
        return self._fold("tl.maximum", size)

    def _smallest(self, size: Any) -> str:
        return self._fold("tl.minimum", size)

    def _fold(self, function: str, size: Any) -> str:
        first, *rest = (self.text(argument) for argument in size.arguments())
        for other in rest:
            first = f"{function}({first}, {other})"
        return f"({first})"


ATOM_TEXT: Mapping[type, Any] = {
    FloorDiv: IndexPrinter._quotient,
    Mod: IndexPrinter._rest,
    Max: IndexPrinter._largest,
    Min: IndexPrinter._smallest,
}


class PythonPrinter:
    """Sizes as Python expressions over ks0, ks1, ..."""

    def __init__(self, names: dict[Any, str]) -> None:
        self.names = {str(symbol): name for symbol, name in names.items()}

    def text(self, size: Size) -> str:
        """The expression with the arguments' names."""
        if isinstance(size, int):
            return str(size)
        return re.sub(r"[A-Za-z_]\w*", lambda m: self.names.get(m.group(), m.group()), str(size))


def fits_text(extents: Sequence[Size], names: dict[Any, str]) -> str:
    """A Python expression over the size arguments: whether 32-bit index arithmetic is enough for so many elements, and for the arguments."""
    if any(not isinstance(extent, int) and not extent.free_symbols <= set(names) for extent in extents):
        return "False"  # the kernel is not told how large the buffer is
    texts = dict.fromkeys(map(PythonPrinter(names).text, extents))
    known = {symbol for extent in extents if not isinstance(extent, int) for symbol in extent.free_symbols}
    others = [f"-{INT32_LIMIT} <= {name} <= {INT32_LIMIT}" for symbol, name in names.items() if symbol not in known]
    return " and ".join([*(f"({text}) <= {INT32_LIMIT}" for text in texts), *others]) or "True"
