"""Operands of calls to ATen overloads and custom ops: they lie in memory as eager's do.

Such a kernel may look at the strides, or refuse some: attention on a GPU wants the rows of its bias to start at multiples of
16 bytes, so eager pads a mask, slices the padding off and broadcasts the rest over the heads. What such a view is taken of
is computed into memory, and the kernel gets a window on that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import _torch
from .layout import dense_strides, strides_equal
from .registry import VIEWS
from .value import Strided, TensorValue, settled


def gapped_bases(graph: Any) -> set[Any]:
    """Nodes of which overloads read views that are not dense: broadcasts, and parts of rows."""
    return {
        _base(read) for node in graph.nodes if is_overload(node) for read in _nodes((node.args, node.kwargs)) if _gapped(read)
    }


def is_overload(node: Any) -> bool:
    """Whether the node calls a named overload that leaves its arguments as they are."""
    return isinstance(node.target, _torch.OpOverload) and not _torch.is_mutable(node.target)


def as_in_eager(low: Any, value: Any, read: Any) -> Any:
    """`value`, which the node `read` gives, with tensors laid out as their specs say."""
    if isinstance(read, (tuple, list)):
        return (list if isinstance(read, list) else tuple)(as_in_eager(low, v, r) for v, r in zip(value, read, strict=True))
    if isinstance(read, dict):
        return {k: as_in_eager(low, value[k], r) for k, r in read.items()}
    spec: Any = read.meta.get("spec") if _is_node(read) else None
    value = settled(value)
    if not isinstance(value, TensorValue) or not hasattr(spec, "strides"):
        return value
    at = value if isinstance(value, Strided) and value.buffer in low.images.buffers else low.realize_with(value, spec.strides)
    if at.buffer in low.images.buffers or strides_equal(at.sizes, at.strides, spec.strides):
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


__all__ = ["as_in_eager", "gapped_bases", "is_overload"]
