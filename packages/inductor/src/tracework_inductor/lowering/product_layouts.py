"""How a value is laid out that matrix products read through permutations: in the order in which they read it.

The gradients of a projection to query, key and value are joined in one layout and multiplied in another, as are tokens that attention
wants with the batch second. What a loop of ours writes, it writes at no cost in the order of the product's operand, which is then a
window on it; else the operand would be a copy.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ..ir.index import Size, product, same
from .registry import VIEWS
from .row_padding import PRODUCTS, prim_name

COPIES = frozenset(("clone", "contiguous"))
"""Views of the lowering whose results have memory of their own in the graph."""

Order = tuple[tuple[int, ...], ...]
"""For each dim of a view the dims of the value that it consists of, the slowest first."""


def product_layouts(graph: Any) -> dict[Any, tuple[Size, ...]]:
    """Node that a loop may compute -> strides for its buffer, where all products that read it agree on others than row-major ones."""
    found: dict[Any, tuple[Size, ...]] = {}
    for node in graph.nodes:
        spec = node.meta.get("spec")
        if node.op != "call_function" or not hasattr(spec, "strides") or spec.ndim < 2 or prim_name(node) in VIEWS:
            continue
        orders = list(_orders(node, tuple((d,) for d in range(spec.ndim)), False))
        if not orders or orders[0] is None or any(o not in (orders[0], _turned(orders[0])) for o in orders):
            continue
        ways = [[d for part in o for d in part if not same(spec.sizes[d], 1)] for o in (orders[0], _turned(orders[0]))]
        if not any(places == sorted(places) for places in ways):
            found[node] = _strides(spec.sizes, ways[0])
    return found


def _turned(order: Order) -> Order:
    """The order of the transposed matrix, which products take as well."""
    return (*order[:-2], order[-1], order[-2]) if len(order) > 1 else order


def _strides(sizes: Sequence[Size], places: Sequence[int]) -> tuple[Size, ...]:
    strides: list[Size] = [1] * len(sizes)
    step: Size = 1
    for d in reversed(places):
        strides[d] = step
        step = step * sizes[d]
    return tuple(strides)


def _orders(node: Any, order: Order, copied: bool) -> Iterator[Order | None]:
    """In which order each product reads the value; None for a reader that takes it in the graph's layout."""
    for user in node.users:
        name = prim_name(user)
        if name in PRODUCTS:
            yield order if node in [user.args[n] for n in PRODUCTS[name]] else None
        elif name in VIEWS:
            there = _through(user, order)
            if there is None:
                yield None
            else:
                yield from _orders(user, there, copied or name in COPIES)
        elif user.op == "output":
            if not copied:
                yield None
        elif name is None or user.target.kind.value == "library":
            yield None


def _through(view: Any, order: Order) -> Order | None:
    """The order of a view's result; None for views that cut dims or repeat elements."""
    name, spec, before = prim_name(view), view.meta["spec"], view.args[0].meta["spec"]
    if name in COPIES:
        return order
    if name == "permute":
        return tuple(order[d] for d in view.args[1])
    if name in ("reshape", "squeeze", "unsqueeze"):
        return _joined(before.sizes, order, spec.sizes)
    return None


def _joined(before: Sequence[Size], order: Order, after: Sequence[Size]) -> Order | None:
    """The order after a reshape that joins whole dims."""
    rest = [(s, part) for s, part in zip(before, order, strict=True) if not same(s, 1)]
    made: list[tuple[int, ...]] = []
    for size in after:
        parts: list[tuple[Size, tuple[int, ...]]] = []
        while not same(product([s for s, _ in parts]), size):
            if not rest:
                return None
            parts.append(rest.pop(0))
        made.append(tuple(d for _, part in parts for d in part))
    return None if rest else tuple(made)


__all__ = ["product_layouts"]
