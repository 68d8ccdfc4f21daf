"""Operators that take functions: torch.cond, while_loop, scan and map. Graphs of torch.export call polyfills over them.

torch.cond takes one arm when the condition is known; else both are traced and become an operator that runs the one that the data asks for. A
while_loop is an operator that runs traced graphs as often as the data asks for. Scan and map go step by step; long ones and those of a number of
steps that changes are an operator, too.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor
from tracework_primops.symbols.layout import contiguous_strides

from ...._torch.operators import cond_op, map_steps, scan, while_loop
from ....graph.constant_data import known_tensor
from ....graph.operators import ArgumentSize, ResultFacts, traced_operator
from ....graph.regions import Placed
from ...number.symint import compare_sizes
from ...plain.iterators import PartialBuiltin
from ...plain.sequence import TupleValue
from ...protocol.calls import call
from ...protocol.constant import ConstantValue
from ...protocol.kinds import AbstractTensor
from ...protocol.region import Region
from ...protocol.value import Frame, Value
from ..structure import leaves, rebuilt, same_structure
from ..tensor import TensorValue
from .loop_numbers import over_ints, places_of_ints, with_ints, with_tensors

LONGEST = 64
"""Steps of a scan or map that go into the graph one by one."""


# --- an operator of traced functions ---------------------------------------------------------------------------------------


def traced_part(frame: Frame, function: Value, args: list[Value], name: str) -> tuple[Value, tuple[Any, ...], Any]:
    """(what a function gives, facts of its tensors, the function as a graph of its own)"""
    region, random = Region(frame, function, *args), frame.recording.effects.random
    frame.recording.effects.random = False
    found = function.call(frame, args, {})
    if changed := region.what_changed():
        return frame.break_graph("call_unknown", f"{name}: a function of it {changed}")
    results = leaves(frame, found)
    if not results or not all(type(leaf) is TensorValue for leaf in results):
        return frame.break_graph("call_unknown", f"{name}: a function of it gives something else than tensors")
    made = region.outline([leaf.node for leaf in results], "Arm")
    if frame.recording.effects.random and any(is_followed(n) for n in made.inputs):
        return frame.break_graph(
            "call_unknown", f"{name}: a function of it draws random numbers, and its gradient would draw again"
        )
    frame.recording.effects.random |= random
    return found, tuple(ResultFacts.of(leaf.example) for leaf in results), made


def is_followed(node: fx.Node) -> bool:
    """Whether autograd follows what a node gives."""
    return torch.is_grad_enabled() and getattr(node.meta["example_value"], "requires_grad", False)


def is_fixed(example: torch.Tensor) -> bool:
    """Whether sizes and strides are known."""
    return all(type(n) is int for n in (*example.shape, *example.stride()))


def fits(example: FakeTensor) -> bool:
    """Whether a tensor has known sizes and no history."""
    return is_fixed(example) and not (torch.is_grad_enabled() and example.requires_grad)


def same_facts(frame: Frame, facts: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether these are the same kinds of tensors, of sizes that are guarded to be the same."""
    pairs = list(zip(facts, others))
    if len(facts) != len(others) or any((a.dtype, a.device, len(a.sizes)) != (b.dtype, b.device, len(b.sizes)) for a, b in pairs):
        return False
    sizes = [pair for a, b in pairs for pair in zip(a.sizes + a.strides, b.sizes + b.strides)]
    return all(compare_sizes(frame, "==", a, b) for a, b in sizes)


def call_traced(frame: Frame, function: Any, text: tuple[Any, ...], nodes: list[fx.Node], facts: Sequence[Any]) -> list[Value]:
    """What the operator of a function of traced graphs gives, tensor by tensor. Sizes that are symbols, of results too, are arguments."""
    sizes = [size for fact in facts for size in (*fact.sizes, *fact.strides) if type(size) is not int]
    of_sizes = {size: frame.graph.size_node(size) for size in sizes}
    nodes = list(dict.fromkeys([*nodes, *of_sizes.values()]))
    numbers = frozenset(i for i, node in enumerate(nodes) if not isinstance(node.meta["example_value"], torch.Tensor))
    facts = [fact.over(lambda size: ArgumentSize(nodes.index(of_sizes[size])) if size in of_sizes else size) for fact in facts]
    found = frame.graph.call(frame, traced_operator(function, text, len(nodes), facts, numbers), tuple(nodes))
    return found.unpack(frame) if len(facts) > 1 else [found]


