"""torch.while_loop as an operator that runs traced graphs as often as the data asks for; scan and map step by step, long ones and those of a
number of steps that changes as an operator, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tracework_primops.symbols.layout import contiguous_strides

from ...._torch import generic_associative_scan, map_steps, scan, while_loop
from ....graph.opaque_operators import ResultFacts
from ....sources import Const
from ...number.symint import compare_sizes
from ...plain.sequence import TupleValue
from ...protocol.calls import call
from ...protocol.constant import ConstantValue
from ...protocol.value import Value
from ..structure import leaves, rebuilt, same_structure
from ..tensor import TensorValue
from .cond import call_traced, same_facts, traced_part
from .loop_numbers import OverInts, places_of_ints, with_ints, with_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import fx

    from ...protocol.kinds import AbstractTensor
    from ...protocol.value import Frame

LONGEST = 64
"""Steps of a scan or map that go into the graph one by one."""


class Loop:
    """A graph that asks whether to go on and one that makes a round; both take the carried tensors and what else they read."""

    name = "while_loop"

    def __init__(
        self, condition: torch.nn.Module, body: torch.nn.Module, places: tuple[tuple[int, ...], ...], count: int
    ) -> None:
        self.condition, self.body, self.places, self.count = condition, body, places, count

    def __call__(self, *given: torch.Tensor | int) -> tuple[Any, ...]:
        carried, others = given[: self.count], given[self.count :]
        while True:
            given = (*carried, *others)
            if not bool(self.condition(*[given[i] for i in self.places[0]])[0]):
                return carried
            carried = self.body(*[given[i] for i in self.places[1]])


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
    _, wanted, asked = traced_part(frame, OverInts(given["cond_fn"], ints, False), items, "torch.while_loop")
    found, facts, made = traced_part(frame, OverInts(given["body_fn"], ints, True), items, "torch.while_loop")
    same = same_structure(frame, TupleValue(found.unpack(frame)), started) and same_facts(frame, facts, facts_of(nodes))
    if not same or len(wanted) != 1 or wanted[0].sizes not in ((), (1,)):
        return frame.break_graph("call_unknown", "torch.while_loop whose body gives other kinds of tensors than it takes")
    count = len(nodes)
    nodes = list(dict.fromkeys([*nodes, *asked.inputs, *made.inputs]))
    places = tuple(tuple(nodes.index(n) for n in part.inputs) for part in (asked, made))
    loop = Loop(asked.module, made.module, places, count)
    results = call_traced(frame, loop, (asked.module.code, made.module.code, places), nodes, facts)
    return rebuilt(frame, found, iter(with_ints(frame, results, ints)))


def first_round(frame: Frame, carried: Value, name: str) -> tuple[Any, list[fx.Node]]:
    """What the first round gets: copies, which stand for no other tensors in its graph; and their nodes."""
    over = leaves(frame, carried)
    if not over or not all(type(v) is TensorValue for v in over):
        return frame.break_graph("call_unknown", f"{name} that carries something else than tensors")
    copies: list[Any] = [frame.graph.call_method(frame, "clone", (v,)) for v in over]
    return rebuilt(frame, carried, iter(copies)), [v.node for v in copies]


def facts_of(nodes: list[fx.Node]) -> tuple[Any, ...]:
    return tuple(ResultFacts.of(node.meta["example_value"]) for node in nodes)


# --- steps as an operator --------------------------------------------------------------------------------------------------


class Steps:
    """A graph that makes a step, for each item of tensors along a dim. It takes items, what the step before carries, and others."""

    name = "scan"

    def __init__(self, body: Any, places: tuple[int, ...], counts: tuple[int, int], dim: int, backwards: bool) -> None:
        self.body, self.places, self.counts, self.dim, self.backwards = body, places, counts, dim, backwards

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        over, carries = self.counts
        xs, carried, others = tensors[:over], tensors[over : over + carries], tensors[over + carries :]
        rows = []
        steps = range(xs[0].shape[self.dim])
        for step in reversed(steps) if self.backwards else steps:
            given = (*[x.select(self.dim, step) for x in xs], *carried, *others)
            found = self.body(*[given[i] for i in self.places])
            carried = found[:carries]
            rows.append(found[carries:])
        columns = zip(*(rows[::-1] if self.backwards else rows), strict=True)
        return (*carried, *[stacked_along(torch.stack(column), self.dim) for column in columns])


def stacked_along(stack: torch.Tensor, dim: int) -> torch.Tensor:
    """Results of steps, which lie along the first dim, along another where they have it."""
    return stack.movedim(0, dim) if 0 < dim < stack.ndim else stack


def steps_operator(
    frame: Frame, name: str, function: Value, init: Value | None, xs: Value, dim: int, backwards: bool
) -> tuple[Value | None, Value]:
    """(carried value or None, results) of a long scan, or map where `init` is None."""
    over = leaves(frame, xs)
    firsts: list[Any] = [frame.graph.call_method(frame, "select", (leaf, dim, 0)) for leaf in over]
    x = rebuilt(frame, xs, iter(firsts))
    started: Any
    started, nodes = (None, []) if init is None else first_round(frame, init, name)
    found, facts, made = traced_part(frame, function, [x] if init is None else [started, x], name)
    pair: list[Any] = [None, found] if init is None else found.unpack(frame)
    if len(pair) != 2:
        return frame.break_graph("call_unknown", f"{name} whose function gives no pair")
    if init is not None and not (
        same_structure(frame, pair[0], started) and same_facts(frame, facts[: len(nodes)], facts_of(nodes))
    ):
        return frame.break_graph("call_unknown", f"{name} whose function gives another kind of tensors to carry than it takes")
    count, length = len(nodes), over[0].example.spec.sizes[dim]
    own = {v.node: at for at, v in enumerate(firsts)} | {node: len(over) + at for at, node in enumerate(nodes)}
    others = [n for n in made.inputs if n not in own]
    own |= {node: len(over) + count + at for at, node in enumerate(others)}
    places = tuple(own[n] for n in made.inputs)
    steps = Steps(made.module, places, (len(over), count), dim, backwards)
    results = [along(f, length, dim) for f in facts[count:]]
    text = made.module.code, places, steps.counts, dim, backwards
    values = call_traced(frame, steps, text, [*(v.node for v in over), *nodes, *others], [*facts[:count], *results])
    carried = None if init is None else rebuilt(frame, init, iter(values[:count]))
    return carried, rebuilt(frame, pair[1], iter(values[count:]))


def along(facts: ResultFacts, length: Any, dim: int) -> ResultFacts:
    """The facts of the results of all steps."""
    sizes = (length, *facts.sizes)
    order = [*range(1, len(sizes))]
    order.insert(dim if dim < len(sizes) else 0, 0)  # as stacked_along has it
    strides = contiguous_strides(sizes)
    return ResultFacts(facts.dtype, facts.device, tuple(sizes[i] for i in order), tuple(strides[i] for i in order))


# --- steps one by one ------------------------------------------------------------------------------------------------------


def number_of_steps(frame: Frame, name: str, xs: Value, dim: int) -> Any:
    """How many there are is what the graph is made for."""
    over = leaves(frame, xs)
    if not over or dim < 0 or not all(type(v) is TensorValue and v.example.ndim > dim for v in over):
        return frame.break_graph("call_unknown", f"{name} over something else than tensors, or over a dim counted from the end")
    length, *others = (v.example.spec.sizes[dim] for v in over)
    if compare_sizes(frame, "==", length, 0) or not all(compare_sizes(frame, "==", length, other) for other in others):
        return frame.break_graph("call_unknown", f"{name} over no steps, or over different numbers of them")
    return length


def is_unrolled(frame: Frame, length: int) -> bool:
    """Whether the steps go into the graph one by one."""
    return type(length) is int and (length <= LONGEST or bool(frame.modes.transforms))


def steps_of(frame: Frame, xs: Value, dim: int, length: int) -> list[Value]:
    """The items of each step."""
    over = leaves(frame, xs)
    parts = [[frame.graph.call_method(frame, "select", (leaf, dim, step)) for leaf in over] for step in range(length)]
    return [rebuilt(frame, xs, iter(part)) for part in parts]


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


class With(Value):
    """A function with further arguments."""

    def __init__(self, function: Value, others: list[Value]) -> None:
        super().__init__(None)
        self.function, self.others = function, others

    def held(self) -> Iterable[Any]:
        return self.function, *self.others

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(frame, [*args, *self.others], kwargs)


@call(map_steps)
def map_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """map(f, xs, *args)"""
    if kwargs or len(args) < 2:
        return frame.break_graph("call_unknown", "map with these arguments")
    function, xs, *others = args
    length = number_of_steps(frame, "map", xs, 0)
    if not is_unrolled(frame, length):
        _, results = steps_operator(frame, "map", With(function, others), None, xs, 0, False)
        return results
    return stacked(frame, [function.call(frame, [x, *others], {}) for x in steps_of(frame, xs, 0, length)], 0)


@call(scan)
def scan_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """scan(combine_fn, init, xs, *, dim=0, reverse=False)"""
    given: dict[str, Any] = dict(zip(("combine_fn", "init", "xs"), args)) | kwargs
    dim, backwards = (given.pop(name, ConstantValue(default)) for name, default in (("dim", 0), ("reverse", False)))
    if set(given) != {"combine_fn", "init", "xs"} or not dim.is_constant() or not backwards.is_constant():
        return frame.break_graph("call_unknown", "scan with these arguments")
    length = number_of_steps(frame, "scan", given["xs"], dim.constant())
    if not is_unrolled(frame, length):
        parts = steps_operator(
            frame, "scan", given["combine_fn"], given["init"], given["xs"], dim.constant(), backwards.constant()
        )
        return TupleValue(list(parts))
    steps = steps_of(frame, given["xs"], dim.constant(), length)
    carry, results = given["init"], []
    for x in reversed(steps) if backwards.constant() else steps:
        pair = given["combine_fn"].call(frame, [carry, x], {}).unpack(frame)
        if len(pair) != 2:
            return frame.break_graph("call_unknown", "scan whose function gives no pair")
        carry = pair[0]
        results.append(pair[1])
    results = results[::-1] if backwards.constant() else results
    return TupleValue([carry, stacked(frame, results, dim.constant())])


def associative_scan_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The operator behind associative_scan(combine_mode="pointwise"): what eager runs for it is traced."""
    source = Const(generic_associative_scan, "generic_associative_scan")
    given = dict(zip(("combine_fn", "xs", "additional_inputs"), args)) | kwargs
    operands = [given["combine_fn"], given["xs"]]
    return frame.wrap(generic_associative_scan, source).call(frame, operands, {"additional_inputs": given["additional_inputs"]})
