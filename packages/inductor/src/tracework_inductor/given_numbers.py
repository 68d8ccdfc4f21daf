"""Given numbers: inputs of one element on the CPU that only a GPU reads, as the floats are that change from call to call.

The host program writes their values into the GPU's memory, which waits for nothing, as a copy of memory would. A CUDA graph is recorded for
all their values.
"""

from collections.abc import Iterable, Iterator

import torch
from tracework_primops import GraphBuilder, PrimGraph, PrimValue, prims
from tracework_primops.passes.edits import is_prim

__all__ = ["convert_on_gpu", "few_given", "is_given_number"]

MOST = 16
"""Written one by one; more of them, as an optimizer's counts of steps are, are gathered and sent in one copy."""
MOST_BYTES = 8
"""That the kernel for the inputs of a recording writes."""


def is_given_number(node: torch.fx.Node) -> bool:
    """Whether a node is the copy to a GPU of an input that nothing reads on the CPU."""
    if not is_prim(node, "device_put") or not isinstance(node.args[0], torch.fx.Node) or node.args[0].op != "placeholder":
        return False
    copies = [user for user in node.args[0].users if user.op != "output"]
    return all(_is_copy(user, node.meta["spec"].device) for user in copies) and _is_number(node.args[0])


def few_given(nodes: Iterable[torch.fx.Node]) -> frozenset[torch.fx.Node]:
    """The copies of given numbers among nodes; none where there are too many of them."""
    found = frozenset(filter(is_given_number, nodes))
    return found if len({node.args[0] for node in found}) <= MOST else frozenset()


def convert_on_gpu(graph: PrimGraph) -> PrimGraph:
    """The graph with given numbers copied first and converted then, and not the other way; the same object where there are none."""
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder" and _is_number(n) and _device_of(n) is not None]
    if not 0 < len(names) <= MOST:
        return graph
    changed = graph.copy()
    by_name = {n.name: n for n in changed.graph.nodes}
    for name in names:
        _converted_there(changed.graph, by_name[name])
    return changed


def _is_number(node: torch.fx.Node) -> bool:
    spec = node.meta.get("spec")
    if spec is None or not hasattr(spec, "strides") or spec.device.type != "cpu":
        return False
    return spec.sizes == () and spec.offset == 0 and spec.dtype.itemsize <= MOST_BYTES and not spec.dtype.is_complex


def _is_copy(node: torch.fx.Node, device: torch.device) -> bool:
    """Whether a node copies to a GPU, and what it makes stays in the graph."""
    return is_prim(node, "device_put") and device.type == "cuda" and node.meta["spec"].device == device and not _leaves(node)


def _leaves(node: torch.fx.Node) -> bool:
    """Whether a result of the graph may share a node's memory."""
    return any(user.op == "output" or getattr(user.target, "family", None) == "view" and _leaves(user) for user in node.users)


def _ways(node: torch.fx.Node) -> Iterator[tuple[torch.fx.Node | None, torch.fx.Node]]:
    """What an input goes through, as (its conversion, what reads that)."""
    for user in node.users:
        if is_prim(user, "convert"):
            yield from ((user, reader) for reader in user.users)
        elif user.op != "output":
            yield None, user


def _device_of(node: torch.fx.Node) -> torch.device | None:
    """The GPU that alone reads a number, some of it after a conversion on the CPU; None where there is no such GPU, or no conversion."""
    ways = list(_ways(node))
    devices = {reader.meta["spec"].device for _, reader in ways if is_prim(reader, "device_put")}
    if len(devices) != 1 or all(conversion is None for conversion, _ in ways):
        return None
    device: torch.device = devices.pop()
    return device if all(_is_copy(reader, device) for _, reader in ways) else None


def _converted_there(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    device, ways = _device_of(node), list(_ways(node))
    with graph.inserting_before(node.next), GraphBuilder(graph) as builder:
        builder.origin = ways[0][1].meta.get("origin")
        there = prims.device_put(PrimValue(node.meta["spec"], node), device)
    for conversion, copy in ways:
        with graph.inserting_before(copy), GraphBuilder(graph) as builder:
            builder.origin = copy.meta.get("origin")
            value = there if conversion is None else prims.convert(there, conversion.meta["spec"].dtype)
        copy.replace_all_uses_with(value.node)
        graph.erase_node(copy)
    for conversion in {conversion: None for conversion, _ in ways if conversion is not None}:
        graph.erase_node(conversion)