def facts_of(nodes: list[fx.Node]) -> tuple[Any, ...]:
    return tuple(ResultFacts.of(node.meta["example_value"]) for node in nodes)


# --- one of two -------------------------------------------------------------------------------------------------------------

NAMES = ("pred", "true_fn", "false_fn", "operands")


@dataclass(frozen=True)
class Arms:
    """Two graphs, of which a tensor chooses one."""

    arms: list[Placed]
    name = "cond"

    def __call__(self, condition: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found: tuple[torch.Tensor, ...] = self.arms[0 if bool(condition) else 1](*tensors)
        return found


@call(torch.cond, cond_op)
def cond_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.cond(pred, true_fn, false_fn, operands=())"""
    given = dict(zip(NAMES, args)) | kwargs
    condition, arms = given["pred"], (given["true_fn"], given["false_fn"])
    operands = given["operands"].unpack(frame) if "operands" in given else []
    if not isinstance(condition, TensorValue) or known_tensor(condition.node) is not None:
        return arms[0 if condition.truth(frame) else 1].call(frame, operands, {})
    if condition.example.numel() != 1 or frame.modes.transforms:
        return frame.break_graph("call_unknown", "torch.cond of several conditions, or under a transform")
    (found, *first), (other, *second) = [traced_part(frame, arm, operands, "torch.cond") for arm in arms]
    if not same_structure(frame, found, other):
        return frame.break_graph("call_unknown", "torch.cond whose arms give results that are nested in different ways")
    return rebuilt(frame, found, iter(operator_results(frame, condition, [first, second])))


def operator_results(frame: Frame, condition: AbstractTensor, traced: Sequence[Sequence[Any]]) -> list[Value]:
    """What the operator gives, tensor by tensor, for the facts and the graph of each arm."""
    (facts, _), (other_facts, _) = traced
    if not same_facts(frame, facts, other_facts):
        return frame.break_graph("call_unknown", "torch.cond whose arms give different kinds of tensors")
    inputs = list(dict.fromkeys(node for _, made in traced for node in made.inputs))
    arms = [made.among(inputs) for _, made in traced]
    return call_traced(frame, Arms(arms), tuple(arm.text for arm in arms), [condition.node, *inputs], facts)


# --- rounds -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """A graph that asks whether to go on and one that makes a round; both take the `count` carried tensors and what else they read."""

    condition: Placed
    body: Placed
    count: int
    name = "while_loop"

    def __call__(self, *given: torch.Tensor | int) -> tuple[Any, ...]:
        carried, others = given[: self.count], given[self.count :]
        while bool(self.condition(*carried, *others)[0]):
            carried = self.body(*carried, *others)
        return carried


@call(while_loop, torch.while_loop)
def while_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.while_loop(cond_fn, body_fn, carried_inputs)"""
    given: dict[str, Any] = dict(zip(("cond_fn", "body_fn", "carried_inputs"), args)) | kwargs
    if len(args) > 3 or set(given) - {"cond_fn", "body_fn", "carried_inputs"} or frame.modes.transforms:
        return frame.break_graph("call_unknown", "torch.while_loop with other arguments, or under a transform")
    carried = TupleValue(given["carried_inputs"].unpack(frame))
    ints = places_of_ints(frame, carried)
    started, nodes = first_round(frame, with_tensors(frame, carried, ints), "torch.while_loop")
    items = started.unpack(frame)
    _, wanted, asked = traced_part(frame, over_ints(given["cond_fn"], ints, False), items, "torch.while_loop")
    found, facts, made = traced_part(frame, over_ints(given["body_fn"], ints, True), items, "torch.while_loop")
    same = same_structure(frame, TupleValue(found.unpack(frame)), started) and same_facts(frame, facts, facts_of(nodes))
    if not same or len(wanted) != 1 or wanted[0].sizes not in ((), (1,)):
        return frame.break_graph("call_unknown", "torch.while_loop whose body gives other kinds of tensors than it takes")
    count = len(nodes)
    nodes = list(dict.fromkeys([*nodes, *asked.inputs, *made.inputs]))
    loop = Loop(asked.among(nodes), made.among(nodes), count)
    results = call_traced(frame, loop, (loop.condition.text, loop.body.text), nodes, facts)
    return rebuilt(frame, found, iter(with_ints(frame, results, ints)))


def first_round(frame: Frame, carried: Value, name: str) -> tuple[Any, list[fx.Node]]:
    """What the first round gets: copies, which stand for no other tensors in its graph; and their nodes."""
    over = leaves(frame, carried)
    if not over or not all(type(v) is TensorValue for v in over):
        return frame.break_graph("call_unknown", f"{name} that carries something else than tensors")
    copies: list[Any] = [frame.graph.call_method(frame, "clone", (v,)) for v in over]
    return rebuilt(frame, carried, iter(copies)), [v.node for v in copies]


# --- steps ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """A graph that makes a step, for each item of tensors along a dim. It takes items, what the step before carries, and others; `counts` are
    those of the first two."""

    body: Placed
    counts: tuple[int, int]
    dim: int
    backwards: bool
    name = "scan"

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        over, carries = self.counts
        xs, carried, others = tensors[:over], tensors[over : over + carries], tensors[over + carries :]
        rows = []
        steps = range(xs[0].shape[self.dim])
        for step in reversed(steps) if self.backwards else steps:
            found = self.body(*[x.select(self.dim, step) for x in xs], *carried, *others)
            carried = found[:carries]
            rows.append(found[carries:])
        columns = zip(*(rows[::-1] if self.backwards else rows), strict=True)
        return (*carried, *[stacked_along(torch.stack(column), self.dim) for column in columns])


def stacked_along(stack: torch.Tensor, dim: int) -> torch.Tensor:
    """Results of steps, which lie along the first dim, along another where they have it."""
    return stack.movedim(0, dim) if 0 < dim < stack.ndim else stack


def steps_operator(
    frame: Frame, name: str, function: Value, init: Value, xs: Value, dim: int, backwards: bool
) -> tuple[Value, Value]:
    """(carried value, results) of a long scan."""
    over = leaves(frame, xs)
    firsts: list[Any] = [frame.graph.call_method(frame, "select", (leaf, dim, 0)) for leaf in over]
    started, nodes = (init, []) if init is NOTHING else first_round(frame, init, name)
    found, facts, made = traced_part(frame, function, [started, rebuilt(frame, xs, iter(firsts))], name)
    carried, results = pair_of(frame, found, name)
    count, length = len(nodes), over[0].example.spec.sizes[dim]
    if not (same_structure(frame, carried, started) and same_facts(frame, facts[:count], facts_of(nodes))):
        return frame.break_graph("call_unknown", f"{name} whose function gives another kind of tensors to carry than it takes")
    own = [*(v.node for v in firsts), *nodes]
    own += [n for n in made.inputs if n not in own]
    steps = Steps(made.among(own), (len(over), count), dim, backwards)
    text = steps.body.text, steps.counts, dim, backwards
    given = [*(v.node for v in over), *own[len(over) :]]
    values = call_traced(frame, steps, text, given, [*facts[:count], *(along(f, length, dim) for f in facts[count:])])
    return rebuilt(frame, init, iter(values[:count])), rebuilt(frame, results, iter(values[count:]))


def pair_of(frame: Frame, found: Value, name: str) -> list[Value]:
    """What a step gives: what it carries, its results."""
    pair = found.unpack(frame)
    return pair if len(pair) == 2 else frame.break_graph("call_unknown", f"{name} whose function gives no pair")


def along(facts: ResultFacts, length: Any, dim: int) -> ResultFacts:
    """The facts of the results of all steps."""
    sizes = (length, *facts.sizes)
    order = [*range(1, len(sizes))]
    order.insert(dim if dim < len(sizes) else 0, 0)  # as stacked_along has it
    strides = contiguous_strides(sizes)
    return ResultFacts(facts.dtype, facts.device, tuple(sizes[i] for i in order), tuple(strides[i] for i in order))


def number_of_steps(frame: Frame, name: str, xs: Value, dim: int) -> Any:
    """How many there are is what the graph is made for."""
    over = leaves(frame, xs)
    if not over or dim < 0 or not all(type(v) is TensorValue and v.example.ndim > dim for v in over):
        return frame.break_graph("call_unknown", f"{name} over something else than tensors, or over a dim counted from the end")
    length, *others = (v.example.spec.sizes[dim] for v in over)
    if compare_sizes(frame, "==", length, 0) or not all(compare_sizes(frame, "==", length, other) for other in others):
        return frame.break_graph("call_unknown", f"{name} over no steps, or over different numbers of them")
    return length


def stacked(frame: Frame, results: list[Value], dim: int) -> Value:
    """The results of all steps, leaf by leaf, along a new dim."""
    rows = [leaves(frame, result) for result in results]
    if not all(isinstance(leaf, TensorValue) for row in rows for leaf in row):
        return frame.break_graph("call_unknown", "steps that give something else than tensors")
    made = [stack(frame, row, dim) for row in zip(*rows, strict=True)]
    return rebuilt(frame, results[0], iter(made))


def stack(frame: Frame, row: tuple[AbstractTensor, ...], dim: int) -> Value:
    """stacked_along, traced."""
    found: Any = frame.graph.call(frame, torch.stack, (TupleValue(list(row)),))
    return frame.graph.call(frame, torch.movedim, (found, 0, dim)) if 0 < dim < found.example.ndim else found


NOTHING = TupleValue([])
"""What a map carries."""


def scanned(
    frame: Frame, name: str, function: Value, init: Value, xs: Value, dim: int = 0, backwards: bool = False
) -> tuple[Value, Value]:
    """(carried value, results of all steps)"""
    length = number_of_steps(frame, name, xs, dim)
    if type(length) is not int or length > LONGEST and not frame.modes.transforms:
        return steps_operator(frame, name, function, init, xs, dim, backwards)
    over, carried = leaves(frame, xs), init
    items = [[frame.graph.call_method(frame, "select", (leaf, dim, step)) for leaf in over] for step in range(length)]
    steps = [rebuilt(frame, xs, iter(item)) for item in items]
    results = []
    for x in reversed(steps) if backwards else steps:
        carried, result = pair_of(frame, function.call(frame, [carried, x], {}), name)
        results.append(result)
    return carried, stacked(frame, results[::-1] if backwards else results, dim)


@call(map_steps)
def map_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """map(f, xs, *args)"""
    if kwargs or len(args) < 2:
        return frame.break_graph("call_unknown", "map with these arguments")
    function, xs, *others = args

    def step(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return TupleValue([NOTHING, function.call(frame, [args[1], *others], {})])

    return scanned(frame, "map", PartialBuiltin(types.FunctionType, step, [function, *others]), NOTHING, xs)[1]


@call(scan)
def scan_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """scan(combine_fn, init, xs, *, dim=0, reverse=False)"""
    given: dict[str, Any] = dict(zip(("combine_fn", "init", "xs"), args)) | kwargs
    dim, backwards = (given.pop(name, ConstantValue(default)) for name, default in (("dim", 0), ("reverse", False)))
    if set(given) != {"combine_fn", "init", "xs"} or not dim.is_constant() or not backwards.is_constant():
        return frame.break_graph("call_unknown", "scan with these arguments")
    parts = scanned(frame, "scan", given["combine_fn"], given["init"], given["xs"], dim.constant(), backwards.constant())
    return TupleValue(list(parts))
