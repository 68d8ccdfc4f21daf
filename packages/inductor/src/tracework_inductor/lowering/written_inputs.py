"""Writes to a part of an input that make its new value are made there, as the program made them.

In a graph of values a cache that gets a new row is a copy of the cache with that row, which is copied into the input at the end: twice the
whole for one row. Where nobody reads the input's old value after the row is there, both copies are left out. What the program wrote through a
view (`caches[layer].index_copy_(...)`, `cache[n:n+1, :, p:p+1] = k`) is a write to a part of a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tracework_primops import prims
from tracework_primops.passes.edits import memory_of

from ..errors import TableError
from ..ir import cores
from ..ir.buffer import BufferView, CoreNode
from ..ir.index import Size, contiguous_strides, dot, same, same_all
from ..ir.views import numel_equal
from ..schedule.graph import alias_root, live_nodes, writes_to_input
from .fallback import SCATTERS
from .layout import is_row_major, is_static, meet, strides_equal
from .registry import LOWERINGS
from .value import Lazy, Strided, settled

VIEWS_OF_PARTS = {
    "slice_scatter": prims.slice,
    "select_scatter": prims.select,
    "diagonal_scatter": prims.diagonal,
    "as_strided_scatter": prims.as_strided,
}
"""Writes to a fixed part -> the view of that part, which has the same arguments but for what is written."""

WINDOWS = frozenset((prims.slice, prims.select, prims.reshape, prims.permute, prims.squeeze, prims.unsqueeze, prims.as_strided))
"""Views that are windows on what they show, where its strides allow it."""


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
            chain = _Chain(last.args[0], position)
            if chain.leads_to(last.args[1]) and chain.is_read_in_time(last):
                found |= {node: InPlace(chain.placeholder, node in chain.joins) for node in (*chain.writes, *chain.joins)}
    return found


class _Chain:
    """Writes that make the new value of an input, one after the other."""

    def __init__(self, placeholder: Any, position: Mapping[Any, int]) -> None:
        self.placeholder = placeholder
        self.writes: list[Any] = []
        self.joins: list[Any] = []
        self.seen: dict[Any, int] = {placeholder: 0}
        """A value of the input, or of a part of it -> how many of the writes it has seen."""
        self._position = position

    def leads_to(self, node: Any) -> bool:
        """Whether writes to parts of the input make `node` of it."""
        return self._follow(node, self.placeholder, _all_of(self.placeholder)) and bool(self.writes)

    def _follow(self, node: Any, whole: Any, part: Strided | None) -> bool:
        """Adds the writes that make `node`, which shows a part of `whole`, of that part, and says whether these are all that make it."""
        steps = self._steps(node, whole)
        if steps is None or part is None or not _lead_to(steps, whole, part):
            return False
        self.seen[whole] = len(self.writes)
        for step in steps:
            if step.target in WINDOWS:
                continue
            view = VIEWS_OF_PARTS.get(step.target.name)
            if view is not None and self._follow(step.args[1], step.args[0], _part_of(step, view)):
                self.joins.append(step)
            else:
                self.writes.append(step)
            self.seen[step] = len(self.writes)
        return True

    def _steps(self, node: Any, whole: Any) -> list[Any] | None:
        """The writes and views that lead from `whole` to `node`."""
        found, first = [], self._position[whole]
        while node is not whole:
            if self._position.get(node, -1) < first or not self._is_step(node):
                return None
            found.append(node)
            node = node.args[0]
        return found[::-1]

    def _is_step(self, node: Any) -> bool:
        name = getattr(node.target, "name", None)
        if name == "roll":
            return rotation(node) is not None and node.args[0] is self.placeholder
        is_write = name in SCATTERS or name in VIEWS_OF_PARTS
        return node.target in WINDOWS or is_write and node.meta["spec"].dtype == self.placeholder.meta["spec"].dtype

    def is_read_in_time(self, last: Any) -> bool:
        """Whether nobody reads a value, or a view of it, after the write that makes the next one of it."""
        for value, count in self.seen.items():
            users = [user for user in _users(value) if user is not last and user not in self.joins]
            if any(user.target is prims.copy_into for user in users):
                return False
            if count < len(self.writes) and any(self._position[user] > self._position[self.writes[count]] for user in users):
                return False
        return True


def _window(view: Any, of: Any, at: Strided, spec: Any, args: Sequence[Any]) -> Strided | None:
    """The window that a view of `of`, itself one at `at`, is; None where it is none, or shows one element several times. spec: the view's."""
    args = [_number(arg) for arg in args]
    if view is not prims.as_strided:
        found = LOWERINGS[view.name](SimpleNamespace(spec=spec), at, *args) if view in WINDOWS else None
        return found if isinstance(found, Strided) else None
    sizes, strides, offset = args
    memory, whole = of.meta["spec"], _all_of(of)
    known = is_static((*sizes, *strides, offset, *memory.sizes)) and not meet(sizes, strides)
    in_order = is_row_major(memory.sizes, memory.strides) and same(memory.offset, 0) and memory_of(of) is of
    return at.window(sizes, strides, offset) if known and in_order and _are_same(at, whole) else None


