"""Blocks of memory that are rotated where they lie, read and written once.

The node's facts: `blocks` of `length` elements each; element n of a block becomes what element n + `distance` was, counted around.

A program rotates one tile of a block. What comes from another tile is that one's first `distance` elements, which a first function has put
aside, since nobody knows which program comes first; all others a program has read before it writes.
"""

from ....ir.cores import ROTATED_AT_ONCE as TILE
from ....schedule.plan import CoreKernel
from ...renderer import KERNEL_NAME, RenderedKernel
from ..header import function_header, launch_record, source_text
from ..text_rules import POINTER

__all__ = ["render"]


def render(kernel: CoreKernel) -> RenderedKernel:
    """The Triton source, its signature and its launch record."""
    facts = dict(kernel.node.facts)
    blocks, length, distance = (facts[name] for name in ("blocks", "length", "distance"))
    tiles = -(-length // TILE)
    aside = tiles * distance
    (view,) = kernel.node.results
    dtype = kernel.layouts[view.buffer].dtype
    header = function_header(["p0", "p1"], ["ws0"], ["XBLOCK"], workspace=False)
    put_aside = [
        "n = tl.program_id(0).to(tl.int64) * XBLOCK + tl.arange(0, XBLOCK)",
        f"block, place = n // {aside}, n % {aside}",
        f"at = place // {distance} * {TILE} + place % {distance}",
        f"tl.store(ws0 + n, tl.load(p1 + block * {length} + at, (n < {blocks * aside}) & (at < {length})), n < {blocks * aside})",
    ]
    rotate = [
        f"block, tile = tl.program_id(0) // {tiles}, tl.program_id(0) % {tiles}",
        f"begin = p1 + block.to(tl.int64) * {length}",
        f"at = tile * {TILE} + tl.arange(0, {TILE})",
        f"source = at + {distance}",
        f"mine = source < tl.minimum((tile + 1) * {TILE}, {length})",
        f"around = tl.where(source < {length}, source, source - {length})",
        f"other = block.to(tl.int64) * {aside} + around // {TILE} * {distance} + around % {TILE}",
        f"put_aside = tl.load(ws0 + other, (at < {length}) & (mine == 0))",
        "new = tl.where(mine, tl.load(begin + source, mine), put_aside)",
        "tl.debug_barrier()",
        f"tl.store(begin + at, new, at < {length})",
    ]
    entries = [KERNEL_NAME, f"{KERNEL_NAME}_1"]
    record = launch_record(
        entries=entries,
        grids=[f"({blocks * aside} + XBLOCK - 1) // XBLOCK", str(blocks * tiles)],
        configs=[{"constants": {"XBLOCK": 1024}, "num_warps": 4, "num_stages": 1}],
        fits32=None,
        workspace=[{"dtype": str(dtype).removeprefix("torch."), "elements": str(blocks * aside)}],
        repeatable=False,
        kind="rotation",
        checks=False,
    )
    texts = [header + "".join(f"    {line}\n" for line in lines) for lines in (put_aside, rotate)]
    return RenderedKernel(source_text(texts, entries), (POINTER[dtype],) * 2, record)
