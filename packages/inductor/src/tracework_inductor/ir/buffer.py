"""Buffers: named memory that loops and library calls read and write."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from .body import LoopBody
from .index import Size, contiguous_strides, product
from .scalar_ops import IN_BITS

IN_PARTS: Mapping[torch.dtype, torch.dtype] = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Complex dtypes whose memory loops read and write, and the dtype of the parts."""

FOLDED = "folded"
"""Of a node's meta: the origins of others that it computes, too, where a pass has folded them into it."""


@dataclasses.dataclass(frozen=True)
class BufferLayout:
    """dtype, device, sizes and strides of a buffer; element [i, j] is at sum(index * stride).

    Loops see memory of a complex dtype as its parts, with a last axis of size 2, and of a dtype in IN_BITS as the bits.
    """

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]

    @staticmethod
    def dense(dtype: torch.dtype, device: torch.device, sizes: tuple[Size, ...]) -> "BufferLayout":
        """A row-major layout."""
        return BufferLayout(dtype, device, tuple(sizes), contiguous_strides(sizes))

    @property
    def in_loops(self) -> "BufferLayout":
        """The same memory as loops load and store it."""
        if self.dtype in IN_BITS:
            return dataclasses.replace(self, dtype=IN_BITS[self.dtype])
        if self.dtype not in IN_PARTS:
            return self
        return BufferLayout(IN_PARTS[self.dtype], self.device, (*self.sizes, 2), (*[s * 2 for s in self.strides], 1))

    def elements(self) -> Size:
        """How many elements of memory it takes."""
        if any(isinstance(s, int) and s == 0 for s in self.sizes):
            return 0
        extent: Size = 1
        for size, stride in zip(self.sizes, self.strides, strict=True):
            extent = extent + (size - 1) * stride
        return extent

    def numel(self) -> Size:
        """How many elements it has."""
        return product(self.sizes)


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A name with a layout.

    kind: "input", "constant", "computed" (a loop node writes it), "extern" (a library call makes it),
    "alias" (the same memory as `base`, after a write to it).
    """

    name: str
    layout: BufferLayout
    kind: str
    base: str | None = None
    offset: Size = 0


@dataclasses.dataclass(frozen=True)
class LoopNode:
    """One loop nest before fusion: a recorded body that stores to `writes`.

    domain: "pointwise", "reduction" (body.reduction_axes are reduced; results are `define`d names of buffers),
    "scan", "sort" (of a row as a whole), "scatter" (stores to computed positions; nothing may be fused that reads the result), "check"
    (stores nothing: it only checks an index that no other loop reads as a whole).
    """

    name: str
    domain: str
    body: LoopBody
    reads: frozenset[str]
    writes: frozenset[str]
    device: torch.device
    origins: tuple[str, ...] = ()
    mutates: str | None = None
    core: str = ""
    """Of a product: what writes it other than as a loop."""

    @property
    def is_product(self) -> bool:
        """Whether it multiplies matrices."""
        return any(i.op == "reduce" and i.args[1] == "dot" for i in self.body.instructions)

    @property
    def sorts(self) -> bool:
        """Whether it sorts rows."""
        return any(i.op == "argsort" for i in self.body.instructions)

    @property
    def may_raise(self) -> bool:
        """Whether an index that it reads may be out of range, which kernels for the CPU say."""
        return self.device.type == "cpu" and any(True for _ in self.body.checks())


@dataclasses.dataclass(frozen=True)
class BufferView:
    """A strided window on a buffer, as a library call takes it."""

    buffer: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0


NUMBER = "in_memory"
"""Target of what puts a given number into a GPU's memory."""


@dataclasses.dataclass(frozen=True)
class ExternNode:
    """A call of a library kernel.

    target: text that the host program evaluates once, such as "torch.ops.aten.mm.default".
    args, kwargs: nested tuples/dicts of BufferView, sizes, numbers, dtypes, ...
    outputs: names of the buffers that the call's results become, None for results nobody uses.
    out_form: the overload that writes into `out=` buffers (already allocated), or None.
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outputs: tuple[str | None, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    device: torch.device
    tuple_result: bool = False
    out_form: str | None = None
    origins: tuple[str, ...] = ()
    mutates: str | None = None
    reason: str = ""

    @property
    def may_raise(self) -> bool:
        """Whether an eager kernel may refuse data; those that are called by design are products, convolutions and random numbers."""
        return bool(self.reason) and self.mutates is None and not self.target.startswith(ATTENTION)


ATTENTION = "torch.ops.aten._scaled_dot_product_"
"""How the texts of attention kernels begin, which refuse sizes and layouts, but no data."""


@dataclasses.dataclass(frozen=True)
class CoreNode:
    """A computation that a renderer has a text of its own for: `core` is a key of its CORES.

    facts: what else the core is told, as its docstring says.
    """

    name: str
    core: str
    operands: tuple[BufferView | None, ...]
    results: tuple[BufferView, ...]
    facts: tuple[tuple[str, Any], ...]
    device: torch.device
    origins: tuple[str, ...] = ()
    mutates: str | None = None
    may_raise: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """The operands' buffers."""
        return frozenset(o.buffer for o in self.operands if o is not None)

    @property
    def writes(self) -> frozenset[str]:
        """The results' buffers."""
        return frozenset(r.buffer for r in self.results)
