"""PrimGraph: an fx graph of prims and named externs with the spec of every node.

Frozen except for the fx.Graph inside, which belongs to whoever made it: a pass copies it before its first edit.
Each node has meta["spec"]: a TensorSpec, a SizeSpec, None, or a tuple of these; meta["origin"] is the user's line, if known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from ..fx_nodes import copy_node
from ..op import OPS
from ..spec import SizeSpec, TensorSpec
from ..symbols import Expr, Size, Symbol, SymbolTable
from .text import print_graph

ROLES = ("forward", "backward", "inference")


@dataclass(frozen=True)
class InputSpec:
    """One input: parameters and buffers are static; a mutated one is written by copy_into at the end."""

    name: str
    spec: TensorSpec | SizeSpec
    is_static: bool = False
    is_mutated: bool = False


@dataclass(frozen=True, eq=False)
class PrimGraph:
    """Level "prim". `inputs` match the placeholders one to one; `outputs` are the nodes (or None, or numbers) returned.

    `editable`: its maker gives the fx graph up, so passes may edit it in place.
    """

    graph: torch.fx.Graph
    inputs: tuple[InputSpec, ...]
    role: str = "inference"
    symbols: SymbolTable | None = None
    editable: bool = False

    @classmethod
    def from_fx(
        cls,
        graph: torch.fx.Graph,
        role: str = "inference",
        symbols: SymbolTable | None = None,
        static_inputs: Iterable[int] = (),
        mutated_inputs: Iterable[int] = (),
    ) -> PrimGraph:
        """From a graph whose nodes all have meta["spec"]; input places in the two sets count placeholders from 0."""
        static, mutated = frozenset(static_inputs), frozenset(mutated_inputs)
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        inputs = tuple(InputSpec(n.name, n.meta["spec"], i in static, i in mutated) for i, n in enumerate(placeholders))
        return cls(graph, inputs, role, symbols)

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        """The input nodes in order."""
        return [n for n in self.graph.nodes if n.op == "placeholder"]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What the output node returns, as a tuple."""
        value = self.graph.output_node().args[0]
        return tuple(value) if isinstance(value, (tuple, list)) else (value,)

    @property
    def calls(self) -> list[torch.fx.Node]:
        """The call_function nodes in order."""
        return [n for n in self.graph.nodes if n.op == "call_function"]

    @property
    def specs(self) -> dict[torch.fx.Node, Any]:
        """The spec of every node but the output."""
        return {n: n.meta.get("spec") for n in self.graph.nodes if n.op != "output"}

    def replace(self, **changes: Any) -> PrimGraph:
        """The same with fields changed."""
        return replace(self, **changes)

    def copy(self) -> PrimGraph:
        """With a graph of its own; names, specs and origins kept."""
        graph = torch.fx.Graph()
        done: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self.graph.nodes:
            done[node] = copy_node(graph, node, done.__getitem__)
        return replace(self, graph=graph)

    def for_editing(self) -> PrimGraph:
        """Another PrimGraph whose fx graph may be edited: a copy, unless this one was given up."""
        return replace(self) if self.editable else self.copy().replace(editable=True)

    def text(self, origins: bool = True) -> str:
        """The printed form; parse_graph reads it back."""
        return print_graph(self, origins)

    def fingerprint(self) -> str:
        """Equal for graphs that do the same on the same inputs: a hash of the text with canonical names."""
        return hashlib.sha256(print_graph(self, origins=False, canonical=True).encode()).hexdigest()

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        """Execute eagerly, node by node. Symbols get their values from size inputs and tensor sizes."""
        placeholders = self.placeholders
        if len(inputs) != len(placeholders):
            raise TypeError(f"the graph takes {len(placeholders)} inputs, {len(inputs)} were given")
        values: dict[torch.fx.Node, Any] = dict(zip(placeholders, inputs))
        symbols = bind_symbols([n.meta["spec"] for n in placeholders], inputs)
        for node in self.calls:
            values[node] = call(node, values, symbols)
        return resolve(self.outputs, values, symbols)

    def __str__(self) -> str:
        return self.text()


def call(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any], symbols: dict[Symbol, int]) -> Any:
    """What a node gives. Memory without values has the strides of its spec: random numbers fill it in its own order."""
    target: Any = node.target
    if target is OPS.get("empty"):
        spec = node.meta["spec"]
        sizes, strides = resolve(spec.sizes, values, symbols), resolve(spec.strides, values, symbols)
        return torch.empty_strided(sizes, strides, dtype=spec.dtype, device=spec.device)
    return target(*resolve(node.args, values, symbols), **resolve(node.kwargs, values, symbols))


def bind_symbols(specs: Iterable[Any], inputs: Iterable[Any]) -> dict[Symbol, int]:
    """The value of each symbol that is itself a size input or a size, stride or offset of an input."""
    found: dict[Symbol, int] = {}

    def learn(size: Size, value: int) -> None:
        if isinstance(size, Symbol):
            found.setdefault(size, int(value))

    for spec, value in zip(specs, inputs):
        if isinstance(spec, SizeSpec):
            learn(spec.expr, value)
        elif isinstance(spec, TensorSpec):
            for sizes, actual in ((spec.sizes, value.size()), (spec.strides, value.stride())):
                for size, number in zip(sizes, actual):
                    learn(size, number)
            learn(spec.offset, value.storage_offset())
    return found


def resolve(value: Any, values: Mapping[torch.fx.Node, Any], symbols: dict[Symbol, int]) -> Any:
    """An argument, with the values of nodes and symbols in their places."""
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, Expr):
        return value.evaluate(symbols)
    if isinstance(value, (tuple, list)):
        return (
            type(value)([resolve(v, values, symbols) for v in value])
            if type(value) in (tuple, list)
            else tuple(resolve(v, values, symbols) for v in value)
        )
    if isinstance(value, dict):
        return {k: resolve(v, values, symbols) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(resolve(v, values, symbols) for v in (value.start, value.stop, value.step)))
    return value
