"""Attention that passes/fuse_attention.py found, as a core."""

from collections.abc import Sequence
from typing import Any

from ..ir.buffer import BufferLayout, BufferView, CoreNode
from ..ir.index import Size
from .layout import dense_strides
from .registry import lowers
from .value import Strided
from .view import expand


@lowers("attention_decode")
def attention_decode(low: Any, q: Any, k: Any, v: Any, mask: Any, highest: Any, causal: bool, scale: float) -> Any:
    """Keys, values and mask where they lie; what is not in memory is computed into it."""
    q, k, v = (_in_memory(low, x) for x in (q, k, v))
    batch, heads, queries, _ = q.sizes
    groups = k.sizes[1]

    def of_scores(x: Any, keys: Size) -> BufferView | None:
        return None if x is None else _grouped(expand(low, _in_memory(low, x), (batch, heads, queries, keys)), groups)

    masks = of_scores(mask, k.sizes[2]), of_scores(highest, 1)
    sizes = (*q.sizes[:3], v.sizes[3])
    result = low.whole(low.new_buffer(BufferLayout(q.dtype, q.device, sizes, dense_strides(sizes, low.spec.strides))))
    low.add_node(
        CoreNode(
            f"core{len(low.nodes)}",
            "attention_decode",
            (_grouped(q, groups), _view(k), _view(v), *masks),
            (_grouped(result, groups),),
            (("causal", causal), ("scale", scale)),
            q.device,
            low.origins(),
        )
    )
    return result


def _in_memory(low: Any, x: Any) -> Strided:
    return low.place(x) or low.realize(x)


def _view(at: Strided, sizes: Sequence[Size] | None = None, strides: Sequence[Size] | None = None) -> BufferView:
    return BufferView(at.buffer, tuple(sizes or at.sizes), tuple(strides or at.strides), at.offset)


def _grouped(at: Strided, groups: int) -> BufferView:
    """(batch, heads, ...) as (batch, groups, heads of a group, ...)."""
    (batch, heads, *sizes), (over, head, *strides) = at.sizes, at.strides
    members = heads // groups
    return _view(at, (batch, groups, members, *sizes), (over, head * members, head, *strides))


__all__ = ["attention_decode"]
