"""A PrimGraph as text, which parse.py reads back.

inference graph
symbol s0 in 2..None hint 8
%x: f32[s0, 3] = input static
%exp: f32[s0, 3] = exp(%x)  # model.py:12
%mm: f32[s0, 4] = aten.mm.default(%exp, %w)
return %mm
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..index_checks import checks_indices, place_of
from ..op import Op
from ..spec import DTYPE_TEXT, SizeSpec, TensorSpec
from ..symbols import Expr, Symbol

if TYPE_CHECKING:
    from .prim_graph import PrimGraph


def print_graph(prim_graph: PrimGraph, origins: bool = True, canonical: bool = False) -> str:
    """The text of a graph; `canonical` replaces node names by numbers, and names places in the source only where kernels do."""
    nodes = [n for n in prim_graph.graph.nodes if n.op != "output"]
    names = {n: f"{i}" if canonical else n.name for i, n in enumerate(nodes)}
    lines = [f"{prim_graph.role} graph", *_symbol_lines(prim_graph, with_hints=not canonical)]
    for node, given in zip(prim_graph.placeholders, prim_graph.inputs):
        flags = "".join([" static" if given.is_static else "", " mutated" if given.is_mutated else ""])
        lines.append(f"%{names[node]}: {print_spec(node.meta['spec'])} = input{flags}")
    for node in prim_graph.calls:
        call = f"{print_target(node.target)}({print_arguments(node, names)})"
        origin = (
            node.meta.get("origin")
            if origins
            else place_of(node.meta.get("origin"))
            if canonical and checks_indices(node)
            else None
        )
        comment = "  # " + str(origin).replace("\n", " ") if origin else ""
        lines.append(f"%{names[node]}: {print_spec(node.meta['spec'])} = {call}{comment}")
    lines.append("return " + ", ".join(print_value(v, names) for v in prim_graph.outputs))
    return "\n".join(lines) + "\n"


def _collect_symbols(value: Any, found: set[Symbol]) -> None:
    cls = value.__class__
    if cls in _SYMBOL_FREE:
        return
    if cls is TensorSpec:
        if value.is_symbolic:
            for size in (*value.sizes, *value.strides, value.offset):
                _collect_symbols(size, found)
    elif isinstance(value, Expr):
        found.update(value.free_symbols)
    elif cls is SizeSpec:
        _collect_symbols(value.expr, found)
    elif isinstance(value, (tuple, list)):
        for v in value:
            _collect_symbols(v, found)


def _symbol_lines(prim_graph: PrimGraph, with_hints: bool) -> list[str]:
    found: set[Symbol] = set()
    for node in prim_graph.graph.nodes:
        _collect_symbols(node.meta.get("spec"), found)
        _collect_symbols(node.args, found)
        _collect_symbols(tuple(node.kwargs.values()), found)
    lines = []
    for s in sorted(found, key=lambda s: (len(s.name), s.name)):
        hint = (
            prim_graph.symbols.hint(s)
            if with_hints and prim_graph.symbols is not None and prim_graph.symbols.has_hint(s)
            else None
        )
        lines.append(f"symbol {s.name} in {s.lower}..{s.upper}" + (f" hint {hint}" if hint is not None else ""))
    return lines


def print_spec(spec: Any) -> str:
    """One line; read back by parse_spec."""
    if isinstance(spec, (tuple, list)):
        return "(" + "; ".join(map(print_spec, spec)) + ")"
    return repr(spec)


def print_target(target: Any) -> str:
    """`add` for a prim, `aten.mm.default` for an overload."""
    if isinstance(target, Op):
        return target.name
    return "getitem" if target is operator.getitem else str(target)


def print_arguments(node: torch.fx.Node, names: Mapping[torch.fx.Node, str]) -> str:
    """What a node is called with."""
    given = [print_value(a, names) for a in node.args]
    return ", ".join(given + [f"{k}={print_value(v, names)}" for k, v in node.kwargs.items()])


def print_value(value: Any, names: Mapping[torch.fx.Node, str]) -> str:
    """An argument as text."""
    if isinstance(value, torch.fx.Node):
        return f"%{names[value]}"
    if isinstance(value, tuple):
        return "(" + "".join(print_value(v, names) + ", " for v in value).rstrip(" ") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(print_value(v, names) for v in value) + "]"
    if isinstance(value, slice):
        return f"slice({', '.join(print_value(v, names) for v in (value.start, value.stop, value.step))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{print_value(k, names)}: {print_value(v, names)}" for k, v in value.items()) + "}"
    printer = PRINT_VALUE.get(type(value))
    return printer(value) if printer else str(value) if isinstance(value, Expr) else repr(value)


def _print_float(value: float) -> str:
    return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"


_SYMBOL_FREE = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.fx.Node))
PRINT_VALUE: dict[type, Callable[[Any], str]] = {
    float: _print_float,
    torch.dtype: lambda v: f"dtype.{DTYPE_TEXT[v]}",
    torch.device: lambda v: f"device('{v}')",
    torch.memory_format: lambda v: str(v).replace("torch.", "memory_format."),
    torch.layout: lambda v: str(v).replace("torch.", "layout."),
    torch.Size: lambda v: str(tuple(v)),
    type(...): lambda v: "...",
}
