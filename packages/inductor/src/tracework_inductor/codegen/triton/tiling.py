"""Iteration axes -> the dimensions of a tile.

Axes that every access walks as one are merged; what is left of the outer axes becomes one tile dimension `x`, or two
(`y`, `x`) where different accesses are contiguous along different axes; the reduction axes become `r`. The rows of a product are no
dimension: a block computes them all, from what it reads of the large matrix once.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tracework_primops.symbols.expr import Max, Min

from ...ir.body import Axis, axes_behind
from ...ir.index import Size, constant_product, product, same
from ...ir.scalar_ops import ACROSS_ROWS, COLUMNS
from ...schedule.plan import LoopKernel
from .again import may_compute_again
from .config import MAX_PERSISTENT
from .printer import IndexPrinter

__all__ = ["Access", "Group", "Tiling", "tile", "numel", "positions"]

# An axis must have this many elements to deserve a tile dimension of its own.
_WORTH_A_DIMENSION = 8
# ... and carry this share of the bytes that are contiguous along the first choice.
_WORTH_A_SHARE = 0.125
# Below, rows of a tile would mostly be padding.
_WORTH_JUMPING = 12
# Bytes that a GPU's memory gives at least: with longer jumps each element takes one of these, whichever thread reads it.
_SECTOR = 32
# Bytes that a thread loads or stores at a time, from multiples of as many.
_VECTOR = 16
# Rows are walked across only where this leaves at most such a share of the bytes.
_WORTH_TURNING = 0.7
# Points of a short axis of a row that lie beside those of other rows, each with accumulators of its own, and of what is left of the row at least.
_MOST_BESIDE = 64
_LEAST_LEFT = 512
# Rows of a product that a block computes; each has accumulators of its own, but on tensor cores.
_MOST_POINTS, _MOST_IN_TILE = 8, 64
# Values in what is loaded at once, of products.
_MOST_TERMS = 8


@dataclasses.dataclass(frozen=True)
class Access:
    """One place a kernel computes an index for; `weight` in bytes a point of the loops, 0 where memory is not
    touched; what only some axes lead through weighs less. itemsize: bytes of an element. loaded: or stored."""

    index: Size
    weight: float
    buffer: str = ""
    itemsize: int = 1
    loaded: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """Axes flattened into one tile dimension, the fastest last."""

    prefix: str
    axes: tuple[Axis, ...]

    @property
    def numel(self) -> Size:
        """How many points it has."""
        return product(axis.size for axis in self.axes)


@dataclasses.dataclass(frozen=True)
class Tiling:
    """Tile dimensions in order, and what the kernel's variables are in terms of theirs."""

    groups: tuple[Group, ...]
    merged: dict[Any, Size]
    contiguous: str
    """The dimension along which most bytes are contiguous."""
    written_out: tuple[Axis, ...] = ()
    """Axes whose points each block computes, one after the other."""
    terms: tuple[Axis, ...] = ()
    """Reduction axes whose points each step of a row computes, one after the other: what the bytes that it loads stand for."""
    jumps: bool = False
    """Whether most accesses jump along `x`: neighbouring threads then read neighbouring elements, one each."""
    beside: int = 1
    """Elements of the reduction axis that comes last in `x`: so many of its neighbours are one row, whose parts the second stage adds up."""

    def points(self) -> list[dict[Any, int]]:
        """The points of the axes that are written out."""
        return _places(self.written_out)

    def terms_of_step(self) -> list[dict[Any, int]]:
        """The points of the reduction axes that are written out."""
        return _places(self.terms)

    def group(self, prefix: str) -> Group | None:
        """The group of that name."""
        return next((g for g in self.groups if g.prefix == prefix), None)


def _places(axes: Sequence[Axis]) -> list[dict[Any, int]]:
    places = itertools.product(*(range(int(a.size)) for a in axes))
    return [dict(zip((a.var for a in axes), place, strict=True)) for place in places]


