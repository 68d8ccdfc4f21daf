"""Writes to computed positions that end in an input of the graph are made there, as the program made them.

In a graph of values a cache that gets a new row is a copy of the cache with that row, which is copied into the input at the end: twice the
whole for one row. Where nobody reads the input's old value after the row is there, both copies are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tracework_primops import prims
from tracework_primops.passes.edits import memory_of

from ..ir.buffer import LoopNode
from ..ir.index import same, same_all
from ..schedule.graph import alias_root, writes_to_input
from .fallback import SCATTERS
from .value import Strided, settled


def written_inputs(graph: Any) -> dict[Any, Any]:
    """Writes to computed positions -> the placeholder of a GPU's tensor whose new value, and nothing else, they make."""
    position = {node: n for n, node in enumerate(graph.nodes)}
    found: dict[Any, Any] = {}
    for last in graph.nodes:
        if last.target is prims.copy_into and last.args[0].op == "placeholder" and last.meta["spec"].device.type == "cuda":
            chain = _chain(last.args[1], last.args[0])
            if chain and all(_is_over(before, after, last, position) for before, after in zip(chain, chain[1:], strict=False)):
                found.update(dict.fromkeys(chain[1:], chain[0]))
    return found


def _chain(node: Any, placeholder: Any) -> list[Any]:
    """The input and the writes from it to `node`, one after the other; empty if there are other operators between them."""
    chain = [node]
    while chain[-1] is not placeholder:
        if (
            getattr(chain[-1].target, "name", None) not in SCATTERS
            or chain[-1].meta["spec"].dtype != placeholder.meta["spec"].dtype
        ):
            return []
        chain.append(chain[-1].args[0])
    return chain[::-1]


def _is_over(value: Any, write: Any, last: Any, position: dict[Any, int]) -> bool:
    """Whether nobody reads a value, or a view of it, after the write that makes the next one of it."""
    users = list(_users(value))
    return all(user is last or position[user] <= position[write] for user in users) and not any(
        user.target is prims.copy_into and user is not last for user in users
    )


def _users(node: Any) -> Iterator[Any]:
    for user in node.users:
        yield user
        if user.op == "call_function" and memory_of(user) is not user:
            yield from _users(user)


def input_of(low: Any, x: Any, read: Sequence[Any]) -> Strided | None:
    """The input that the current node may write to: `x`, which it gives with other elements. None where there is none, or `read`, the
    values that it takes these from, are read from there."""
    x, placeholder = settled(x), low.written_inputs.get(low.node)
    if placeholder is None or not isinstance(x, Strided):
        return None
    name = low.values[placeholder].buffer
    if not is_whole(low, x, name):
        return None
    if any(alias_root(low.buffers, buffer) == name for value in read for buffer in getattr(settled(value), "reads", ())):
        return None
    low.settle_readers(x.buffer)
    return x


def is_whole(low: Any, at: Strided, name: str) -> bool:
    """Whether a window is all of a buffer, under whatever name."""
    layout = low.buffers[name].layout
    alike = same_all(at.sizes, layout.sizes) and same_all(at.strides, layout.strides)
    return alike and same(at.offset, 0) and alias_root(low.buffers, at.buffer) == name


def raises_after_write(program: Any) -> bool:
    """Whether what may raise comes after a write to computed positions of an input."""
    written = False
    for node in program.nodes:
        if written and node.may_raise:
            return True
        written = written or isinstance(node, LoopNode) and node.domain == "scatter" and writes_to_input(program.buffers, node)
    return False


__all__ = ["input_of", "is_whole", "raises_after_write", "written_inputs"]
