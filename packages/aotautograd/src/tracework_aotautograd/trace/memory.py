"""Memory while recording: one current value per piece of memory, views made again from it.

A Root is memory that an op (or the caller) made; it holds the node of its present value and counts its writes. A Cell is one fake
tensor: its root, and, when it is a view, its parent cell and the view op between them. Reading a cell whose root was written since replays the
view from the parent's present value; writing a cell carries the new value up to the root.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from tracework_primops import FakeTensor

from ..errors import FunctionalizationError
from ..signature import ViewStep
from .views import IDENTITY_VIEWS, PHYSICAL, WRITE_THROUGH, Emit, by_strides

aten = torch.ops.aten


@dataclass(eq=False)
class Root:
    """Memory with one present value."""

    fake: FakeTensor | None  # None after `x.t_()`
    node: Node
    writes: int = 0
    slot: int | None = None  # the place of the graph's input, for memory that the caller owns
    is_shared: bool = False  # whether several inputs show parts of it
    read_through_older: bool = False  # a view that was there before a write has been read since


@dataclass(eq=False)
class Cell:
    """One fake tensor: `node` is its value as of `seen` writes to the root. made: how many writes there were when it came into being.

    slot: of an input. part_of: of one that shows a part of shared memory, what it is a view of, though not to autograd, and by which op.
    """

    fake: FakeTensor
    root: Root
    node: Node
    parent: "Cell | None" = None
    step: ViewStep | None = None
    seen: int = 0
    made: int = 0
    slot: int | None = None
    part_of: "tuple[Cell, ViewStep] | None" = None

    @property
    def view(self) -> "tuple[Cell, ViewStep] | None":
        """What it is a view of, and by which op; None for one that shows its memory itself."""
        return self.part_of if self.parent is None or self.step is None else (self.parent, self.step)

    @property
    def is_older(self) -> bool:
        """Whether it is a view, and there was a write to the memory since it is there."""
        return self.parent is not None and self.made != self.root.writes


@dataclass(frozen=True)
class Former:
    """A value with a history that was written over, or that turned in place."""

    spec: Any
    node: Node
    grad_fn: Any
    output_nr: int


class Memory:
    """All cells of one trace. `emit(op, *args, **kwargs)` appends an op and returns its node with meta["val"]."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._cells: dict[int, Cell] = {}
        self.former: list[Former] = []
        self.places: dict[int, tuple[int, int]] = {}
        """Slot of an input -> where its tensor begins in its memory, where the graph depends on it, and after how many elements more it
        does the same, 0 for never."""

    def find(self, fake: torch.Tensor) -> Cell | None:
        """The cell of a fake, or None when it was not made in this trace."""
        return self._cells.get(id(fake))

    def fresh(self) -> list[Cell]:
        """The cells of memory that the graph made."""
        return [c for c in self._cells.values() if c.root.slot is None]

    def views(self) -> list[Cell]:
        """The cells of views of memory that the graph has not written to."""
        return [c for c in self._cells.values() if c.parent is not None and not c.root.writes]

    def inputs(self) -> list[Cell]:
        """The cells of memory that the caller owns."""
        return [c for c in self._cells.values() if c.root.slot is not None and c.parent is None]

    def present(self, node: Node) -> torch.Tensor | None:
        """The tensor that a node is the present value of."""
        cell = self.find(node.meta["val"])
        found = [cell] if cell is not None else [c for c in self._cells.values() if c.root.node is node and c.parent is None]
        return next((c.fake for c in found if c.node is node and c.seen == c.root.writes), None)

    def is_viewed(self, cell: Cell) -> bool:
        """Whether the memory of a cell has views beside those that it has turned into one after the other."""
        count = len(self.steps(cell))
        return sum(c.root is cell.root and c.parent is not None for c in self._cells.values()) > count

    def new_root(self, fake: FakeTensor, node: Node, slot: int | None = None) -> Cell:
        """Registers fresh memory whose value is `node`."""
        cell = Cell(fake, Root(fake, node, slot=slot), node, slot=slot)
        self._cells[id(fake)] = cell
        return cell

    def share(self, cells: Sequence[Cell], row: Cell, offsets: Sequence[int]) -> None:
        """Makes inputs that show memory of their own parts of a row. offsets: of their first elements."""
        row.root.is_shared = True
        for cell, offset in zip(cells, offsets, strict=True):
            *steps, last = steps_to_part(cell.fake, offset)
            parent = row
            for step in steps:
                node = self._emit(step.target, self.read(parent), *step.args)
                parent = self.new_view(node.meta["val"], parent, step, node)
            cell.root, cell.part_of = row.root, (parent, last)
            cell.node = self._emit(last.target, self.read(parent), *last.args)

    def new_view(self, fake: FakeTensor, parent: Cell, step: ViewStep, node: Node) -> Cell:
        """Registers a view of `parent` whose present value is `node`."""
        cell = Cell(fake, parent.root, node, parent, step, parent.root.writes, parent.root.writes)
        self._cells[id(fake)] = cell
        return cell

    def turn_into_view(self, cell: Cell, before: FakeTensor, step: ViewStep, node: Node) -> None:
        """The cell's fake changed its sizes in place: it is now a view of `before`, which takes over the cell."""
        fake = cell.fake
        if step.tracked and fake.grad_fn is not None:
            self.former.append(Former(before.spec, self.read(cell), fake.grad_fn, fake.output_nr))
        cell.fake = before
        self._cells[id(before)] = cell
        self.new_view(fake, cell, step, node)
        if cell.root.fake is fake:
            cell.root.fake = None  # autograd no longer has a handle on the memory as it was

    def read(self, cell: Cell) -> Node:
        """The node of the cell's present value."""
        root = cell.root
        root.read_through_older |= cell.is_older
        if cell.seen != root.writes:
            cell.node = root.node if (view := cell.view) is None else self._replay(*view)
            cell.seen = root.writes
        return cell.node

    def _replay(self, parent: Cell, step: ViewStep) -> Node:
        if step.target is aten.as_strided.default and (parent.view is not None or not parent.root.is_shared):
            return self.window(parent, *step.args, **dict(step.kwargs))
        value = self.read(parent)
        if step.target in IDENTITY_VIEWS:
            return value
        node = self._emit(PHYSICAL.get(step.target, step.target), value, *step.args, **dict(step.kwargs))
        return node if step.index is None else self._emit(operator.getitem, node, step.index)

    def window(self, cell: Cell, size: Any, stride: Any, storage_offset: Any = None) -> Node:
        """What as_strided reads of the memory behind a cell, which is not only what the cell shows."""
        whole = self._whole(cell, "as_strided")
        root = cell.root
        if root.is_shared:
            if storage_offset is not None:
                raise FunctionalizationError("as_strided with an offset in memory that inputs share has no mutation-free form")
            storage_offset = cell.fake.storage_offset()
        if root.node.op != "placeholder" and dense_order(whole.fake) is None:
            raise FunctionalizationError(
                "as_strided of memory that no tensor of the graph shows all of has no mutation-free form"
            )
        node = self.read(whole)
        if storage_offset is None and cell is whole:
            return self._emit(aten.as_strided.default, node, size, stride)
        offset = cell.fake.storage_offset() if storage_offset is None else storage_offset
        start = self.note_place(whole)
        if root.node.op != "placeholder" and start:
            # some operators begin where their operand does, a copy at the begin of its memory
            node = self._emit(aten.clone.default, node)
            offset = offset - start
            if offset < 0:
                raise FunctionalizationError(
                    "as_strided of what lies before an input that is written to has no mutation-free form"
                )
        return self._emit(aten.as_strided.default, node, size, stride, offset)

    def note_place(self, cell: Cell, period: int = 0) -> Any:
        """Where the memory that a cell shows begins in its storage. Where it is an input's, the graph holds for this begin, and for those
        that are a multiple of `period` elements away."""
        while cell.parent is not None:
            cell = cell.parent
        if cell.root.is_shared:
            if period:
                raise FunctionalizationError("pairs of elements of memory that inputs share have no mutation-free form")
            return 0  # where parts begin is counted from where the row does
        start = cell.fake.storage_offset()
        if (slot := cell.root.slot) is not None:
            noted = self.places.get(slot)
            self.places[slot] = int(start), math.lcm(period, noted[1]) if noted else period
        return start

    def note_pairs(self, cell: Cell) -> None:
        """A cell's elements are taken in pairs, which eager does where its place is even."""
        whole = cell
        while whole.parent is not None:
            whole = whole.parent
        if whole.fake.dtype.itemsize <= cell.fake.dtype.itemsize:  # what is wider begins at an even place always
            self.note_place(whole, 2)

    def _whole(self, cell: Cell, op: Any) -> Cell:
        """The cell of all the memory, when its elements are those of `cell`."""
        whole = cell
        while (view := whole.view) is not None:
            whole, step = view
            if step.target in PHYSICAL:
                raise FunctionalizationError(f"{op} of a view that negates or conjugates has no mutation-free form")
        if whole.fake.dtype != cell.fake.dtype:
            raise FunctionalizationError(f"{op} of memory that is viewed as another dtype has no mutation-free form")
        return whole

    def write(self, cell: Cell, node: Node) -> None:
        """The memory that `cell` shows now holds `node`; dtype, shape and layout are brought to the cell's own."""
        memory = cell.root.fake
        if memory is not None and cell.root.slot is not None and dense_order(memory) is None and overlaps_itself(memory):
            raise FunctionalizationError("a write to an input that shows one place several times has no mutation-free form")
        values = [(cell, fit(self._emit, node, cell.fake))]
        if any(step.target not in WRITE_THROUGH for step in self._all_steps(cell)):
            values.append(self._scattered(cell, values[0][1]))
        while (view := values[-1][0].view) is not None:
            parent, step = view
            whole = WRITE_THROUGH[step.target](self._emit, self.read(parent), values[-1][1], step)
            values.append((parent, fit(self._emit, whole, parent.fake)))
        root = cell.root
        if root.slot is None and root.fake is not None and root.fake.grad_fn is not None:
            self.former.append(Former(root.fake.spec, root.node, root.fake.grad_fn, root.fake.output_nr))
        root.node = values[-1][1]
        root.writes += 1
        for written, value in values:
            written.node, written.seen = value, root.writes

    def _scattered(self, cell: Cell, new: Node) -> tuple[Cell, Node]:
        """The memory behind a cell after a write through views without a rule, which may show one place several times."""
        whole = self._whole(cell, "a write")
        if not whole.fake.is_contiguous() or whole.fake.storage_offset() != 0:
            raise FunctionalizationError("a write through overlapping windows of memory with gaps has no mutation-free form")
        if overlaps_itself(cell.fake):
            raise FunctionalizationError("a write to a view that shows one place several times has no mutation-free form")
        self.note_place(whole)
        return whole, fit(self._emit, by_strides(self._emit, self.read(whole), new, cell.fake), whole.fake)

    def steps(self, cell: Cell) -> tuple[ViewStep, ...]:
        """The view ops from an input, or from what the graph made, down to the cell."""
        found: list[ViewStep] = []
        while cell.parent is not None and cell.step is not None:
            found.append(cell.step)
            cell = cell.parent
        return tuple(reversed(found))

    def _all_steps(self, cell: Cell) -> list[ViewStep]:
        """Those, and what leads to the part of shared memory that an input shows; the last one first."""
        found: list[ViewStep] = []
        while (view := cell.view) is not None:
            cell, step = view
            found.append(step)
        return found

    def input_of(self, cell: Cell) -> int | None:
        """The slot of the input that a cell is, or a view of."""
        while cell.parent is not None:
            cell = cell.parent
        return cell.slot