def _number(arg: Any) -> Any:
    """The size that a node stands for."""
    return arg.meta["spec"].expr if hasattr(arg, "meta") else arg


def _are_same(a: Strided, b: Strided) -> bool:
    return same_all(a.sizes, b.sizes) and strides_equal(a.sizes, a.strides, b.strides) and same(a.offset, b.offset)


def _all_of(node: Any) -> Strided:
    """A value as a window on its elements, counted in row-major order."""
    spec = node.meta["spec"]
    return Strided(tuple(spec.sizes), spec.dtype, spec.device, "", contiguous_strides(spec.sizes))


def _part_of(write: Any, view: Any) -> Strided | None:
    """The elements of its first operand that a write replaces by its second one."""
    whole, part, *place = write.args
    return _window(view, whole, _all_of(whole), part.meta["spec"], place)


def _lead_to(steps: Sequence[Any], whole: Any, part: Strided) -> bool:
    """Whether the last step shows a part of `whole`, and each write changes all of this part, or elements of it, and no others. A view shows
    no more than what it is a view of, so that views of equally many elements show the same ones."""
    at = _all_of(whole)
    for step in steps:
        if step.target in WINDOWS:
            found = _window(step.target, step.args[0], at, step.meta["spec"], step.args[1:])
            if found is None:
                return False
            at = found
        elif not numel_equal(at.sizes, part.sizes):
            return False
    return _are_same(at, part)


def _users(node: Any) -> Iterator[Any]:
    for user in node.users:
        yield user
        if user.op == "call_function" and memory_of(user) is not user:
            yield from _users(user)


def _memory_of(low: Any, x: Any) -> str | None:
    """The buffer that the current node writes to where it gives `x` with other elements: an input, or the copy of one where what may raise
    comes after the writes. None where it is to make a new value."""
    where = low.written_inputs.get(low.node)
    if where is None or not isinstance(x, Strided):
        return None
    given: Strided = low.values[where.placeholder]
    root = alias_root(low.buffers, x.buffer)
    if low.changed_copies is None:
        return given.buffer if root == given.buffer else None
    if given.buffer not in low.changed_copies and root == given.buffer:
        copy = Lazy(given.sizes, given.dtype, given.device, given.load, 1, given.reads)
        low.changed_copies[given.buffer] = low.realize(copy, given.strides)
    made = low.changed_copies.get(given.buffer)
    if made is None or not strides_equal(made.sizes, made.strides, given.strides) or not same(given.offset, 0):
        return None
    return made.buffer if root in (given.buffer, made.buffer) else None


def _is_read_from(low: Any, name: str, value: Any) -> bool:
    return any(alias_root(low.buffers, buffer) == name for buffer in getattr(value, "reads", ()))


