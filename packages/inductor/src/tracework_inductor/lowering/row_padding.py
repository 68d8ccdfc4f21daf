"""Which matrices get padded rows, decided on the graph before anything is lowered.

A GPU's matrix kernels that load 16 bytes at a time need every row to start at a multiple of 16 bytes; a product with one
matrix that does not runs on kernels several times slower. A row that a loop of ours writes, or that the product itself
writes, can be longer than it needs to be at no cost. A matrix that comes from elsewhere has to be copied, and a result
that leaves the graph has to be copied back to eager's strides: that is done where it takes less time than it saves.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..ir.index import Expr, Size, constant_product, contiguous_strides, same
from ..product_costs import COPY, FAST, LAUNCH, ROW_BYTES, SLOWER
from .registry import VIEWS

PRODUCTS: Mapping[str, tuple[int, int]] = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}
"""prim -> positions of its two matrices."""

MARGIN = 1.25
LEAST_GAIN = LAUNCH
"""What a copy has to save besides its own time."""
MOST_PADDING = 8
"""A row grows by at most one part in this many."""

OWN = frozenset(("cat", "pad", "contiguous"))
"""Besides pointwise prims: what a loop of ours writes, in any layout."""


class RowPadding:
    """The decisions for one graph."""

    def __init__(self, graph: Any, apart: Collection[Any] = ()) -> None:
        """`apart`: products that product_pieces.py takes."""
        self.readers = readers(graph)
        self.products: set[Any] = set()
        """Products whose operands are given aligned rows."""
        self.results: dict[Any, tuple[Size, ...]] = {}
        """Product -> strides of its result."""
        self.bases: dict[Any, tuple[Size, ...]] = {}
        """Node that loops of ours compute -> strides of its buffer."""
        for node in graph.nodes:
            if prim_name(node) in PRODUCTS and node not in apart:
                self._consider(node)

    def splits(self, node: Any) -> bool:
        """Whether the bias is added by what reads the product, not by the library, which needs rows without gaps for it."""
        return is_plain(node) and "library" not in self.readers[node]

    def _consider(self, node: Any) -> None:
        spec = node.meta.get("spec")
        operands = [node.args[n] for n in PRODUCTS[node.target.name]]
        specs = [spec, *(o.meta.get("spec") for o in operands)]
        if not all(hasattr(s, "strides") and s.dtype.is_floating_point for s in specs):
            return
        lost = SLOWER.get((spec.device.type, spec.dtype.itemsize))
        if lost is None:
            return
        found = [self._result(node, spec), *(self._operand(o) for o in operands)]
        parts = [p for p in found if p is not None]
        if len(parts) < len(found):
            return
        worst = min(p.aligned for p in parts)
        if worst >= ROW_BYTES:
            if any(p.node is not None for p in parts):
                self.products.add(node)
            return
        fast, count = FAST[spec.device.type, spec.dtype.itemsize], constant_product((*spec.sizes, specs[1].sizes[-1]))
        moving = COPY * sum(map(_size, specs))
        gain = max(count * (fast + lost[worst]), moving) - max(count * fast, moving)
        copied = sum(p.copied_bytes for p in parts)
        if gain <= (LEAST_GAIN + MARGIN * COPY * copied if copied else 0):
            return
        self.products.add(node)
        for part, known in zip(parts, (self.results, self.bases, self.bases), strict=True):
            if part.strides is not None:
                known[part.node] = part.strides

    def _result(self, node: Any, spec: Any) -> "_Part | None":
        sizes, unit = spec.sizes, ROW_BYTES // spec.dtype.itemsize
        if not isinstance(sizes[-1], int) or not _row_major(spec):
            return None
        aligned = row_alignment(sizes, spec.strides, 0, len(sizes) - 1, spec.dtype.itemsize)
        if aligned >= ROW_BYTES:
            return _Part(aligned)
        if not _little_longer(sizes[-1], unit):
            return None
        free = "output" not in self.readers[node] and (prim_name(node) in ("mm", "bmm") or self.splits(node))
        strides = padded_rows(sizes, len(sizes) - 1, unit)
        return _Part(aligned, 0 if free else _traffic(spec), node, strides)

    def _operand(self, node: Any) -> "_Part | None":
        spec = node.meta["spec"]
        unit = ROW_BYTES // spec.dtype.itemsize
        fast = fast_axis(spec.sizes, spec.strides)
        if fast is None:
            return None
        base = _base(node, fast)
        if base is not None and (base in self.bases or (base in self.results and not self._is_split(base))):
            return _Part(ROW_BYTES, 0, base)
        aligned = row_alignment(spec.sizes, spec.strides, spec.offset, fast, spec.dtype.itemsize)
        if aligned >= ROW_BYTES:
            return _Part(aligned)
        row, pitch = spec.sizes[fast], spec.strides[other_axis(fast, spec.sizes)]
        if not isinstance(row, int) or not _little_longer(row, unit) or (isinstance(pitch, int) and pitch < row):
            return None
        strides = self._free_strides(base, unit)
        return _Part(aligned, _traffic(spec)) if strides is None else _Part(aligned, 0, base, strides)

    def _is_split(self, node: Any) -> bool:
        return prim_name(node) in ("addmm", "baddbmm") and self.splits(node)

    def _free_strides(self, base: Any, unit: int) -> tuple[Size, ...] | None:
        if base is None or "output" in self.readers[base]:
            return None
        own = _kind(base) == "pointwise" or prim_name(base) in OWN
        return padded_rows(base.meta["spec"].sizes, base.meta["spec"].ndim - 1, unit) if own else None


class _Part:
    """One matrix of a product: how it is aligned, what aligning it costs, and which node gets which strides for that."""

    def __init__(self, aligned: int, copied_bytes: int = 0, node: Any = None, strides: tuple[Size, ...] | None = None) -> None:
        self.aligned = aligned
        self.copied_bytes = copied_bytes
        self.node = node
        self.strides = strides


def fast_axis(sizes: Sequence[Size], strides: Sequence[Size]) -> int | None:
    """Which of the last two axes has stride 1, or None."""
    last = len(sizes) - 1
    return last if same(strides[last], 1) else last - 1 if same(strides[last - 1], 1) else None


def row_alignment(sizes: Sequence[Size], strides: Sequence[Size], offset: Size, fast: int, itemsize: int) -> int:
    """Bytes, 16 at most, at whose multiples all rows start."""
    found = ROW_BYTES
    steps = [t for n, (s, t) in enumerate(zip(sizes, strides, strict=True)) if n != fast and not same(s, 1)]
    for step in (*steps, offset):
        found = math.gcd(found, _divisor(step) * itemsize)
    return found


def padded_rows(sizes: Sequence[Size], fast: int, unit: int) -> tuple[Size, ...]:
    """Strides of a matrix, or of a batch of them, whose rows along `fast` take a multiple of `unit` elements."""
    row = sizes[fast]
    assert isinstance(row, int)
    strides: list[Size] = [1] * len(sizes)
    step: Size = -(-row // unit) * unit
    for n in (other_axis(fast, sizes), *range(len(sizes) - 3, -1, -1)):
        strides[n] = step
        step = step * sizes[n]
    return tuple(strides)


def other_axis(fast: int, sizes: Sequence[Size]) -> int:
    """Of the last two axes the one that is not `fast`."""
    return 2 * len(sizes) - 3 - fast


def _divisor(step: Size) -> int:
    if not isinstance(step, Expr):
        return step
    affine = step.as_affine()
    return ROW_BYTES if affine is None else math.gcd(affine[0], *affine[1].values())


def _little_longer(row: int, unit: int) -> bool:
    return (-row % unit) * MOST_PADDING <= row


def _traffic(spec: Any) -> int:
    return 2 * _size(spec)


def _size(spec: Any) -> int:
    return spec.dtype.itemsize * constant_product(spec.sizes)


def _row_major(spec: Any) -> bool:
    plain = contiguous_strides(spec.sizes)
    return all(same(s, 1) or same(a, b) for s, a, b in zip(spec.sizes, spec.strides, plain, strict=True))


def is_plain(node: Any) -> bool:
    return all(v == 1 for v in (*node.args[3:], *node.kwargs.values()))


def prim_name(node: Any) -> Any:
    return getattr(node.target, "name", None) if node.op == "call_function" and hasattr(node.target, "family") else None


def _kind(node: Any) -> str | None:
    return node.target.kind.value if prim_name(node) is not None else None


def _base(node: Any, fast: int) -> Any:
    """The node whose rows, along its last axis, are the rows of `node` along `fast`; None if they are cut or joined."""
    row = node.meta["spec"].sizes[fast]
    while True:
        name = prim_name(node)
        if name == "permute":
            fast = node.args[1][fast] % node.meta["spec"].ndim
        elif name == "clone":
            pass
        elif name in ("reshape", "squeeze", "unsqueeze"):
            before, after = node.args[0].meta["spec"], node.meta["spec"]
            if fast != after.ndim - 1 or before.ndim < 2 or not same(before.sizes[-1], row):
                return None
            fast = before.ndim - 1
        else:
            spec = node.meta.get("spec")
            return node if fast == spec.ndim - 1 and spec.ndim >= 2 and _row_major(spec) else None
        node = node.args[0]


def readers(graph: Any) -> dict[Any, frozenset[str]]:
    """node -> what kinds of rules read its value, through views: "output", "library", "loop"."""
    found: dict[Any, frozenset[str]] = {}
    for node in reversed(graph.nodes):
        kinds: set[str] = set()
        for user in node.users:
            if user.op == "output":
                kinds.add("output")
            elif prim_name(user) in VIEWS:
                kinds |= found[user]
            else:
                kinds.add("library" if _kind(user) in (None, "library") else "loop")
        found[node] = frozenset(kinds)
    return found


__all__ = [
    "PRODUCTS",
    "ROW_BYTES",
    "RowPadding",
    "fast_axis",
    "is_plain",
    "other_axis",
    "padded_rows",
    "prim_name",
    "readers",
    "row_alignment",
]
