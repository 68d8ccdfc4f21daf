"""What a stored callable does not have: made of the text of its captured graph, when it is asked for.

That is the graph as it is, for calls that run uncompiled, and its gradients, for those that are differentiated again, computed with other
data, several at once, or whose compiled backward is not kept. They are traced and cut as they were when the callable was made; where
that gives something else, what the forward has kept would be taken for something else, and UsageError is raised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeMode, SymbolTable, TensorSpec
from tracework_primops.literals import read_symbols
from tracework_primops.symbols import Expr, Size, Symbol

from . import _torch
from .api import aot_compile, gradients_of, trained
from .contracts import Compiled, GraphCompiler, GraphSpec, Report
from .errors import UsageError
from .options import AotOptions
from .pieces import in_pieces, name_of
from .recipes import Recipe, Run, digest_of, from_data
from .trace.joint import trace_joint
from .trace.rewritten import rewrite
from .wrappers.autograd import Gradients
from .wrappers.uncompiled import uncompiled

__all__ = ["Rest"]


class Rest:
    """recipes.Rest of a recipe. graph: reads the captured graph, whose nodes have meta["spec"] and meta["stack"]."""

    def __init__(
        self, recipe: Recipe, graph: Callable[[], fx.GraphModule], compiler: GraphCompiler, options: AotOptions, report: Report
    ) -> None:
        self._recipe, self._read = recipe, graph
        self._compiler, self._options, self._report = compiler, options, report

    @functools.cached_property
    def _symbols(self) -> SymbolTable | None:
        return symbols_of(self._recipe["captured"])

    @functools.cached_property
    def _graph(self) -> fx.GraphModule:
        gm = self._read()
        restore(gm, self._recipe["captured"], self._symbols)
        return gm

    @functools.cached_property
    def uncompiled(self) -> Run:
        return uncompiled(self._graph)

    def anew(self, args: Sequence[Any]) -> Run:
        return aot_compile(self._graph, args, forward_compiler=self._compiler, options=self._options, report=self._report)

    def in_pieces(self, calls: Mapping[str, Run]) -> Run | None:
        """recipes.Rest.in_pieces"""
        gm, cut = self._graph, set()

        def compiled(piece: fx.GraphModule, examples: list[Any]) -> Run:
            cut.add(name_of(piece))
            return calls.get(name_of(piece), piece.forward)

        gm.meta.setdefault("symbols", SymbolTable())
        nodes = {node.name: node for node in gm.graph.nodes}
        for name in self._recipe["captured"]["as_they_are"]:
            nodes[name].meta["data_dependent"] = True
        made = in_pieces(gm, [node.meta["example_value"] for node in self._placeholders()], compiled, self._report)
        return made if cut == calls.keys() else None

    @functools.cached_property
    def gradients(self) -> list[Gradients]:
        modes = _torch.Modes(*from_data(self._recipe["modes"]))
        options = replace(self._options, buckets=from_data(self._recipe["buckets"]))
        examples = [
            self._example(node, row) for node, row in zip(self._placeholders(), self._recipe["captured"]["inputs"], strict=True)
        ]
        with torch.inference_mode(False), modes.again():
            joint = trace_joint(self._graph, examples, options.attention, options.trained_attention)
            if options.rewrite is not None:
                rewrite(joint.graph, partial(options.rewrite, is_inference=False), joint.fake_mode)
            made = trained(joint, options, self._report)
        if digest_of(made.program) != self._recipe["digest"]:
            raise UsageError(
                "the gradients of a compiled graph that was loaded from the cache are computed otherwise now: do its operators look at"
                " settings that have changed since? Compile it anew, after tracework.reset()"
            )
        if self._symbols is None:
            return gradients_of(made, self._compiler, options, self._report, self._recipe["backwards"])
        return gradients_of(made, self._by_operators, options, self._report, higher=self._compiler)

    def _by_operators(self, gm: fx.GraphModule, spec: GraphSpec) -> Compiled:
        """Compiled anew it might hold for some sizes only, which no guard asks for."""

        def run(inputs: list[Any]) -> Any:
            self._report("settings of torch have changed since gradients with open sizes were compiled", "")
            return gm(*inputs)

        return run

    def _example(self, node: fx.Node, row: Any) -> Any:
        if row is None:
            return _number(node.meta["spec"].expr, self._symbols)
        return _example(node, row, self._symbols)

    def _placeholders(self) -> list[fx.Node]:
        return [node for node in self._graph.graph.nodes if node.op == "placeholder"]


def symbols_of(described: dict[str, Any]) -> SymbolTable | None:
    """The symbols of recipes.described, as they were before the graph was traced."""
    names, table = read_symbols(described["symbols"], with_table=bool(described["symbols"]))
    if table is not None:
        table.origins |= {made: "" for made in names.values() if isinstance(made, Symbol)}
    return table


def restore(gm: fx.GraphModule, described: dict[str, Any], symbols: SymbolTable | None = None) -> None:
    """Gives a captured graph that was read from a text what recipes.described kept of it, and fakes for its values."""
    mode = FakeMode(symbols)
    if symbols is not None:
        gm.meta["symbols"] = symbols
    nodes = {node.name: node for node in gm.graph.nodes}
    for node in nodes.values():
        if node.op != "output" and "spec" in node.meta:
            node.meta["example_value"] = _fake(mode, node.meta["spec"])
    placeholders = [node for node in nodes.values() if node.op == "placeholder"]
    storages: dict[int, Any] = {}
    for node, row in zip(placeholders, described["inputs"], strict=True):
        if row is not None and row[0] == "constant":
            node.meta["example_value"] = from_data(row[1])
        elif row is not None:
            *_, is_static, storage = row
            node.meta["binding"] = _Static(is_static)
            fake = node.meta["example_value"] = mode.make(node.meta["spec"], storages.get(storage))
            storages.setdefault(storage, fake.storage)
    for number, (mark, inside, reads) in enumerate(described["checkpoints"]):
        tensors = tuple(nodes[name].meta["example_value"] for name in reads)
        for name in inside:
            meta = nodes[name].meta
            meta.update(recompute_region=number, recompute_reads=tensors, **({} if mark is None else {"recompute": mark}))


class _Static:
    """Of an input, whether it keeps its identity between calls."""

    def __init__(self, is_static: bool) -> None:
        self.is_static = is_static


def _fake(mode: FakeMode, spec: Any) -> Any:
    if isinstance(spec, tuple):
        return tuple([_fake(mode, part) for part in spec])
    if isinstance(spec, TensorSpec):
        return mode.make(spec)
    return None if spec is None else mode.table.to_symint(spec.expr)


def _number(size: Size, symbols: SymbolTable | None) -> int:
    """The size in the example inputs, or any where that depended on data: the graph is traced with the symbol then."""
    if not isinstance(size, Expr):
        return size
    assert symbols is not None
    return size.evaluate({s: symbols.hint(s) if symbols.has_hint(s) else max(s.lower or 0, _ANY) for s in size.free_symbols})


_ANY = 8


def _example(node: fx.Node, row: Sequence[Any], symbols: SymbolTable | None) -> Any:
    """A tensor without memory of which autograd says what it said of the example input."""
    if row[0] == "constant":
        return from_data(row[1])
    _, requires_grad, is_leaf, is_parameter, is_view, *_ = row
    spec, number = node.meta["spec"], partial(_number, symbols=symbols)
    made = torch.empty_strided([*map(number, spec.sizes)], [*map(number, spec.strides)], dtype=spec.dtype, device="meta")
    if is_parameter:
        return torch.nn.Parameter(made, requires_grad)
    with torch.set_grad_enabled(not is_leaf) if requires_grad else nullcontext():
        if not is_leaf:
            made.requires_grad_()
        if is_view:
            made = made.view_as(made)
        elif not is_leaf:
            made = made.clone()
    return made.requires_grad_(requires_grad) if is_leaf else made
