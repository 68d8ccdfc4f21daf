"""The arms of a condition on data as graphs, and what the selection between them gives.

Arms of elementwise arithmetic, which cannot raise, are both computed, and torch.where takes the results of one; others are run by an
operator, as the data asks for. What both write to they work on copies of, of which one is written back. A tensor of before that one arm
leaves is copied, too: where the program could tell the copy from the tensor itself, the arms are not selected (graph/replaced.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .._torch.functions import tree_leaves
from ..graph.operators import ResultFacts
from ..graph.regions import Outlined
from ..graph.replaced import may_be_replaced, note_replaced
from ..graph.undo import storages_of
from ..values.number.floats import DeferredFloat, either, kind_of_choice
from ..values.plain.sequence import TupleValue
from ..values.protocol.kinds import AbstractTensor
from ..values.protocol.memory import known_values
from ..values.protocol.region import Region
from ..values.protocol.value import Value
from ..values.torch.regions.control_flow import fits, operator_results
from ..values.torch.tensor import TensorValue

MOST_NODES = 8  # of an arm that an operator runs: larger ones are worth compiling, on either side of a break
MOST_ELEMENTWISE = 32  # of an arm that is computed in any case

_ARITHMETIC = (
    "add sub rsub mul truediv div true_divide neg abs pow sqrt rsqrt reciprocal square exp expm1 log log1p sin cos tanh sigmoid relu"
    " addcmul addcdiv lerp maximum minimum clamp clamp_min clamp_max eq ne lt le gt ge logical_and logical_or logical_not where"
    " masked_fill fill zero copy clone detach to float double bool full iadd isub imul itruediv"
).split()
ELEMENTWISE = frozenset([*_ARITHMETIC, *(f"{name}_" for name in _ARITHMETIC)])
"""Functions and methods that compute each number by itself, and raise for none, of floats and truths."""


class Refused(Exception):
    """These arms are not selected."""


@dataclass(frozen=True)
class Traced:
    """One arm: what it leaves, which of that was there before, its graph, which gives the new tensors and numbers, facts of those, the
    nodes it writes to, and the copies that it leaves in the place of tensors of before."""

    values: list[Value | None]
    old: Sequence[Value]
    outlined: Outlined
    facts: tuple[ResultFacts, ...]
    written: tuple[fx.Node, ...]
    count: int
    is_elementwise: bool
    copies: dict[Any, Any] = field(default_factory=dict)

    def leaves_more(self, other: Traced) -> bool:
        """Whether it leaves a tensor of before that the other does not."""
        return any(value not in other.old for value in self.old)


def traced_arm(frame: Any, values: list[Value | None], region: Region, other: Traced | None) -> Traced:
    """The arm that leaves these values, and whose nodes, those of the region, become a graph of its own; tensors of before that the other
    arm does not leave are copied. Raises Refused."""
    copies: dict[Any, Any] = {}
    written = region.written()
    if other is not None:
        before = set(region.nodes())
        values = [_with_copies(frame, value, theirs, before, copies) for value, theirs in zip(values, other.values)]
    nodes = region.nodes()
    inside = set(nodes)
    found = [leaf for value in values for leaf in _leaves(value)]
    old = [leaf for leaf in found if type(leaf) is TensorValue and leaf.node not in inside]
    given = [leaf for leaf in found if leaf not in old]
    leaves = [leaf.as_tensor(frame) if isinstance(leaf, DeferredFloat) else leaf for leaf in given]
    new = [leaf for leaf in given if type(leaf) is TensorValue]
    if not all(fits(leaf.example) for leaf in new):
        raise Refused("an arm gives something else than new tensors of known sizes without history")
    memory = [leaf.example.storage for leaf in new]
    made = region.outline([leaf.node for leaf in leaves], "Arm")
    read = [n for n in made.inputs if isinstance(n.meta["example_value"], torch.Tensor)]
    if len({*map(id, memory)}) < len(memory) or any(n.meta["example_value"].storage in memory for n in read):
        raise Refused("results of an arm share memory")
    targets = tuple(n for n in read if n.meta["example_value"].storage in written)
    if len({n.meta["example_value"].storage for n in targets}) < len(targets) or len(targets) < len(written):
        raise Refused("an arm writes to tensors that share memory, or to one that it did not read")
    facts = tuple(ResultFacts.of(leaf.example) for leaf in leaves)
    if len(read) < len(made.inputs) or not all(fits(n.meta["example_value"]) for n in read):
        raise Refused("an arm reads tensors with history or sizes that are symbols")
    elementwise = len(nodes) <= MOST_ELEMENTWISE and all(map(_is_elementwise, nodes))
    return Traced(values, old, made, facts, targets, len(nodes), elementwise, {copy: value for value, copy in copies.items()})


def _with_copies(frame: Any, value: Any, theirs: Any, inside: set[fx.Node], copies: dict[Any, Any]) -> Any:
    """A value that an arm leaves, with copies of the tensors in it that these nodes did not make and that the other arm does not leave."""
    if type(value) is TupleValue and type(theirs) is TupleValue and len(value.items) == len(theirs.items) and value.cls is tuple:
        return TupleValue([_with_copies(frame, a, b, inside, copies) for a, b in zip(value.items, theirs.items)])
    if type(value) is not TensorValue or value is theirs or value.node in inside or type(theirs) is not TensorValue:
        return value
    if value not in copies:
        if not may_be_replaced(value):
            raise Refused("an arm leaves a tensor that was there before")
        copies[value] = frame.graph.call_method(frame, "clone", (value,))
        if ResultFacts.of(copies[value].example) != ResultFacts.of(value.example):
            raise Refused("an arm leaves a tensor of before whose copy lies otherwise in memory")
    return copies[value]


def _is_elementwise(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    examples = [n.meta["example_value"] for n in (node, *node.all_input_nodes)]
    return name in ELEMENTWISE and all(
        isinstance(e, torch.Tensor) and (e.is_floating_point() or e.dtype is torch.bool) for e in examples
    )


def _leaves(value: Value | None) -> list[Any]:
    """The tensors, and the numbers of tensors, in a value that an arm gives."""
    if type(value) is TensorValue or isinstance(value, DeferredFloat):
        return [value]
    if type(value) is TupleValue and value.cls is tuple:
        return [leaf for item in value.items for leaf in _leaves(item)]
    if value is not None and value.is_constant():
        return []
    raise Refused("an arm gives something else than tensors, numbers of them and constants")


def merged(frame: Any, condition: Any, tensor: AbstractTensor, arms: Sequence[Traced], in_block: bool, key: Any) -> list[Value]:
    """What both arms leave, once the data has chosen: the first arm's where the condition is true. `key` stands for the condition. Raises
    Refused."""
    first, second = arms
    written = tuple(dict.fromkeys(first.written + second.written))
    if {*first.written} != {*second.written} and not _is_unread(frame, {*first.written} ^ {*second.written}):
        raise Refused("one arm writes to a tensor to which the other does not, which a backward may see")
    if not written and not first.facts and not second.facts and all(a is b for a, b in zip(first.values, second.values)):
        raise Refused("the arms give nothing that the data could choose")
    graphs = [arm.outlined.giving(written) if written else arm.outlined for arm in arms]
    facts = tuple(ResultFacts.of(node.meta["example_value"]) for node in written)
    old = [*first.old, *second.old]
    if first.is_elementwise and second.is_elementwise:
        choice = _computed(frame, condition, _truth(frame, tensor), old, [_inlined(frame, made) for made in graphs])
    else:
        if in_block or max(first.count, second.count) > MOST_NODES:
            raise Refused("an arm is long, or may raise inside of a block")
        if first.facts != second.facts:
            raise Refused("the arms give different kinds of tensors")
        choice = _of_operator(old, operator_results(frame, tensor, [(a.facts + facts, made) for a, made in zip(arms, graphs)]))
    if len(first.values) != len(second.values):
        raise Refused("the arms leave different numbers of values")
    values = [choice.of(a, b) for a, b in zip(first.values, second.values)]
    known = {value.node: value for value in known_values(frame).values()}
    for node in written:
        target = known.get(node)
        if target is None:
            raise Refused("an arm writes to a tensor that is no value of the program")
        frame.graph.call_method(frame, "copy_", (target, choice.tensor()))
    copies = first.copies | second.copies
    for pair, found in choice.made:
        for given in pair:
            note_replaced(frame, key, given, copies.get(given), found)
    return values


def _is_unread(frame: Any, written: set[fx.Node]) -> bool:
    """Whether the graph made these tensors and no backward can have kept them: it would take one for written to that plain Python had not
    written to."""
    nodes = frame.graph.graph.nodes
    given = {storage for node in nodes if node.op == "placeholder" for storage in storages_of(node)}
    if any(storage in given for node in written for storage in storages_of(node)):
        return False
    made = tree_leaves([node.meta.get("example_value") for node in nodes if node.op != "placeholder"])
    return not any(example.requires_grad for example in made if isinstance(example, torch.Tensor))


def _truth(frame: Any, tensor: AbstractTensor) -> AbstractTensor:
    """The condition as one truth without dims."""
    found = tensor
    if found.example.ndim:
        found = frame.graph.call_method(frame, "reshape", (found, ()))
    return found if found.example.dtype is torch.bool else frame.graph.call_method(frame, "bool", (found,))


def _inlined(frame: Any, made: Outlined) -> list[Any]:
    """The results of an arm's graph, recorded in the outer one."""
    places = iter(made.inputs)
    nodes: dict[fx.Node, fx.Node] = {}
    known: dict[fx.Node, Any] = {}
    for node in made.module.graph.nodes:
        if node.op == "placeholder":
            nodes[node] = next(places)
        elif node.op != "output":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), nodes.__getitem__)
            value = frame.graph.call(frame, node.target, args, kwargs, node.op)
            nodes[node] = value.node
            known[value.node] = value
    output = next(iter(reversed(made.module.graph.nodes)))
    return [known.get(n) or TensorValue(n, n.meta["example_value"]) for n in map(nodes.__getitem__, output.args[0])]


