"""What Python computes from numbers, as text: `round(s, 2)`, `2 ** k`. Guards, inputs of graphs and tracing evaluate the same text."""

import ast
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ERRORS = (ArithmeticError, ValueError, TypeError)
INT_BITS = 62
"""Ints in graphs and in conditions are int64."""
MOST_BITS = 4096
"""Of the ints on the way to a result. A guard computes a formula also in calls in which the program would not: it must not take long."""


def _limited(bits: int) -> None:
    if bits > MOST_BITS:
        raise OverflowError(f"an int of {bits} bits")


def _power(base: Any, exponent: Any, *modulus: Any) -> Any:
    if type(base) is int and type(exponent) is int and abs(base) > 1 and not modulus:
        _limited(base.bit_length() * exponent)
    return pow(base, exponent, *modulus)


def _shifted(number: Any, by: Any) -> Any:
    _limited(by)
    return number << by


def _rounded(number: Any, *digits: Any) -> Any:
    if type(number) is int and digits:
        _limited(-4 * digits[0])
    return round(number, *digits)


def _factorial(number: Any) -> Any:
    _limited(number * number.bit_length())
    return math.factorial(number)


def _chosen(function: Callable[..., int]) -> Callable[..., int]:
    """comb or perm."""

    def chosen(of: Any, *number: Any) -> int:
        _limited((number or (of,))[0] * of.bit_length())
        return function(of, *number)

    return chosen


NAMES = {name: getattr(math, name) for name in dir(math) if not name.startswith("_")}
NAMES |= {fn.__name__: fn for fn in (abs, int, float, bool, type, min, max, divmod)}
NAMES["float_pow"] = math.pow  # pow() is another function
NAMES |= {"pow": _power, "shifted": _shifted, "round": _rounded}
NAMES |= {"factorial": _factorial, "comb": _chosen(math.comb), "perm": _chosen(math.perm)}
OPERATORS = {ast.Pow: "pow", ast.LShift: "shifted"}


class _Limits(ast.NodeTransformer):
    """Puts the functions with a limit in the places of the operators."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = OPERATORS.get(type(node.op))
        return node if name is None else ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])


@functools.lru_cache(maxsize=1000)
def formula_function(text: str, names: str) -> Callable[..., Any]:
    """The formula as a function of the numbers that it calls by these names, with commas between them. Raises OverflowError, too,
    where Python would compute an int of more than MOST_BITS on the way."""
    tree = ast.fix_missing_locations(_Limits().visit(ast.parse(f"lambda {names}: {text}", mode="eval")))
    function: Callable[..., Any] = eval(compile(tree, f"<{text}>", "eval"), {"__builtins__": {}, **NAMES})
    return function


@dataclass(frozen=True)
class ComputedNumber:
    """The formula `text`, in which what a graph is given at `places` has these names."""

    text: str
    names: str
    places: tuple[int, ...]

    @functools.cached_property
    def function(self) -> Callable[..., float]:
        """The formula as a function."""
        return formula_function(self.text, self.names)

    def of(self, given: Sequence[Any]) -> float:
        """Its value for what the graph is given."""
        return self.function(*[given[place] for place in self.places])


def int_of_formula(text: str, name: str, number: Any) -> int:
    """Its value where that is an int that graphs take. Raises LookupError for others, and what Python raises."""
    found = formula_function(text, name)(number)
    if type(found) is not int or found.bit_length() > INT_BITS:
        raise LookupError(f"{text} is no int of {INT_BITS} bits")
    return found
