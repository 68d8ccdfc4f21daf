"""Tensors of one whole number that follow from open sizes by plain arithmetic: `torch.ceil((length - kernel + padding) / stride + 1)`, as
audio codecs pad. Beside the node its formula over the sizes is kept, for code that asks for the number.

A quotient is rounded by torch to a float, and so are sums with it. What ceil and floor give of n / d + k, with whole n, d and k, is what
whole numbers give while n and k * d are at most SMALL, which conditions on the sizes say: each of at most FEW roundings of numbers up to
FEW * SMALL / d is off by 2**-24 of them, in all by FEW**2 * SMALL * 2**-24 / d < 1 / d, and n / d + k is whole, and exact, or 1 / d away.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx
from tracework_primops import Condition

from .constant_data import apply_target, held_data, version_of_example
from .specialised import specialise

SMALL = 2**20
FEW = 3


class Formula(NamedTuple):
    """The number `over / by`, whole where `by` is 1: what it was computed from is in `inputs`, as in Known, and `version` is its storage's.

    over: int or SymInt. roundings: how many floats were rounded on the way. large: sizes and ints that are to be at most SMALL."""

    over: Any
    by: int
    inputs: frozenset[fx.Node]
    version: int = 0
    roundings: int = 0
    large: tuple[Any, ...] = ()
    is_float: bool = False


def learn_formula(node: fx.Node, example: Any) -> None:
    """Keep the formula of a node's result, when its operands have some and one of them is a size."""
    row = ROWS.get(node.target)
    if (
        row is None
        or not isinstance(example, torch.Tensor)
        or example.ndim
        or example.device.type != "cpu"
        or "known" in node.meta
    ):
        return
    if example.dtype not in (torch.int64, torch.float32, torch.float64) or node.kwargs:
        return
    operands = [_formula_of(arg) if place == 0 or isinstance(arg, (fx.Node, int)) else arg for place, arg in enumerate(node.args)]
    if any(operand is None for operand in operands) or not any(
        isinstance(o.over, torch.SymInt) for o in operands if type(o) is Formula
    ):
        return
    made = row(*operands)
    if made is not None and made.roundings <= FEW and made.is_float == example.dtype.is_floating_point:
        node.meta["formula"] = made._replace(version=version_of_example(example))


def _formula_of(arg: Any) -> Formula | None:
    if type(arg) is int:
        return Formula(arg, 1, frozenset())
    if not isinstance(arg, fx.Node):
        return None
    example, data = arg.meta["example_value"], None
    if isinstance(example, torch.SymInt):
        return Formula(example, 1, frozenset())
    if not isinstance(example, torch.Tensor):
        return None
    data = held_data(arg)
    if data is not None:
        return Formula(int(data.real), 1, data.inputs) if data.real.dtype == torch.int64 and not data.real.ndim else None
    formula: Formula | None = arg.meta.get("formula")
    return None if formula is None or formula.version != version_of_example(example) else formula


def _joined(a: Formula, b: Formula, over: Any, by: int = 1) -> Formula:
    is_float = a.is_float or b.is_float
    roundings = a.roundings + b.roundings + is_float
    return Formula(over, by, a.inputs | b.inputs, 0, roundings, (*a.large, *b.large), is_float)


def _sum(a: Formula, b: Formula, sign: int = 1) -> Formula | None:
    if a.by > 1 < b.by:
        return None
    whole = [f.over * max(a.by, b.by) for f in (a, b) if f.by == 1 and (a.is_float or b.is_float)]
    made = _joined(a, b, a.over * b.by + sign * b.over * a.by, a.by * b.by)
    return made._replace(large=(*made.large, *whole))


def _quotient(a: Formula, b: Formula) -> Formula | None:
    if a.is_float or b.is_float or type(b.over) is not int or not 0 < b.over <= SMALL:
        return None
    made = _joined(a, b, a.over, b.over)
    return made._replace(is_float=True, roundings=1, large=(*made.large, a.over))


def _up(a: Formula) -> Formula:
    return a._replace(over=-(-a.over // a.by), by=1)


def _down(a: Formula) -> Formula:
    return a._replace(over=a.over // a.by, by=1)


def _whole(a: Formula, dtype: Any = torch.int64) -> Formula | None:
    return a._replace(is_float=False, roundings=0) if dtype is torch.int64 and a.by == 1 else None


ROWS: dict[Any, Callable[..., Formula | None]] = {
    operator.add: _sum,
    operator.sub: lambda a, b: _sum(a, b, -1),
    operator.mul: lambda a, b: None if a.is_float or b.is_float else _joined(a, b, a.over * b.over),
    operator.truediv: _quotient,
    torch.ceil: _up,
    torch.floor: _down,
    "ceil": _up,
    "floor": _down,
    "to": _whole,
    "long": _whole,
}
"""Target of a node -> what makes its formula of its operands'; None where there is none."""
COMPARISONS = frozenset(getattr(operator, name) for name in "eq ne lt le gt ge".split())


def truth_of_formula(frame: Any, node: fx.Node | None) -> bool | None:
    """Whether a comparison of two such numbers holds, which a condition on the sizes says; None for other nodes."""
    if node is None or node.target not in COMPARISONS or node.kwargs:
        return None
    numbers = [number_of_formula(frame, arg) for arg in node.args]
    return None if any(number is None for number in numbers) else bool(apply_target(node.op, node.target, numbers, {}))


def number_of_formula(frame: Any, node: Any) -> Any:
    """The whole number of a node, an int or a SymInt, when its inputs may be specialised and its sizes are small enough; None otherwise."""
    formula, symbols = _formula_of(node), frame.symbols
    if formula is None or formula.by > 1 or formula.is_float:
        return None
    limits = []
    for size in (*formula.large, formula.over):
        expression = symbols.from_symint(size) if isinstance(size, torch.SymInt) else size
        if not symbols.has_hint(expression) or not -SMALL <= symbols.hint(expression) <= SMALL:
            return None
        limits.append(expression)
    if frame.modes.transforms or not specialise(frame, formula.inputs):
        return None
    for expression in limits[:-1]:
        symbols.guard(Condition.compare("<=", expression, SMALL), frame.user_location())
        symbols.guard(Condition.compare(">=", expression, -SMALL), frame.user_location())
    return formula.over
