"""Group: loop nodes that will be one kernel, with the iteration domain that they share.

Domain: `outer` sizes (independent points) and `inner` sizes (reduced or walked for each point). Each member runs either
over outer and inner ("full") or over outer only ("outer"). Members keep their own axes; `mapping` expresses these by
the group's variables, which are created from the sizes whenever they change.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.body import Axis, Instruction
from ..ir.buffer import LoopNode
from ..ir.index import Size, product, refine, reshape_index, same, same_all, substitute, symbol
from ..ir.scalar_ops import COLUMNS


@dataclasses.dataclass
class Member:
    """A node in a group: level "full" or "outer"; order: permutation of its axes that matches the group's.

    repeated: it has no outer axes, and what it computes is computed again for each point of those of the group.
    """

    node: LoopNode
    level: str
    order: tuple[int, ...] | None = None
    repeated: bool = False


def axis_sizes(node: LoopNode) -> tuple[list[Size], list[Size]]:
    """Sizes of a node's axes and reduction axes."""
    return [a.size for a in node.body.axes], [a.size for a in node.body.reduction_axes]


def variables(prefix: str, sizes: Sequence[Size]) -> list[Any]:
    """The group's loop variables."""
    return [symbol(f"{prefix}{n}", 0, None) for n in range(len(sizes))]


def mapping(member: Member, outer: list[Size], inner: list[Size]) -> dict[Any, Size]:
    """The member's loop variables as expressions of the group's."""
    axes, reduced = member.node.body.axes, member.node.body.reduction_axes
    if member.order is not None:
        axes = tuple(axes[k] for k in member.order)
    return dict(_mapped(axes, reduced, member.level, member.repeated, tuple(outer), tuple(inner)))


@functools.lru_cache(1 << 12)
def _mapped(
    axes: tuple[Axis, ...],
    reduced: tuple[Axis, ...],
    level: str,
    repeated: bool,
    outer: tuple[Size, ...],
    inner: tuple[Size, ...],
) -> Mapping[Any, Size]:
    """The same, which is asked for each member by each rule of each node that may join."""
    xs, rs = variables("x", outer), variables("r", inner)
    if repeated:
        outer, xs = (), []
    if reduced:
        pairs = [(axes, outer, xs), (reduced, inner, rs)]
    elif level == "full":
        pairs = [(axes, (*outer, *inner), [*xs, *rs])]
    else:
        pairs = [(axes, outer, xs)]
    result: dict[Any, Size] = {}
    for own, sizes, given in pairs:
        for axis, value in zip(own, reshape_index([a.size for a in own], sizes, given), strict=True):
            result[axis.var] = value
    return result


@dataclasses.dataclass
class Group:
    """One kernel to be."""

    number: int
    members: list[Member]
    outer: list[Size]
    inner: list[Size]
    ancestors: int = 0
    nodes_mask: int = 0

    @property
    def reads(self) -> set[str]:
        """All buffers any member reads."""
        return set().union(*(m.node.reads for m in self.members))

    @property
    def writes(self) -> set[str]:
        """All buffers any member writes."""
        return set().union(*(m.node.writes for m in self.members))

    @property
    def core(self) -> str:
        """What writes its product, if that is no loop."""
        return next((m.node.core for m in self.members if m.node.core), "")


@dataclasses.dataclass
class Candidate:
    """A way to add a node to a group: the group's new domain and every member's level in it."""

    outer: list[Size]
    inner: list[Size]
    member: Member
    spread: bool = False
    """Members so far covered the whole new domain and become "full"."""
    order: tuple[int, ...] | None = None
    """That in which these walk their axes then."""
    repeats: bool = False
    """Members so far have no outer axes."""


def candidates(group: Group, node: LoopNode) -> list[Candidate]:
    """All ways in which the sizes of the node's axes fit those of the group."""
    own, reduced = axis_sizes(node)
    found: list[Candidate] = []
    if node.domain in ("reduction", "scan", "sort", COLUMNS):
        if group.inner:
            _both(found, group, node, own, reduced)
            if node.is_product and not group.outer and own:
                inner = refine(group.inner, reduced)
                if inner is not None:
                    found.append(Candidate(list(own), inner, Member(node, "full"), repeats=True))
        else:
            full = refine(group.outer, [*own, *reduced])
            split = _split(full, product(own)) if full is not None else None
            if split is not None:
                found.append(Candidate(split[0], split[1], Member(node, "full"), spread=True))
            outer = refine(group.outer, own)
            if outer is not None:
                found.append(Candidate(outer, list(reduced), Member(node, "full")))
            if node.device.type == "cpu":
                found += _reduced_across(group, node)
        return found
    if group.inner:
        full = refine([*group.outer, *group.inner], own)
        split = _split(full, product(group.outer)) if full is not None else None
        if split is not None:
            found.append(Candidate(split[0], split[1], Member(node, "full")))
    outer = refine(group.outer, own)
    if outer is not None:
        found.append(Candidate(outer, group.inner, Member(node, "outer")))
    if not group.inner:
        found += _permuted(group, node, own)
    elif group.core:
        found += _as_read(group, node, own)
    else:
        found += _across(group, node, own)
    return found


