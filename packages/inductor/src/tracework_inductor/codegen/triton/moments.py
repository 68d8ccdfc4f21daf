"""Mean and sum of squared deviations of a row in one pass over it: Welford's update in each lane, then the lanes together.

Every lane has seen as many elements as there were steps, but for those past the end of the row, so that one reciprocal a step
is enough; how many elements each lane has seen weighs it when lanes, and parts of a row, are combined.

A lane counts from its first element, so that its mean is as small as the deviations are. Far from 0 the mean itself lies on a grid as coarse
as the elements': rounding it to one side of a tie is then no accident of the last bit but goes with the sign of the deviation, for all lanes
alike, and the errors add up.
"""

import dataclasses
from collections.abc import Callable

__all__ = ["MOMENTS", "Lanes", "combined", "in_registers", "named_rows"]

MOMENTS = {"mean": 1, "squared_deviations": 2}
"""Kinds of reductions, and their place after the number of elements; both of one value share their accumulators."""


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Accumulators of a loop over a row; `label` makes their names unique. `blocks`: steps are taken in blocks, with moments of their own."""

    label: str
    blocks: bool = False

    def before(self, tile: str, row: str) -> list[str]:
        """Lines before the whole loop, for a tile and for one row of it."""
        k = self.label
        lines = _zeros(tile, f"first_{k}")
        if not self.blocks:
            return [*lines, *self.before_block(tile, row)]
        lines += [*_zeros(tile, f"all_mean_{k}", f"all_squares_{k}"), *_zeros(row, f"all_seen_{k}")]
        return [*lines, *_zeros("[1, 1]", f"all_steps_{k}")]

    def before_block(self, tile: str, row: str) -> list[str]:
        """Lines before the steps of a block."""
        k = self.label
        return [*_zeros(tile, f"mean_{k}", f"squares_{k}"), *_zeros(row, f"seen_{k}"), *_zeros("[1, 1]", f"steps_{k}")]

    def inside(self, value: str) -> list[str]:
        """Lines of the loop; `rmask` says which lanes are inside the row."""
        k = self.label
        whole = "all_" if self.blocks else ""
        return [
            *(f"{name}_{k} = {name}_{k} + 1" for name in dict.fromkeys(("steps", f"{whole}steps"))),
            f"first_{k} = tl.where(rmask & ({whole}steps_{k} == 1), {value}, first_{k})",
            f"offset_{k} = {value} - first_{k}",
            f"delta_{k} = offset_{k} - mean_{k}",
            f"moved_{k} = mean_{k} + delta_{k} * (1.0 / steps_{k})",
            f"squares_{k} = tl.where(rmask, squares_{k} + delta_{k} * (offset_{k} - moved_{k}), squares_{k})",
            f"mean_{k} = tl.where(rmask, moved_{k}, mean_{k})",
            f"seen_{k} = seen_{k} + rmask.to(tl.float32)",
        ]

    def after_block(self) -> list[str]:
        """Lines that add a block's moments to those of the blocks before, lane by lane."""
        k = self.label
        return [
            f"both_{k} = all_seen_{k} + seen_{k}",
            f"apart_{k} = mean_{k} - all_mean_{k}",
            f"share_{k} = seen_{k} / tl.maximum(both_{k}, 1)",
            f"all_mean_{k} = all_mean_{k} + apart_{k} * share_{k}",
            f"all_squares_{k} = all_squares_{k} + squares_{k} + apart_{k} * apart_{k} * share_{k} * all_seen_{k}",
            f"all_seen_{k} = both_{k}",
        ]

    def after(self) -> tuple[list[str], tuple[str, ...]]:
        """Lines after the loop, and the names of number, mean and squared deviations of the whole row."""
        lines, name = named_rows(self.label)
        k, whole = self.label, "all_" if self.blocks else ""
        return lines, combined(f"{whole}seen_{k}", f"first_{k}", f"{whole}mean_{k}", f"{whole}squares_{k}", name)


def named_rows(label: str) -> tuple[list[str], Callable[[str], str]]:
    """Lines, none yet, and what adds one to them that gives a text a name, which it returns."""
    lines: list[str] = []

    def name(text: str) -> str:
        found = f"row{len(lines)}_{label}"
        lines.append(f"{found} = {text}")
        return found

    return lines, name


def _zeros(shape: str, *names: str) -> list[str]:
    return [f"{name} = tl.full({shape}, 0, tl.float32)" for name in names]


def combined(seen: str, first: str, mean: str, squares: str, name: Callable[[str], str]) -> tuple[str, ...]:
    """Number, mean and squared deviations over dimension 1 of a tile of each; `name` gives a text a name. Means are counted from `first`."""
    number = name(f"tl.sum({seen}, 1)[:, None]")
    rounded = name(f"tl.sum(({first} + {mean}) * {seen}, 1)[:, None] / tl.maximum({number}, 1)")
    apart = name(f"{first} - {rounded} + {mean}")
    # Far from 0, rounding leaves more of the mean than the deviations from it can spare.
    drift = name(f"tl.sum({seen} * {apart}, 1)[:, None] / tl.maximum({number}, 1)")
    deviations = name(f"tl.sum({squares} + {seen} * {apart} * {apart}, 1)[:, None]")
    left = name(f"{deviations} - {number} * {drift} * {drift}")
    return number, name(f"{rounded} + {drift}"), name(f"tl.where({left} < 0, 0.0, {left})")


def in_registers(value: str, mask: str | None, mean: str, count: str) -> tuple[str, str]:
    """Texts of the mean and, given its name, of the squared deviations of a row that is held in registers."""

    def inside(text: str) -> str:
        return text if mask is None else f"tl.where({mask}, {text}, 0.0)"

    squares = inside(f"({value} - {mean}) * ({value} - {mean})")
    return f"tl.sum({inside(value)}, 1)[:, None] / ({count})", f"tl.sum({squares}, 1)[:, None]"
