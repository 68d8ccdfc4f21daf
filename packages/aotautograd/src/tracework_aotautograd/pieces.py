"""Graphs with operators that read data (item, nonzero, masks): such operators run as they are, what is between them is compiled.

So do nodes that write settings of torch which kernels look at when they run; meta["undo"] says how such a setting is read and written,
and what follows is compiled under it. The graph is cut in program order. A piece takes sizes that depend on data as inputs, and
compiled code takes them to be 2 or more, as it does all sizes that are symbols; where one is smaller, or something has to be decided
on it, the piece runs eager kernels.
"""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from tracework_primops import Condition, Expr, FakeTensor, GuardOnUnbackedError, copy_node

from . import _torch
from .errors import Refusal

__all__ = ["depends_on_data", "in_pieces"]

log = logging.getLogger("tracework.fallbacks")
SMALLEST = 2
Call = Callable[..., Sequence[Any]]


def depends_on_data(gm: fx.GraphModule) -> bool:
    """Whether some operator reads data for a size or a number."""
    return any(node.meta.get("data_dependent") for node in gm.graph.nodes)


@dataclass(frozen=True)
class _Step:
    """Nodes that are run one after another: by `call` of the needed values, which gives those that are made. `ended`: not read later."""

    call: Call
    needed: tuple[fx.Node, ...]
    made: tuple[fx.Node, ...]
    ended: tuple[fx.Node, ...]


def in_pieces(
    gm: fx.GraphModule, example_inputs: Sequence[Any], compile_piece: Callable[[fx.GraphModule, list[Any]], Call]
) -> Callable[..., tuple[Any, ...]]:
    """The graph as a callable of the same inputs. Raises Refusal where modes are switched or gradients asked for inside, which pieces would not know."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and _torch.switches_modes(node):
            raise Refusal("sizes depend on data in a graph that switches grad mode or autocast", _origin(node))
        if node.target is torch.autograd.grad:  # a piece would see the history of its own operators alone
            raise Refusal("gradients are asked for in a graph that operators which read data cut into pieces", _origin(node))
    examples = dict(zip((n for n in gm.graph.nodes if n.op == "placeholder"), example_inputs, strict=True))
    with _settings_kept(gm.graph):
        steps = _steps(gm, examples, compile_piece)
    inputs = tuple(examples)
    output = next(iter(reversed(gm.graph.nodes))).args[0]

    def call(*args: Any) -> tuple[Any, ...]:
        values = dict(zip(inputs, args))
        for step in steps:
            values.update(zip(step.made, step.call(*[values[n] for n in step.needed])))
            for node in step.ended:
                del values[node]
        return tuple(fx.node.map_arg(output, values.__getitem__))

    return call


@contextlib.contextmanager
def _settings_kept(graph: fx.Graph) -> Iterator[None]:
    """Settings that nodes of the graph write are afterwards what they are now."""
    before = [(read(), write) for read, write in (n.meta["undo"] for n in graph.nodes if "undo" in n.meta)]
    try:
        yield
    finally:
        for value, write in before:
            write(value)


def _runs(graph: fx.Graph) -> list[list[fx.Node]]:
    """The nodes in order, cut where operators that read data begin and end."""
    runs: list[list[fx.Node]] = []
    kind = None
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        mine = bool(node.meta.get("data_dependent")) or (kind is True and not _computes(node))
        if mine is not kind:
            runs.append([])
        kind = mine
        runs[-1].append(node)
    return runs


def _computes(node: fx.Node) -> bool:
    """Whether a node is more than arithmetic on sizes or a part of a result."""
    if node.target is operator.getitem and isinstance(node.args[0].meta.get("example_value"), (tuple, list)):
        return False
    return not isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymBool, int, bool))


def _steps(
    gm: fx.GraphModule, examples: dict[fx.Node, Any], compile_piece: Callable[[fx.GraphModule, list[Any]], Call]
) -> list[_Step]:
    runs = _runs(gm.graph)
    needed, before = [], list(examples)
    for run in runs:
        inside = frozenset(run)
        read = [n for n in before if any(user in inside for user in n.users)]
        if not _is_eager(run):
            read += _sizes_of((*read, *run), [n for n in before if n not in read])
        needed.append(tuple(read))
        before += run
    last = {node: number for number, read in enumerate(needed) for node in read}
    output = next(iter(reversed(gm.graph.nodes)))
    last.update(dict.fromkeys(output.all_input_nodes, len(runs)))
    steps = []
    for number, run in enumerate(runs):
        made = tuple(n for n in run if last.get(n, -1) > number)
        piece = _piece(gm, run, needed[number], made)
        for node in run:
            if "undo" in node.meta:
                node.target(*node.args)
        call = piece.forward if _is_eager(run) else _compiled(piece, needed[number], examples, compile_piece)
        ended = tuple(n for n in needed[number] if last[n] == number)
        steps.append(_Step(call, needed[number], made, ended))
    return steps


def _is_eager(run: list[fx.Node]) -> bool:
    """Whether the nodes run as they are: operators that read data, or nothing but sizes."""
    return any(n.meta.get("data_dependent") for n in run) or not any(map(_computes, run))


def _sizes_of(nodes: Sequence[fx.Node], known: list[fx.Node]) -> list[fx.Node]:
    """Those of the known nodes that give symbols which the nodes' shapes are made of."""
    wanted: set[Any] = set()
    for node in nodes:
        val = node.meta.get("example_value")
        if isinstance(val, FakeTensor):
            for size in (*val.spec.sizes, *val.spec.strides, val.spec.offset):
                wanted |= size.free_symbols if isinstance(size, Expr) else frozenset()
        elif isinstance(val, torch.SymInt):
            wanted |= val.node.expr.free_symbols if isinstance(val.node.expr, Expr) else frozenset()
    return [
        n for n in known if isinstance(n.meta.get("example_value"), torch.SymInt) and n.meta["example_value"].node.expr in wanted
    ]


