"""The innermost loop of a window, a padding or a resampling as its steps without conditions, and those at its ends.

Tests of a position against a border, and positions moved into the input, are the same for all but a few steps at the ends of a loop.
Without them what is read lies side by side, or in equal steps, where g++ would gather it under masks. Positions that are divided by a
small number, as where steps of a window are looked for, are written out for each rest: one iteration then makes as many elements. What does
not change along the loop is computed ahead of it.

Tests of windows over images whose channels lie side by side are the same for all of these: where all hold, as anywhere but at the borders of an
image, the loop is one without them.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...ir.body import Axis, Instruction, LoopBody, Ref, axes_behind
from ...ir.bounds import COMPARISONS, interval
from ...ir.handlers import Recorder, replay
from ...ir.index import Expr, Size, simplify, symbol
from ...ir.scalar_ops import SCALAR_OPS
from ...schedule.plan import LoopKernel
from ...schedule.unroll import Folding

MOST_AT_ENDS = 8
"""Steps at an end that are looked at for one behind which nothing is decided any more."""
LONGEST_PERIOD = 4
"""Steps that one iteration writes out."""
LEAST_STEPS = 8
"""Iterations without conditions that are worth a loop of their own."""
GROUPS = (16, 8)
"""Iterations of a loop that becomes vectors as a whole."""
MOST_INSTRUCTIONS = 320
"""Of a body that is written out for all rests."""
ONE_BY_ONE = frozenset({"lgamma", "nextafter", "fmod", "remainder", "floor_divide"})
"""Ops that keep a loop from being worth vectorising."""
COSTLY = 8
"""Of an operation: a function of the library."""
AHEAD = frozenset({"constant", "index_expr", "to_dtype", *SCALAR_OPS})
"""Ops that may be computed before a loop although it might not run."""


@dataclasses.dataclass(frozen=True)
class Peeled:
    """An axis' steps without conditions: the first, how many iterations of `period` steps there are, and their body, over a variable that
    counts iterations and whose first instructions, `ahead` of them, do not change along it. The body is for where all of `masks` hold, which
    are among these; `otherwise` is for elsewhere."""

    first: int
    iterations: int
    period: int
    body: LoopBody
    ahead: int
    masks: tuple[Ref, ...] = ()
    otherwise: "Peeled | None" = None

    @property
    def axis(self) -> Axis:
        return self.body.axes[-1]

    @property
    def steps(self) -> int:
        return self.iterations * self.period

    @property
    def group(self) -> int:
        """Iterations that are computed at a time."""
        return next(n for n in GROUPS if n <= self.iterations)

    def strided(self) -> list[Instruction]:
        """The loads that take every other element, or fewer, of a row."""
        loads = (i for i in self.body.loads() if isinstance(i.args[1], Expr) and i.args[2] is None)
        return [i for i in loads if isinstance(step := i.args[1].coefficient(self.axis.var), int) and step > 1]


def peeled(kernel: LoopKernel) -> Peeled | None:
    """How to cut the innermost loop of a kernel without reductions; None where that takes no condition out of it."""
    if (
        len(kernel.passes) != 1
        or len(kernel.axes) < 2
        or not isinstance(kernel.axes[-1].size, int)
        or kernel.reads & kernel.writes
    ):
        return None
    body = kernel.passes[0].body
    size = kernel.axes[-1].size
    if size < LEAST_STEPS + 2:
        return None
    if not undecided(body):
        return _inside(kernel, size)

    def cut(first: int, last: int, period: int) -> Peeled:
        return _cut(kernel, first, (size - first - last) // period, period)

    left: Callable[[Peeled], int] = lambda p: undecided(p.body)
    longest = min(MOST_AT_ENDS, size // LEAST_STEPS)
    longest_period = min(LONGEST_PERIOD, (size - 2 * longest) // LEAST_STEPS, MOST_INSTRUCTIONS // len(body.instructions))
    best = min((cut(longest, longest, n) for n in range(1, max(longest_period, 1) + 1)), key=left)
    if left(best) >= left(cut(0, 0, 1)):
        return None
    period, least = best.period, left(best)
    first = next(n for n in range(longest + 1) if left(cut(n, longest, period)) <= least)
    last = next(n for n in range(longest + 1) if left(cut(first, n, period)) <= least)
    iterations = _iterations(kernel, cut(first, last, period).iterations)
    return _apart(_invariants_first(_cut(kernel, first, iterations, period)))


def _inside(kernel: LoopKernel, size: int) -> Peeled | None:
    """The whole loop for where all of its masks hold, if they are the same along it."""
    *outer, last = kernel.axes
    body = kernel.passes[0].body
    masks = {i.args[2] for i in body.loads()} - {None}
    if not masks or any(last in axes_behind(body, mask) for mask in masks):
        return None
    recorder = _Inside(kernel, tuple(kernel.axes))
    replay(body, recorder, {})
    # an effect that needs them, so that they are kept, and numbered as what is left is
    recorder.instructions.append(Instruction("masks", tuple(dict.fromkeys(recorder.masks)), None))
    *instructions, needed = recorder.finish().instructions
    iterations = _iterations(kernel, size)
    whole = LoopBody((*outer, Axis(last.var, iterations)), (), tuple(instructions))
    otherwise = _invariants_first(_cut(kernel, 0, iterations, 1)) if needed.args else None  # where all is known to hold, no other
    found = _invariants_first(Peeled(0, iterations, 1, whole, 0, needed.args, otherwise))
    return found if all(mask.position < found.ahead for mask in found.masks) else None


def _iterations(kernel: LoopKernel, iterations: int) -> int:
    """How many of them go by groups."""
    if not _may_be_in_place(kernel):
        return iterations
    group = next(n for n in GROUPS if n <= iterations)
    return iterations - iterations % group


def _may_be_in_place(kernel: LoopKernel) -> bool:
    """Whether a result may be in the memory of an operand, element by element: then nothing may be computed twice."""
    body = kernel.passes[0].body
    written = {i.args[1] for i in body.stores()}
    read: dict[str, set[Size]] = {}
    for i in body.loads():
        read.setdefault(i.args[0], set()).add(i.args[1])
    return any(indices <= written for indices in read.values())


def _apart(p: Peeled) -> Peeled | None:
    """Not where one iteration makes several elements and chooses between sums and differences: see schedule/unroll.py for what g++ makes of it."""
    moving = {i.op for i in p.body.instructions[p.ahead :]}
    return None if p.period > 1 and "where" in moving and moving & {"sub", "neg"} else p


def undecided(body: LoopBody) -> int:
    """How much of a body depends on where its innermost loop is other than in equal steps."""
    var = body.axes[-1].var
    bent = {atom for i in body.instructions for e in i.args if isinstance(e, Expr) for atom in e.atoms() if _is_bent(atom, var)}
    return len(bent) + sum(
        i.op in COMPARISONS
        and all(body.instructions[a.position].op in ("index_expr", "constant") for a in i.args)
        and _moves(body, i, var)
        for i in body.instructions
    )


def _is_bent(atom: Expr, var: Expr) -> bool:
    return atom is not var and var in atom.free_symbols


def _moves(body: LoopBody, i: Instruction, var: Expr) -> bool:
    indices = (body.instructions[a.position].args[0] for a in i.args)
    return any(isinstance(e, Expr) and var in e.free_symbols for e in indices)


def _cut(kernel: LoopKernel, first: int, iterations: int, period: int) -> Peeled:
    *outer, last = kernel.axes
    body = kernel.passes[0].body
    axis = Axis(symbol(f"{last.var}i", 0, None), iterations)
    steps = [{last.var: axis.var * period + (first + rest)} for rest in range(period)]
    return Peeled(first, iterations, period, Deciding(kernel, (*outer, axis)).of(body, steps), 0)


class Deciding(Folding):
    """Records without tests that the ranges of the loops decide. A load under a mask that does not change along the innermost loop becomes
    one without, which reads some other row of the buffer where the mask does not hold."""

    def __init__(self, kernel: LoopKernel, axes: tuple[Axis, ...]) -> None:
        super().__init__(axes)
        self.kernel = kernel
        self.ranges: dict[Any, tuple[Size, Size]] = {a.var: (0, a.size - 1) for a in axes}

    def of(self, body: LoopBody, steps: Iterable[dict[Any, Size]]) -> LoopBody:
        """A body at each of these steps, with all effects after what is computed."""
        effects: list[Instruction] = []

        def keep(into: Recorder, i: Instruction) -> bool:
            effects.append(i)
            return True

        for step in steps:
            self.memo = {}
            replay(body, self, step, on_effect=keep)
        for i in effects:
            self.emit(i.op, i.args, None)
        return self.finish()

    def emit(self, op: str, args: tuple[Any, ...], dtype: torch.dtype | None) -> Ref:
        args = tuple(simplify(a, self.ranges) if isinstance(a, Expr) else a for a in args)
        if op == "index_expr" and isinstance(args[0], int):
            return self.constant(*args)
        if op in COMPARISONS and (decided := self._decided(op, *args)) is not None:
            return self.constant(decided, torch.bool)
        if op == "load" and args[2] is not None and self.known(args[2]) is None:
            assert dtype is not None
            return self._load_anyway(args[0], args[1], args[2], dtype)
        if op == "where" and (inner := self.instructions[args[1].position]).op == "where" and inner.args[0] == args[0]:
            args = (args[0], inner.args[1], args[2])
        return super().emit(op, args, dtype)

    def _decided(self, op: str, a: Ref, b: Ref) -> bool | None:
        if any(self.dtype(v) not in (torch.int32, torch.int64) for v in (a, b)):
            return None
        (low, high), (least, most) = (interval(self.instructions, v, self.ranges) for v in (a, b))
        return DECIDED[op](low, high, least, most)

    def _load_anyway(self, buffer: str, index: Size, mask: Ref, dtype: torch.dtype) -> Ref:
        axis = self.axes[-1]
        elements = self.kernel.layouts[buffer].elements()
        step = index.coefficient(axis.var) if isinstance(index, Expr) else None
        fixed = axis not in axes_behind(LoopBody(self.axes, (), tuple(self.instructions)), mask)
        if not (fixed and isinstance(elements, int) and isinstance(step, int) and 0 <= step * (axis.size - 1) < elements):
            return super().emit("load", (buffer, index, mask), dtype)
        start = index - axis.var * step
        if isinstance(start, Expr) and not start.free_symbols <= {*self.ranges, *self.kernel.sizes}:
            return super().emit("load", (buffer, index, mask), dtype)
        row = self.apply("where", (mask, self.index_expr(start, torch.int64), self.constant(0, torch.int64)))
        place = self.position_of(row, elements, None, None, 0)
        value = super().emit("load", (buffer, place + axis.var * step, None), dtype)
        return self.apply("where", (mask, value, self.constant(0, dtype)))


class _Inside(Deciding):
    """Records loads as if their masks held, which it notes."""

    def __init__(self, kernel: LoopKernel, axes: tuple[Axis, ...]) -> None:
        super().__init__(kernel, axes)
        self.masks: list[Ref] = []

    def emit(self, op: str, args: tuple[Any, ...], dtype: torch.dtype | None) -> Ref:
        if op == "load" and args[2] is not None and self.known(args[2]) is None:
            self.masks.append(args[2])
            args = (*args[:2], None)
        if op == "where" and args[0] in self.masks:
            return args[1]
        return super().emit(op, args, dtype)


DECIDED: dict[str, Callable[[Any, Any, Any, Any], bool | None]] = {
    "lt": lambda low, high, least, most: True if high < least else False if low >= most else None,
    "le": lambda low, high, least, most: True if high <= least else False if low > most else None,
    "gt": lambda low, high, least, most: True if low > most else False if high <= least else None,
    "ge": lambda low, high, least, most: True if low >= most else False if high < least else None,
    "eq": lambda low, high, least, most: False if high < least or low > most else True if low == high == least == most else None,
    "ne": lambda low, high, least, most: True if high < least or low > most else False if low == high == least == most else None,
}
"""Comparison -> whether it holds, of the bounds of both sides."""


def _invariants_first(p: Peeled) -> Peeled:
    """With what does not change along the loop ahead of the rest."""
    body, ahead, places = invariants_first(p.body, frozenset())
    return dataclasses.replace(p, body=body, ahead=ahead, masks=tuple(places[m.position] for m in p.masks))


def invariants_first(body: LoopBody, read: frozenset[str]) -> tuple[LoopBody, int, dict[int, Ref]]:
    """With what does not change along the innermost loop ahead of the rest, how much that is, and where each instruction went.

    read: buffers from which an element may be loaded ahead of the loop, and a position checked: the loop runs at least once."""
    var = body.axes[-1].var
    moving: set[Any] = {var}
    fixed: list[int] = []
    for n, i in enumerate(body.instructions):
        still = not any(a in moving if isinstance(a, Ref) else isinstance(a, Expr) and a.free_symbols & moving for a in i.args)
        if still and (
            i.op in AHEAD or i.op == "indirect" and (i.args[3] is None or bool(read)) or i.op == "load" and i.args[0] in read
        ):
            fixed.append(n)
        else:
            moving |= {Ref(n), *([i.args[2]] if i.op == "indirect" else ())}
    ahead = set(fixed)
    order = [*fixed, *(n for n in range(len(body.instructions)) if n not in ahead)]
    renumbered = {old: Ref(new) for new, old in enumerate(order)}
    moved = [body.instructions[n] for n in order]
    instructions = tuple(
        i._replace(args=tuple(renumbered[a.position] if isinstance(a, Ref) else a for a in i.args)) for i in moved
    )
    return dataclasses.replace(body, instructions=instructions), len(fixed), renumbered


def done_once(kernel: LoopKernel) -> tuple[LoopBody, int] | None:
    """The body of a kernel without reductions with what does not change along its innermost loop ahead of the rest, and how much that is; None
    where g++ finds all that is worth it: positions from tensors, where an element is then loaded, and checked, once for a row, and costly
    functions of what is loaded, which g++ leaves in a loop that stores."""
    if len(kernel.passes) != 1 or not kernel.axes:
        return None
    size, body = kernel.axes[-1].size, kernel.passes[0].body
    if not isinstance(size, int) or size < 1:
        return None
    body, ahead, _ = invariants_first(body, kernel.reads - kernel.writes)
    first = body.instructions[:ahead]
    looked_up = len(kernel.axes) > 1 and not kernel.reads & kernel.writes and any(i.op == "indirect" for i in first)
    return (body, ahead) if looked_up or any(i.op in SCALAR_OPS and SCALAR_OPS[i.op].cost >= COSTLY for i in first) else None


def rows_put(kernel: LoopKernel) -> tuple[LoopBody, int] | None:
    """The same of a kernel all of whose results are rows at such positions, each element of which is its own: the steps along a row may be taken
    together."""
    if len(kernel.axes) < 2 or kernel.reads & kernel.writes or (found := done_once(kernel)) is None:
        return None
    body, ahead = found
    var, stores = kernel.axes[-1].var, list(body.stores())
    positions = {i.args[2] for i in body.instructions[:ahead] if i.op == "indirect"}
    known = {a.var for a in kernel.axes} | {*kernel.sizes, *kernel.numbers} | positions
    rest = {i.op for i in body.instructions[ahead:]}
    rows = all(
        isinstance(i.args[1], Expr)
        and i.args[1].free_symbols <= known
        and i.args[1].free_symbols & positions
        and i.args[1].coefficient(var) == 1
        for i in stores
    )
    alone = len({i.args[0] for i in stores}) == len(stores)
    return found if stores and rows and alone and not rest & {"indirect", *ONE_BY_ONE} else None
