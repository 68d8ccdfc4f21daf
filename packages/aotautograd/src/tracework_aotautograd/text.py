"""Functional graphs and programs as text that reads back: graphs are printed as primops prints them, with ATen overloads for prims."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from torch import fx
from tracework_primops import (
    Expr,
    FakeMode,
    ParseError,
    PrimGraph,
    SizeSpec,
    SymbolTable,
    TensorSpec,
    add_node,
    decompose,
    parse_graph,
)
from tracework_primops.literals import parse_literal, print_literal, read_symbols, symbol_lines, symbols_in

from .contracts import Backward, FunctionalProgram, GraphSpec
from .signature import (
    Component,
    InputInfo,
    InputKind,
    Mutation,
    OutputInfo,
    OutputKind,
    Signature,
    SizeSlot,
    Slots,
    TakenView,
    TangentInfo,
    ViewStep,
)

__all__ = ["functional_graph", "functional_module", "parse_program", "print_program"]

SECTION = "# "
"""In front of the name of a part of a program's text."""
OF_SIGNATURES = (
    *(Signature, InputInfo, OutputInfo, ViewStep, SizeSlot, TakenView, Slots, TangentInfo, Component),
    *(InputKind, OutputKind, Mutation),
)


def functional_graph(gm: fx.GraphModule, spec: GraphSpec | None = None) -> PrimGraph:
    """A functional graph with the specs of its values in the place of fakes: it prints and runs as any PrimGraph."""
    return decompose(gm, profile="none", spec=spec)


def functional_module(graph: PrimGraph) -> tuple[fx.GraphModule, GraphSpec]:
    """The inverse: nodes have fakes in meta["val"], of a mode of their own."""
    table = graph.symbols or SymbolTable()
    mode = FakeMode(table)

    def fake(spec: Any) -> Any:
        if isinstance(spec, tuple):
            return tuple(map(fake, spec))
        if isinstance(spec, TensorSpec):
            return mode.make(spec)
        if isinstance(spec, SizeSpec):
            return table.to_symint(spec.expr) if isinstance(spec.expr, Expr) else spec.expr
        return None

    made = fx.Graph()
    nodes: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), nodes.__getitem__)
        nodes[node] = copy = add_node(made, node.op, node.target, args, kwargs, name=node.name)
        if node.op == "output":
            continue
        whole = nodes[node.args[0]].meta["val"] if node.target is operator.getitem else None
        copy.meta["val"] = whole[node.args[1]] if isinstance(whole, tuple) else fake(node.meta["spec"])
        copy.meta["origin"] = node.meta.get("origin")
    static = frozenset(i for i, given in enumerate(graph.inputs) if given.is_static)
    mutated = frozenset(i for i, given in enumerate(graph.inputs) if given.is_mutated)
    return fx.GraphModule({}, made), GraphSpec(graph.role, static, mutated, graph.symbols, mode)


def print_program(program: FunctionalProgram) -> str:
    """The text of a program: what its signature says, then its graphs. The specs of the graphs follow from them, but for `visible`."""
    table = program.forward_spec.symbols
    facts = program.saved, program.forward_spec.visible, tuple((b.component, b.saved) for b in program.backwards)
    parts = {
        "symbols": "\n".join(symbol_lines(symbols_in(program.signature), table)),
        "signature": print_literal(program.signature),
        "saved, visible results, backwards": print_literal(facts),
        "joint": functional_graph(program.joint, GraphSpec("forward", symbols=table)).text(),
        "forward": functional_graph(program.forward, program.forward_spec).text(),
        **{f"backward {n}": functional_graph(b.graph, b.spec).text() for n, b in enumerate(program.backwards)},
    }
    return "".join(f"{SECTION}{name}\n{text.rstrip()}\n" for name, text in parts.items())


def parse_program(text: str) -> FunctionalProgram:
    """The inverse of print_program. Raises ParseError."""
    sections: list[str] = []
    for line in text.splitlines():
        if line.startswith(SECTION):
            sections.append("")
        elif sections:
            sections[-1] += f"{line}\n"
    if len(sections) < 5:
        raise ParseError("not a functional program: it has a signature, a joint graph and a forward")
    names, table = read_symbols(sections[0].splitlines(), with_table=bool(sections[0].strip()))
    signature = parse_literal(sections[1], OF_SIGNATURES, names)
    saved, visible, rows = parse_literal(sections[2], OF_SIGNATURES, names)
    joint, (forward, spec), *backwards = (functional_module(parse_graph(part, table)) for part in sections[3:])
    made = tuple(Backward(gm, of, component, places) for (gm, of), (component, places) in zip(backwards, rows, strict=True))
    return FunctionalProgram(forward, made, signature, saved, replace(spec, visible=visible), joint[0])