def tile(kernel: LoopKernel) -> Tiling:
    """Choose the tile dimensions of a kernel."""
    accesses = _weighed(list(_accesses(kernel)), [*kernel.axes, *kernel.reduction_axes])
    ordered_rows = any(i.op in ACROSS_ROWS for p in kernel.passes for i in p.body.instructions)
    merged: dict[Any, Size] = {}
    written_out = _written_out(kernel)
    outer, accesses = _merge([a for a in kernel.axes if a not in written_out], accesses, merged)
    terms = _terms(kernel)
    inner, accesses = _merge([a for a in kernel.reduction_axes if a not in terms], accesses, merged)
    if kernel.reduction_axes:
        ordered = inner if ordered_rows else _fastest_last(inner, accesses)
        outer = _fastest_last(outer, accesses)
        rows = [access for access in accesses if _depends(access.index, ordered)]
        if not _may_be_turned(kernel):
            best_inner = max((_score(a, rows) for a in ordered[-1:]), default=0)
            best_outer = max((_score(a, rows) for a in outer[-1:]), default=0)
            groups = (Group("x", tuple(outer)), Group("r", tuple(ordered)))
            return Tiling(groups, merged, "r" if best_inner >= best_outer else "x", written_out, terms)
        return _of_rows(kernel, outer, ordered, rows, merged)
    outer = _fastest_last(outer, accesses)
    second = _second_dimension(outer, accesses)
    if second is None and len(outer) > 1 and _jumps_along(kernel, outer[-1]):
        return Tiling((Group("y", tuple(outer[:-1])), Group("x", (outer[-1],))), merged, "x", jumps=True)
    if second is None:
        return Tiling((Group("x", tuple(outer)),), merged, "x")
    rest = [a for a in outer[:-1] if a is not second]
    return Tiling((Group("y", (*rest, second)), Group("x", (outer[-1],))), merged, "x")


def _may_be_turned(kernel: LoopKernel) -> bool:
    """Whether rows may be walked in any direction: not those of products, or of which sums of columns are kept."""
    instructions = [i for p in kernel.passes for i in p.body.instructions]
    return not any((i.op == "reduce" and i.args[1] == "dot") or (i.op == "store" and i.args[3] == COLUMNS) for i in instructions)


def _of_rows(
    kernel: LoopKernel, outer: list[Axis], inner: list[Axis], accesses: Sequence[Access], merged: dict[Any, Size]
) -> Tiling:
    """The tile of a reduction for which the least bytes move.

    In a row of its own a block reads what lies along the row; where it takes many rows at once, what lies along the rows and what lies across
    them. A short axis of the row may stand beside other rows: the channels of a group, where channels lie beside each other.
    """
    again = sum(any(i.op == "scratch_load" for i in p.body.instructions) for p in kernel.passes)
    row = constant_product(a.size for a in inner)

    def moved(x: Sequence[Axis], r: Sequence[Axis], along: bool, held: int) -> float:
        """Bytes a point, of sectors; along: whether threads lie along the row only; held: up to how many elements registers hold."""
        dims = ((*x, *r),) if along else ((*x, *r), x)
        found = {(a.buffer, a.index, a.loaded): a for a in accesses}.values() if row <= held else accesses
        times = 1 if row <= held else 1 + again
        return sum(a.weight * (times if a.loaded else 1) * min((_sectors(a, d) for d in dims), default=1.0) for a in found)

    groups = Group("x", tuple(outer)), Group("r", tuple(inner))
    best = Tiling(groups, merged, "r")
    least = moved(outer, inner, True, MAX_PERSISTENT) * _WORTH_TURNING
    across = moved(outer, inner, False, MOST_HELD_ACROSS if kernel.scratch else MOST_SUMMED_ACROSS)
    if across < least:
        best, least = Tiling(groups, merged, "x"), across * _WORTH_TURNING
    for axis in inner if _may_have_parts(kernel) else ():
        rest = _fastest_last([a for a in inner if a is not axis], accesses)
        beside = [*outer, axis]
        if not (
            isinstance(axis.size, int) and axis.size <= _MOST_BESIDE and constant_product(a.size for a in rest) >= _LEAST_LEFT
        ):
            continue
        if (apart := moved(beside, rest, False, 0)) < least:
            groups = Group("x", tuple(beside)), Group("r", tuple(rest))
            best, least = Tiling(groups, merged, "x", beside=axis.size), apart
    return best


MOST_HELD_ACROSS, MOST_SUMMED_ACROSS = 1024, 32
"""Elements of a row up to which it is held in registers where others lie beside it: if what is kept of each is needed again, and if not: columns
are summed best by walking down them."""


def _may_have_parts(kernel: LoopKernel) -> bool:
    """Whether each point of an axis may keep sums of its own: sizes are known, and nothing is done twice that may be done once only."""
    sizes = [a.size for a in (*kernel.axes, *kernel.reduction_axes)]
    instructions = [(p.level, i) for p in kernel.passes for i in p.body.instructions]
    if not all(isinstance(s, int) for s in sizes) or any(i.op in ACROSS_ROWS for _, i in instructions):
        return False
    if kernel.scratch and not may_compute_again(kernel):
        return False
    loaded = {i.args[0] for _, i in instructions if i.op == "load"}
    stores = [i for level, i in instructions if i.op == "store" and level == "outer"]
    return any(i.op == "reduce" for _, i in instructions) and all(i.args[3] == "set" and i.args[0] not in loaded for i in stores)


