"""What the passes of this folder have in common: some calls of a graph are rewritten in a copy of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tracework_primops import GraphBuilder, PrimGraph, TensorSpec, prims
from tracework_primops.written_attention import WrittenAttention, value_of

from ..ir.index import same_all


def rewritten(graph: PrimGraph, wanted: Callable[[Any], bool], rewrite: Callable[[Any], None]) -> PrimGraph:
    """A copy of the graph in which `rewrite` was called with each node that is wanted; the same object where none is."""
    names = {n.name for n in graph.calls if wanted(n)}
    if not names:
        return graph
    copy = graph.copy()
    for node in [n for n in copy.calls if n.name in names]:
        rewrite(node)
    return copy


@contextmanager
def built_before(node: Any) -> Iterator[None]:
    """Prims that are called in the block stand before `node`, and come from where it does."""
    builder = GraphBuilder(node.graph)
    builder.origin = node.meta.get("origin")
    with node.graph.inserting_before(node), builder:
        yield


def transposed(node: Any) -> Any:
    """The matrix that a node is the transpose of, or None."""
    return node.args[0] if node.target is prims.permute and tuple(node.args[1]) == (1, 0) else None


def in_four_axes(node: Any, found: WrittenAttention) -> tuple[TensorSpec, list[Any]]:
    """What the result of four axes is, which lies as eager's next product wants it unless it is given out, with the strides that eager's has;
    and the calls that give the second product, `node`, these axes."""
    spec = node.meta["spec"]
    batch, heads, queries, _ = found.sizes
    width = spec.sizes[2]
    sizes = batch, heads, queries, width
    alike = [user for user in node.users if user.target is prims.reshape and same_all(user.args[1], sizes)]
    given_out = any(user.op == "output" for seen in (node, *alike) for user in seen.users)
    strides = None if given_out else (queries * heads * width, width, heads * width, 1)
    return TensorSpec(spec.dtype, spec.device, sizes, strides), alike


def put_in_place(node: Any, new: Any, alike: Sequence[Any], found: WrittenAttention) -> None:
    """Whoever reads the second product, `node`, reads `new`, of four axes; in a block of `built_before`."""
    for user in alike:
        user.replace_all_uses_with(new)
        node.graph.erase_node(user)
    if node.users:
        flat = prims.reshape(value_of(new), node.meta["spec"].sizes).node
        flat.meta["spec"] = node.meta["spec"]
        node.replace_all_uses_with(flat)
    node.graph.erase_node(node)
    for inner in sorted(found.inside, reverse=True):
        node.graph.erase_node(inner)


__all__ = ["built_before", "in_four_axes", "put_in_place", "rewritten", "transposed", "value_of"]
