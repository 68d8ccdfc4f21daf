"""Operands of calls to ATen overloads and custom ops: they lie in memory as eager's do.

Such a kernel may look at the strides, or refuse some: attention on a GPU wants the rows of its bias to start at multiples of
16 bytes, so eager pads a mask, slices the padding off and broadcasts the rest over the heads. What such a view is taken of
is computed into memory, and the kernel gets a window on that. Images that lie channels-last here only (ImageLayouts) stay so
for torch's own kernels that draw no random numbers: their results do not depend on it. Random numbers fill memory in its order,
and a custom op may read the bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from .. import _torch
from ..ir.index import Size, same
from ..product_costs import ROW_BYTES
from .layout import dense_strides, strides_equal
from .registry import VIEWS
from .row_padding import prim_name
from .value import Strided, TensorValue, settled
from .view import reshape, select

WINDOWS: Mapping[str, range] = {
    "aten::_scaled_dot_product_flash_attention": range(3),
    "aten::_scaled_dot_product_cudnn_attention": range(3),
    "aten::_scaled_dot_product_efficient_attention": range(3),
    "aten::_scaled_dot_product_flash_attention_for_cpu": range(3),
    "aten::_scaled_dot_product_flash_attention_backward": range(1, 4),
    "aten::_scaled_dot_product_cudnn_attention_backward": range(1, 4),
    "aten::_scaled_dot_product_efficient_attention_backward": range(1, 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": range(1, 4),
}
"""Overloads -> which of their operands may be windows on something larger: their kernels take any strides but the last.

In such a window, of a product that gives query, key and value at once, eager has them too, where it copies nothing. The kernels lay
their results out by the order of the operands' strides, or always alike.
"""


GROUPED: Mapping[str, tuple[int, int]] = {
    "aten::_scaled_dot_product_flash_attention": (1, 2),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (1, 2),
}
"""Overloads -> their keys and values, which may have fewer heads than the queries: copies that only repeat heads are not made for them. Results
lie as the queries do."""


REORDERED = frozenset(("permute", "reshape", "squeeze", "unsqueeze", "clone", "contiguous"))
"""Views of the lowering whose results have all elements of their operands, once."""


def gapped_bases(graph: Any) -> set[Any]:
    """Nodes of which overloads read views that are not dense: broadcasts, and parts of rows."""
    return {
        _base(read) for node in graph.nodes if is_overload(node) for read in _nodes((node.args, node.kwargs)) if _gapped(read)
    }


def is_overload(node: Any) -> bool:
    """Whether the node calls a named overload that leaves its arguments as they are."""
    return isinstance(node.target, _torch.OpOverload) and not _torch.is_mutable(node.target)


def shared_operands(graph: Any, loops: Collection[Any]) -> set[Any]:
    """Nodes whose whole values several library calls read, in any order of dims: once in memory, they are a window for each. Without that
    every call would have them computed anew, a matrix and its transpose by kernels that do the same. loops: products that are none."""
    calls: dict[Any, int] = {}
    found = set()
    for node in reversed(graph.nodes):
        calls[node] = sum(calls[u] if prim_name(u) in REORDERED else u not in loops and _is_library(u) for u in node.users)
        if calls[node] > 1 and node.op == "call_function" and prim_name(node) not in VIEWS:
            found.add(node)
    return found


def _is_library(node: Any) -> bool:
    return node.op == "call_function" and (prim_name(node) is None or node.target.kind.value == "library")


def operands(low: Any, node: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of the overload that `node` calls."""
    name = _torch.schema_name(node.target)
    windows, grouped = WINDOWS.get(name, ()), _of_groups(low, name, args)
    images = _takes_any_layout(node.target)
    first = [
        grouped[n]
        if n in grouped
        else _window(low, value, read)
        if n in windows
        else as_in_eager(low, value, read, images=images)
        for n, (value, read) in enumerate(zip(args, node.args, strict=True))
    ]
    return tuple(first), as_in_eager(low, dict(kwargs), dict(node.kwargs), images=images)


def _of_groups(low: Any, name: str, args: Sequence[Any]) -> dict[int, Strided]:
    """Keys and values that were only repeated for heads of queries, each head once, by their places."""
    if name not in GROUPED:
        return {}
    at = GROUPED[name]
    k, v = (settled(args[n]) for n in at)
    heads = k.sizes[1]
    if not isinstance(heads, int) or any(x.ndim != 4 or not same(x.sizes[1], heads) for x in (k, v)):
        return {}
    once = each_head_once(low, k, v, heads)
    if once[0].sizes[1] == heads:
        return {}
    places = [low.place(x) for x in once]
    fit = [p is not None and same(p.strides[-1], 1) and _starts_aligned(low, p) for p in places]
    return {n: p if fits else low.realize(x) for n, x, p, fits in zip(at, once, places, fit, strict=True)}


