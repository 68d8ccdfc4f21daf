"""Graphs with nodes that run as they are, which meta["data_dependent"] marks; what is between them is compiled.

Such nodes read data (item, nonzero, masks), set up hooks that run at backward time, or write settings of torch which kernels look at when
they run; meta["undo"] says how such a setting is read and written, and what follows is compiled under it. The graph is cut in program
order. Grad mode and autocast that a piece would not leave as it found them are switched between pieces. meta["of_history"] marks nodes
of hooks: in a graph that is cut they all run as they are, and a piece ends where the first argument of one is made, whose history has to
be whole.

A piece takes sizes that depend on data as inputs, and compiled code takes them to be 2 or more, as it does all sizes that are symbols;
where one is smaller, or something has to be decided on it, the piece runs eager kernels. So it does, with a warning, where a step before it
gave another tensor than its fake was: compiled code relies on dtypes, sizes and strides.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from tracework_primops import Condition, Expr, FakeTensor, GuardOnUnbackedError, TensorSpec, copy_node
from tracework_primops.symbols import Size

from . import _torch
from .contracts import Report
from .errors import Refusal
from .nodes import function_of, operand_of

__all__ = ["depends_on_data", "in_pieces", "name_of"]

SMALLEST = 2
PASSED_ON = ("example_value", "val", "binding", "recompute_reads")
Call = Callable[..., Sequence[Any]]


def depends_on_data(gm: fx.GraphModule) -> bool:
    """Whether some node runs as it is. A hook of a result does: others see what it gives."""
    output = next(iter(reversed(gm.graph.nodes)))
    results = [n.meta.get("example_value") for n in output.all_input_nodes]

    def hooks_a_result(node: fx.Node) -> bool:
        hooked = operand_of(node).meta.get("example_value") if node.meta.get("of_history") and node.args else None
        return hooked is not None and any(hooked is result for result in results)

    return any(node.meta.get("data_dependent") or hooks_a_result(node) for node in gm.graph.nodes)


def name_of(piece: fx.GraphModule) -> str:
    """A name that no other piece of its graph has: that of its first node."""
    return next(node.name for node in piece.graph.nodes if node.op != "placeholder")


@dataclass(frozen=True)
class _Step:
    """Nodes that are run one after another: by `call` of the needed values, which gives those that are made. `ended`: not read later."""

    call: Call
    needed: tuple[fx.Node, ...]
    made: tuple[fx.Node, ...]
    ended: tuple[fx.Node, ...]


def in_pieces(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_piece: Callable[[fx.GraphModule, list[Any]], Call],
    report: Report,
    observe: Callable[[str, Any], None] | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """The graph as a callable of the same inputs. Raises Refusal where gradients are asked for inside, which pieces would not know."""
    for node in gm.graph.nodes:
        if node.target is torch.autograd.grad:  # a piece would see the history of its own operators alone
            raise Refusal("gradients are asked for in a graph that is cut into pieces", _origin(node))
    examples = dict(zip((n for n in gm.graph.nodes if n.op == "placeholder"), example_inputs, strict=True))
    entered: dict[fx.Node, Any] = {}
    records = torch.is_grad_enabled()
    with _settings_kept(gm.graph):
        try:
            steps = _steps(gm, examples, compile_piece, entered, report)
        finally:
            _torch.leave_modes(records, entered.values())
    if observe is not None:
        observe("between", tuple(dict.fromkeys(_described(_whole(n)) for n in gm.graph.nodes if n.meta.get("data_dependent"))))
    inputs = tuple(examples)
    output = next(iter(reversed(gm.graph.nodes))).args[0]
    entering = [node for node in gm.graph.nodes if _torch.enters_autocast(node)]

    def call(*args: Any) -> tuple[Any, ...]:
        values, records = dict(zip(inputs, args)), torch.is_grad_enabled()
        try:
            for step in steps:
                values.update(zip(step.made, step.call(*[values[n] for n in step.needed])))
                for node in step.ended:
                    del values[node]
        except BaseException:
            _torch.leave_modes(records, [values[n] for n in entering if n in values])
            raise
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


def _runs(graph: fx.Graph, behind: dict[fx.Node, frozenset[fx.Node]]) -> list[list[fx.Node]]:
    """The nodes in order, cut where those that run as they are begin and end, and the modes that a piece would leave changed."""
    apart: set[fx.Node] = set()
    records = _grad_modes(graph)
    while True:
        runs = _cut_by_history(_cut(graph, apart), behind)
        left = {node for run in runs if not _is_eager(run) for node in _switches_left(run, records)}
        if not left:
            return runs
        apart |= left


def _cut(graph: fx.Graph, apart: set[fx.Node]) -> list[list[fx.Node]]:
    """The runs, with a run of its own for each node of `apart`."""
    ends = {node.args[0] for node in graph.nodes if node.meta.get("of_history") and node.args}
    runs: list[list[fx.Node]] = []
    kind: Any = None
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or _is_part(node):
            continue
        mine = node if node in apart else _runs_as_it_is(node) or (kind is True and not _computes(node))
        if mine is not kind:
            runs.append([])
        parts = _parts(node)
        kind = None if not ends.isdisjoint((node, *parts)) else mine
        runs[-1] += [node, *parts]
    return runs


def _is_part(node: fx.Node) -> bool:
    """Whether a node takes one of several results of another: it goes with that one, since pieces give tensors."""
    return node.target is operator.getitem and isinstance(operand_of(node).meta.get("example_value"), (tuple, list))


def _whole(node: fx.Node) -> fx.Node:
    """What a node takes a part of; itself, where it takes none."""
    return _whole(operand_of(node)) if _is_part(node) else node


def _parts(node: fx.Node) -> list[fx.Node]:
    """The nodes that take parts of a node's result, and parts of those."""
    parts = [user for user in node.users if _is_part(user)]
    return [inner for part in parts for inner in (part, *_parts(part))]


