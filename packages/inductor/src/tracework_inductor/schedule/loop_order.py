"""Merge and reorder axes: large strides outside, axes that lie one inside the other become one."""

from collections.abc import Mapping
from typing import Any

from tracework_primops.symbols.expr import FloorDiv, Mod

from ..ir.body import Axis, LoopBody, axes_behind
from ..ir.index import Expr, Size, same, simplify, substitute, symbol
from ..ir.scalar_ops import ACROSS_ROWS
from .plan import Pass

UNKNOWN = 8192
FAR = 1 << 40
"""Elements of a step whose length is not known."""


def order_and_merge(
    axes: tuple[Axis, ...], inner: tuple[Axis, ...], passes: list[Pass], buffers: Mapping[str, Any]
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], list[Pass]]:
    """Axes in memory order, merged; passes rewritten to match."""
    axes, inner, passes = split_axes(axes, inner, passes)
    looked_up = _looked_up(passes)
    axes = _ordered(axes, _accesses(passes, stores_first=True), looked_up)
    if not any(i.op in ACROSS_ROWS for p in passes for i in p.body.instructions):  # a running sum has an order of its own
        inner = _ordered(inner, _accesses(passes, stores_first=False), looked_up)
    replaced: dict[Any, Size] = {}
    expressions = _expressions(passes)
    axes = _merged(axes, expressions, replaced, "x")
    inner = _merged(inner, expressions, replaced, "r")
    rewritten = [_rewrite(p, axes, inner, replaced) for p in passes]
    return axes, inner, rewritten


def split_axes(
    axes: tuple[Axis, ...], inner: tuple[Axis, ...], passes: list[Pass]
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], list[Pass]]:
    """Axes whose variable is divided by a constant somewhere become two, so that no division is left in the loops."""
    for _ in range(MAX_SPLITS):
        found = next(filter(None, (_divisor(a, passes) for a in (*axes, *inner))), None)
        if found is None:
            return axes, inner, passes
        axis, divisor = found
        high, low = symbol(f"{axis.var}h", 0, None), symbol(f"{axis.var}l", 0, None)
        pair = (Axis(high, axis.size // divisor), Axis(low, divisor))
        axes, inner = _with_pair(axes, axis, pair), _with_pair(inner, axis, pair)
        ranges = {a.var: (0, a.size - 1) for a in (*axes, *inner)}
        passes = [_substituted(p, axes, inner, {axis.var: high * divisor + low}, ranges) for p in passes]
    return axes, inner, passes


MAX_SPLITS = 8


def _divisor(axis: Axis, passes: list[Pass]) -> tuple[Axis, int] | None:
    """The smallest constant that divides the size and by which the variable alone is divided."""
    best: int | None = None
    for e in _expressions(passes):
        for atom in e.atoms():
            if type(atom) in (FloorDiv, Mod) and atom.numerator is axis.var:
                d = atom.denominator
                fits = isinstance(d, int) and isinstance(axis.size, int) and axis.size % d == 0 and 1 < d < axis.size
                if fits and (best is None or d < best):
                    best = d
    return None if best is None else (axis, best)


def _with_pair(axes: tuple[Axis, ...], axis: Axis, pair: tuple[Axis, Axis]) -> tuple[Axis, ...]:
    return tuple(b for a in axes for b in (pair if a.var is axis.var else (a,)))


def _substituted(
    p: Pass, axes: tuple[Axis, ...], inner: tuple[Axis, ...], names: dict[Any, Size], ranges: dict[Any, Any]
) -> Pass:
    memo: dict[Any, Size] = {}

    def one(arg: Any) -> Any:
        if not isinstance(arg, Expr):
            return arg
        if arg not in memo:
            memo[arg] = simplify(substitute(arg, names), ranges)
        return memo[arg]

    instructions = tuple(i._replace(args=tuple(one(a) for a in i.args)) for i in p.body.instructions)
    return Pass(p.level, LoopBody(axes, inner if p.level == "inner" else (), instructions))


def _accesses(passes: list[Pass], stores_first: bool) -> list[Any]:
    stores = [i.args[1] for p in passes for i in p.body.instructions if i.op == "store"]
    loads = [i.args[1] for p in passes for i in p.body.instructions if i.op == "load"]
    chosen = [*stores, *loads] if stores_first else [*loads, *stores]
    return [e for e in chosen if isinstance(e, Expr)]


def _estimate(size: Size | None) -> int:
    if size is None:
        return FAR
    if isinstance(size, int):
        return abs(size)
    return abs(size.evaluate(dict.fromkeys(size.free_symbols, UNKNOWN)))


def _looked_up(passes: list[Pass]) -> dict[Any, set[Any]]:
    """Positions from tensors -> the variables of the axes along which they change."""
    return {
        i.args[2]: {a.var for a in axes_behind(p.body, i.args[0])}
        for p in passes
        for i in p.body.instructions
        if i.op == "indirect"
    }


def _ordered(axes: tuple[Axis, ...], accesses: list[Any], looked_up: Mapping[Any, set[Any]]) -> tuple[Axis, ...]:
    """Descending strides of the first access that tells two axes apart; larger total stride first otherwise. What an axis moves to a position
    that is looked up it moves far."""
    if len(axes) < 2:
        return axes

    def step(e: Expr, var: Any) -> int:
        far = any(var in looked_up.get(s, ()) for s in e.free_symbols)
        return _estimate(e.coefficient(var)) or (FAR if far else 0)

    steps = {a.var: [step(e, a.var) for e in accesses] for a in axes}

    def key(axis: Axis) -> Any:
        mine = steps[axis.var]
        first = next((s for s in mine if s), 0)
        return (-first, -sum(mine))

    return tuple(sorted(axes, key=key))


def _expressions(passes: list[Pass]) -> list[Any]:
    found: dict[Any, None] = {}
    for p in passes:
        for i in p.body.instructions:
            for arg in i.args:
                if isinstance(arg, Expr):
                    found[arg] = None
    return list(found)


def _merged(axes: tuple[Axis, ...], expressions: list[Any], replaced: dict[Any, Size], prefix: str) -> tuple[Axis, ...]:
    result: list[Axis] = []
    for axis in axes:
        if result and _nested(result[-1], axis, expressions):
            outer = result.pop()
            axis = Axis(axis.var, outer.size * axis.size)
            # index = outer * n + inner becomes one variable: the inner one takes its place, the outer one vanishes.
            replaced[outer.var] = 0
        result.append(axis)
    return tuple(result)


def _nested(outer: Axis, inner: Axis, expressions: list[Any]) -> bool:
    """Whether one step of outer is inner.size steps of inner, everywhere."""
    for e in expressions:
        a, b = e.coefficient(outer.var), e.coefficient(inner.var)
        if a is None or b is None or not same(a, b * inner.size):
            return False
    return True


def _rewrite(p: Pass, axes: tuple[Axis, ...], inner: tuple[Axis, ...], replaced: dict[Any, Size]) -> Pass:
    instructions = p.body.instructions
    if replaced:
        instructions = tuple(
            i._replace(args=tuple(substitute(a, replaced) if isinstance(a, Expr) else a for a in i.args)) for i in instructions
        )
    return Pass(p.level, LoopBody(axes, inner if p.level == "inner" else (), instructions))


__all__ = ["order_and_merge", "symbol"]
