"""Copies, layouts and writes to graph inputs."""

from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops import prims

from ..given_numbers import is_given_number
from ..ir.buffer import IN_PARTS, NUMBER, BufferLayout
from ..ir.index import Size, dot
from ..ir.scalar_ops import ops
from ..schedule.graph import alias_root
from .float8 import converting
from .layout import dense_strides
from .pointwise import elementwise
from .registry import Refused, lowers
from .value import Strided, pointwise, settled
from .written_inputs import is_whole, newest_name


@lowers("clone", view=True)
def clone(low: Any, x: Any) -> Any:
    """Values are never shared for writing, so a copy is the value itself; the spec's layout is given where asked."""
    if isinstance(x, Strided):
        return elementwise(low, (x,), x.dtype, lambda v: v, 0)
    return x


@lowers("contiguous", view=True)
def contiguous(low: Any, x: Any, strides: Sequence[Size]) -> Any:
    """The value in a given layout."""
    value = elementwise(low, (x,), x.dtype, lambda v: v, 0)
    value.strides = tuple(strides)
    return value


@lowers("device_put")
def device_put(low: Any, x: Any, device: torch.device) -> Any:
    """A given number, which the host program writes there; other memory is the library's to copy."""
    if low.node.target is not prims.device_put or not is_given_number(low.node):
        raise Refused("a copy between memories")
    return low.extern(NUMBER, (x, device))


@lowers("view_as_real")
def view_as_real(low: Any, x: Any) -> Any:
    """Reads of the parts of complex numbers, which are all in memory."""

    def inner(index: list[Size]) -> Any:
        *at, part = index
        return ops.load(x.buffer, dot(at, x.strides, x.offset) * 2 + part, IN_PARTS[x.dtype])

    return pointwise((*x.sizes, 2), IN_PARTS[x.dtype], x.device, inner, (x,), 0)


@lowers("view_as_complex")
def view_as_complex(low: Any, x: Any) -> Any:
    """Complex memory, filled with the parts."""
    spec = low.spec
    layout = BufferLayout(spec.dtype, spec.device, tuple(spec.sizes), dense_strides(spec.sizes, spec.strides))
    buffer = low.new_buffer(layout)
    low.pointwise_node(buffer, settled(x).load, x.sizes, lambda index: dot(index, layout.in_loops.strides))
    return low.whole(buffer)


@lowers("copy_into")
def copy_into(low: Any, dst: Any, src: Any) -> Any:
    """Overwrites a graph input, after everything that reads its old value."""
    dst = settled(dst)
    if not isinstance(dst, Strided):
        raise Refused("the target of copy_into is not a graph input")
    src = settled(src)
    if (
        isinstance(src, Strided)
        and src.buffer != dst.buffer
        and is_whole(low, dst, dst.buffer)
        and is_whole(low, src, dst.buffer)
    ):
        return src  # it was made there
    written = newest_name(low, dst.buffer)
    low.settle_readers(written)
    layout = low.buffers[dst.buffer].layout
    source = elementwise(low, (src,), dst.dtype, converting(src.dtype, dst.dtype, dst.device), 1, None, dst.sizes)
    if any(alias_root(low.buffers, name) == dst.buffer for name in source.reads):
        source = low.realize(source)
    new = low.new_buffer(layout, "alias", written)
    low.mutated[new.name], low.newest[dst.buffer] = dst.buffer, new.name
    low.pointwise_node(new, source.load, dst.sizes, lambda index: dot(index, dst.strides, dst.offset), mutates=written)
    return Strided(dst.sizes, dst.dtype, dst.device, new.name, dst.strides, dst.offset)
