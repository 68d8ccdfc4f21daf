"""Print a PrimGraph and parse it back.

inference graph
symbol s0 in 2..None hint 8
%x: f32[s0, 3] = input static
%exp: f32[s0, 3] = exp(%x)  # model.py:12
%mm: f32[s0, 4] = aten.mm.default(%exp, %w)
return %mm
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ..errors import ParseError
from ..index_checks import checks_indices, place_of
from ..op import OPS, Op
from ..spec import DTYPE_TEXT, TEXT_DTYPE, SizeSpec, TensorSpec, contiguous_strides
from ..symbols.expr import Expr, parse, symbol
from .prim_graph import InputSpec, PrimGraph


def print_graph(prim_graph: PrimGraph, origins: bool = True, canonical: bool = False) -> str:
    """The text of a graph; `canonical` replaces node names by numbers, and names places in the source only where kernels do."""
    nodes = [n for n in prim_graph.graph.nodes if n.op != "output"]
    names = {n: f"{i}" if canonical else n.name for i, n in enumerate(nodes)}
    lines = [f"{prim_graph.role} graph", *_symbol_lines(prim_graph, with_hints=not canonical)]
    for node, given in zip(prim_graph.placeholders, prim_graph.inputs):
        flags = "".join([" static" if given.is_static else "", " mutated" if given.is_mutated else ""])
        lines.append(f"%{names[node]}: {print_spec(node.meta['spec'])} = input{flags}")
    for node in prim_graph.calls:
        call = f"{print_target(node.target)}({_print_arguments(node, names)})"
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


def _collect_symbols(value: Any, found: set) -> None:
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
    found: set = set()
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


def _print_arguments(node: torch.fx.Node, names: dict) -> str:
    given = [print_value(a, names) for a in node.args]
    return ", ".join(given + [f"{k}={print_value(v, names)}" for k, v in node.kwargs.items()])


def print_value(value: Any, names: dict) -> str:
    """An argument as text."""
    if isinstance(value, torch.fx.Node):
        return f"%{names[value]}"
    if isinstance(value, tuple):
        return "(" + "".join(print_value(v, names) + ", " for v in value).rstrip(" ") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(print_value(v, names) for v in value) + "]"
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
}

# parsing ---------------------------------------------------------------------------------------

_LINE = re.compile(r"%(?P<name>\w+): (?P<spec>.+?) = (?P<call>\w[\w.]*)(?P<rest>.*)$")
_SYMBOL = re.compile(r"symbol (\w+) in (\S+?)\.\.(\S+?)(?: hint (-?\d+))?$")
_SPEC = re.compile(r"(\w+)\[(.*?)\](?: strides \((.*?)\))?(?: offset (\S(?:.*?\S)?))?(?: ((?:cpu|cuda|meta|xpu|mps)(?::\d+)?))?$")


def parse_graph(text: str, symbols: Any = None) -> PrimGraph:
    """The inverse of print_graph. Raises ParseError with the line."""
    reader = _Reader(symbols)
    lines = [line for line in text.splitlines() if line.strip()]
    role = lines[0].split()[0]
    for line in lines[1:]:
        try:
            reader.read(line)
        except ParseError:
            raise
        except Exception as error:
            raise ParseError(f"cannot read `{line}`: {error}") from error
    return PrimGraph(reader.graph, tuple(reader.inputs), role, reader.symbols)


class _Reader:
    def __init__(self, symbols: Any):
        self.graph = torch.fx.Graph()
        self.inputs: list[InputSpec] = []
        self.nodes: dict[str, torch.fx.Node] = {}
        self.sizes: dict[str, Expr] = {}
        self.symbols = symbols

    def read(self, line: str) -> None:
        if line.startswith("symbol "):
            self._symbol(line)
        elif line.startswith("return"):
            outputs = self._arguments(line[len("return") :])[0]
            self.graph.output(tuple(outputs))
        else:
            self._node(line)

    def _symbol(self, line: str) -> None:
        match = _SYMBOL.match(line)
        if match is None:
            raise ParseError(f"not a symbol: `{line}`")
        name, low, high, hint = match.groups()
        made = symbol(name, None if low == "None" else int(low), None if high == "None" else int(high))
        self.sizes[name] = made
        if hint is not None:
            if self.symbols is None:
                from ..symbols.table import SymbolTable

                self.symbols = SymbolTable()
            self.symbols.adopt(made, int(hint))

    def _node(self, line: str) -> None:
        body, _, origin = line.partition("  # ")
        match = _LINE.match(body)
        if match is None:
            raise ParseError(f"not a node: `{line}`")
        name, spec = match["name"], self._spec(match["spec"])
        if match["call"] == "input":
            node = self.graph.placeholder(name)
            flags = match["rest"].split()
            self.inputs.append(InputSpec(name, spec, "static" in flags, "mutated" in flags))
        else:
            args, kwargs = self._arguments(match["rest"][1:-1])
            node = self.graph.create_node("call_function", _target(match["call"]), args, kwargs, name=name)
        node.meta["spec"] = spec
        if match["call"] != "input":
            node.meta["origin"] = origin or None
        self.nodes[name] = node

    def _spec(self, text: str) -> Any:
        if text == "None":
            return None
        if text.startswith("("):
            return tuple(self._spec(part) for part in _split_specs(text[1:-1]))
        if text.startswith("size "):
            return SizeSpec(parse(text[5:], self.sizes))
        match = _SPEC.match(text)
        if match is None:
            raise ParseError(f"not a spec: `{text}`")
        dtype, sizes, strides, offset, device = match.groups()
        shape = self._sizes(sizes)
        steps = contiguous_strides(shape) if strides is None else self._sizes(strides)
        return TensorSpec(
            TEXT_DTYPE[dtype], torch.device(device or "cpu"), shape, steps, parse(offset, self.sizes) if offset else 0
        )

    def _sizes(self, text: str) -> tuple:
        if not text.strip():
            return ()
        elements = ast.parse(f"({text},)", mode="eval").body.elts
        return tuple(parse(ast.unparse(e), self.sizes) for e in elements)

    def _arguments(self, text: str) -> tuple[tuple, dict]:
        call = ast.parse("f(" + re.sub(r"%(\w+)", r"node_.n_\1", text) + ")", mode="eval").body
        return tuple(map(self._value, call.args)), {k.arg: self._value(k.value) for k in call.keywords}

    def _value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(map(self._value, node.elts))
        if isinstance(node, ast.List):
            return list(map(self._value, node.elts))
        if isinstance(node, ast.Attribute):
            return self._named(node.value.id, node.attr)
        if isinstance(node, ast.Call) and node.func.id in ("float", "device"):
            return {"float": float, "device": torch.device}[node.func.id](node.args[0].value)
        if isinstance(node, ast.Constant):
            return node.value
        if not any(isinstance(n, ast.Name) for n in ast.walk(node)):
            return ast.literal_eval(node)
        return parse(ast.unparse(node), self.sizes)

    def _named(self, space: str, name: str) -> Any:
        if space == "node_":
            return self.nodes[name[2:]]
        return TEXT_DTYPE[name] if space == "dtype" else getattr(torch, name)


def _split_specs(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == ";" and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + ([last] if last else [])


def _target(name: str) -> Any:
    if name == "getitem":
        return operator.getitem
    if "." not in name:
        return OPS[name]
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
