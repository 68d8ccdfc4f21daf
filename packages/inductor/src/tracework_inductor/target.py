"""Capabilities: what a renderer can do, as frozen values."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What the schedule may ask of a renderer.

    row_scratch: values of one row may stay in kernel-local memory between passes, up to this many bytes of a row.
    batches: it renders a KernelBatch.
    column_blocks: so many blocks keep sums of columns beside what they do with rows; 0: none.
    column_rows: blocks of so many rows each do, on a CPU; 0: none.
    unrolls: a body is written out for each place on a short innermost axis.
    tables: equal kernels of a CPU become one function over a table of their memory.
    """

    row_scratch: int = 0
    batches: bool = False
    column_blocks: int = 0
    column_rows: int = 0
    unrolls: bool = False
    tables: bool = False