def _runs_as_it_is(node: fx.Node) -> bool:
    return bool(node.meta.get("data_dependent") or node.meta.get("of_history"))


def _switches_left(run: list[fx.Node], records: dict[fx.Node, bool]) -> list[fx.Node]:
    """The nodes that switch modes to something that holds after the run, or held before it. `records`: grad mode before each switch."""
    inside = set(run)
    left = [n for n in run if _torch.enters_autocast(n) and not inside.issuperset(n.users)]
    left += [n for n in run if _torch.leaves_autocast(n) and n.args[0] not in inside]
    switches = [n for n in run if n in records]
    if switches and records[switches[0]] is not switches[-1].args[0]:
        left += switches
    return left


def _behind(graph: fx.Graph) -> dict[fx.Node, frozenset[fx.Node]]:
    """For each node whose result has a history the nodes behind it whose gradients hooks see."""
    hooks = [node for node in graph.nodes if node.meta.get("of_history")]
    seen = {*hooks, *(node.args[0] for node in hooks if node.args)}
    found: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in graph.nodes:
        if _has_history(node):
            own = (node,) if node in seen else ()
            found[node] = frozenset(own).union(*(found.get(n, ()) for n in node.all_input_nodes))
    return found


def _cut_by_history(runs: list[list[fx.Node]], behind: dict[fx.Node, frozenset[fx.Node]]) -> list[list[fx.Node]]:
    """The runs, cut where the history of one result leads to other hooks than that of another.

    A piece is one node of autograd: the engine goes on to all that is behind it, whichever result a gradient comes to, and hooks there
    would see gradients that eager does not have.
    """
    found: list[list[fx.Node]] = []
    for run in runs:
        inside = set(run)
        made = {behind[n] for n in run if n in behind and not inside.issuperset(n.users)}
        if _is_eager(run) or len(made) < 2:
            found.append(run)
            continue
        found.append([])
        last = None
        for node in run:
            if _computes(node):  # a part of a result stays with what it is a part of
                if last is not None and behind.get(node, last) != last:
                    found.append([])
                last = behind.get(node, last)
            found[-1].append(node)
    return found


def _has_history(node: fx.Node) -> bool:
    val = node.meta.get("example_value")
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in (val if isinstance(val, (tuple, list)) else (val,)))


def _grad_modes(graph: fx.Graph) -> dict[fx.Node, bool]:
    """Grad mode before each node that switches it."""
    found, mode = {}, torch.is_grad_enabled()
    for node in graph.nodes:
        if _torch.switches_grad_mode(node):
            found[node], mode = mode, bool(node.args[0])
    return found


def _computes(node: fx.Node) -> bool:
    """Whether a node is more than arithmetic on sizes or a part of a result."""
    return not _is_part(node) and not isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymBool, int, bool))