class _Choice:
    """Gives the values of a selection, one after the other: those that the arms leave, then those that are written back. `tensor` gives the next
    tensor, `number` what stands for a number of each arm.

    old: tensors that both arms leave and that were there before. made: the tensors of the arms, and which it gave for them.
    """

    def __init__(self, old: Sequence[Value], tensor: Callable[[], Any], number: Callable[[Any, Any], Value]) -> None:
        self.old, self.tensor, self.number = old, tensor, number
        self.made: list[tuple[tuple[Any, Any], TensorValue]] = []

    def of(self, a: Any, b: Any) -> Any:
        if type(a) is TupleValue and type(b) is TupleValue:
            if len(a.items) != len(b.items):
                raise Refused("the arms give tuples of different lengths")
            return TupleValue([self.of(x, y) for x, y in zip(a.items, b.items)])
        if a in self.old or b in self.old:
            if a is not b:
                raise Refused("an arm leaves a tensor that was there before")
            return a
        if type(a) is TensorValue and type(b) is TensorValue:
            self.made.append(((a, b), self.tensor()))
            return self.made[-1][1]
        if a is not None and b is not None and a.is_constant() and b.is_constant() and _is_one(a, b):
            return a
        return self.number(a, b)


def _of_operator(old: Sequence[Value], results: Sequence[Any]) -> _Choice:
    """The results of an operator."""
    left = iter(results)

    def number(a: Any, b: Any) -> Value:
        if not isinstance(a, DeferredFloat) or type(a) is not type(b):
            raise Refused("the arms give different constants, or kinds of values")
        return type(a)(next(left).node)

    return _Choice(old, lambda: next(left), number)


