"""FUSION_RULES: ordered legality checks of adding a node to a group; each returns None or a reason."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..ir.body import Ref
from ..ir.bounds import COMPARISONS
from ..ir.buffer import LoopNode
from ..ir.index import Expr, Size, constant_product, dot, same_all, simplify, variables_ranges
from ..ir.scalar_ops import COLUMNS
from ..options import InductorOptions
from ..target import Capabilities
from .graph import writes_to_input
from .group import Candidate, Group, Member, axis_sizes, mapped_index, mapping, variables


@dataclasses.dataclass
class Proposal:
    """A node, a group, and the domain that they would share. readers: buffer -> the nodes that read it, and None for the graph's caller."""

    group: Group
    node: LoopNode
    candidate: Candidate
    buffers: Mapping[str, Any]
    options: InductorOptions
    capabilities: Capabilities
    readers: Mapping[str, Collection[LoopNode | None]] = dataclasses.field(default_factory=dict)

    def members(self) -> list[Member]:
        """The group's members as they would be."""
        kept = [dataclasses.replace(m) for m in self.group.members]
        for m in kept:
            if self.candidate.spread:
                m.level, m.order = "full", self.candidate.order
            m.repeated = m.repeated or self.candidate.repeats
        return [*kept, self.candidate.member]


MOST_PRODUCTS = 2
"""In one kernel."""
MOST_PARTS = 8
"""Of which the one that has an element is looked for in a loop with reductions."""
LEAST_POINTS = 1 << 13
"""Of columns that are walked side by side; threads share these."""
LONGEST_COLUMN = 1 << 11
"""Steps along one, so that vectors of it stay in the second-level cache."""
LEAST_SIDE = 32
"""Points side by side."""
MOST_BYTES_AGAIN = 1 << 15
"""Read by each block of a product for what it computes again: about as much as it reads of the large matrix."""


def _device(p: Proposal) -> str | None:
    return None if p.group.members[0].node.device == p.node.device else "they are on different devices"


def _size(p: Proposal) -> str | None:
    count = len(p.group.members)
    return None if count < p.options.max_fusion_size else f"the kernel has {count} nodes already"


def _scatter(p: Proposal) -> str | None:
    if p.node.domain == "scatter" or any(m.node.domain == "scatter" for m in p.group.members):
        return "a scatter writes elements of other iterations"
    return None


def _columns(p: Proposal) -> str | None:
    """What blocks have kept of columns is complete when all have ended."""
    kept = [m.node for m in p.group.members if m.node.domain == COLUMNS]
    if any(node.writes & p.node.reads for node in kept):
        return "it reads sums of columns, which blocks have only parts of"
    if not kept and p.node.domain != COLUMNS:
        return None
    others = any(
        m.node.domain not in ("pointwise", "reduction", COLUMNS) or m.node.is_product or m.node.sorts for m in p.members()
    )
    return "sums of columns are kept beside reductions of rows only" if others else None


def _spread_order(p: Proposal) -> str | None:
    turned = p.candidate.member.order is not None or p.candidate.order is not None
    if turned and p.candidate.inner and not p.group.core and p.node.device.type == "cpu":
        if not _in_columns(p):
            return "a CPU's vectors lie along the last axis, and it would walk rows across it"  # 3 to 70 times as long
        return None
    permuted = any(m.order is not None and m.level == "outer" for m in p.group.members)
    if permuted and (p.candidate.spread or (p.candidate.inner and not p.group.core)):
        return "a member walks its axes in another order"
    return None


