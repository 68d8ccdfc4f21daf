"""Loops that walk one array along its rows and another along its columns go tile by tile.

Element by element, each load of the array that lies the other way takes a line of the cache for four bytes. A tile of it is turned into
a small array first (or out of one, for a store), by vectors where the elements are floats; the body then reads and writes that.
"""

import dataclasses
from collections.abc import Mapping

from ...ir.body import Axis, Instruction
from ...ir.index import Expr, Size, substitute, symbol
from ...schedule.plan import LoopKernel
from ..printer import c_index

WIDTH = 16
"""Elements of a turned array side by side: a line of the cache of floats."""
LENGTH = 64
"""Steps of the innermost loop in a tile."""
ACROSS = 128
"""How wide the tiles are together that follow each other over the same rows: these are in the same pages, and the processor fetches lines that
lie side by side together."""
DISTANCE = 2
"""Tiles ahead of which the lines of the next are asked for, where no cache holds them: each row of one is a part of a page."""
LEAST = 8
"""Extents of tiles that are worth it."""

Access = tuple[str, str, Size]
"""load or store, buffer, index."""


@dataclasses.dataclass(frozen=True)
class Tiling:
    """The axis along which the turned accesses have their elements side by side, and the accesses."""

    across: Axis
    last: Axis
    accesses: tuple[Access, ...]

    def begin(self, axis: Axis) -> Expr:
        """The variable that holds where a tile begins."""
        return symbol(f"{axis.var}b", 0, None)

    def part(self, axis: Axis) -> tuple[str, str]:
        """Where the loop over an axis begins in a tile, and how many steps it has."""
        return str(self.begin(axis)), self._extent(axis)

    def place(self) -> str:
        """The element of a small array that belongs to an iteration."""
        return f"({self.across.var} - {self.begin(self.across)}) * {LENGTH} + {self.last.var} - {self.begin(self.last)}"

    def turned_in(self, tile: str, pointer: str, index: Size) -> str:
        """The call that fills a small array."""
        return (
            f"tw_turn({self._first(pointer, index)}, {tile}, {LENGTH}, {self._extent(self.last)}, {self._extent(self.across)});"
        )

    def turned_out(self, tile: str, pointer: str, index: Size) -> str:
        """The call that empties it."""
        return (
            f"tw_turn({tile}, {LENGTH}, {self._first(pointer, index)}, {self._extent(self.across)}, {self._extent(self.last)});"
        )

    def group(self) -> str:
        """The variable that holds where tiles that follow each other over the same rows begin."""
        return f"{self.across.var}c"

    def ahead(self, pointer: str, index: Size) -> str:
        """The call that asks for the lines of tiles to come: of other rows, or beside these where there are hardly more rows."""
        begin, group, length = str(self.begin(self.last)), self.group(), self.last.size
        if isinstance(length, int) and length <= DISTANCE * LENGTH:
            places, columns = (
                {self.across: f"({group} + {ACROSS})", self.last: begin},
                f"{c_index(self.across.size)} - {group} - {ACROSS}",
            )
        else:
            places, columns = (
                {self.across: group, self.last: f"({begin} + {DISTANCE * LENGTH})"},
                f"{c_index(self.across.size)} - {group}",
            )
        rows = f"tw_imin({LENGTH}, {c_index(length)} - {places[self.last]})"
        return f"tw_ahead({self._first(pointer, index, places)}, {rows}, tw_imin({ACROSS}, {columns}));"

    def _first(self, pointer: str, index: Size, at: Mapping[Axis, str] | None = None) -> str:
        """Address of a tile in memory, of that which begins there or at a place, and from one step of the innermost loop to the next."""
        assert isinstance(index, Expr)
        step = index.coefficient(self.last.var)
        assert step is not None
        places = at or {a: str(self.begin(a)) for a in (self.across, self.last)}
        start = substitute(index, {a.var: symbol(place, 0, None) for a, place in places.items()})
        return f"&{pointer}[{c_index(start)}], {c_index(step)}"

    def end(self, axis: Axis, most: str) -> list[str]:
        """The line that says where a tile ends, if they have not all the same extent; `most`: what they end before."""
        extent = self._unit(axis)
        if self._extent(axis) == str(extent):
            return []
        return [f"const int64_t {axis.var}e = tw_imin({self.begin(axis)} + {extent}, {most});"]

    def _unit(self, axis: Axis) -> int:
        return LENGTH if axis is self.last else WIDTH

    def _extent(self, axis: Axis) -> str:
        unit = self._unit(axis)
        whole = isinstance(axis.size, int) and axis.size % unit == 0
        return str(unit) if whole else f"{axis.var}e - {self.begin(axis)}"


def tiling(kernel: LoopKernel) -> Tiling | None:
    """How to cut the nest of a kernel without reductions, if some array lies across its innermost loop."""
    *outer, last = kernel.axes
    if not outer or _is_short(last):
        return None
    bound = {a.var for a in kernel.axes} | {*kernel.sizes, *kernel.numbers}
    instructions = [i for p in kernel.passes for i in p.body.instructions]
    plain = [i for i in instructions if i.op in ("load", "store") and _is_plain(i, kernel, bound)]
    best: Tiling | None = None
    for axis in outer:
        turned = tuple(dict.fromkeys((i.op, i.args[0], i.args[1]) for i in plain if _lies_across(i.args[1], axis, last)))
        if turned and not _is_short(axis) and (best is None or len(turned) > len(best.accesses)):
            best = Tiling(axis, last, turned)
    return best


def _is_short(axis: Axis) -> bool:
    return isinstance(axis.size, int) and axis.size < LEAST


def _is_plain(i: Instruction, kernel: LoopKernel, bound: set[Expr]) -> bool:
    """Whether every element of a tile may be accessed, before and after the others: no mask, no index from a tensor, one direction."""
    buffer, index = i.args[:2]
    if not isinstance(index, Expr) or not index.free_symbols <= bound or buffer in kernel.reads & kernel.writes:
        return False
    return i.args[2] is None if i.op == "load" else i.args[3] == "set"


def _lies_across(index: Expr, axis: Axis, last: Axis) -> bool:
    return index.coefficient(axis.var) == 1 and index.coefficient(last.var) not in (None, 0, 1)