def steps_to_part(fake: FakeTensor, offset: int) -> list[ViewStep]:
    """The view ops that give a tensor with the sizes and strides of `fake` from a row, where its first element has this offset."""
    order = dense_order(fake)
    if order is None:
        return [ViewStep(aten.as_strided.default, (list(fake.shape), list(fake.stride()), offset))]
    shape = [fake.shape[dim] for dim in order]
    steps = [
        ViewStep(aten.slice.Tensor, (0, offset, offset + math.prod(shape))),
        ViewStep(aten.view.default, (shape,)),
    ]
    if list(order) != sorted(order):
        steps.append(ViewStep(aten.permute.default, ([order.index(dim) for dim in range(len(order))],)))
    return steps


def fit(emit: Emit, node: Node, like: FakeTensor) -> Node:
    """`node` in the dtype, device, shape and (where it is dense) layout of `like`."""
    value = node.meta["val"]
    if value.dtype != like.dtype or value.device != like.device:
        node = emit(aten._to_copy.default, node, dtype=like.dtype, device=like.device)
    if node.meta["val"].spec.sizes != like.spec.sizes:
        node = emit(aten.expand.default, node, list(like.shape))
    order = dense_order(like)
    if order is None or node.meta["val"].spec.strides == like.spec.strides:
        return node
    if not same_layout(node.meta["val"], like):
        turned = list(order) != sorted(order)
        node = emit(aten.permute.default, node, list(order)) if turned else node
        node = emit(aten.clone.default, node, memory_format=torch.contiguous_format)
        node = emit(aten.permute.default, node, [order.index(i) for i in range(len(order))]) if turned else node
    if node.meta["val"].spec.strides == like.spec.strides:
        return node
    return emit(aten.as_strided.default, node, list(like.shape), list(like.stride()))  # dims of size one


def overlaps_itself(fake: torch.Tensor) -> bool:
    """Whether two elements may be one place in memory: whether some stride does not lead past all that smaller ones reach."""
    reach: Any = 1
    for stride, size in sorted((stride, size) for size, stride in zip(fake.shape, fake.stride()) if size != 1):
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def same_layout(a: FakeTensor, b: FakeTensor) -> bool:
    """Equal strides wherever the size is not one."""
    pairs = zip(a.spec.sizes, a.spec.strides, b.spec.strides, strict=True)
    return all(size == 1 or mine == other for size, mine, other in pairs)


def dense_order(fake: FakeTensor) -> tuple[int, ...] | None:
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