def _sectors(access: Access, dimension: Sequence[Axis]) -> float:
    """Bytes of the sectors that threads along a dimension touch, over the bytes that they use."""
    most = max(1.0, _SECTOR / access.itemsize)
    if isinstance(access.index, int) or not dimension:
        return most
    run = 1
    for axis in reversed(dimension):
        step = access.index.coefficient(axis.var)
        if not isinstance(step, int) or abs(step) != run:
            if run == 1 and isinstance(step, int):
                return min(most, max(1.0, abs(step)))
            break
        run *= constant_product([axis.size])
    return max(1.0, most / run)


def _written_out(kernel: LoopKernel) -> tuple[Axis, ...]:
    """Outer axes along which the larger factor of every product is the same."""
    rest = set(kernel.axes)
    products = 0
    for body in (p.body for p in kernel.passes):
        for i in body.instructions:
            if i.op == "reduce" and i.args[1] == "dot":
                factors = [axes_behind(body, factor) for factor in i.args[2:]]
                larger = max(factors, key=lambda axes: constant_product(a.size for a in axes))
                rest -= larger
                products += 1
    found = tuple(a for a in kernel.axes if a in rest)
    most = _MOST_POINTS if kernel.sizes or kernel.numbers else _MOST_IN_TILE
    few = all(isinstance(a.size, int) for a in found) and constant_product(a.size for a in found) <= most
    return found if products and few else ()


def _terms(kernel: LoopKernel) -> tuple[Axis, ...]:
    """Short reduction axes along which nothing that products' larger factors are computed from is loaded anew."""
    inner = [p.body for p in kernel.passes if p.level == "inner"]
    reductions = [
        (body, i) for body in inner for i in body.instructions if i.op in ("reduce", "scan", "scratch_store", "scratch_load")
    ]
    computed = any(i.op == "indirect" for body in inner for i in body.instructions)
    if computed or any(i.op != "reduce" or i.args[1] not in ("dot", "sum") for _, i in reductions):
        return ()
    found = {a for a in kernel.reduction_axes if isinstance(a.size, int) and 1 < a.size <= _MOST_TERMS}
    for body, i in reductions:
        if i.args[1] == "dot":
            larger = max(i.args[2:], key=lambda ref: constant_product(a.size for a in axes_behind(body, ref)))
            behind = [body.instructions[n] for n in body.behind(larger.position)]
            loaded = [one.args[1] for one in behind if one.op == "load"]
            found = {a for a in found if not any(_depends(index, (a,)) for index in loaded)}
    several = any(i.args[1] == "dot" for _, i in reductions) and len(found) < len(kernel.reduction_axes)
    return tuple(a for a in kernel.reduction_axes if a in found) if several else ()


def _accesses(kernel: LoopKernel) -> Iterator[Access]:
    for one_pass in kernel.passes:
        for i in one_pass.body.instructions:
            if i.op in ("load", "store"):
                itemsize = kernel.layouts[i.args[0]].dtype.itemsize
                yield Access(i.args[1], itemsize, i.args[0], itemsize, i.op == "load")
            elif i.op == "index_expr":
                yield Access(i.args[0], 0)
            elif i.op in ("scratch_store", "scratch_load"):
                yield Access(i.args[1], 0)


def _weighed(accesses: list[Access], axes: Sequence[Axis]) -> list[Access]:
    total = constant_product(a.size for a in axes)
    found = []
    for access in accesses:
        symbols = frozenset() if isinstance(access.index, int) else access.index.free_symbols
        walked = constant_product(a.size for a in axes if a.var in symbols)
        # Computed positions walk over an unknown part of memory: they keep their weight.
        indirect = any(str(symbol).startswith("t") for symbol in symbols)
        share = 1.0 if indirect else walked / max(1, total)
        found.append(dataclasses.replace(access, weight=access.weight * share))
    return found


def _merge(axes: Sequence[Axis], accesses: list[Access], merged: dict[Any, Size]) -> tuple[list[Axis], list[Access]]:
    """Merge neighbouring axes that every access walks as one axis; drop axes of one element."""
    kept: list[Axis] = []
    for axis in axes:
        if same(axis.size, 1):
            merged[axis.var] = 0
            accesses = _replaced(accesses, axis.var, 0)
            continue
        if kept and all(_walks_as_one(access.index, kept[-1], axis) for access in accesses):
            # All indices are c * (i * size + j): with i = 0 the one variable j runs over both.
            before = kept.pop()
            merged[before.var] = 0
            accesses = _replaced(accesses, before.var, 0)
            axis = Axis(axis.var, before.size * axis.size)
        kept.append(axis)
    return kept, accesses


def _replaced(accesses: list[Access], var: Any, value: Size) -> list[Access]:
    def new(index: Size) -> Size:
        return index if isinstance(index, int) else index.substitute({var: value})

    return [dataclasses.replace(a, index=new(a.index)) for a in accesses]


