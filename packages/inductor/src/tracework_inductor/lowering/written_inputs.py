"""Writes to a part of an input that make its new value are made there, as the program made them.

In a graph of values a cache that gets a new row is a copy of the cache with that row, which is copied into the input at the end: twice the
whole for one row. Where nobody reads the input's old value after the row is there, both copies are left out. What the program wrote through a
view (`caches[layer].index_copy_(...)`, `cache[n:n+1, :, p:p+1] = k`) is a write to a part of a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tracework_primops import prims
from tracework_primops.passes.edits import memory_of

from ..errors import TableError
from ..ir import cores
from ..ir.buffer import BufferView, CoreNode
from ..ir.index import Size, dot, same, same_all
from ..schedule.graph import alias_root, live_nodes, writes_to_input
from .fallback import SCATTERS
from .layout import is_row_major, is_static
from .value import Strided, settled

VIEWS_OF_PARTS = {"slice_scatter": prims.slice, "select_scatter": prims.select, "diagonal_scatter": prims.diagonal}
"""Writes to a fixed part -> the view of that part, which has the same arguments but for what is written."""


@dataclass(frozen=True)
class InPlace:
    """placeholder: the input that a node writes to. joins: the node's second operand is a part of the first that was written before, so
    that nothing is left to do."""

    placeholder: Any
    joins: bool


def written_inputs(graph: Any) -> dict[Any, InPlace]:
    """Writes whose input gets a new value that these writes, and nothing else, make."""
    position = {node: n for n, node in enumerate(graph.nodes)}
    found: dict[Any, InPlace] = {}
    for last in graph.nodes:
        if last.target is prims.copy_into and last.args[0].op == "placeholder":
            chain = _Chain(last.args[0])
            if chain.leads_to(last.args[1]) and chain.is_read_in_time(last, position):
                found |= {node: InPlace(chain.placeholder, node in chain.joins) for node in (*chain.writes, *chain.joins)}
    return found


class _Chain:
    """Writes that make the new value of an input, one after the other."""

    def __init__(self, placeholder: Any) -> None:
        self.placeholder = placeholder
        self.writes: list[Any] = []
        self.joins: list[Any] = []
        self.seen: dict[Any, int] = {placeholder: 0}
        """A value of the input, or of a part of it -> how many of the writes it has seen."""

    def leads_to(self, node: Any) -> bool:
        """Whether writes to parts of the input make `node` of it."""
        return self._follow(node, lambda n: n is self.placeholder) and bool(self.writes)

    def _follow(self, node: Any, begins: Callable[[Any], bool]) -> bool:
        """Adds the writes that make `node` of a value at which the chain begins, and says whether there is one."""
        if begins(node):
            self.seen[node] = len(self.writes)
            return True
        name = getattr(node.target, "name", None)
        if name == "roll" and rotation(node) is not None:
            self.seen[node.args[0]] = len(self.writes)
            self.writes.append(node)
            self.seen[node] = len(self.writes)
            return begins(node.args[0])
        if name not in SCATTERS and name not in VIEWS_OF_PARTS or node.meta["spec"].dtype != self.placeholder.meta["spec"].dtype:
            return False
        if not self._follow(node.args[0], begins):
            return False
        if name in VIEWS_OF_PARTS and self._was_written(node, VIEWS_OF_PARTS[name]):
            self.joins.append(node)
        else:
            self.writes.append(node)
        self.seen[node] = len(self.writes)
        return True

    def _was_written(self, node: Any, view: Any) -> bool:
        """Whether what `node` writes to a part of a value is made by writes to a view of that part."""
        whole, part, *place = node.args
        before = len(self.writes), len(self.joins), dict(self.seen)

        def shows_part(n: Any) -> bool:
            return n.target is view and n.args[0] is whole and _same_place(n.args[1:], place)

        if self._follow(part, shows_part):
            return True
        del self.writes[before[0] :], self.joins[before[1] :]
        self.seen = before[2]
        return False

    def is_read_in_time(self, last: Any, position: dict[Any, int]) -> bool:
        """Whether nobody reads a value, or a view of it, after the write that makes the next one of it."""
        for value, count in self.seen.items():
            users = [user for user in _users(value) if user is not last and user not in self.joins]
            if any(user.target is prims.copy_into for user in users):
                return False
            if count < len(self.writes) and any(position[user] > position[self.writes[count]] for user in users):
                return False
        return True


def _same_place(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(x is y or same(x, y) for x, y in zip(a, b, strict=True))


def _users(node: Any) -> Iterator[Any]:
    for user in node.users:
        yield user
        if user.op == "call_function" and memory_of(user) is not user:
            yield from _users(user)


def input_of(low: Any, x: Any, read: Sequence[Any]) -> Strided | None:
    """The part of an input that the current node may write to: `x`, which it gives with other elements. None where there is none, or `read`,
    the values that it takes these from, are read from there."""
    x, where = settled(x), low.written_inputs.get(low.node)
    if where is None or not isinstance(x, Strided):
        return None
    name = low.values[where.placeholder].buffer
    if alias_root(low.buffers, x.buffer) != name:
        return None
    if any(alias_root(low.buffers, buffer) == name for value in read for buffer in getattr(settled(value), "reads", ())):
        return None
    low.settle_readers(x.buffer)
    return x


def write_part(low: Any, x: Any, part: Any, position: Callable[[list[Size]], list[Size]]) -> Strided | None:
    """The input `x` with part(index) at position(index), which are different elements for different indices; None if it is not written to."""
    x, where = settled(x), low.written_inputs.get(low.node)
    if where is not None and where.joins and isinstance(part, Strided) and isinstance(x, Strided) and part.buffer != x.buffer:
        name = low.values[where.placeholder].buffer
        if alias_root(low.buffers, part.buffer) == alias_root(low.buffers, x.buffer) == name:
            return Strided(x.sizes, x.dtype, x.device, part.buffer, x.strides, x.offset)
    target = input_of(low, x, (part,))
    return None if target is None else write_into(low, target, part.sizes, part.load, position, "set")


def write_into(
    low: Any, target: Strided, sizes: Sequence[Size], value: Callable[[list[Size]], Any], position: Any, mode: str
) -> Strided:
    """Stores value(index) at target[position(index)] for all indices below sizes."""
    new = low.new_buffer(low.buffers[target.buffer].layout, "alias", target.buffer)
    root = alias_root(low.buffers, target.buffer)
    if low.buffers[root].kind == "input":
        low.mutated[new.name] = root
    low.pointwise_node(
        new,
        value,
        sizes,
        lambda index: dot(position(index), target.strides, target.offset),
        mode,
        "scatter",
        mutates=target.buffer,
    )
    return Strided(target.sizes, target.dtype, target.device, new.name, target.strides, target.offset)


def scatter_into(low: Any, target: Strided, sizes: Sequence[Size], value: Any, position: Any, mode: str) -> Strided:
    """`write_into` for positions that are computed; only for ops that SCATTERS knows."""
    if low.node.target.name not in SCATTERS:
        raise TableError(f"{low.node.target} writes to computed positions and has no row in SCATTERS (lowering/fallback.py)")
    return write_into(low, target, sizes, value, position, mode)


def rotation(node: Any) -> tuple[int, int, int] | None:
    """A roll of an input along one dim as (blocks, length, distance), in elements; None where it is better made by two copies."""
    (x, shifts, dims), spec = node.args, node.meta["spec"]
    if x.op != "placeholder" or len(dims) != 1 or not is_static(spec.sizes) or not isinstance(shifts[0], int) or 0 in spec.sizes:
        return None
    if not is_row_major(spec.sizes, x.meta["spec"].strides):
        return None
    dim = dims[0] % len(spec.sizes)
    row = math.prod(spec.sizes[dim + 1 :])
    blocks, distance = math.prod(spec.sizes[:dim]), -shifts[0] % spec.sizes[dim] * row
    if spec.device.type == "cpu":
        fits = distance * spec.dtype.itemsize <= cores.MOST_KEPT
    else:
        bytes_moved = math.prod(spec.sizes) * spec.dtype.itemsize
        fits = distance <= cores.MOST_PUT_ASIDE and bytes_moved >= cores.LEAST_ROTATED
    return (blocks, spec.sizes[dim] * row, distance) if fits and distance else None


def rotated(low: Any, x: Any) -> Strided | None:
    """The input `x` rolled where it lies, as the current node rolls it; None if it is not written to."""
    if low.node not in low.written_inputs or (target := input_of(low, x, ())) is None:
        return None
    new = low.new_buffer(low.buffers[target.buffer].layout, "alias", target.buffer)
    low.mutated[new.name] = alias_root(low.buffers, target.buffer)
    views = [BufferView(name, target.sizes, target.strides, target.offset) for name in (target.buffer, new.name)]
    facts = tuple(zip(("blocks", "length", "distance"), rotation(low.node) or (), strict=True))
    core = CoreNode(
        f"core{len(low.nodes)}", "rotate", (views[0],), (views[1],), facts, target.device, low.origins(), mutates=target.buffer
    )
    low.add_node(core)
    return Strided(target.sizes, target.dtype, target.device, new.name, target.strides, target.offset)


def newest_name(low: Any, name: str) -> str:
    """Of an input: the alias that its last write so far made. Who writes next comes after those that read it under this name."""
    return next((new for new, root in reversed(low.mutated.items()) if root == name), name)


def is_whole(low: Any, at: Strided, name: str) -> bool:
    """Whether a window is all of a buffer, under whatever name."""
    layout = low.buffers[name].layout
    alike = same_all(at.sizes, layout.sizes) and same_all(at.strides, layout.strides)
    return alike and same(at.offset, 0) and alias_root(low.buffers, at.buffer) == name


def raises_after_write(program: Any) -> bool:
    """Whether what may raise comes after a write to a part of an input, in every order of the loops."""
    written = False
    for node in live_nodes(program):
        if written and node.may_raise:
            return True
        in_place = isinstance(node, CoreNode) or getattr(node, "domain", "") == "scatter"
        written = written or in_place and writes_to_input(program.buffers, node)
    return False


__all__ = [
    "InPlace",
    "input_of",
    "is_whole",
    "newest_name",
    "raises_after_write",
    "rotated",
    "rotation",
    "scatter_into",
    "write_part",
    "written_inputs",
]