def _both(found: list[Candidate], group: Group, node: LoopNode, own: list[Size], reduced: list[Size]) -> None:
    outer, inner = refine(group.outer, own), refine(group.inner, reduced)
    if outer is not None and inner is not None:
        found.append(Candidate(outer, inner, Member(node, "full")))


def _split(sizes: list[Size], outer: Size) -> tuple[list[Size], list[Size]] | None:
    """Cuts a list of sizes where the product of the first part is `outer`."""
    running: Size = 1
    for n in range(len(sizes) + 1):
        if same(running, outer):
            return sizes[:n], sizes[n:]
        if n < len(sizes):
            running = running * sizes[n]
    return None


def _across(group: Group, node: LoopNode, own: list[Size]) -> list[Candidate]:
    """The node's axes in the order in which a member walks, point by point, a buffer that both read or that it writes for the node.

    So a softmax over channels is one kernel, whose reduction axis is none of the last of the images'.
    """
    sizes = [*group.outer, *group.inner]
    names = [*variables("x", group.outer), *variables("r", group.inner)]
    loads = {i.args[0]: [_step(i.args[1], a.var) for a in node.body.axes] for i in node.body.loads()}
    for m in group.members:
        if m.level != "full" or len(own) != len(sizes):
            continue
        of_group = mapping(m, group.outer, group.inner)
        for i in (*m.node.body.loads(), *m.node.body.stores()):
            mine = loads.get(i.args[0])
            if mine is None:
                continue
            index, order = mapped_index(i, of_group), []
            for size, name in zip(sizes, names, strict=True):
                match = [
                    k for k in range(len(own)) if k not in order and same(own[k], size) and same(mine[k], _step(index, name))
                ]
                order += match[:1]
            if len(order) == len(own) and order != sorted(order):
                return [Candidate(group.outer, group.inner, Member(node, "full", tuple(order)))]
    return []


def _reduced_across(group: Group, node: LoopNode) -> list[Candidate]:
    """A reduction over another axis than the last of what the group writes: the members walk the points that it walks, in its order."""
    outer, inner = axis_sizes(node)
    axes = (*node.body.axes, *node.body.reduction_axes)
    alike = all(m.order is None and same_all(axis_sizes(m.node)[0], group.outer) for m in group.members)
    if not alike or len(axes) != len(group.outer):
        return []
    loads = {i.args[0]: [_step(i.args[1], a.var) for a in axes] for i in node.body.loads()}
    for m in group.members:
        for i in m.node.body.stores():
            if (steps := loads.get(i.args[0])) is None:
                continue
            theirs = [_step(i.args[1], a.var) for a in m.node.body.axes]
            order: list[int] = []
            for axis, step in zip(axes, steps, strict=True):
                match = [
                    k for k in range(len(theirs)) if k not in order and same(group.outer[k], axis.size) and same(theirs[k], step)
                ]
                order += match[:1]
            if len(order) == len(axes):
                return [Candidate(outer, inner, Member(node, "full"), spread=True, order=tuple(order))]
    return []


def _permuted(group: Group, node: LoopNode, own: list[Size]) -> list[Candidate]:
    """The node's axes in the order that makes it walk a buffer of the group as the group wrote it."""
    if len(own) < 2:
        return []
    written: dict[str, tuple[list[Size], Member]] = {}
    for m in group.members:
        for store in m.node.body.stores():
            if m.order is None:
                written[store.args[0]] = ([_step(store.args[1], a.var) for a in m.node.body.axes], m)
    for load in node.body.loads():
        entry = written.get(load.args[0])
        if entry is None:
            continue
        strides, member = entry
        theirs = axis_sizes(member.node)[0]
        mine = [_step(load.args[1], a.var) for a in node.body.axes]
        order: list[int] = []
        for size, stride in zip(theirs, strides, strict=True):
            match = [k for k in range(len(own)) if k not in order and same(own[k], size) and same(mine[k], stride)]
            order += match[:1]
        if len(order) == len(own) == len(theirs) and order != sorted(order) and same_all(theirs, group.outer):
            return [Candidate(group.outer, [], Member(node, "outer", tuple(order)))]
    return []


def _as_read(group: Group, node: LoopNode, own: list[Size]) -> list[Candidate]:
    """The node's axes in the order in which it walks a buffer that the group writes; they may be parts of the group's."""
    for load in node.body.loads():
        if load.args[0] in group.writes:
            steps = [_step(load.args[1], a.var) for a in node.body.axes]
            known = [step for step in steps if isinstance(step, int) and step > 0]
            if len(known) < len(steps):
                continue
            order = tuple(sorted(range(len(own)), key=lambda k: -known[k]))
            outer = refine(group.outer, [own[k] for k in order])
            if outer is not None and order != tuple(range(len(own))):
                return [Candidate(outer, group.inner, Member(node, "outer", order))]
    return []


@functools.lru_cache(1 << 12)
def _step(expr: Any, var: Any) -> Size:
    step = 0 if isinstance(expr, int) else expr.coefficient(var)
    return -1 if step is None else step


def mapped_index(i: Instruction, names: dict[Any, Size]) -> Size:
    """The index of a load or store in the group's variables."""
    return substitute(i.args[1], names)
