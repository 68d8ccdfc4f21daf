"""The loop that adds nodes to groups: producers first, then neighbours that read the same buffers; and groups that become one."""

from typing import Any

from ..ir.buffer import LoopNode
from ..ir.index import constant_product
from ..options import InductorOptions
from ..target import Capabilities
from .fusion_rules import Proposal, refusal
from .graph import Dependencies, live_nodes, output_buffers
from .group import Group, Member, axis_sizes, candidates
from .plan import Program, Refusal

MERGED_ON = frozenset({"cpu"})
"""Types of devices on which groups become one."""


class Fuser:
    """State of one fusion run over a program's live nodes, in their order."""

    def __init__(self, program: Program, options: InductorOptions, capabilities: Capabilities) -> None:
        self.program = program
        self.options = options
        self.capabilities = capabilities
        self.nodes = live_nodes(program)
        self.dependencies = Dependencies(program, self.nodes)
        self.groups: list[Group] = []
        self.group_of: dict[int, Group] = {}
        self.refusals: list[Refusal] = []
        self.fused = 0
        self._readers: dict[str, list[Group]] = {}
        wanted = output_buffers(program) | {n.mutates for n in self.nodes if n.mutates is not None}
        self.reading: dict[str, list[Any]] = {name: [None] for name in wanted}
        """Buffer -> the nodes that read it, and None if it must be in memory when the graph ends."""
        for name, numbers in self.dependencies.readers.items():
            self.reading.setdefault(name, []).extend(self.nodes[k] for k in numbers)

    def run(self) -> list[Group]:
        """Groups in an order that is not yet the launch order."""
        for number, node in enumerate(self.nodes):
            before = self._ancestors(number)
            group = self._join(number, node, before) if isinstance(node, LoopNode) and self._may_fuse() else None
            if group is None:
                group = self._start(node)
            else:
                self.fused += 1
            group.nodes_mask |= 1 << number
            self._inherit(group, before)
            self.group_of[number] = group
            for name in node.reads:
                known = self._readers.setdefault(name, [])
                if group not in known:
                    known.append(group)
        if self.options.fuse:
            self._merge()
        return self.groups

    def _may_fuse(self) -> bool:
        return self.options.fuse and (self.options.fusions is None or self.fused < self.options.fusions)

    def _start(self, node: Any) -> Group:
        group = self._alone(len(self.groups), node)
        self.groups.append(group)
        return group

    def _alone(self, number: int, node: Any) -> Group:
        outer, inner = axis_sizes(node) if isinstance(node, LoopNode) else ([], [])
        return Group(number, [Member(node, "full" if inner else "outer")], outer, inner)

    def _ancestors(self, number: int) -> int:
        """Bits of the groups that must run before node `number`."""
        mask = 0
        for p in self.dependencies.predecessors[number]:
            group = self.group_of[p]
            mask |= group.ancestors | (1 << group.number)
        return mask

    def _inherit(self, group: Group, before: int) -> None:
        bit = 1 << group.number
        if not before & ~bit & ~group.ancestors:
            return
        group.ancestors |= before & ~bit
        if group.nodes_mask.bit_count() == 1:  # nobody has it as an ancestor yet
            return
        for other in self.groups:
            if other.ancestors & bit:
                other.ancestors |= group.ancestors & ~(1 << other.number)

    def _join(self, number: int, node: LoopNode, before: int) -> Group | None:
        for group, _ in self._ranked(node):
            if self._makes_cycle(group, before):
                self._refuse(group, node, "cycle", "another kernel between them needs one and feeds the other")
                continue
            if self._try(group, node):
                return group
        return None

    def _makes_cycle(self, group: Group, before: int) -> bool:
        bit = 1 << group.number
        rest = before & ~bit
        return rest != 0 and any(rest >> other.number & 1 and other.ancestors & bit for other in self.groups)

    def _ranked(self, node: LoopNode) -> list[tuple[Group, int]]:
        """Groups that share memory traffic with the node, most bytes first."""
        saved: dict[int, int] = {}
        chosen: dict[int, Group] = {}
        for name in node.reads:
            writer = self.dependencies.writer.get(name)
            if writer is not None and writer in self.group_of:
                self._credit(saved, chosen, self.group_of[writer], 2 * self._bytes(name))
            for group in self._readers.get(name, ())[-8:]:
                self._credit(saved, chosen, group, self._bytes(name))
        if node.mutates is not None:
            for group in self._readers.get(node.mutates, ())[-8:]:
                self._credit(saved, chosen, group, self._bytes(node.mutates))
        ranked = sorted(saved, key=lambda n: (-saved[n], n))
        return [(chosen[n], saved[n]) for n in ranked if isinstance(chosen[n].members[0].node, LoopNode)][:8]

    def _credit(self, saved: dict[int, int], chosen: dict[int, Group], group: Group, amount: int) -> None:
        saved[group.number] = saved.get(group.number, 0) + amount
        chosen[group.number] = group

    def _bytes(self, name: str) -> int:
        buffer = self.program.buffers.get(name)
        return constant_product(buffer.layout.sizes) * buffer.layout.dtype.itemsize if buffer is not None else 0

    def _try(self, group: Group, node: LoopNode) -> bool:
        ways = candidates(group, node)
        problem = ("axes", "their sizes do not fit")
        for way in ways:
            proposal = Proposal(group, node, way, self.program.buffers, self.options, self.capabilities, self.reading)
            found = refusal(proposal)
            if found is None:
                group.members = proposal.members()
                group.outer, group.inner = way.outer, way.inner
                return True
            problem = found
        self._refuse(group, node, *problem)
        return False

    def _merge(self) -> None:
        """A node joins one group; where it reads what others compute, too, for the same points, these join it there.

        So both sums of a row that the gradient of a norm takes are of one kernel, whichever of them came first.
        """
        refused = {(r.first, r.second) for r in self.refusals}
        for group in list(self.groups):
            node = group.members[0].node
            if not isinstance(node, LoopNode) or node.device.type not in MERGED_ON or all(g is not group for g in self.groups):
                continue
            for name in sorted(set().union(*(m.node.reads for m in group.members)) & self.dependencies.writer.keys()):
                other = self.group_of.get(self.dependencies.writer[name])
                if other is None or other is group or not isinstance(other.members[0].node, LoopNode):
                    continue
                begin = other.members[0].node.name
                if any((begin, m.node.name) in refused for m in group.members) or self._makes_cycle(other, group.ancestors):
                    continue
                merged = self._merged(other, group) if self._may_fuse() else None
                if merged is not None:
                    group = merged
                    self.fused += 1

    def _merged(self, first: Group, second: Group) -> Group | None:
        """The group of the nodes of both, which takes their place, if each may be added in its turn."""
        mask = first.nodes_mask | second.nodes_mask
        numbers = [n for n in range(len(self.nodes)) if mask >> n & 1]
        made = self._alone(second.number, self.nodes[numbers[0]])
        if not all(self._try(made, self.nodes[n]) for n in numbers[1:]):
            return None
        made.nodes_mask = mask
        gone, kept = 1 << first.number, 1 << second.number
        made.ancestors = (first.ancestors | second.ancestors) & ~(gone | kept)
        self.groups = [made if g is second else g for g in self.groups if g is not first]
        self.group_of.update(dict.fromkeys(numbers, made))
        for other in self.groups:
            if other.ancestors & (gone | kept):
                other.ancestors = (other.ancestors | kept | made.ancestors) & ~gone
        return made

    def _refuse(self, group: Group, node: LoopNode, rule: str, reason: str) -> None:
        self.refusals.append(Refusal(group.members[0].node.name, node.name, rule, reason))