def _in_columns(p: Proposal) -> bool:
    """Whether vectors lie along an outer axis, with enough of them for all threads, and what one has of all steps along the inner axes stays
    in the cache."""
    sizes = [*p.candidate.outer, *p.candidate.inner]
    if not all(isinstance(s, int) for s in sizes) or any(m.node.domain not in ("pointwise", "reduction") for m in p.members()):
        return False
    if constant_product(p.candidate.outer) < LEAST_POINTS or constant_product(p.candidate.inner) > LONGEST_COLUMN:
        return False
    outer, inner = variables("x", p.candidate.outer), variables("r", p.candidate.inner)
    walked: list[Expr] = []
    for m in p.members():
        names = mapping(m, p.candidate.outer, p.candidate.inner)
        for i in (*m.node.body.loads(), *m.node.body.stores()):
            index = mapped_index(i, names)
            if isinstance(index, Expr) and all(index.free_symbols & {*axes} for axes in (outer, inner)):
                walked.append(index)
    if any(index.coefficient(axis) in (1, None) for index in walked for axis in inner):
        return False
    side, left = 1, dict(zip(outer, p.candidate.outer, strict=True))
    while (axis := next((a for a in left if walked and all(index.coefficient(a) == side for index in walked)), None)) is not None:
        side *= left.pop(axis)
    return side >= LEAST_SIDE


def _scan_alone(p: Proposal) -> str | None:
    if p.node.domain != "scan" and not any(m.node.domain == "scan" for m in p.group.members):
        return None
    return "a scan is a kernel of its own"


def _segments(p: Proposal) -> str | None:
    """What is put together from many parts is walked part by part, which loops with reductions are not."""
    if p.node.device.type != "cpu" or not p.candidate.inner or not any(_parts(m.node) > MOST_PARTS for m in p.members()):
        return None
    return "for each element of a row it would look for the part that has it"


def _parts(node: LoopNode) -> int:
    """How many numbers one position is compared with."""
    instructions = node.body.instructions
    numbers: dict[Ref, set[Ref]] = {}
    for i in instructions:
        if i.op in COMPARISONS and instructions[i.args[0].position].op == "index_expr":
            numbers.setdefault(i.args[0], set()).add(i.args[1])
    return max(map(len, numbers.values()), default=0)


def _sort_rows(p: Proposal) -> str | None:
    """A row that is sorted is held as a whole, by a kernel that does not walk it."""
    members = [m.node for m in p.members()]
    if not any(n.sorts for n in members) or not any(n.is_product for n in members):
        return None
    return "a row that is sorted is not walked as a product's rows are"


def _elements(p: Proposal) -> str | None:
    """What one member reads of what another writes must be the element of the same iteration."""
    members = p.members()
    written, ranges = written_indices(members, p.candidate, p.buffers)
    new = p.candidate.member
    names = mapping(new, p.candidate.outer, p.candidate.inner)
    for load in new.node.body.loads():
        where = written.get(load.args[0])
        if where is None:
            continue
        if where[1] == "full" and new.level == "outer":
            return f"it reads all of a row of {load.args[0]} for each point"
        if simplify(mapped_index(load, names), ranges) != where[0]:
            return f"it reads other elements of {load.args[0]} than the iteration writes"
    return None


def _neighbours(p: Proposal) -> str | None:
    """Nodes that only share what they read must walk it alike."""
    writes = p.group.writes
    if p.node.mutates in p.group.reads or any(name in writes for name in p.node.reads):
        return None
    own, reduced = axis_sizes(p.node)
    if (order := p.candidate.member.order) is not None:
        own = [own[k] for k in order]
    alike = same_all([*own, *reduced], [*p.group.outer, *p.group.inner]) or same_all(own, p.group.outer)
    if not alike or len(p.candidate.outer) > len(p.group.outer):
        return "they share only what they read and have other axes"
    if p.node.device.type == "cpu" and own and _shares_single_elements(p):
        return "they share only single elements"
    if order is not None and _writes_across(p):
        return "it writes across the order in which the others read"
    return "they walk what both read in another order" if reduced and p.group.inner and _crosses(p) else None


def _shares_single_elements(p: Proposal) -> bool:
    """Whether of what members read the node reads some, but of no tensor more than one element."""
    read = p.group.reads
    shared = [i for i in p.node.body.loads() if i.args[0] in read]
    return bool(shared) and not any(isinstance(i.args[1], Expr) for i in shared)