def each_head_once(low: Any, k: Any, v: Any, most: int) -> tuple[Any, Any]:
    """Keys and values of (batch, heads, keys, width) without heads that repeat the one before, up to so many times."""
    heads = k.sizes[1]
    for times in range(min(heads, most), 1, -1):
        if heads % times == 0:
            grouped = [reshape(low, x, (x.sizes[0], heads // times, times, *x.sizes[2:])) for x in (k, v)]
            if all(low.is_repeated(x, 2) for x in grouped):
                first, second = (select(low, x, 2, 0) for x in grouped)
                return first, second
    return k, v


def _window(low: Any, value: Any, read: Any) -> Any:
    """`value` where it lies, if the kernel takes that and gives its result in the same layout as for a copy."""
    spec = read.meta["spec"]
    at = low.place(value) if "output" not in low.row_padding.readers[read] else None
    if at is None or not same(at.strides[-1], 1) or not _starts_aligned(low, at):
        return as_in_eager(low, value, read)
    order = _axis_order(at.sizes, at.strides)
    return at if order is not None and order == _axis_order(spec.sizes, spec.strides) else as_in_eager(low, value, read)


def _starts_aligned(low: Any, at: Strided) -> bool:
    """Whether every row starts at a multiple of 16 bytes, as in memory of its own."""
    unit = ROW_BYTES // at.dtype.itemsize
    return all(isinstance(s, int) and s % unit == 0 for s in (*at.strides[:-1], at.offset, low.buffers[at.buffer].offset))


def _axis_order(sizes: Sequence[Size], strides: Sequence[Size]) -> list[int] | None:
    """Axes of more than one element, the one with the longest steps first; None where steps are not known, or equal."""
    steps = {n: t for n, (s, t) in enumerate(zip(sizes, strides, strict=True)) if not same(s, 1)}
    known = {n: t for n, t in steps.items() if isinstance(t, int) and t > 0}
    if len(known) < len(steps) or len(set(known.values())) < len(known):
        return None
    return sorted(known, key=lambda n: -known[n])


def _takes_any_layout(target: Any) -> bool:
    """Whether the overload gives the same from images that lie channels-last where eager's do not."""
    return _torch.schema_name(target).startswith("aten::") and torch.Tag.nondeterministic_seeded not in target.tags


def as_in_eager(low: Any, value: Any, read: Any, *, images: bool = False) -> Any:
    """`value`, which the node `read` gives, with tensors laid out as their specs say. images: as they lie, channels-last too."""
    if isinstance(read, (tuple, list)):
        parts = (as_in_eager(low, v, r, images=images) for v, r in zip(value, read, strict=True))
        return (list if isinstance(read, list) else tuple)(parts)
    if isinstance(read, dict):
        return {k: as_in_eager(low, value[k], r, images=images) for k, r in read.items()}
    spec: Any = read.meta.get("spec") if _is_node(read) else None
    value = settled(value)
    if not isinstance(value, TensorValue) or not hasattr(spec, "strides"):
        return value
    kept = low.images.buffers if images else frozenset()
    at = value if isinstance(value, Strided) and value.buffer in kept else low.realize_with(value, spec.strides)
    if at.buffer in kept or strides_equal(at.sizes, at.strides, spec.strides):
        return at
    return low.strided_copy(at, spec.strides)


def _is_node(arg: Any) -> bool:
    return hasattr(arg, "op") and hasattr(arg, "users")


def _nodes(arg: Any) -> Iterator[Any]:
    if _is_node(arg):
        yield arg
    elif isinstance(arg, (tuple, list)):
        for a in arg:
            yield from _nodes(a)
    elif isinstance(arg, dict):
        yield from _nodes(tuple(arg.values()))


def _gapped(node: Any) -> bool:
    spec = node.meta.get("spec")
    return hasattr(spec, "strides") and not strides_equal(spec.sizes, dense_strides(spec.sizes, spec.strides), spec.strides)


def _base(node: Any) -> Any:
    while node.op == "call_function" and getattr(node.target, "name", None) in VIEWS and hasattr(node.target, "family"):
        node = node.args[0]
    return node


__all__ = ["WINDOWS", "as_in_eager", "gapped_bases", "is_overload", "operands", "shared_operands"]
