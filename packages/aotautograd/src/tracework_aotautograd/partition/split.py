"""Cutting a joint graph in two, once it is known which values are saved."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import fx
from tracework_primops import checks_indices, copy_node, is_collective

from .. import _torch
from ..contracts import JointProgram
from ..errors import PartitionError
from ..signature import Component
from .recompute import is_formula, may_recompute


@dataclass(frozen=True)
class JointParts:
    """The nodes of a joint graph by role. `needs_tangent`: nodes that cannot be computed before the backward."""

    inputs: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    forward_outputs: tuple[Any, ...]
    gradients: dict[Component, list[fx.Node]]
    needs_tangent: frozenset[fx.Node]

    @classmethod
    def of(cls, joint: JointProgram) -> JointParts:
        """Reads the roles off the signature."""
        nodes = list(joint.graph.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        split = len(placeholders) - len(joint.signature.tangents)
        outputs = nodes[-1].args[0]
        count = joint.signature.number_of_graph_outputs
        late: set[fx.Node] = set(placeholders[split:])
        for node in nodes:
            if any(a in late for a in node.all_input_nodes) and node.op != "output":
                late.add(node)
        rest = iter(outputs[count:])
        gradients = {c: list(islice(rest, len(c.inputs) + len(c.results))) for c in joint.signature.components}
        parts = cls(tuple(placeholders[:split]), tuple(placeholders[split:]), outputs[:count], gradients, frozenset(late))
        if any(isinstance(o, fx.Node) and o in late for o in parts.forward_outputs):
            raise PartitionError("an output of the forward depends on a tangent")
        return parts

    def is_size(self, node: fx.Node) -> bool:
        """Whether the value is an int."""
        return isinstance(node.meta.get("val"), (torch.SymInt, int))


def frontier(parts: JointParts) -> list[fx.Node]:
    """Values that tangent-dependent nodes read and that do not depend on tangents themselves, in order, without sizes."""
    found: dict[fx.Node, None] = {}
    readers = sorted(n for n in parts.needs_tangent if n.op == "call_function")  # a set has no order, and cache keys see it
    reads = [a for n in readers for a in n.all_input_nodes]
    reads += [gradient for gradients in parts.gradients.values() for gradient in gradients]
    for node in reads:
        if node not in parts.needs_tangent and not parts.is_size(node):
            found[node] = None
    return list(found)


def through_views(node: fx.Node) -> Iterator[fx.Node]:
    """A node, and what it is a view of, one after the other."""
    yield node
    while node.op == "call_function" and (node.target is operator.getitem or is_view(node)):
        node = node.all_input_nodes[0]
        yield node


def with_bases(nodes: Iterable[fx.Node]) -> frozenset[fx.Node]:
    """The nodes, and what they are views of."""
    return frozenset(found for node in nodes for found in through_views(node))


def shown_input(node: fx.Node) -> fx.Node | None:
    """The input that a node is, or a view of."""
    return next((shown for shown in through_views(node) if shown.op == "placeholder"), None)


def is_view(node: fx.Node) -> bool:
    """Whether a node shows the memory of its operand."""
    schema: Any = getattr(node.target, "_schema", None)
    return schema is not None and _torch.aliased_argument(schema) is not None


def kept_inputs(joint: JointProgram, parts: JointParts) -> frozenset[fx.Node]:
    """Inputs that may be kept as they are: a write to one before the backward is an error in eager, too.

    Those are the ones that gradients read, and what checkpoints take. Of others a copy is kept, if anything: eager keeps what is computed
    from them. Parameters that are cast for products and their like are taken for unchanged until the backward, to keep them rather than
    their casts; a write is an error.
    """
    infos = joint.signature.inputs
    constants = len(infos) + len(joint.signature.shared)
    formulas = [n for n in joint.graph.graph.nodes if is_formula(n)]
    read = {shown_input(n) for n in (*frontier(parts), *(a for formula in formulas for a in formula.all_input_nodes))}
    taken = {n for n in parts.inputs if any("recompute" in user.meta for user in n.users)}
    fixed = {
        n for i, n in enumerate(parts.inputs) if i >= constants or i < len(infos) and infos[i].is_parameter and _is_only_cast(n)
    }
    return frozenset(n for n in (*read, *taken, *fixed) if n is not None and n not in parts.inputs[len(infos) : constants])


def _is_only_cast(node: fx.Node) -> bool:
    """Whether the forward makes nothing of a value but casts, for what is not computed again."""
    casts = [user for user in _users(node) if user.target is _torch.to_copy]
    return len(casts) == len(_users(node)) and not any(may_recompute(user, True) for cast in casts for user in _users(cast))


def _users(node: fx.Node) -> list[fx.Node]:
    """What the forward makes of a value and of views of it."""
    users = [user for user in node.users if user.meta.get("phase") == "forward"]
    return [found for user in users for found in (_users(user) if is_view(user) else [user])]


def lent_results(joint: JointProgram, parts: JointParts) -> frozenset[fx.Node]:
    """What the caller gets, and what that is a view of, which eager does not keep: it may be written to before the backward."""
    kept = {slot for info in joint.signature.tangents for slot in info.kept.results}
    lent = [n for slot, n in enumerate(parts.forward_outputs) if slot not in kept and isinstance(n, fx.Node)]
    return with_bases(lent)


def has_effect(node: fx.Node) -> bool:
    """Whether a node matters even when nobody reads it: it writes to an input, draws random numbers, is something that other processes take part
    in, or returns nothing (a check)."""
    if node.meta.get("write_back") is not None:
        return True
    if not isinstance(node.target, _torch.OpOverload):
        return False
    return _torch.draws(node.target) or is_collective(node.target) or not node.target._schema.returns


def _all_inputs(node: fx.Node) -> list[fx.Node]:
    return node.all_input_nodes


def value_inputs(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node's value depends on: statistics of a batch do not depend on the running ones, which the same op updates."""
    if node.target is operator.getitem and node.args[1] in (0, 1, 2):
        made = node.args[0]
        if isinstance(made, fx.Node) and made.target is _torch.batch_norm_functional:
            return [a for a in (*made.args[:3], *made.args[5:]) if isinstance(a, fx.Node)]
    return node.all_input_nodes


