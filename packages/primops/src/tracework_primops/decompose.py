"""decompose(): an ATen graph, node by node, into a PrimGraph. No tensors are involved: specs come from node.meta["val"]."""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ._torch import HigherOrderOperator, OpOverload
from .decomp import Rule, select
from .errors import PrimError
from .fake import FakeTensor
from .graph import PrimGraph
from .op import GraphBuilder, PrimValue
from .spec import SizeSpec, TensorSpec
from .symbols import Expr, Size, Symbol, SymbolTable

log = logging.getLogger("tracework.primops.decompose")


class DecompositionError(PrimError):
    """A decomposition gave another shape, dtype or device than the op has, or failed; names the op and the user's line."""

    def __init__(self, node: torch.fx.Node, what: str) -> None:
        self.location = node.meta.get("origin")
        super().__init__(f"{node.target} ({node.name}) from {self.location or 'an unknown line'}: {what}")


class ExpectingBuilder(GraphBuilder):
    """A builder that knows the spec the current op must give, and the table of its sizes (decompositions read both)."""

    expected: Any = None
    table: SymbolTable | None = None


def decompose(
    gm: torch.fx.GraphModule,
    profile: str = "prims",
    spec: Any = None,
    changes: Mapping[OpOverload, Rule | None] | None = None,
) -> PrimGraph:
    """Rewrite a functional ATen graph into prims.

    Args:
        gm: placeholders and call_function nodes of ATen overloads with fakes, sizes or tuples of them in meta["val"].
        profile: "prims", "core_aten" or "none" (see decomp.select); changes: rows added, replaced or removed (None).
        spec: role, static_inputs, mutated_inputs and symbols of the graph (aotautograd's GraphSpec); None for inference.

    Returns:
        A PrimGraph; an op without a row stays a named extern. Its last node of each ATen op has eager's strides.
    """
    walk = _Walk(gm, select(profile, changes))
    graph = walk.run()
    if spec is None:
        return PrimGraph.from_fx(graph)
    return PrimGraph.from_fx(graph, spec.role, spec.symbols, spec.static_inputs, spec.mutated_inputs)


def spec_of(val: Any) -> Any:
    """TensorSpec, SizeSpec, None, or a tuple of them, for a value of meta["val"]."""
    if val.__class__ is FakeTensor:
        return val.spec
    if isinstance(val, torch.SymInt):
        return SizeSpec(val.node.expr)
    if isinstance(val, (tuple, list)):
        return tuple([spec_of(v) for v in val])
    if isinstance(val, torch.Tensor):
        return TensorSpec(val.dtype, val.device, tuple(val.shape), tuple(val.stride()), val.storage_offset())
    return SizeSpec(val) if isinstance(val, int) and not isinstance(val, bool) else None