def _walks_as_one(index: Size, slow: Axis, fast: Axis) -> bool:
    if isinstance(index, int):
        return True
    a, b = index.coefficient(slow.var), index.coefficient(fast.var)
    return a is not None and b is not None and same(a, b * fast.size)


def _score(axis: Axis, accesses: Sequence[Access]) -> float:
    """Bytes an element that are contiguous along the axis."""
    return sum(a.weight for a in accesses if not isinstance(a.index, int) and a.index.coefficient(axis.var) in (1, -1))


def _depends(index: Size, axes: Sequence[Axis]) -> bool:
    return not isinstance(index, int) and any(axis.var in index.free_symbols for axis in axes)


def _fastest_last(axes: Sequence[Axis], accesses: Sequence[Access]) -> list[Axis]:
    """The axes in order, except that the one most accesses are contiguous along comes last."""
    ordered = list(axes)
    if len(ordered) > 1:
        best = max(range(len(ordered)), key=lambda k: (_score(ordered[k], accesses), k))
        ordered.append(ordered.pop(best))
    return ordered


def _second_dimension(axes: Sequence[Axis], accesses: Sequence[Access]) -> Axis | None:
    """An axis other than the last along which accesses are contiguous that jump along the last."""
    if len(axes) < 2 or constant_product([axes[-1].size]) < _WORTH_A_DIMENSION:
        return None
    last = axes[-1]
    found: dict[int, float] = {}
    enough = _score(last, accesses) * _WORTH_A_SHARE
    for access in accesses:
        if isinstance(access.index, int) or not access.weight or access.index.coefficient(last.var) in (0, 1, -1):
            continue
        for k, axis in enumerate(axes[:-1]):
            if access.index.coefficient(axis.var) in (1, -1) and constant_product([axis.size]) >= _WORTH_A_DIMENSION:
                found[k] = found.get(k, 0) + access.weight
    best = max(found, key=lambda k: found[k], default=None)
    return axes[best] if best is not None and found[best] > enough else None


def _jumps_along(kernel: LoopKernel, last: Axis) -> bool:
    """Whether more bytes are read in short jumps of one length along an axis than in one piece, as windows of a pool are; or element by
    element, since a piece begins between what a thread loads at a time, as those of windows at every place do.

    Not where places are divided or looked up, as where images grow or gradients are gathered: neighbouring elements are then read from the same
    places, and stores, of which a thread makes one for each element, are what takes longest.
    """
    if not isinstance(last.size, int) or last.size < _WORTH_JUMPING:
        return False
    pieces = jumps = 0
    for body in (p.body for p in kernel.passes):
        computed = {i.args[2]: i.args[0] for i in body.instructions if i.op == "indirect"}
        for i in body.instructions:
            if i.op not in ("load", "store") or isinstance(i.args[1], int):
                continue
            behind = [computed[s] for s in i.args[1].free_symbols if s in computed]
            step = _step(i.args[1], last.var)
            if step is None or any(last in axes_behind(body, value) for value in behind):
                return False
            itemsize = kernel.layouts[i.args[0]].dtype.itemsize
            short = 1 < abs(step) and abs(step) * itemsize < _SECTOR
            if short or (abs(step) == 1 and i.args[1].terms.get((), 0) * itemsize % _VECTOR):
                jumps += itemsize
            elif step:
                pieces += itemsize
    return jumps > pieces


def _step(place: Size, var: Any) -> int | None:
    """What one step of a variable adds to a place, but for where this is moved to an edge; None where that is no constant."""
    if isinstance(place, int):
        return 0
    total = 0
    for monomial, factor in place.terms.items():
        if not any(var in atom.free_symbols for atom in monomial):
            continue
        if len(monomial) > 1:
            return None
        (atom,) = monomial
        if atom is var:
            total += factor
        elif isinstance(atom, (Max, Min)):
            steps = {_step(operand, var) for operand in atom.arguments()} - {0}
            if len(steps) != 1 or (step := steps.pop()) is None:
                return None
            total += factor * step
        else:
            return None
    return total


def positions(axes: Sequence[Axis], name: str, printer: IndexPrinter) -> list[str]:
    """Lines that take the flat position `name` apart into those of its axes: name0, name1, ...; none for one axis."""
    lines: list[str] = []
    below: Size = 1
    for n in reversed(range(len(axes) if len(axes) > 1 else 0)):
        text = name if isinstance(below, int) and below == 1 else f"({name} // {printer.operand(below)})"
        lines.append(f"{name}{n} = {text}" + (f" % {printer.operand(axes[n].size)}" if n else ""))
        below = below * axes[n].size
    return lines


def numel(tiling: Tiling, prefix: str) -> Size:
    group = tiling.group(prefix)
    return 1 if group is None else group.numel
