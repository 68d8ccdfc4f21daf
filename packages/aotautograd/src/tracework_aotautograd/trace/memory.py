"""Memory while recording: one current value per piece of memory, views made again from it.

A Root is memory that an op (or the caller) made; it holds the node of its present value and counts its writes. A Cell is one fake
tensor: its root, and, when it is a view, its parent cell and the view op between them. Reading a cell whose root was written since replays the
view from the parent's present value; writing a cell carries the new value up to the root.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..errors import FunctionalizationError
from ..signature import ViewStep
from .views import IDENTITY_VIEWS, PHYSICAL, WRITE_THROUGH, Emit, by_strides

aten = torch.ops.aten


@dataclass(eq=False)
class Root:
    """Memory with one present value."""

    fake: torch.Tensor | None  # None after `x.t_()`
    node: Node
    writes: int = 0
    slot: int | None = None  # the input slot, for memory that the caller owns


@dataclass(eq=False)
class Cell:
    """One fake tensor: `node` is its value as of `seen` writes to the root."""

    fake: torch.Tensor
    root: Root
    node: Node
    parent: "Cell | None" = None
    step: ViewStep | None = None
    seen: int = 0


class Memory:
    """All cells of one trace. `emit(op, *args, **kwargs)` appends an op and returns its node with meta["val"]."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._cells: dict[int, Cell] = {}

    def find(self, fake: torch.Tensor) -> Cell | None:
        """The cell of a fake, or None when it was not made in this trace."""
        return self._cells.get(id(fake))

    def fresh(self) -> list[Cell]:
        """The cells of memory that the graph made."""
        return [c for c in self._cells.values() if c.root.slot is None]

    def new_root(self, fake: torch.Tensor, node: Node, slot: int | None = None) -> Cell:
        """Registers fresh memory whose value is `node`."""
        cell = Cell(fake, Root(fake, node, slot=slot), node)
        self._cells[id(fake)] = cell
        return cell

    def new_view(self, fake: torch.Tensor, parent: Cell, step: ViewStep, node: Node) -> Cell:
        """Registers a view of `parent` whose present value is `node`."""
        cell = Cell(fake, parent.root, node, parent, step, parent.root.writes)
        self._cells[id(fake)] = cell
        return cell

    def turn_into_view(self, cell: Cell, before: torch.Tensor, step: ViewStep, node: Node) -> None:
        """The cell's fake changed its sizes in place: it is now a view of `before`, which takes over the cell."""
        fake = cell.fake
        cell.fake = before
        self._cells[id(before)] = cell
        self.new_view(fake, cell, step, node)
        if cell.root.fake is fake:
            cell.root.fake = None  # autograd no longer has a handle on the memory as it was

    def read(self, cell: Cell) -> Node:
        """The node of the cell's present value."""
        root = cell.root
        if cell.seen != root.writes:
            cell.node = root.node if cell.parent is None else self._replay(cell)
            cell.seen = root.writes
        return cell.node

    def _replay(self, cell: Cell) -> Node:
        parent, step = self.read(cell.parent), cell.step
        if step.target in IDENTITY_VIEWS:
            return parent
        node = self._emit(PHYSICAL.get(step.target, step.target), parent, *step.args, **dict(step.kwargs))
        return node if step.index is None else self._emit_item(node, step.index)

    def _emit_item(self, node: Node, index: int) -> Node:
        import operator

        return self._emit(operator.getitem, node, index)

    def write(self, cell: Cell, node: Node) -> None:
        """The memory that `cell` shows now holds `node`; dtype, shape and layout are brought to the cell's own."""
        values = [(cell, fit(self._emit, node, cell.fake))]
        while values[-1][0].parent is not None:
            child, new = values[-1]
            parent = child.parent
            old = self.read(parent)
            rule = WRITE_THROUGH.get(child.step.target)
            if rule is None:
                self._check_strided(child)
                whole = by_strides(self._emit, old, new, child.step, child.fake)
            else:
                whole = rule(self._emit, old, new, child.step)
            values.append((parent, fit(self._emit, whole, parent.fake)))
        root = cell.root
        root.node = values[-1][1]
        root.writes += 1
        for written, value in values:
            written.node, written.seen = value, root.writes

    def _check_strided(self, cell: Cell) -> None:
        parent = cell.parent.fake
        plain = cell.parent.parent is None and parent.is_contiguous() and parent.storage_offset() == 0
        if not plain or parent.dtype != cell.fake.dtype:
            raise FunctionalizationError(f"a write through the view op {cell.step.target} has no mutation-free form")

    def steps(self, cell: Cell) -> tuple[ViewStep, ...]:
        """The view ops from the root down to the cell."""
        found: list[ViewStep] = []
        while cell.parent is not None:
            found.append(cell.step)
            cell = cell.parent
        return tuple(reversed(found))


def fit(emit: Emit, node: Node, like: torch.Tensor) -> Node:
    """`node` in the dtype, device, shape and (where it is dense) layout of `like`."""
    value = node.meta["val"]
    if value.dtype != like.dtype or value.device != like.device:
        node = emit(aten._to_copy.default, node, dtype=like.dtype, device=like.device)
    if node.meta["val"].spec.sizes != like.spec.sizes:
        node = emit(aten.expand.default, node, list(like.shape))
    if same_layout(node.meta["val"], like):
        return node
    order = dense_order(like)
    if order is None:
        return node
    if list(order) == sorted(order):
        return emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    back = [order.index(i) for i in range(len(order))]
    node = emit(aten.permute.default, node, list(order))
    node = emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    return emit(aten.permute.default, node, back)


def same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal strides wherever the size is not one."""
    pairs = zip(a.spec.sizes, a.spec.strides, b.spec.strides, strict=True)
    return all(size == 1 or mine == other for size, mine, other in pairs)


def dense_order(fake: torch.Tensor) -> tuple[int, ...] | None:
    """The dims from outermost to innermost when the tensor fills its memory exactly, else None. A dim of size one is where its stride
    says, if there is such a place."""
    sizes, strides = fake.spec.sizes, fake.spec.strides
    left = list(range(len(sizes)))
    inner: list[int] = []
    expected: Any = 1
    while left:
        ones = [d for d in reversed(left) if sizes[d] == 1]
        exact = [d for d in reversed(left) if strides[d] == expected]
        fitting = [d for d in ones if d in exact] or exact or ones
        if not fitting:
            return None
        dim = fitting[0]
        inner.append(dim)
        left.remove(dim)
        expected = expected * sizes[dim]
    return tuple(reversed(inner))
