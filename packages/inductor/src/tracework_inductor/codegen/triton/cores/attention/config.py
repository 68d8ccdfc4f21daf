"""How many rows the blocks of attention's kernels have, how many warps and stages: by width, by dtype, by what warps hold operands
of products in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import torch

from .....autotune.cost import has_warp_groups
from .....ir.cores import power_of_two
from .....ir.index import Size

__all__ = ["LEAST", "TABLES", "Row", "Table", "Tables", "no_more"]

LEAST = 16
"""Rows, columns and terms of the smallest product that tensor cores compute."""
Table = Mapping[int, tuple[int, int, int, int] | tuple[int, int, int, int, bool]]
"""Up to which width: the fields of a Row."""


class Row(NamedTuple):
    """Rows of a program's block, rows of a step's, warps, stages; whether keys and values are copied by descriptors, which takes fewer registers
    and one thread's time."""

    rows: int
    step: int
    num_warps: int
    num_stages: int
    descriptors: bool = False


FORWARD = {64: (128, 64, 8, 3), 128: (64, 64, 4, 3), 256: (128, 32, 8, 2)}
"""Up to which width: rows of the program's block, rows of a step's, warps, stages; for halves. Few registers of these spill on
Hopper, and of the others up to 128, as far as the body allows. Blocks have 16 rows or more for each warp where registers allow it:
warps stand below one another in scores that a second product reads, so that warps without rows of their own compute those of others
again."""
FORWARD_AS_IT_IS = {128: (128, 64, 8, 2, True)}
"""The same where no number changes scores that are seen: two blocks run on a multiprocessor then, and the exponentials of one beside
the products of the other. Bodies that compute or read take the registers for that."""
OF_QUERIES = {64: (128, 32, 8, 3), 128: (64, 64, 4, 2), 256: (128, 16, 8, 2)}
OF_KEYS = {64: (64, 64, 4, 2), 128: (64, 32, 4, 3), 256: (32, 32, 8, 1)}
OF_KEYS_AS_IT_IS = {128: (64, 64, 4, 2)}
IN_REGISTERS_FORWARD = {64: (128, 64, 8, 3), 128: (128, 64, 8, 3), 256: (64, 32, 8, 2)}
IN_REGISTERS_BACKWARD = {64: (128, 32, 8, 3), 128: (64, 64, 8, 2), 256: (32, 32, 8, 1)}
"""The same where warps hold operands of products in their own registers, as on Ampere: of the blocks above, up to 3,800 bytes of a
thread of them spill there, and a block of 256 elements a row takes more shared memory than smaller devices have."""
DISTANCES = {64: (64, 128, 8, 1), 128: (32, 64, 8, 1), 256: (16, 32, 4, 1)}
"""Distances of a block, which are as many as queries of a step, and keys of a step, twice as many: of n queries and n distances, 2
* n - 1."""
WIDE_FORWARD = {64: (64, 32, 4, 2), 128: (32, 16, 8, 2), 256: (16, 16, 8, 1)}
"""The same for float32, of which a product is three."""
WIDE_BACKWARD = {64: (32, 32, 8, 2), 128: (16, 32, 8, 1), 256: (16, 16, 8, 1)}
WIDE_DISTANCES = {64: (32, 64, 8, 1), 128: (16, 32, 4, 1), 256: (16, 32, 4, 1)}


@dataclasses.dataclass(frozen=True)
class Tables:
    """Of one kernel: for halves, for halves where warps hold operands in registers, for float32."""

    halves: Table
    in_registers: Table
    wide: Table
    as_it_is: Table = dataclasses.field(default_factory=dict)
    """Rows in the place of those for halves, where no number changes scores."""

    def row(self, dtype: torch.dtype, width: int, device: torch.device, as_it_is: bool = False) -> Row:
        """For operands of this dtype and width on a device."""
        halves = self.halves if has_warp_groups(device.index or 0) else self.in_registers
        table = self.wide if dtype == torch.float32 else halves
        up_to = next(w for w in table if width <= w)
        instead = self.as_it_is if as_it_is and table is self.halves else {}
        return Row(*instead.get(up_to, table[up_to]))


TABLES = {
    "forward": Tables(FORWARD, IN_REGISTERS_FORWARD, WIDE_FORWARD, FORWARD_AS_IT_IS),
    "queries": Tables(OF_QUERIES, IN_REGISTERS_BACKWARD, WIDE_BACKWARD),
    "keys": Tables(OF_KEYS, IN_REGISTERS_BACKWARD, WIDE_BACKWARD, OF_KEYS_AS_IT_IS),
    "distances": Tables(DISTANCES, DISTANCES, WIDE_DISTANCES),
}
"""By what a program has a block of, and whether it computes results or gradients."""


def no_more(rows: int, length: Size) -> int:
    """Rows of a block, of which there are no more than that."""
    return rows if not isinstance(length, int) else max(LEAST, min(rows, power_of_two(length)))
