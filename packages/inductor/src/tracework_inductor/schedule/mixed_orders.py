"""Sums of columns beside sums of rows: what both are computed from is read once.

The gradient of a norm sums up rows for what goes on and columns for its weights. A kernel that walks rows cannot know a column's sum, but
each of its blocks can keep the sums of the rows it has seen; a kernel behind it adds up those of all blocks, always in the same order.
"""

import dataclasses
from typing import Any

import torch

from ..ir.body import Axis, Instruction
from ..ir.buffer import Buffer, BufferLayout, LoopNode
from ..ir.handlers import Recorder, replay
from ..ir.index import INT32_LIMIT, Expr, constant_product, contiguous_strides, dot, symbol
from ..ir.scalar_ops import COLUMNS
from ..target import Capabilities
from .fuse import Fuser
from .group import Group, Member, mapping, variables
from .plan import Program

ROWS_OF_BLOCK = 16
"""At least, on a GPU; with fewer, what blocks keep is no longer little beside what they read."""
BLOCKS_ON_CPU = 32
"""At least: the threads share them."""
LONGEST_ROW = 8192
LONG_ROW = 2048
"""From which on half of the blocks fill a GPU."""
LEAST_SAVED = {"cuda": 8 << 20, "cpu": 1 << 20}
"""Bytes; a kernel that reads fewer takes about the time of a launch, or finds them in a core's own cache."""
LEAST_ALONE = 4 << 20
"""Bytes from which on sums of columns of this width are taken in two steps on a CPU without other work on their rows."""
LEAST_WIDTH = 16


def with_mixed_orders(program: Program, fuser: Fuser) -> Fuser:
    """The fusion of a program whose sums of columns are taken in two steps where that saves reading their elements again; else as it is."""
    chosen = [found for group in fuser.groups if (found := _beside_rows(fuser, group))]
    while chosen:
        changed, made = program, {}
        for group, parts in chosen:
            steps = _in_two_steps(changed, group, parts)
            if steps is not None:
                changed, kept = steps
                made[kept] = group
        mixed = Fuser(changed, fuser.options, fuser.capabilities)
        alone = [g for g in mixed.run() if _keeps_only(g) and g.members[0].node.device.type != "cpu"]
        if not alone:
            return mixed
        failed = [made[name] for g in alone for name in g.writes]
        chosen = [(group, parts) for group, parts in chosen if not any(group is other for other in failed)]
    return fuser


def _keeps_only(group: Group) -> bool:
    return all(isinstance(m.node, LoopNode) and m.node.domain == COLUMNS for m in group.members)


def _beside_rows(fuser: Fuser, columns: Group) -> tuple[Group, int] | None:
    """A group of sums of columns with the number of blocks that shall keep parts of them, if a group that walks rows reads the same; or alone,
    if they are of many rows on a CPU, which reads these one after the other then, with as many threads as it has."""
    full = [m.node for m in columns.members if m.level == "full"]
    if not full or not all(_is_plain_sum(node) and not node.reads & columns.writes for node in full):
        return None
    height, width = (constant_product(sizes) for sizes in (columns.inner, columns.outer))
    if (
        not all(isinstance(s, int) for s in (*columns.inner, *columns.outer))
        or width > LONGEST_ROW
        or height * width > INT32_LIMIT
    ):
        return None
    device = full[0].device.type
    parts = _blocks(fuser.capabilities, device, height, width)
    itemsizes = {fuser.program.buffers[name].layout.dtype.itemsize for node in full for name in node.writes}
    kept = 2 * parts * width * len(full) * max(itemsizes)
    if not parts or len(itemsizes) > 1 or device == "cpu" and not all(_down_columns(node) for node in full):
        return None
    read = sum(_bytes(fuser, name, height * width) for name in set().union(*(n.reads for n in full)))
    if device == "cpu" and width >= LEAST_WIDTH and read >= LEAST_ALONE:
        return columns, parts
    for rows in fuser.groups:
        saved = sum(_bytes(fuser, name, height * width) for name in _common(full, rows)) if _walks(rows, height, width) else 0
        if saved >= max(LEAST_SAVED[device], 2 * kept):
            return columns, parts
    return None


