"""A captured graph as text that reads back, in the form of primops' graphs: torch's functions and methods are called by name.

captured graph
%in_x: f32[4, 8] = input
%linear: f32[4, 8] = torch.nn.functional.linear(%in_x, %in_w)  # model.py:12 in forward
%view: f32[32] = method.view(%linear, -1)  # model.py:13 in forward
return %view
"""

from __future__ import annotations

import importlib
import operator
from dataclasses import dataclass
from typing import Any

from torch import fx
from tracework_primops import ParseError, SizeSpec
from tracework_primops.decompose import spec_of
from tracework_primops.graph.parse import GraphReader
from tracework_primops.graph.text import print_arguments, print_spec, print_value
from tracework_primops.symbols import Expr, Symbol

from .._torch import qualified_name
from .wrapped import Construct, Unwrap, Wrap

HEADER = "captured graph"
METHOD = "method."
"""In front of the name of a method."""


def print_captured(graph: fx.Graph) -> str:
    """The text of a captured graph. Raises ParseError where it would not read back: it calls what is not found by its name."""
    names = {node: node.name for node in graph.nodes}
    lines: list[str] = []
    symbols: set[Symbol] = set()
    for node in graph.nodes:
        if node.op == "output":
            returned = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
            lines.append("return " + ", ".join(print_value(v, names) for v in returned))
            continue
        if node.meta.get("data_dependent") or node.meta.get("of_history"):
            raise ParseError(f"%{node.name} depends on data or on the history of a tensor, for which a text has no form")
        spec = node.meta["spec"] if "spec" in node.meta else spec_of(node.meta.get("example_value"))
        symbols |= _symbols(spec)
        called = _input(node) if node.op == "placeholder" else f"{name_of(node)}({print_arguments(node, names)})"
        origin = node.meta.get("stack")
        comment = "  # " + str(origin).replace("\n", " ") if origin else ""
        lines.append(f"%{node.name}: {print_spec(spec)} = {called}{comment}")
    declared = [f"symbol {s.name} in {s.lower}..{s.upper}" for s in sorted(symbols, key=lambda s: (len(s.name), s.name))]
    text = "\n".join([HEADER, *declared, *lines]) + "\n"
    read = _read(text).graph
    read_names = {node: node.name for node in read.nodes}
    for before, after in zip(graph.nodes, read.nodes, strict=True):
        if before.op != after.op or (before.op == "call_function" and before.target is not after.target):
            raise ParseError(f"%{before.name} calls {before.target!r}, which is not what its name means")
        if before.op != "output" and print_arguments(before, names) != print_arguments(after, read_names):
            raise ParseError(f"%{before.name} has arguments that are not plain data: {before.args} {before.kwargs}")
    return text


def parse_captured(text: str) -> fx.GraphModule:
    """The inverse of print_captured. Nodes have meta["spec"] and meta["stack"], inputs meta["binding"]; there are no fakes. Raises ParseError."""
    reader = _read(text)
    for node in reader.graph.nodes:
        node.meta["stack"] = node.meta.pop("origin", None) or ""
    placeholders = [node for node in reader.graph.nodes if node.op == "placeholder"]
    for node, given in zip(placeholders, reader.inputs, strict=True):
        node.meta["binding"] = ReadBinding(given.is_static)
    return fx.GraphModule({}, reader.graph)


def _read(text: str) -> _Reader:
    reader = _Reader(None)
    if reader.read(text) != HEADER.split()[0]:
        raise ParseError(f"not a captured graph: its text begins with `{HEADER}`")
    return reader


@dataclass(frozen=True)
class ReadBinding:
    """What a text says of an input: whether it is there before the call and stays, as parameters do."""

    is_static: bool


def _input(node: fx.Node) -> str:
    return "input static" if getattr(node.meta.get("binding"), "is_static", False) else "input"


class _Reader(GraphReader):
    def called(self, name: str) -> tuple[str, Any]:
        if name.startswith(METHOD):
            return "call_method", name.removeprefix(METHOD)
        return "call_function", _function(name)


def name_of(node: fx.Node) -> str:
    """What a node calls, as text that is read back. Raises ParseError."""
    if node.op == "call_method":
        return f"{METHOD}{node.target}"
    if node.op != "call_function" or isinstance(node.target, str):
        raise ParseError(f"%{node.name} is a {node.op}, which has no text")
    if isinstance(node.target, (Wrap, Unwrap, Construct)):
        raise ParseError(f"%{node.name} is of a tensor of a wrapper subclass, whose code a text does not have")
    try:
        return qualified_name(node.target)
    except (AttributeError, RuntimeError) as error:
        raise ParseError(f"%{node.name} calls {node.target!r}, which has no name: {error}") from error


def _function(name: str) -> Any:
    """What a dotted name means: a module that can be imported, and attributes of it."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
            return operator.attrgetter(".".join(parts[count:]))(found)
        except (ImportError, AttributeError):
            continue
    raise ParseError(f"nothing is found under the name {name}")


def _symbols(spec: Any) -> set[Symbol]:
    if isinstance(spec, tuple):
        return set().union(*map(_symbols, spec)) if spec else set()
    sizes = (spec.expr,) if isinstance(spec, SizeSpec) else (*spec.sizes, *spec.strides, spec.offset) if spec is not None else ()
    return {symbol for size in sizes if isinstance(size, Expr) for symbol in size.free_symbols}
