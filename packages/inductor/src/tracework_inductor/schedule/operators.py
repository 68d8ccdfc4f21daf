"""What library calls run, and which nodes of a graph on a GPU no CUDA graph records."""

import re
from typing import Any

import torch
from tracework_runtime.cudagraph.facts import why_unrecordable

from ..ir.buffer import BufferLayout, BufferView, ExternNode
from ..ir.cores import PACKED_CALLS
from ..ir.index import Expr
from .graph import alias_root
from .plan import Program

_OPERATOR = re.compile(r"(?:torch\.ops\.(\w+)|\b(prims)|\btorch)\.(\w+)")


def operators_of(program: Program, node: ExternNode) -> tuple[str, ...]:
    """What a library call runs, as "aten::mm"; with packed weights, as "packed_linear"."""
    packed = next((start for start in PACKED_CALLS if node.target.startswith(start)), None)
    if packed is not None:
        return (packed[:-1],)
    found = _OPERATOR.search(node.target)
    name = node.target if found is None else f"{found[1] or found[2] or 'aten'}::{found[3]}"
    return (name, "aten::nonzero") if any(_has_mask(program, arg) for arg in node.args) else (name,)


def runs_between(program: Program, node: Any) -> bool:
    """Whether a node works on the CPU, or calls what is not recorded."""
    if isinstance(node, ExternNode) and any(map(why_unrecordable, operators_of(program, node))):
        return True
    names = (alias_root(program.buffers, name) for name in (*node.reads, *node.writes))
    return any(program.buffers[name].layout.device.type == "cpu" for name in names if name in program.buffers)


def layout_symbols(layout: BufferLayout) -> set[Any]:
    """The symbols that sizes and strides depend on."""
    return {symbol for e in (*layout.sizes, *layout.strides) if isinstance(e, Expr) for symbol in e.free_symbols}


def recorded_in_parts(program: Program) -> bool:
    """Whether a graph on a GPU is recorded as CUDA graphs in parts: around what is not recorded, or may prove not to be, as custom operators
    may, and around sizes that depend on data."""
    sizes = {symbol for buffer in program.buffers.values() for symbol in layout_symbols(buffer.layout)}
    calls = [node for node in program.nodes if isinstance(node, ExternNode)]
    custom = any(_is_custom(name) for node in calls for name in operators_of(program, node))
    return custom or any(symbol.of_data for symbol in sizes) or any(runs_between(program, node) for node in program.nodes)


def _is_custom(operator: str) -> bool:
    namespace, _, name = operator.partition("::")
    return bool(name) and namespace not in ("aten", "prims")


def _has_mask(program: Program, indices: Any) -> bool:
    """Whether an argument is a list of indices with a mask among them."""
    views = [i for i in indices if isinstance(i, BufferView)] if isinstance(indices, (tuple, list)) else []
    return any(program.buffers[v.buffer].layout.dtype in (torch.bool, torch.uint8) for v in views)