def _blocks(capabilities: Capabilities, device: str, height: int, width: int) -> int:
    """How many blocks keep sums of rows of a matrix; 0 where they are too few. What a CPU's keep is exact to a few bits: each adds few rows."""
    if device == "cpu":  # in a graph for a GPU, too, whose renderer has none for it
        rows = capabilities.column_rows
        blocks = -(-height // rows) if rows else 0
        return blocks if blocks >= BLOCKS_ON_CPU else 0
    blocks = capabilities.column_blocks
    found = min(blocks if width <= LONG_ROW else blocks // 2, height // ROWS_OF_BLOCK)
    return found if found >= blocks // 2 else 0


def _is_plain_sum(node: LoopNode) -> bool:
    """Whether a node is one sum of numbers, which checks nothing."""
    if node.domain != "reduction" or any(node.body.checks()):
        return False
    (reduction,) = (i for i in node.body.instructions if i.op == "reduce")
    return reduction.args[1] == "sum" and node.body.instructions[reduction.args[2].position].dtype in (
        torch.float32,
        torch.float64,
    )


def _walks(group: Group, height: int, width: int) -> bool:
    """Whether a group walks as many rows of as many elements, which lie in one piece; or, on a CPU, as many elements without
    reductions."""
    nodes = [m.node for m in group.members]
    if not all(isinstance(n, LoopNode) for n in nodes):
        return False
    if any(n.domain not in ("pointwise", "reduction") or n.is_product or n.sorts or n.may_raise for n in nodes):
        return False
    if not all(isinstance(s, int) for s in (*group.outer, *group.inner)):
        return False
    if not group.inner:
        alike = constant_product(group.outer) == height * width
        return nodes[0].device.type == "cpu" and alike and all(_along_rows(n) for n in nodes)
    if [constant_product(group.outer), constant_product(group.inner)] != [height, width]:
        return False
    return any(_in_one_piece(n) for n in nodes if n.body.reduction_axes)


def _down_columns(node: LoopNode) -> bool:
    """Whether elements lie side by side across what is summed up."""
    axes, last = [a.var for a in node.body.reduction_axes], node.body.axes[-1:]
    indices = [i.args[1] for i in node.body.loads() if isinstance(i.args[1], Expr)]
    return bool(last) and all(e.coefficient(last[0].var) == 1 for e in indices if any(e.coefficient(a) != 0 for a in axes))


def _along_rows(node: LoopNode) -> bool:
    """Whether no element lies across the last axis."""
    last, accesses = node.body.axes[-1].var, (*node.body.loads(), *node.body.stores())
    return all(not isinstance(i.args[1], Expr) or i.args[1].coefficient(last) in (0, 1) for i in accesses)


def _in_one_piece(node: LoopNode) -> bool:
    last = node.body.reduction_axes[-1].var
    return any(not isinstance(i.args[1], int) and i.args[1].coefficient(last) == 1 for i in node.body.loads())


def _common(nodes: list[LoopNode], rows: Group) -> set[str]:
    return set().union(*(n.reads for n in nodes)) & (rows.reads | rows.writes)


def _bytes(fuser: Fuser, name: str, elements: int) -> int:
    """Of a buffer that has all the elements; shorter ones stay in the cache."""
    layout = fuser.program.buffers[name].layout
    return elements * layout.dtype.itemsize if constant_product(layout.sizes) == elements else 0


def _in_two_steps(program: Program, group: Group, parts: int) -> tuple[Program, str] | None:
    """The program in which one node keeps all sums of a group for each block, and one for each sum adds these up, and the buffer in which they
    are kept; None if what the sums read is not there before their results are read."""
    full = [m for m in group.members if m.level == "full"]
    names = {m.node.name for m in full}
    places = [n for n, node in enumerate(program.nodes) if node.name in names]
    writes, reads = frozenset().union(*(m.node.writes for m in full)), frozenset().union(*(m.node.reads for m in full))
    between = [node for node in program.nodes[places[0] : places[-1]] if node.name not in names]
    at = places[-1]
    if any(node.reads & writes for node in between):
        if any(node.writes & reads for node in between):
            return None
        at = places[0]
    nodes: list[Any] = []
    buffers = dict(program.buffers)
    first = min(full[0].node.writes)
    layout, kept = buffers[first].layout, f"{first}_of_blocks"
    sizes = (parts, len(full) * constant_product(group.outer))
    buffers[kept] = Buffer(kept, BufferLayout.dense(layout.dtype, layout.device, sizes), "computed")
    for n, node in enumerate(program.nodes):
        if n == at:
            nodes += _steps(group, full, buffers[kept])
        if node.name not in names:
            nodes.append(node)
    return dataclasses.replace(program, nodes=tuple(nodes), buffers=buffers), kept


def _steps(group: Group, full: list[Member], buffer: Buffer) -> list[LoopNode]:
    """The nodes of both steps, with the buffer between them."""
    columns, rows, first = variables("x", group.outer), variables("r", group.inner), full[0].node
    column_axes, row_axes = (tuple(map(Axis, found, sizes)) for found, sizes in ((columns, group.outer), (rows, group.inner)))
    place, width = dot(columns, contiguous_strides(group.outer)), constant_product(group.outer)
    kept, dtype, (parts, length) = buffer.name, buffer.layout.dtype, buffer.layout.sizes
    keeping, block = Recorder(row_axes, column_axes), symbol("b", 0, None)
    adding: list[LoopNode] = []
    for n, member in enumerate(full):

        def keep(into: Recorder, i: Instruction, n: int = n) -> bool:
            into.store(kept, n * width + place, i.args[2], COLUMNS)
            return True

        replay(member.node.body, keeping, mapping(member, group.outer, group.inner), on_effect=keep)
        own = Recorder(member.node.body.axes, (Axis(block, parts),))
        at = dot([a.var for a in own.axes], contiguous_strides([a.size for a in own.axes]))
        (written,) = member.node.writes
        own.reduce(written, "sum", own.load(kept, block * length + n * width + at, dtype))
        adding.append(dataclasses.replace(member.node, body=own.finish(), reads=frozenset((kept,))))
    reads = frozenset().union(*(m.node.reads for m in full))
    origins = tuple(dict.fromkeys(o for m in full for o in m.node.origins))
    name = f"{first.name}_of_blocks"
    return [LoopNode(name, COLUMNS, keeping.finish(), reads, frozenset((kept,)), first.device, origins), *adding]
