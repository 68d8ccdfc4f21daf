"""Attention that passes/fuse_attention.py found, as a core."""

from collections.abc import Sequence
from typing import Any

from ..codegen.triton.cores.attention_decode import most_rows
from ..ir.buffer import BufferLayout, BufferView, CoreNode
from ..ir.index import Size
from .layout import dense_strides
from .registry import lowers
from .value import Strided
from .view import expand, reshape, select


@lowers("attention_decode")
def attention_decode(
    low: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    highest: Any,
    distance: float,
    causal: bool,
    scale: float,
    written: bool,
    zeroed: bool,
    fill: float | None,
) -> Any:
    """Keys, values and mask where they lie, one head for all that repeat it; what is not in memory is computed into it."""
    q = _in_memory(low, q)
    k, v = (_in_memory(low, x) for x in _each_head_once(low, k, v, q.sizes))
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
            (
                *(("distance", distance), ("causal", causal), ("scale", scale)),
                *(("written", written), ("zeroed", zeroed), ("fill", fill)),
            ),
            q.device,
            low.origins(),
        )
    )
    return result


def _each_head_once(low: Any, k: Any, v: Any, query_sizes: Sequence[Size]) -> tuple[Any, Any]:
    """Keys and values of (batch, heads, keys, width) without heads that repeat the one before, as far as a program can hold their rows."""
    heads = k.sizes[1]
    rows = query_sizes[1] // heads * query_sizes[2]
    most = most_rows(max(k.sizes[3], v.sizes[3])) // rows
    for times in range(min(heads, most), 1, -1):
        if heads % times == 0:
            grouped = [reshape(low, x, (x.sizes[0], heads // times, times, *x.sizes[2:])) for x in (k, v)]
            if all(low.is_repeated(x, 2) for x in grouped):
                first, second = (select(low, x, 2, 0) for x in grouped)
                return first, second
    return k, v


def _in_memory(low: Any, x: Any) -> Strided:
    return low.at_one_place(low.place(x) or x)  # type: ignore[no-any-return]


def _view(at: Strided, sizes: Sequence[Size] | None = None, strides: Sequence[Size] | None = None) -> BufferView:
    return BufferView(at.buffer, tuple(sizes or at.sizes), tuple(strides or at.strides), at.offset)


def _grouped(at: Strided, groups: int) -> BufferView:
    """(batch, heads, ...) as (batch, groups, heads of a group, ...)."""
    (batch, heads, *sizes), (over, head, *strides) = at.sizes, at.strides
    members = heads // groups
    return _view(at, (batch, groups, members, *sizes), (over, head * members, head, *strides))


__all__ = ["attention_decode"]