def needed_for(
    targets: Any, stop: frozenset[fx.Node] | set[fx.Node], inputs_of: Callable[[fx.Node], list[fx.Node]] = _all_inputs
) -> set[fx.Node]:
    """Nodes that computing `targets` takes, not going past `stop`."""
    found: set[fx.Node] = set()
    waiting = [t for t in targets if isinstance(t, fx.Node)]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        if node not in stop:
            waiting.extend(inputs_of(node))
    return found


@dataclass(frozen=True)
class Split:
    """Forward and backward graphs; saved sizes are input positions, saved tensors are extra forward outputs.

    Each backward, one for a component, comes with the places of the saved tensors that it takes.
    """

    forward: fx.GraphModule
    backwards: tuple[tuple[fx.GraphModule, tuple[int, ...]], ...]
    saved_sizes: tuple[fx.Node, ...]
    saved_tensors: tuple[fx.Node, ...]


def split(joint: JointProgram, parts: JointParts, saved: list[fx.Node]) -> Split:
    """The forward returns its outputs, the symbolic size inputs and the saved tensors; the backwards start from those."""
    sizes = tuple(n for n in parts.inputs if isinstance(n.meta["val"], torch.SymInt))
    kept_as_they_are = kept_inputs(joint, parts)
    tensors = tuple(_unwritten(joint, n, kept_as_they_are) for n in saved if n not in sizes)
    in_backward = {n for n in joint.graph.graph.nodes if is_collective(n.target) and is_formula(n)}  # in other processes, too
    left = parts.needs_tangent | in_backward
    effects = [n for n in joint.graph.graph.nodes if (has_effect(n) or checks_indices(n)) and n not in left]
    kept = {*effects, *(n for n in joint.graph.graph.nodes if n.op == "placeholder")}
    forward_targets = [*parts.forward_outputs, *sizes, *tensors]
    forward_nodes = needed_for([*forward_targets, *kept], set()) - parts.needs_tangent
    forward = _copy(joint, parts.inputs, forward_nodes, forward_targets, {})
    rename = dict(zip((n for n in saved if n not in sizes), tensors, strict=True))
    backwards = tuple(_backward(joint, parts, component, sizes, rename) for component in joint.signature.components)
    return Split(forward, backwards, sizes, tensors)


def _backward(
    joint: JointProgram, parts: JointParts, component: Component, sizes: tuple[fx.Node, ...], saved: dict[fx.Node, fx.Node]
) -> tuple[fx.GraphModule, tuple[int, ...]]:
    gradients = parts.gradients[component]
    stop = {*sizes, *saved}
    nodes = needed_for(gradients, stop)
    stray = [n for n in nodes if n.op == "placeholder" and n not in stop and n not in parts.tangents]
    if stray:
        raise PartitionError(f"the backward needs {stray[0]} and it was not saved")
    read = {n: made for n, made in saved.items() if n in nodes}
    tangents = [parts.tangents[place] for place in component.tangents]
    graph = _copy(joint, (*sizes, *read, *tangents), nodes - stop, gradients, read, parts.needs_tangent)
    return graph, tuple(place for place, n in enumerate(saved) if n in read)


def _unwritten(joint: JointProgram, node: fx.Node, kept_as_they_are: frozenset[fx.Node]) -> fx.Node:
    """Of an input that the forward writes to, or that the program may write to before the backward, a copy is saved."""
    shown = shown_input(node)
    writes = [u for u in node.users if u.meta.get("write_back") is not None and u.args[0] is node]
    if not writes and (shown is None or shown in kept_as_they_are):
        return node
    writes = writes or [u for u in joint.graph.graph.nodes if u.meta.get("write_back") is not None or u.op == "output"]
    with joint.graph.graph.inserting_before(writes[0]):
        copy = joint.graph.graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta.update(node.meta, phase="forward")
    return copy


def _late(nodes: list[fx.Node], early: frozenset[fx.Node]) -> list[fx.Node]:
    """The nodes with those that are not `early` moved to just before what needs them: what is computed again is not kept alive."""
    position = {n: i for i, n in enumerate(nodes)}
    done: dict[fx.Node, None] = {}
    for node in [*(n for n in nodes if n in early), *nodes]:
        missing, waiting = set(), [node]
        while waiting:
            found = waiting.pop()
            if found in position and found not in done and found not in missing:
                missing.add(found)
                waiting.extend(found.all_input_nodes)
        done.update(dict.fromkeys(sorted(missing, key=position.__getitem__)))
    return list(done)


def _copy(
    joint: JointProgram,
    inputs: Any,
    nodes: set[fx.Node],
    outputs: Any,
    rename: dict[fx.Node, fx.Node],
    early: frozenset[fx.Node] = frozenset(),
) -> fx.GraphModule:
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(node.meta)
    wanted = [n for n in joint.graph.graph.nodes if n in nodes and n not in made and n.op == "call_function"]
    for node in _late(wanted, early) if early else wanted:
        made[node] = copy_node(graph, node, made.__getitem__)
    graph.output(tuple(made[o] if isinstance(o, fx.Node) else o for o in outputs))
    return _torch.graph_module(graph)
