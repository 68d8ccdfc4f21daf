"""Values that lowering rules pass around: Strided (a window on a buffer), Lazy (a function of indices), and tuples.

A Lazy that is realised later turns every reader that is recorded from then on into a reader of its buffer.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.index import Size, dot, product
from ..ir.scalar_ops import IN_BITS, ops

Index = Sequence[Size]
IndexFn = Callable[[list[Size]], Any]


@dataclasses.dataclass(eq=False)
class TensorValue:
    """What both kinds have."""

    sizes: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    def numel(self) -> Size:
        """Number of elements."""
        return product(self.sizes)

    def load(self, index: Index) -> Any:
        """The element at `index`, recorded with the handler in force."""
        raise NotImplementedError


@dataclasses.dataclass(eq=False)
class Strided(TensorValue):
    """A strided window on a realised buffer."""

    buffer: str
    strides: tuple[Size, ...]
    offset: Size = 0

    cost = 0

    @property
    def reads(self) -> frozenset[str]:
        """The buffer."""
        return frozenset((self.buffer,))

    def load(self, index: Index) -> Any:
        """A load."""
        return ops.load(self.buffer, dot(index, self.strides, self.offset), IN_BITS.get(self.dtype, self.dtype))

    def window(self, sizes: Sequence[Size], strides: Sequence[Size], offset: Size) -> "Strided":
        """Another window on the same buffer."""
        return Strided(tuple(sizes), self.dtype, self.device, self.buffer, tuple(strides), offset)


@dataclasses.dataclass(eq=False)
class Lazy(TensorValue):
    """Not in memory: `inner(index)` computes an element. `strides` is the layout to use if it ever is."""

    inner: IndexFn
    cost: int
    reads: frozenset[str]
    strides: tuple[Size, ...] | None = None
    realized: Strided | None = None
    base: "Lazy | None" = None
    """The value of which this is a rearrangement with equally many elements."""
    narrow: "Lazy | None" = None
    """The value of fewer bytes of which this is an exact conversion."""
    origin: str | None = None
    """The call of the program that it is the result of."""

    def load(self, index: Index) -> Any:
        """Computes the element, once per index and recording."""
        if self.realized is not None:
            return self.realized.load(index)
        key = (id(self), tuple(index))
        memo = ops.memo
        found = memo.get(key)
        if found is None:
            found = memo[key] = (self.inner(list(index)), self)
            if self.origin is not None:
                ops.origins[self.origin] = None
        return found[0]


def pointwise(
    sizes: Sequence[Size],
    dtype: torch.dtype,
    device: torch.device,
    inner: IndexFn,
    inputs: Sequence[TensorValue],
    cost: int = 1,
    strides: Sequence[Size] | None = None,
) -> Lazy:
    """A Lazy whose cost and reads follow from its inputs."""
    reads: frozenset[str] = frozenset()
    for value in inputs:
        value = settled(value)
        reads |= value.reads
        cost += value.cost
    return Lazy(tuple(sizes), dtype, device, inner, cost, reads, tuple(strides) if strides is not None else None)


def settled(value: Any) -> Any:
    """The buffer window of a Lazy that has been realised; anything else as it is."""
    if isinstance(value, Lazy) and value.realized is not None:
        return value.realized
    return value
