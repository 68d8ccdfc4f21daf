"""Which strides a new buffer gets."""

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.index import Expr, Size, contiguous_strides, same


def strides_equal(sizes: Sequence[Size], a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Equal where it matters: a stride of an axis with at most one element does not."""
    if any(isinstance(s, int) and s == 0 for s in sizes):
        return True
    return all(same(x, y) or (isinstance(s, int) and s <= 1) for s, x, y in zip(sizes, a, b, strict=True))


def dense_strides(sizes: Sequence[Size], wanted: Sequence[Size] | None) -> tuple[Size, ...]:
    """`wanted` if it is a dense layout of some axis order, else row-major."""
    plain = contiguous_strides(sizes)
    if wanted is None or strides_equal(sizes, wanted, plain):
        return plain if wanted is None else tuple(wanted)
    return tuple(wanted) if is_dense(sizes, wanted) else plain


def is_dense(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether the elements are one block of memory, in some order of the axes."""
    left = [(s, t) for s, t in zip(sizes, strides, strict=True) if not same(s, 1)]
    if any(isinstance(s, int) and s == 0 for s, _ in left):
        return False
    expected: Size = 1
    while left:
        found = next((k for k, (_, t) in enumerate(left) if same(t, expected)), None)
        if found is None:
            return False
        expected = expected * left.pop(found)[0]
    return True


def is_static(sizes: Sequence[Size]) -> bool:
    """No symbols."""
    return not any(isinstance(s, Expr) for s in sizes)


def channels_last(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Strides of a batch of images, or of volumes, whose channels lie next to each other."""
    batch, *space, channel = contiguous_strides((sizes[0], *sizes[2:], sizes[1]))
    return (batch, channel, *space)


def is_row_major(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether elements lie in the order of the indices."""
    return strides_equal(sizes, strides, contiguous_strides(sizes))


def meet(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether two indices may have the same place: a step is not longer than all shorter ones together."""
    reach = 0
    for stride, size in sorted((t, s) for s, t in zip(sizes, strides, strict=True) if s != 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


MIN_CONVOLUTIONS = 3
"""With fewer, the changes of layout at the ends of the graph cost more than the convolutions gain."""


class ImageLayouts:
    """Channels-last inside the graph where the library's convolutions are faster so: inference on a CPU.

    Outputs of the graph keep eager's layout. A trained graph comes laid out, forward and backward together.
    """

    def __init__(self, graph: Any, role: str) -> None:
        enough = len([n for n in graph.nodes if self.gains(n)]) >= MIN_CONVOLUTIONS
        self.active = enough and role == "inference"
        self.buffers: set[str] = set()

    @staticmethod
    def gains(node: Any) -> bool:
        """Whether this is a convolution that the library computes faster channels-last."""
        first = FIRST_SETTING.get(getattr(node.target, "name", None) or "")
        return first is not None and _gains(node.meta.get("spec"), node.args[first:])

    def convolution(self, spec: Any, settings: Sequence[Any]) -> bool:
        """Whether this convolution is to be computed channels-last."""
        return self.active and _gains(spec, settings)

    def note(self, buffer: str, layout: Any) -> None:
        """Remembers a new buffer of images with channels last."""
        if self.active and len(layout.sizes) == 4 and not is_row_major(layout.sizes, layout.strides):
            if strides_equal(layout.sizes, layout.strides, channels_last(layout.sizes)):
                self.buffers.add(buffer)

    def strides(self, spec: Any, reads: frozenset[str]) -> tuple[Size, ...]:
        """The layout of a value with this spec that is computed from these buffers."""
        if len(spec.sizes) == 4 and not reads.isdisjoint(self.buffers) and is_row_major(spec.sizes, spec.strides):
            return channels_last(spec.sizes)
        return tuple(spec.strides)


FIRST_SETTING = {"convolution": 3, "packed_convolution": 6}
"""prim -> position of its strides, which padding, dilation and whether it is transposed follow."""


def _gains(spec: Any, settings: Sequence[Any]) -> bool:
    transposed = settings[3] if len(settings) > 3 else True
    return (
        len(getattr(spec, "sizes", ())) == 4
        and spec.device.type == "cpu"
        and spec.dtype in (torch.float32, torch.bfloat16)
        and not transposed
        and (is_row_major(spec.sizes, spec.strides) or strides_equal(spec.sizes, spec.strides, channels_last(spec.sizes)))
    )