def _writes_across(p: Proposal) -> bool:
    """Whether some member reads another element at each point, along another axis than along which the node's lie side by side."""
    outer, inner = p.candidate.outer, p.candidate.inner
    ranges, axes = variables_ranges(outer, inner), [*variables("x", outer), *variables("r", inner)]

    def strides(m: Member, op: str) -> list[dict[Any, Any]]:
        names = mapping(m, outer, inner)
        found = [simplify(mapped_index(i, names), ranges) for i in m.node.body.instructions if i.op == op]
        return [_strides(index, axes) for index in found]

    read = [_fast(s) for m in p.group.members for s in strides(m, "load") if len(s) == len(axes)]
    return any(_fast(s).isdisjoint(other) for s in strides(p.candidate.member, "store") for other in read)


def _strides(index: Size, axes: list[Any]) -> dict[Any, Any]:
    """Axis -> step of an index along it, None where that is not known, of those along which it changes."""
    return {a: step for a in axes if not isinstance(index, int) and (step := index.coefficient(a)) != 0}


def _fast(strides: Mapping[Any, Any]) -> set[Any]:
    """The axes along which elements lie side by side, or may."""
    return {axis for axis, stride in strides.items() if stride == 1 or stride is None}


def _crosses(p: Proposal) -> bool:
    """Whether of all buffers that both walk along the inner axes none has its elements side by side along the same axis for both."""
    ranges = variables_ranges(p.candidate.outer, p.candidate.inner)
    inner = variables("r", p.candidate.inner)
    axes = [*variables("x", p.candidate.outer), *inner]
    walked: dict[str, list[set[Any]]] = {}
    for m in p.members():
        names, side = mapping(m, p.candidate.outer, p.candidate.inner), m is p.candidate.member
        for load in m.node.body.loads():
            strides = _strides(simplify(mapped_index(load, names), ranges), axes)
            if load.args[0] in p.node.reads and any(axis in strides for axis in inner):
                walked.setdefault(load.args[0], [set(), set()])[side].update(_fast(strides))
    both = [sides for sides in walked.values() if all(sides)]
    return bool(both) and not any(mine & theirs for mine, theirs in both)


def _overwrites(p: Proposal) -> str | None:
    """Overwriting what another member reads must touch the same element only."""
    base = p.node.mutates
    if base is None:
        return None
    ranges = variables_ranges(p.candidate.outer, p.candidate.inner)
    names = mapping(p.candidate.member, p.candidate.outer, p.candidate.inner)
    places = {simplify(mapped_index(s, names), ranges) for s in p.node.body.stores()}
    for m in p.members():
        own = mapping(m, p.candidate.outer, p.candidate.inner)
        for load in m.node.body.loads():
            if load.args[0] == base and (
                simplify(mapped_index(load, own), ranges) not in places or m.level != p.candidate.member.level
            ):
                return f"it overwrites elements of {base} that other iterations read"
    return None


def _raises(p: Proposal) -> str | None:
    """What may raise does so before anything is written to an input."""
    if writes_to_input(p.buffers, p.node) and any(m.node.may_raise for m in p.group.members):
        return f"it writes to {p.node.mutates} after what may raise"
    return None


def _products(p: Proposal) -> str | None:
    """Each product has accumulators of its own for each of its rows."""
    products = sum(m.node.is_product for m in p.members())
    return None if products <= MOST_PRODUCTS else f"the kernel has {products - 1} products already"


def _core(p: Proposal) -> str | None:
    """A core computes its product first, and then what reads elements of that and of nothing else that the kernel computes by rows."""
    if p.node.core:
        return f"the core {p.node.core} begins a kernel"
    if not p.group.core:
        return None
    if p.candidate.member.level != "outer" or p.node.body.reduction_axes:
        return "a core's kernel walks its inner dimension once"
    if not p.node.reads & p.group.writes:
        return "it reads nothing of what the core's kernel computes"
    return None


