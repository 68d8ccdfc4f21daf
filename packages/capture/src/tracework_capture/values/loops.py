"""torch.while_loop as an operator that runs traced graphs as often as the data asks for; scan and map of known lengths step by step."""

from __future__ import annotations

import torch
from torch._higher_order_ops.map import map as map_steps
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from ..graph.opaque_operators import operator_of
from .cond import Arms, fits, traced_arm
from .constant import ConstantValue
from .sequence import ListValue, TupleValue
from .structure import leaves, rebuilt
from .tensor import TensorValue

LONGEST = 64
"""Steps of a scan or map that go into the graph one by one."""


class Loop:
    """A graph that asks whether to go on and one that makes a step; both take the carried tensors and others that they read."""

    __qualname__ = "while_loop"

    def __init__(self, condition, body, places, facts):
        self.condition, self.body, self.places, self.facts = condition, body, places, facts

    def __call__(self, *tensors):
        carried, others = list(tensors[: len(self.facts)]), tensors[len(self.facts) :]
        while True:
            given = (*carried, *others)
            if not bool(self.condition(*[given[i] for i in self.places[0]])[0]):
                return tuple(map(Arms.own, carried, self.facts))
            carried = list(self.body(*[given[i] for i in self.places[1]]))


def while_row(frame, args, kwargs):
    """torch.while_loop(cond_fn, body_fn, carried_inputs, additional_inputs=())"""
    given = dict(zip(("cond_fn", "body_fn", "carried_inputs"), args)) | kwargs
    carried = given["carried_inputs"].unpack(frame)
    if len(args) > 3 or set(given) - {"cond_fn", "body_fn", "carried_inputs"} or frame.root.transforms:
        return frame.break_graph("call_unknown", "torch.while_loop with other arguments, or under a transform")
    if not carried or not all(type(v) is TensorValue and fits(v.example) for v in carried):
        return frame.break_graph(
            "call_unknown", "torch.while_loop that carries something else than tensors of known sizes without history"
        )
    started = [frame.graph.call_method(frame, "clone", (v,)) for v in carried]  # what a step gets, for the trace
    _, wanted, asked = traced_arm(frame, given["cond_fn"], started, "torch.while_loop")
    kind, facts, made = traced_arm(frame, given["body_fn"], started, "torch.while_loop")
    same = facts == tuple(map(type(facts[0]).of, (v.example for v in started)))
    if not same or len(wanted) != 1 or wanted[0].sizes not in ((), (1,)):
        return frame.break_graph("call_unknown", "torch.while_loop whose body gives other kinds of tensors than it takes")
    nodes = list(dict.fromkeys([v.node for v in started] + [*asked.inputs, *made.inputs]))
    if not all(isinstance(n.meta["example_value"], torch.Tensor) and fits(n.meta["example_value"]) for n in nodes):
        return frame.break_graph("call_unknown", "torch.while_loop that reads tensors with history or sizes that are symbols")
    places = tuple(tuple(nodes.index(n) for n in part.inputs) for part in (asked, made))
    loop = Loop(asked.module, made.module, places, facts)
    operation = operator_of(loop, loop, (asked.module.code, made.module.code, places), len(nodes), facts)
    found = frame.graph.call(frame, operation, tuple(nodes))
    items = found.unpack(frame) if len(facts) > 1 else [found]
    return ListValue(items) if kind is list else TupleValue(items)


# --- steps one by one ------------------------------------------------------------------------------------------------------


def steps_of(frame, name, xs, dim):
    """The items of each step; how many there are is what the graph is made for."""
    over = leaves(frame, xs)
    if not over or dim < 0 or not all(type(v) is TensorValue and v.example.ndim > dim for v in over):
        return frame.break_graph("call_unknown", f"{name} over something else than tensors, or over a dim counted from the end")
    lengths = {v.example.shape[dim] for v in over}
    if len(lengths) != 1 or type(length := lengths.pop()) is not int or not 0 < length <= LONGEST:
        return frame.break_graph("call_unknown", f"{name} over more than {LONGEST} steps, none, or a number of them that changes")
    parts = [[frame.graph.call_method(frame, "select", (leaf, dim, step)) for leaf in over] for step in range(length)]
    return [rebuilt(frame, xs, iter(part)) for part in parts]


def stacked(frame, results, dim):
    """The results of all steps, leaf by leaf, along a new dim."""
    rows = [leaves(frame, result) for result in results]
    if not all(isinstance(leaf, TensorValue) for row in rows for leaf in row):
        return frame.break_graph("call_unknown", "steps that give something else than tensors")
    made = [stack(frame, row, dim) for row in zip(*rows, strict=True)]
    return rebuilt(frame, results[0], iter(made))


def stack(frame, row, dim):
    found = frame.graph.call(frame, torch.stack, (TupleValue(list(row)),))
    return frame.graph.call(frame, torch.movedim, (found, 0, dim)) if 0 < dim < found.example.ndim else found


def map_row(frame, args, kwargs):
    """map(f, xs, *args)"""
    if kwargs or len(args) < 2:
        return frame.break_graph("call_unknown", "map with these arguments")
    function, xs, *others = args
    return stacked(frame, [function.call(frame, [x, *others], {}) for x in steps_of(frame, "map", xs, 0)], 0)


def scan_row(frame, args, kwargs):
    """scan(combine_fn, init, xs, *, dim=0, reverse=False)"""
    given = dict(zip(("combine_fn", "init", "xs"), args)) | kwargs
    dim, backwards = (given.pop(name, ConstantValue(default)) for name, default in (("dim", 0), ("reverse", False)))
    if set(given) != {"combine_fn", "init", "xs"} or not dim.is_constant() or not backwards.is_constant():
        return frame.break_graph("call_unknown", "scan with these arguments")
    steps = steps_of(frame, "scan", given["xs"], dim.constant())
    carry, results = given["init"], []
    for x in reversed(steps) if backwards.constant() else steps:
        pair = given["combine_fn"].call(frame, [carry, x], {}).unpack(frame)
        if len(pair) != 2:
            return frame.break_graph("call_unknown", "scan whose function gives no pair")
        carry = pair[0]
        results.append(pair[1])
    results = results[::-1] if backwards.constant() else results
    return TupleValue([carry, stacked(frame, results, dim.constant())])


LOOP_ROWS = {while_loop: while_row, torch.while_loop: while_row, map_steps: map_row, scan: scan_row}