def _steps(
    gm: fx.GraphModule,
    examples: dict[fx.Node, Any],
    compile_piece: Callable[[fx.GraphModule, list[Any]], Call],
    entered: dict[fx.Node, Any],
    report: Report,
) -> list[_Step]:
    """The pieces, each compiled in the modes and under the settings that it will run in. `entered`: blocks of autocast that are open."""
    runs = _runs(gm.graph, _behind(gm.graph))
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
                function_of(node)(*node.args)
        for node in filter(_torch.switches_modes, run if _is_eager(run) else ()):
            entered[node] = function_of(node)(*fx.node.map_arg(node.args, entered.pop))
            if not _torch.enters_autocast(node):
                del entered[node]
        call = piece.forward
        if not _is_eager(run):
            call = _with_leaves(_compiled(piece, needed[number], examples, compile_piece, report), made)
        ended = tuple(n for n in needed[number] if last[n] == number)
        steps.append(_Step(call, needed[number], made, ended))
    return steps


def _is_eager(run: list[fx.Node]) -> bool:
    """Whether the nodes run as they are: those that are marked, one that switches a mode, or nothing but sizes."""
    return any(map(_runs_as_it_is, run)) or not any(map(_computes, run)) or _is_switch(run)


def _is_switch(run: list[fx.Node]) -> bool:
    """Whether the run is one that switches a mode for those after it."""
    return len(run) == 1 and _torch.switches_modes(run[0])


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
        copies[node].meta.update({k: node.meta[k] for k in PASSED_ON if k in node.meta})
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
    report: Report,
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
        place = next((origin for node in piece.graph.nodes if _computes(node) and (origin := _origin(node))), "")
        report(str(asked), place)
        return piece.forward

    made = [
        (i, n, fake.spec)
        for i, (n, fake) in enumerate(zip(needed, sizes, strict=True))
        if n not in examples and isinstance(fake, FakeTensor)
    ]
    symbols_at = [(size.node.expr, i) for i, size in enumerate(sizes) if isinstance(size, torch.SymInt)]

    def run(*args: Any) -> Sequence[Any]:
        if not all(args[i] >= SMALLEST for i in places):
            return piece.forward(*args)
        values = {symbol: args[i] for symbol, i in symbols_at}
        for i, node, spec in made:
            if (difference := _difference(args[i], spec, values)) is not None:
                report(f"{node.target} gave {difference}", _origin(node))
                return piece.forward(*args)
        return call(*args)

    return run if places or made else call


def _difference(value: Any, spec: TensorSpec, values: dict[Any, int]) -> str | None:
    """How a tensor differs from what compiled code takes it for; None where it does not. Symbols that `values` lacks are learned."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} instead of a tensor"
    found = {"dtype": (value.dtype, spec.dtype), "device": (value.device, spec.device), "layout": (value.layout, torch.strided)}
    for what, (given, expected) in found.items():
        if given != expected:
            return f"a tensor of {what} {given} where the graph was compiled for {expected}"
    if not _fit(value.shape, spec.sizes, values):
        return f"a tensor of size {tuple(value.shape)} where the graph was compiled for {spec.sizes}"
    walked = [d for d, size in enumerate(value.shape) if size != 1] if value.numel() else []
    strides = value.stride()
    if not _fit([strides[d] for d in walked], [spec.strides[d] for d in walked], values):
        return f"a tensor with strides {strides} where the graph was compiled for {spec.strides}"
    return "a tensor whose values are negated or conjugated when they are read" if value.is_neg() or value.is_conj() else None


def _fit(given: Sequence[int], expected: Sequence[Size], values: dict[Any, int]) -> bool:
    if len(given) != len(expected):
        return False
    for number, size in zip(given, expected):
        if not isinstance(size, Expr):
            if number != size:
                return False
        elif size.free_symbols <= values.keys():
            if number != size.evaluate(values):
                return False
        elif size.free_symbols == {size}:
            values[size] = number
    return True


def _with_leaves(call: Call, made: Sequence[fx.Node]) -> Call:
    """The compiled piece, whose results that are leaves ask for their gradients: the next pieces make history from them."""
    values = [n.meta.get("example_value") for n in made]
    leaves = [i for i, t in enumerate(values) if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf]

    def run(*args: Any) -> Sequence[Any]:
        results = call(*args)
        for place in leaves:
            results[place].requires_grad_()
        return results

    return run if leaves else call


def _question_about_data(error: BaseException | None) -> GuardOnUnbackedError | None:
    """The question, among an error and its causes, that only data answers."""
    while error is not None and not isinstance(error, GuardOnUnbackedError):
        error = error.__cause__
    return error


def _described(node: fx.Node) -> str:
    return (
        f"{getattr(node.target, '__name__', node.target)} runs as it is: it depends on data or on the process ({_origin(node)})"
    )


def _origin(node: fx.Node) -> str:
    return node.meta.get("stack") or ""
