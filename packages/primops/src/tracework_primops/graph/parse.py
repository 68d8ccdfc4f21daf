"""A PrimGraph from the text that text.py prints."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ..errors import ParseError
from ..op import OPS
from ..spec import TEXT_DTYPE, SizeSpec, TensorSpec, contiguous_strides
from ..symbols import Size, SymbolTable, parse, symbol
from .prim_graph import InputSpec, PrimGraph

_LINE = re.compile(r"%(?P<name>\w+): (?P<spec>.+?) = (?P<call>\w[\w.]*)(?P<rest>.*)$")
_SYMBOL = re.compile(r"symbol (\w+) in (\S+?)\.\.(\S+?)(?: hint (-?\d+))?$")
_SPEC = re.compile(r"(\w+)\[(.*?)\](?: strides \((.*?)\))?(?: offset (\S(?:.*?\S)?))?(?: ((?:cpu|cuda|meta|xpu|mps)(?::\d+)?))?$")


def parse_graph(text: str, symbols: SymbolTable | None = None) -> PrimGraph:
    """The inverse of print_graph. Raises ParseError with the line."""
    reader = GraphReader(symbols)
    role = reader.read(text)
    return PrimGraph(reader.graph, tuple(reader.inputs), role, reader.symbols)


MAKERS: dict[str, Callable[..., Any]] = {"float": float, "device": torch.device, "slice": slice}


class GraphReader:
    """Reads a text line by line into an fx graph; a subclass says what the names of calls mean."""

    def __init__(self, symbols: SymbolTable | None) -> None:
        self.graph = torch.fx.Graph()
        self.inputs: list[InputSpec] = []
        self.nodes: dict[str, torch.fx.Node] = {}
        self.sizes: dict[str, Size] = {}
        self.symbols = symbols

    def read(self, text: str) -> str:
        """All of it; gives the first word, which says what it is. Lines that begin with # are for people. Raises ParseError."""
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        if not lines:
            raise ParseError("an empty text is no graph")
        for line in lines[1:]:
            try:
                self._line(line)
            except ParseError:
                raise
            except Exception as error:
                raise ParseError(f"cannot read `{line}`: {error}") from error
        return lines[0].split()[0]

    def called(self, name: str) -> tuple[str, Any]:
        """Kind and target of a node, from what is called."""
        return "call_function", _target(name)

    def _line(self, line: str) -> None:
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
            node = self.graph.create_node(*self.called(match["call"]), args, kwargs, name=name)
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

    def _sizes(self, text: str) -> tuple[Size, ...]:
        if not text.strip():
            return ()
        listed = ast.parse(f"({text},)", mode="eval").body
        if not isinstance(listed, ast.Tuple):
            raise ParseError(f"not sizes: `{text}`")
        return tuple(parse(ast.unparse(e), self.sizes) for e in listed.elts)

    def _arguments(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        call = ast.parse("f(" + re.sub(r"%(\w+)", r"node_.n_\1", text) + ")", mode="eval").body
        if not isinstance(call, ast.Call):
            raise ParseError(f"not arguments: `{text}`")
        return tuple(map(self._value, call.args)), {str(k.arg): self._value(k.value) for k in call.keywords}

    def _value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(map(self._value, node.elts))
        if isinstance(node, ast.List):
            return list(map(self._value, node.elts))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._named(node.value.id, node.attr)
        if isinstance(node, ast.Dict):
            return {self._value(key): self._value(value) for key, value in zip(node.keys, node.values) if key is not None}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
            return MAKERS[node.func.id](*map(self._value, node.args))
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
    parts: list[str] = []
    depth = start = 0
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