class _Walk:
    def __init__(self, gm: torch.fx.GraphModule, rows: Mapping[OpOverload, Rule]) -> None:
        self.gm = gm
        self.rows = rows
        self.graph = torch.fx.Graph()
        self.builder = ExpectingBuilder(self.graph)
        self.values: dict[torch.fx.Node, Any] = {}
        fakes = (node.meta.get("val") for node in gm.graph.nodes)
        table = next((fake.mode.table for fake in fakes if fake.__class__ is FakeTensor), None)
        self.builder.table = table
        self.known: dict[Expr, Size] = {} if table is None else table.numbers() | _given(gm.graph, table.equals())

    def run(self) -> torch.fx.Graph:
        with self.builder:
            for node in self.gm.graph.nodes:
                getattr(self, f"_{node.op}")(node)
        return self.graph

    def _placeholder(self, node: torch.fx.Node) -> None:
        if "val" not in node.meta:
            raise DecompositionError(node, "no meta['val'] with a fake; aten_graph(function, *inputs) makes such graphs")
        made = self.graph.placeholder(node.name)
        spec = self.spec_of(node.meta["val"])
        made.meta["spec"], made.meta["origin"] = spec, node.meta.get("origin")
        self.values[node] = PrimValue(spec, made) if spec.__class__ is TensorSpec else self.number(spec.expr)

    def _get_attr(self, node: torch.fx.Node) -> None:
        raise DecompositionError(node, "constants must be lifted to inputs before decompose()")

    def _output(self, node: torch.fx.Node) -> None:
        outputs = self.value(node.args[0])
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        self.graph.output(tuple([v.node if v.__class__ is PrimValue else v for v in outputs]))

    def _call_function(self, node: torch.fx.Node) -> None:
        target, val = node.target, node.meta.get("val")
        if target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]
        elif not isinstance(target, OpOverload) or isinstance(val, (torch.SymInt, int)):
            self.values[node] = self._number(node, val)
        else:
            self.builder.origin = node.meta.get("origin")
            self.builder.expected = self.spec_of(val)
            self.values[node] = self._decomposed(node)

    def _number(self, node: torch.fx.Node, val: Any) -> Any:
        """Arithmetic on sizes needs no node: the expression is known."""
        if isinstance(val, torch.SymInt):
            return self.number(val.node.expr)
        if isinstance(val, (int, float, bool)):
            return val
        if isinstance(node.target, HigherOrderOperator):
            raise DecompositionError(node, "higher-order operators have no prims")
        raise DecompositionError(node, f"expected an ATen overload, found {node.target!r} giving {val!r}")

    def _decomposed(self, node: torch.fx.Node) -> Any:
        row = self.rows.get(node.target)
        if row is None:
            return self._extern(node)
        args, kwargs = self.value(node.args), self.value(node.kwargs)
        mark = next(iter(reversed(self.graph.nodes)), None)
        try:
            result = row(*args, **kwargs)
        except PrimError:
            raise
        except Exception as error:
            raise DecompositionError(node, f"decomposition failed: {type(error).__name__}: {error}") from error
        if result is NotImplemented:
            return self._extern(node)
        self._check(node, result, self.builder.expected, mark)
        return result

    def _extern(self, node: torch.fx.Node) -> Any:
        spec = self.builder.expected
        log.debug("%s stays a call of the eager kernel (%s)", node.target, node.meta.get("origin"))
        args, kwargs = _nodes(self.value(node.args)), _nodes(self.value(node.kwargs))
        return self.builder.wrap(self.builder.append(node.target, args, spec, kwargs), spec)

    def _check(self, node: torch.fx.Node, result: Any, expected: Any, mark: Any) -> None:
        if isinstance(expected, tuple):
            if len(result) != len(expected):
                raise DecompositionError(node, f"decomposition gave {len(result)} results, the op has {len(expected)}")
            for r, e in zip(result, expected):
                self._check(node, r, e, mark)
            return
        if result is None and expected.__class__ is TensorSpec:
            raise DecompositionError(node, f"decomposition gave nothing where the op gives {expected}")
        if result.__class__ is not PrimValue or expected.__class__ is not TensorSpec:
            return
        got = result.spec
        if got.dtype is not expected.dtype or got.device != expected.device or not _same_sizes(got.sizes, expected.sizes):
            raise DecompositionError(node, f"decomposition gave {got}, the op gives {expected}")
        if got.strides != expected.strides and _is_newer(result.node, mark):
            result.spec = got.replace(strides=expected.strides)
            _relabel(result.node, result.spec)

    def value(self, arg: Any) -> Any:
        """An argument of the ATen graph with nodes replaced by PrimValues and expressions."""
        cls = arg.__class__
        if cls is torch.fx.Node:
            return self.values[arg]
        if isinstance(arg, (tuple, list)):
            return tuple([self.value(a) for a in arg])
        if isinstance(arg, dict):
            return {k: self.value(v) for k, v in arg.items()}
        return self.number(arg.node.expr) if cls is torch.SymInt else arg

    def number(self, size: Any) -> Any:
        """Symbols that tracing found to be numbers are these numbers, since rules about prims look for the 1 that is broadcast; of those
        that it found to be equal one is written, since layouts are compared by what is written."""
        return size.substitute(self.known) if self.known and isinstance(size, Expr) else size

    def spec_of(self, val: Any) -> Any:
        spec = spec_of(val)
        if not self.known:
            return spec
        if spec.__class__ is tuple:
            return tuple(map(self.spec_of, val))
        if spec.__class__ is not TensorSpec or not spec.is_symbolic:
            return spec
        sizes, strides = tuple(map(self.number, spec.sizes)), tuple(map(self.number, spec.strides))
        return spec.replace(sizes=sizes, strides=strides, offset=self.number(spec.offset))


def _given(graph: torch.fx.Graph, equals: dict[Symbol, Symbol]) -> dict[Symbol, Symbol]:
    """Those of the equal symbols whose other one is a size of an input of this graph: a backward does not get all."""
    specs = [spec_of(node.meta.get("val")) for node in graph.nodes if node.op == "placeholder"]
    sizes = {size for spec in specs for size in (spec.sizes if spec.__class__ is TensorSpec else [getattr(spec, "expr", None)])}
    return {s: value for s, value in equals.items() if value in sizes}


def _nodes(arg: Any) -> Any:
    if arg.__class__ is PrimValue:
        return arg.node
    if isinstance(arg, tuple):
        return tuple([_nodes(a) for a in arg])
    return {k: _nodes(v) for k, v in arg.items()} if isinstance(arg, dict) else arg


def _same_sizes(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Equal as far as numbers go; expressions were checked when the fakes were made."""
    return len(a) == len(b) and all(x == y or x.__class__ is not int or y.__class__ is not int for x, y in zip(a, b))


def _relabel(node: torch.fx.Node, spec: TensorSpec) -> None:
    """A node's spec, which a node with several results repeats."""
    node.meta["spec"] = spec
    if node.target is operator.getitem:
        source, i = node.args
        parts = source.meta["spec"]
        source.meta["spec"] = (*parts[:i], spec, *parts[i + 1 :])


def _is_newer(node: torch.fx.Node, mark: torch.fx.Node | None) -> bool:
    """Whether node was appended after mark."""
    return mark is None or (node is not mark and mark < node)
