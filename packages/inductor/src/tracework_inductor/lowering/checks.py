"""Which loops check an index: those that read all of it, else one that does nothing else; on a CPU none that writes to an input, which stays
as it was where an index is out of range."""

import dataclasses
from typing import Any

from ..ir.body import IndexCheck, Instruction, LoopBody
from ..ir.buffer import LoopNode
from ..ir.index import Size, same, simplify
from ..schedule.graph import live_nodes, writes_to_input
from ..schedule.plan import Program


def each_checked_once(program: Program) -> Program:
    """The program without the loops that only check what another loop checks wholly, and without the checks that one of those makes."""
    live = live_nodes(program)
    loops = [node for node in live if isinstance(node, LoopNode) and node.domain != "check"]
    whole = {c for node in loops if not _is_checked_before(program, node) for c in _wholly_checked(node.body)}
    nodes = []
    for node in program.nodes:
        if not isinstance(node, LoopNode) or not any(True for _ in node.body.checks()):
            nodes.append(node)
        elif node.domain != "check" or not whole.issuperset(node.body.checks()):
            kept = 3 if _is_checked_before(program, node) else 5
            body = dataclasses.replace(node.body, instructions=tuple(_shorter(i, kept) for i in node.body.instructions))
            nodes.append(dataclasses.replace(node, body=body))
    return dataclasses.replace(program, nodes=tuple(nodes))


def _is_checked_before(program: Program, node: LoopNode) -> bool:
    return node.device.type == "cpu" and writes_to_input(program.buffers, node)


def _shorter(i: Instruction, kept: int) -> Instruction:
    """Without the position in the index that is checked; with 3 arguments kept, without its check."""
    return i._replace(args=(*i.args[:kept], *(None,) * (5 - kept), 0)) if i.op == "indirect" else i


def _wholly_checked(body: LoopBody) -> set[IndexCheck]:
    axes = (*body.axes, *body.reduction_axes)
    ranges = {a.var: (0, a.size - 1) for a in axes}
    found = set()
    for i in body.instructions:
        if i.op == "indirect" and i.args[3] is not None and i.args[4] is None:
            if _takes_all(simplify(i.args[5], ranges), {a.var: a.size for a in axes}, i.args[3].places):
                found.add(i.args[3])
    return found


def _takes_all(position: Size, sizes: dict[Any, Size], places: Size) -> bool:
    """Whether an affine position takes all values below `places` as its variables run: each step is as long as all shorter ones together."""
    if isinstance(position, int):
        return position == 0 and same(places, 1)
    steps = []
    for var in position.free_symbols:
        if var in sizes:
            steps.append((position.coefficient(var), sizes[var]))
    length: Size = 1
    while steps:
        following = next((s for s in steps if s[0] is not None and same(s[0], length)), None)
        if following is None:
            return False
        steps.remove(following)
        length = length * following[1]
    rest = position.substitute(dict.fromkeys((v for v in position.free_symbols if v in sizes), 0))
    return same(length, places) and isinstance(rest, int) and rest == 0