def _piece(gm: fx.GraphModule, inside: Any, needed: Sequence[fx.Node], made: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in needed:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update({k: node.meta[k] for k in ("example_value", "val", "binding") if k in node.meta})
    for node in inside:
        copies[node] = copy_node(graph, node, copies.__getitem__)
    graph.output(tuple(copies[n] for n in made))
    piece = fx.GraphModule(gm, graph, "Piece")
    piece.meta.update(gm.meta)
    return piece


def _compiled(
    piece: fx.GraphModule,
    needed: Sequence[fx.Node],
    examples: dict[fx.Node, Any],
    compile_piece: Callable[[fx.GraphModule, list[Any]], Call],
) -> Call:
    """The piece, compiled for data-dependent sizes of 2 and more."""
    symbols = piece.meta["symbols"]
    sizes = [n.meta["example_value"] for n in needed]
    places = [i for i, size in enumerate(sizes) if isinstance(size, torch.SymInt) and not size.node.has_hint()]
    enough = [Condition.compare(">=", sizes[i].node.expr, SMALLEST) for i in places]
    if any(symbols.is_true(condition) is False for condition in enough):
        return piece.forward
    for condition in enough:
        symbols.assume(condition, "compiled code")
    try:
        call = compile_piece(piece, [examples.get(n, n.meta["example_value"]) for n in needed])
    except Exception as error:
        asked = _question_about_data(error)
        if asked is None:
            raise
        log.warning("part of a graph runs uncompiled: %s", asked)
        return piece.forward

    def run(*args: Any) -> Sequence[Any]:
        return call(*args) if all(args[i] >= SMALLEST for i in places) else piece.forward(*args)

    return run if places else call


def _question_about_data(error: BaseException | None) -> GuardOnUnbackedError | None:
    """The question, among an error and its causes, that only data answers."""
    while error is not None and not isinstance(error, GuardOnUnbackedError):
        error = error.__cause__
    return error


def _origin(node: fx.Node) -> str:
    return node.meta.get("stack") or ""
