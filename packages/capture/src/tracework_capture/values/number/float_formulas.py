"""Formulas of numbers that the program was given: what Python computes from them alone, as text.

What a tensor would compute otherwise than Python, `s ** 2`, `min(s, t)`, `math.exp(-s)`, Python computes for each call, and the graph gets
it as it gets the float itself. The ints that it makes of one number, `int(s * n)`, `1 << k`, are symbols, as the ints that the program
was given.
What Python decides by a formula is guarded: the entry holds for the numbers of which the answer is the same. Floats that are formulas of
an int are here where their range alone does not tell that Python can compute them (values/number/size_floats.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tracework_primops.symbols import Expr

from ...formulas import ERRORS, formula_function, int_of_formula
from ...graph.builder import GraphBuilder
from ...graph.inputs import symbolic_int
from ...guards.answers import answer_to
from ...guards.kinds import MOST_RELATED
from ...sources import ComputedInt, Source, TensorStride
from ..protocol.constant import ConstantValue
from ..protocol.make import make
from ..protocol.value import Frame, Value

Roots: TypeAlias = frozenset[tuple[Any, Any]]
"""The inputs and sizes that a number was computed from, with their values."""
MOST_TEXT = 300  # characters: longer formulas take longer to check than they save


@dataclass(frozen=True)
class FormulaInput:
    """What formulas call `name`: the number at `source`, an input of the graph with this node; it is `value` now."""

    name: str
    node: Any
    source: Any
    value: Any


@dataclass(frozen=True)
class Formula:
    """`text` over these numbers."""

    text: str
    numbers: tuple[FormulaInput, ...]

    @property
    def names(self) -> str:
        """Of the numbers, as the parameters of a function."""
        return ", ".join(number.name for number in self.numbers)

    @property
    def function(self) -> Callable[..., Any]:
        """The formula as a function of the numbers."""
        return formula_function(self.text, self.names)

    def value(self) -> Any:
        """Its value now, or the exception that Python would raise."""
        try:
            return self.function(*(number.value for number in self.numbers))
        except ERRORS as error:
            return error.with_traceback(None)  # it would hold the frames that hold it, and with them the program's


def formula_of(template: str, *operands: Value) -> Formula | None:
    """The formula of `template`, in which each {} is an operand: formulas, and numbers; None for others."""
    parts = [_text_of(operand) for operand in operands]
    if None in parts:
        return None
    formulas = [f for f in (operand.input_formula for operand in operands if not operand.is_constant()) if f is not None]
    numbers = {number.name: number for formula in formulas for number in formula.numbers}
    text = template.format(*parts)
    if not numbers or len(numbers) > MOST_RELATED or len(text) > MOST_TEXT:
        return None
    return Formula(text, tuple(numbers.values()))


def formula_of_size(graph: GraphBuilder, text: str, sizes: Iterable[Expr]) -> Formula | None:
    """The formula of a number that is computed from these sizes, where they all are of ints that the program was given; else None."""
    symbols = sorted({symbol for size in sizes for symbol in size.free_symbols}, key=str)
    sources = [graph.symbols.origins.get(symbol) for symbol in symbols]
    if not 0 < len(symbols) <= MOST_RELATED or len(text) > MOST_TEXT:
        return None
    if not all(isinstance(source, Source) and not isinstance(source, TensorStride) for source in sources):
        return None
    made = [FormulaInput(str(s), graph.size_node(s), source, graph.symbols.hint(s)) for s, source in zip(symbols, sources)]
    return Formula(text, tuple(made))


def _text_of(value: Value) -> str | None:
    if not value.is_constant():
        return None if value.input_formula is None else value.input_formula.text
    number = value.constant()
    is_number = type(number) in (float, bool) or type(number) is int and number.bit_length() < 64
    return f"({number!r})" if is_number else None


def answer(frame: Frame, template: str, *operands: Value) -> bool | None:
    """The bool that Python computes now, which holds of the calls of this entry; None where it is none."""
    formula = formula_of(template, *operands)
    found = None if formula is None else formula.value()
    if formula is None or type(found) is not bool:
        return None
    sources = tuple(number.source for number in formula.numbers)
    holds = answer_to(formula.text, formula.names, tuple(type(number.value) for number in formula.numbers), found)
    if len(sources) == 1:
        frame.guard("PREDICATE", *sources, holds)
    else:
        frame.guard("RELATION", sources[0], (holds, sources))
    return found


def answer_of(frame: Frame, text: str, name: str, source: Source, number: Any) -> bool:
    """The bool of a formula over one number, at `source`, which holds of the calls of this entry."""
    found: bool = formula_function(text, name)(number)
    frame.guard("PREDICATE", source, answer_to(text, name, (type(number),), found))
    return found


def computed_by_python(frame: Frame, template: str, *operands: Value) -> Value | None:
    """The float of this formula, which Python computes anew for each call; None where it raises now, or is no float."""
    formula = formula_of(template, *operands)
    number = None if formula is None else formula.value()
    if formula is None or type(number) is not float:
        return None
    answer(frame, f"type({template}) is float", *operands)
    node = frame.graph.computed_input(formula.text, [n.node for n in formula.numbers], formula.names, number)
    return make.float(node, number, frozenset().union(*(v.roots for v in operands if not v.is_constant())), formula=formula)


def computed_int(frame: Frame, template: str, *operands: Value) -> Value | None:
    """The int of this formula, which Python computes anew for each call, as a symbol; None where it raises now, or is no int."""
    formula = formula_of(template, *operands)
    if formula is None or len(formula.numbers) > 1 or not frame.options.allows_symbolic_sizes:
        return None
    (given,) = formula.numbers
    try:
        number = int_of_formula(formula.text, given.name, given.value)
    except (*ERRORS, LookupError):
        return None
    return make.size(frame, symbolic_int(frame, number, ComputedInt(given.source, formula.text, given.name)))


def number_of(frame: Frame, template: str, *operands: Value) -> Value | None:
    """A float or an int, computed for each call, or a bool, guarded, as a value; None where the number itself is needed."""
    made = computed_by_python(frame, template, *operands) or computed_int(frame, template, *operands)
    if made is not None:
        return made
    found = answer(frame, template, *operands)
    return None if found is None else ConstantValue(found)


def extremum_of_inputs(frame: Frame, fn: Callable[..., Any], items: list[Value]) -> Value | None:
    """min or max of floats, several of them open; None for others: of one open float and numbers, the comparisons tell more."""
    if not all(i.python_type() is float for i in items) or sum(not i.is_constant() for i in items) < 2:
        return None
    return computed_by_python(frame, f"{fn.__name__}({', '.join(['{}'] * len(items))})", *items)


def called(frame: Frame, name: str, args: list[Value]) -> Value | None:
    """name(*args) of numbers, some of them formulas; None where the numbers themselves are needed."""
    return number_of(frame, f"{name}({', '.join(['{}'] * len(args))})", *args)