def _in_rows(node: LoopNode, buffers: Mapping[str, Any]) -> bool:
    """Whether the elements of the largest matrix that a product adds up lie side by side."""
    largest = max(node.body.loads(), key=lambda i: constant_product(buffers[i.args[0]].layout.sizes))
    return not isinstance(largest.args[1], int) and largest.args[1].coefficient(node.body.reduction_axes[-1].var) == 1


def _repeats(p: Proposal) -> str | None:
    """What is computed again for each block of a product's columns is little, and nobody else reads it."""
    if not p.candidate.repeats:
        return None
    if p.node.device.type == "cpu":
        return "a CPU's threads would compute it again for each block of columns"
    if not _in_rows(p.node, p.buffers):
        return "a block of a matrix whose rows are not in one piece is too small for what it would compute again"
    own = axis_sizes(p.node)
    for m in p.group.members:
        if m.node.domain not in ("pointwise", "reduction") or m.node.mutates is not None or m.node.may_raise:
            return "what it would compute again is no plain loop"
        for name in m.node.writes:
            for reader in p.readers.get(name, ()):
                inside = reader is p.node or any(reader is other.node for other in p.group.members)
                if not inside and (reader is None or not reader.is_product or axis_sizes(reader) != own):
                    return f"{name} would be computed again for each column, and is read elsewhere"
    again = sum(constant_product(p.buffers[name].layout.sizes) * p.buffers[name].layout.dtype.itemsize for name in p.group.reads)
    return None if again <= MOST_BYTES_AGAIN else f"each block of columns would read {again} bytes again"


def _affine(p: Proposal) -> str | None:
    """Refined axes must not bring divisions into loops that had none."""
    for m in p.members():
        for value in mapping(m, p.candidate.outer, p.candidate.inner).values():
            if not isinstance(value, int) and _divides(value):
                return "their axes do not fit without divisions"
    return None


def _divides(value: Any) -> bool:
    return any("//" in str(a) or "%" in str(a) for a in value.atoms())


FUSION_RULES: tuple[tuple[str, Callable[[Proposal], str | None]], ...] = (
    ("device", _device),
    ("size", _size),
    ("scatter", _scatter),
    ("columns", _columns),
    ("scan", _scan_alone),
    ("segments", _segments),
    ("sort", _sort_rows),
    ("order", _spread_order),
    ("axes", _affine),
    ("products", _products),
    ("core", _core),
    ("repeats", _repeats),
    ("neighbours", _neighbours),
    ("elements", _elements),
    ("overwrites", _overwrites),
    ("raises", _raises),
)


def written_indices(
    members: list[Member], candidate: Candidate, buffers: Mapping[str, Any]
) -> tuple[dict[str, tuple[Size, str]], dict[Any, Any]]:
    """buffer -> (index in the group's variables, level) for everything the members write."""
    ranges = variables_ranges(candidate.outer, candidate.inner)
    written: dict[str, tuple[Size, str]] = {}
    for m in members:
        names = mapping(m, candidate.outer, candidate.inner)
        for i in m.node.body.instructions:
            if i.op == "store":
                written[i.args[0]] = (simplify(mapped_index(i, names), ranges), m.level)
            elif i.op == "reduce":
                written[i.args[0]] = (simplify(reduction_index(m, names, buffers, i.args[0]), ranges), "outer")
    return written, ranges


def reduction_index(member: Member, names: dict[Any, Size], buffers: Mapping[str, Any], name: str) -> Size:
    """Where the result of a reduction goes, in the group's variables."""
    layout = buffers[name].layout
    axes = iter(member.node.body.axes)
    index = [0 if isinstance(s, int) and s == 1 else names[next(axes).var] for s in layout.sizes]
    return dot(index, layout.strides)


def refusal(p: Proposal) -> tuple[str, str] | None:
    """The first rule that says no, with its reason."""
    for name, rule in FUSION_RULES:
        reason = rule(p)
        if reason is not None:
            return name, reason
    return None


__all__ = ["FUSION_RULES", "Proposal", "refusal", "variables", "written_indices"]
