"""A captured graph as text that reads back, in the form of primops' graphs: torch's functions and methods are called by name.

captured graph
%in_x: f32[4, 8] = input
%linear: f32[4, 8] = torch.nn.functional.linear(%in_x, %in_w)  # model.py:12 in forward
%view: f32[32] = method.view(%linear, -1)  # model.py:13 in forward
return %view

Graphs of their own that nodes call, the halves of an autograd.Function, follow as parts, whose text is indented.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import operator
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import fx
from tracework_primops import ParseError, SizeSpec
from tracework_primops.decompose import spec_of
from tracework_primops.graph.parse import GraphReader
from tracework_primops.graph.text import print_arguments, print_spec, print_value
from tracework_primops.symbols import Expr, Symbol

from .._torch.functions import qualified_name
from .captured_call import CapturedCall
from .regions import AutogradCall, BatchedHalf, Halves, Placed, WithoutGradient
from .wrapped import Construct, Unwrap, Wrap

HEADER = "captured graph"
METHOD = "method."
"""In front of the name of a method."""
PART = "part."
"""In front of the number of what a node calls that has graphs of its own."""


def print_captured(graph: fx.Graph, with_data: bool = False) -> str:
    """The text of a captured graph. Raises ParseError where it would not read back: it calls what is not found by its name.

    with_data: also of one with nodes that depend on data, which the text does not say of them.
    """
    names = {node: node.name for node in graph.nodes}
    lines: list[str] = []
    calls: list[CapturedCall] = []
    symbols: set[Symbol] = set()
    for node in graph.nodes:
        if node.op == "output":
            returned = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
            lines.append("return " + ", ".join(print_value(v, names) for v in returned))
            continue
        if node.meta.get("of_history") or node.meta.get("data_dependent") and not with_data:
            raise ParseError(f"%{node.name} depends on data or on the history of a tensor, for which a text has no form")
        spec = node.meta["spec"] if "spec" in node.meta else spec_of(node.meta.get("example_value"))
        symbols |= _symbols(spec)
        if isinstance(node.target, CapturedCall):
            name = f"{PART}{len(calls)}"
            calls.append(node.target)
        else:
            name = "" if node.op == "placeholder" else name_of(node)
        called = f"{name}({print_arguments(node, names)})" if name else _input(node)
        origin = node.meta.get("stack")
        comment = "  # " + str(origin).replace("\n", " ") if origin else ""
        lines.append(f"%{node.name}: {print_spec(spec)} = {called}{comment}")
    declared = [f"symbol {s.name} in {s.lower}..{s.upper}" for s in sorted(symbols, key=lambda s: (len(s.name), s.name))]
    parts = [f"{PART}{number} = {_print_call(call)}" for number, call in enumerate(calls)]
    text = "\n".join([HEADER, *declared, *lines, *parts]) + "\n"
    if not _is_plain(graph):
        _check(graph, text)
    return text


def _is_plain(graph: fx.Graph) -> bool:
    """Whether a text of it reads back without doubt: reading it takes longer than printing it."""
    meant: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op == "call_function" and not isinstance(node.target, CapturedCall):
            name = name_of(node)
            if name not in meant:
                meant[name] = _function(name)
            if meant[name] is not node.target:
                return False
        if not all(map(_is_plain_value, (*node.args, *node.kwargs.values()))):
            return False
    return True


def _is_plain_value(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain_value, value))
    return type(value) in _PLAIN or type(value) is str and value.isidentifier()


_PLAIN = (fx.Node, type(None), bool, int, float, torch.dtype)


def _check(graph: fx.Graph, text: str) -> None:
    """Raises ParseError where the text of a graph reads back as something else."""
    names = {node: node.name for node in graph.nodes}
    read = _read(text).graph
    read_names = {node: node.name for node in read.nodes}
    for before, after in zip(graph.nodes, read.nodes, strict=True):
        same = before.target is after.target or isinstance(before.target, CapturedCall)
        if before.op != after.op or (before.op == "call_function" and not same):
            raise ParseError(f"%{before.name} calls {before.target!r}, which is not what its name means")
        if before.op != "output" and print_arguments(before, names) != print_arguments(after, read_names):
            raise ParseError(f"%{before.name} has arguments that are not plain data: {before.args} {before.kwargs}")


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
    main, *parts = text.split(f"\n{PART}")
    reader = _Reader([_read_call(part.partition(" = ")[2]) for part in parts])
    if reader.read(main) != HEADER.split()[0]:
        raise ParseError(f"not a captured graph: its text begins with `{HEADER}`")
    return reader


@dataclass(frozen=True)
class ReadBinding:
    """What a text says of an input: whether it is there before the call and stays, as parameters do."""

    is_static: bool


def _input(node: fx.Node) -> str:
    return "input static" if getattr(node.meta.get("binding"), "is_static", False) else "input"


# --- parts -----------------------------------------------------------------------------------------------------------------


def _print_call(call: CapturedCall) -> str:
    """What a node calls as a line of plain data, and its graphs. Raises ParseError."""
    graphs: list[fx.Graph] = []

    def data(value: Any) -> Any:
        if isinstance(value, Placed):
            graphs.append(value.module.graph)
            return {"graph": len(graphs) - 1, "places": value.places}
        if isinstance(value, (Halves, BatchedHalf)):
            return {field.name: data(getattr(value, field.name)) for field in fields(value)}
        return {key: data(part) for key, part in value.items()} if isinstance(value, dict) else value

    if type(call) is AutogradCall:
        said = {"name": call.__name__, "transformed": call.transformed, "halves": data(call.halves)}
    elif type(call) is WithoutGradient:
        said = {"name": call.__name__, "runs": data(Placed(call.runs, ()))}
    else:
        raise ParseError(f"{call} is a {type(call).__name__}, for which a text has no form")
    return "\n".join([repr(said), *(textwrap.indent(print_captured(graph), "  ").rstrip() for graph in graphs)])


def _read_call(text: str) -> CapturedCall:
    line, *rest = f"{text}\n".split(f"\n  {HEADER}\n")
    graphs = [parse_captured(f"{HEADER}\n{textwrap.dedent(part)}") for part in rest]
    said = ast.literal_eval(line)
    if "runs" in said:
        return WithoutGradient(said["name"], graphs[said["runs"]["graph"]])
    return AutogradCall(
        said["name"], Halves(**{name: _read_value(value, graphs) for name, value in said["halves"].items()}), said["transformed"]
    )


def _read_value(value: Any, graphs: Sequence[fx.GraphModule]) -> Any:
    if not isinstance(value, dict):
        return value
    if "graph" in value:
        return Placed(graphs[value["graph"]], value["places"])
    read = {key: _read_value(part, graphs) for key, part in value.items()}
    return BatchedHalf(**read) if "rule" in read else read


class _Reader(GraphReader):
    def __init__(self, calls: Sequence[CapturedCall]) -> None:
        super().__init__(None)
        self._calls = calls

    def called(self, name: str) -> tuple[str, Any]:
        if name.startswith(PART):
            return "call_function", self._calls[int(name.removeprefix(PART))]
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
    if getattr(node.target, "__module__", None) == builtins.__name__:  # getattr, for one
        return f"{builtins.__name__}.{node.target.__name__}"
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