def apart(low: Any, x: Any, value: Any) -> Any:
    """What the current node writes to `x`: in memory of its own where it is read from where it is written to."""
    value = settled(value)
    name = _memory_of(low, settled(x))
    if name is None or not _is_read_from(low, name, value):
        return value
    return low.realize(Lazy(value.sizes, value.dtype, value.device, value.load, 1, value.reads))


def input_of(low: Any, x: Any, read: Sequence[Any]) -> Strided | None:
    """The part of an input that the current node may write to: `x`, which it gives with other elements. None where there is none, or `read`,
    the values that it takes these from, are read from there."""
    x = settled(x)
    name = _memory_of(low, x)
    if name is None or any(_is_read_from(low, name, settled(value)) for value in read):
        return None
    newest = newest_name(low, name)
    for buffer in dict.fromkeys((x.buffer, newest)):
        if alias_root(low.buffers, buffer) == name:
            low.settle_readers(buffer)
    return Strided(x.sizes, x.dtype, x.device, newest, x.strides, x.offset)


def joined(low: Any, x: Any, part: Any) -> Strided | None:
    """The input `x` after writes to a part of it; None where `part`, its new value, is not the memory of that part."""
    x, where = settled(x), low.written_inputs.get(low.node)
    if where is None or not where.joins or not isinstance(part, Strided) or part.buffer == x.buffer:
        return None
    if (name := _memory_of(low, x)) is None or alias_root(low.buffers, part.buffer) != name:
        return None
    return Strided(x.sizes, x.dtype, x.device, part.buffer, x.strides, x.offset)


def write_part(low: Any, x: Any, part: Any, position: Callable[[list[Size]], list[Size]]) -> Strided | None:
    """The input `x` with part(index) at position(index), which are different elements for different indices; None if it is not written to."""
    if (written := joined(low, x, part)) is not None:
        return written
    part = apart(low, x, part)
    target = input_of(low, x, (part,))
    return None if target is None else write_into(low, target, part.sizes, part.load, position, "set")


def write_into(
    low: Any, target: Strided, sizes: Sequence[Size], value: Callable[[list[Size]], Any], position: Any, mode: str
) -> Strided:
    """Stores value(index) at target[position(index)] for all indices below sizes."""
    new = low.new_buffer(low.buffers[target.buffer].layout, "alias", target.buffer)
    root = alias_root(low.buffers, target.buffer)
    low.newest[root] = new.name
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
    if low.node not in low.written_inputs or low.changed_copies is not None or (target := input_of(low, x, ())) is None:
        return None
    new = low.new_buffer(low.buffers[target.buffer].layout, "alias", target.buffer)
    root = alias_root(low.buffers, target.buffer)
    low.mutated[new.name], low.newest[root] = root, new.name
    views = [BufferView(name, target.sizes, target.strides, target.offset) for name in (target.buffer, new.name)]
    facts = tuple(zip(("blocks", "length", "distance"), rotation(low.node) or (), strict=True))
    core = CoreNode(
        f"core{len(low.nodes)}", "rotate", (views[0],), (views[1],), facts, target.device, low.origins(), mutates=target.buffer
    )
    low.add_node(core)
    return Strided(target.sizes, target.dtype, target.device, new.name, target.strides, target.offset)


def newest_name(low: Any, name: str) -> str:
    """Of an input, or of its copy: the alias that its last write so far made. Who writes next comes after those that read it under this
    name."""
    newest: str = low.newest.get(name, name)
    return newest


def is_whole(low: Any, at: Strided, name: str) -> bool:
    """Whether a window is all of a buffer, under whatever name."""
    layout = low.buffers[name].layout
    alike = same_all(at.sizes, layout.sizes) and strides_equal(at.sizes, at.strides, layout.strides)
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
    "apart",
    "input_of",
    "is_whole",
    "joined",
    "newest_name",
    "raises_after_write",
    "rotated",
    "rotation",
    "scatter_into",
    "write_part",
    "written_inputs",
]
