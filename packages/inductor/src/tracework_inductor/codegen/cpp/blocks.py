"""Sums of floats in blocks: no accumulator takes part in more than CHAIN additions, whatever the length of the axes.

A block is as many iterations as share fresh accumulators; blocks are added up in a cascade (`tw_cascade` in prefix.py), each level of
which adds up 16 results of the level below. The rounding error grows with the number of levels, that is with the logarithm of the
length, where that of a single accumulator grows with the length itself. Products gain nothing: whatever their order, each multiplication
adds its own relative error.

A long row is summed in some accumulators side by side, its lanes, which meet at its end only: what a vector loop's own reduction costs
at the end of each loop is several blocks' time.
"""

import dataclasses
from collections.abc import Sequence

from ...ir.body import Axis
from ...ir.index import Size

CHAIN = 32
"""Additions to one accumulator."""
VECTOR = 8
"""Floats that the reduction of a vector loop adds up side by side, at least."""
LONG = CHAIN * VECTOR
"""Iterations above which a row is summed in lanes."""
PIECE = 128
"""Iterations of the innermost loop that make lanes worth their loop over what is left."""
LEAST_LANES = 16
"""Elements of a row that are computed at a time, at least."""
ENDLESS = 8192
"""Elements of a row beside which a rest of it does not count."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """The loop of a nest that is cut into blocks: its position, and `step` iterations a block."""

    position: int
    step: int


def cut(axes: Sequence[Axis], longest: int) -> Cut | None:
    """How to cut a nest so that a block has at most `longest` iterations; None where the nest has no more."""
    inside = 1
    for position in reversed(range(len(axes))):
        size = axes[position].size
        if not isinstance(size, int) or inside * size > longest:
            return Cut(position, max(longest // inside, 1))
        inside *= size
    return None


def lanes(itemsize: int, size: Size) -> int:
    """How many elements of a row of `size` are computed at a time, `itemsize` the bytes of the smallest.

    Two vectors of floats keep more of the memory's lines on their way than one; a vector of halves is as long. One where two would leave
    a rest of a row that is not long enough to make up for it.
    """
    return LEAST_LANES if itemsize >= 4 and isinstance(size, int) and size % 32 and size < ENDLESS else 32


def in_lanes(axes: Sequence[Axis], sums: bool) -> bool:
    """Whether a row lies in pieces that are long, or of whole lanes. sums: whether all reductions are, for which g++ has vectors itself."""
    last = axes[-1].size
    long = PIECE if sums else 2 * LEAST_LANES
    return not isinstance(last, int) or last >= long or last > LEAST_LANES and last % LEAST_LANES == 0


@dataclasses.dataclass(frozen=True)
class Sum:
    """One accumulator of a nest: its name and type, and how many of it there are side by side, if several."""

    name: str
    type: str
    width: int | None = None

    def block(self) -> "Sum":
        """The accumulator of a block."""
        return Sum(f"{self.name}_block", self.type, self.width)

    def cascade(self) -> str:
        """Declaration of the cascade."""
        return f"tw_cascade<{self.type}{'' if self.width is None else f', {self.width}'}> {self.name}_levels;"

    def add(self) -> str:
        """The statement after a block."""
        return f"{self.name}_levels.add({self.block().address()});"

    def total(self) -> str:
        """The statement after all blocks."""
        return f"{self.name}_levels.total({self.address()});"

    def address(self) -> str:
        """A pointer to it."""
        return f"&{self.name}" if self.width is None else self.name


def whole_groups(begin: str, count: str, width: int) -> str:
    """Where the last whole group of `width` steps of a loop ends."""
    if count.isdigit():
        steps = int(count) // width * width
        return str(steps) if begin == "0" else f"{begin} + {steps}"
    return f"{begin} + {count} / {width} * {width}"