def _computed(frame: Any, condition: Any, truth: AbstractTensor, old: Sequence[Value], results: list[list[Any]]) -> _Choice:
    """Results of both arms, of which torch.where takes one."""
    first, second = map(iter, results)

    def tensor() -> Any:
        pair, taken = (next(first), next(second)), truth
        if pair[0].example.device != truth.example.device:
            taken = frame.graph.call_method(frame, "to", (truth, pair[0].example.device))
        found = frame.graph.call(frame, torch.where, (taken, *pair))
        if len({ResultFacts.of(value.example) for value in (*pair, found)}) > 1:
            raise Refused("the arms give different kinds of tensors")
        return found

    def number(a: Any, b: Any) -> Value:
        kind = kind_of_choice(condition, a, b) if a is not None and b is not None else None
        if kind is None:
            raise Refused("the arms give different constants, or kinds of values")
        pairs = ((a, first), (b, second))
        return either(
            frame, truth, kind, *[DeferredFloat(next(it).node) if isinstance(v, DeferredFloat) else v for v, it in pairs]
        )

    return _Choice(old, tensor, number)


def _is_one(a: Value, b: Value) -> bool:
    """Whether two constants are the same in every respect; 0.0 and -0.0 are not."""
    x, y = a.constant(), b.constant()
    if a.python_type() is not b.python_type():
        return False
    same_float = type(x) is float and x == y and math.copysign(1, x) == math.copysign(1, y)
    return x is y or (type(x) in (int, bool, str) and x == y) or same_float
