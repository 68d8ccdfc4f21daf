"""Products of the same few rows with several matrices become one product on a GPU: query, key and value, whose matrices have different sizes.

One kernel reads all matrices, each where it lies: it is launched once, and what it computes of the rows first (a norm) is computed there.
Two of the same size are left: they become one kernel in any case, with what is computed from both (gate and up).
"""

from collections.abc import Sequence
from typing import Any

import torch
from tracework_primops import Kind, PrimGraph, prims

from ..lowering.row_padding import PRODUCTS
from ..lowering.vector_products import vector_products
from .rewrites import built_before, value_of

MOST = 8
"""Matrices of one product."""


def join_products(graph: PrimGraph) -> PrimGraph:
    """The graph with such products joined; the same object where there are none."""
    groups = [[n.name for n in group] for group in _groups(graph)]
    if not groups:
        return graph
    copy = graph.copy()
    by_name = {n.name: n for n in copy.graph.nodes}
    for group in groups:
        _join([by_name[name] for name in group])
    return copy


def _groups(graph: PrimGraph) -> list[list[Any]]:
    by_rows: dict[Any, list[Any]] = {}
    found = vector_products(graph.graph, graph.role)
    for node in graph.calls:
        if node in found and _is_plain(node) and _is_given(_matrix(node)):
            by_rows.setdefault(_rows(node), []).append(node)
    return [group for group in by_rows.values() if 2 <= len(group) <= MOST and not _are_a_pair(group)]


def _rows(node: Any) -> Any:
    return node.args[PRODUCTS[node.target.name][0]]


def _matrix(node: Any) -> Any:
    return node.args[PRODUCTS[node.target.name][1]]


def _is_plain(node: Any) -> bool:
    """Whether it adds no more than a row, and has few rows itself, not few columns."""
    if node.target not in (prims.mm, prims.addmm) or node.meta["spec"].device.type == "cpu":
        return False
    if any(v != 1 for v in (*node.args[3:], *node.kwargs.values())):
        return False
    if node.target is prims.addmm and (node.args[0].meta["spec"].ndim != 1 or not _is_given(node.args[0])):
        return False
    rows, columns = node.meta["spec"].sizes
    return bool(rows <= columns)


def _is_given(node: Any) -> bool:
    """Whether a matrix is an input of the graph, or computed from such inputs element by element."""
    if node.op == "placeholder":
        return True
    plain = getattr(node.target, "kind", None) in (Kind.POINTWISE, Kind.VIEW)
    return plain and all(_is_given(n) for n in node.all_input_nodes)


def _are_a_pair(group: list[Any]) -> bool:
    columns = {node.meta["spec"].sizes[1] for node in group}
    return len(group) == 2 and len(columns) == 1 and all(node.target is prims.mm for node in group)


def _join(group: list[Any]) -> None:
    first = group[0]
    for node in group:
        for operand in (_matrix(node), *([node.args[0]] if node.target is prims.addmm else [])):
            _move_before(operand, first)
    with built_before(first):
        product = prims.mm(value_of(_rows(first)), _side_by_side([_matrix(n) for n in group], 1))
        start, results = 0, []
        for node in group:
            end = start + node.meta["spec"].sizes[1]
            part = prims.slice(product, 1, start, end, 1)
            results.append(
                prims.add(part, value_of(node.args[0])) if node.target is prims.addmm else prims.reshape(part, part.sizes)
            )
            start = end
    for node, result in zip(group, results, strict=True):
        result.node.meta["spec"] = node.meta["spec"]
        node.replace_all_uses_with(result.node)
        node.graph.erase_node(node)


def _side_by_side(nodes: Sequence[Any], dim: int) -> Any:
    """What nodes compute, one after the other along a dimension: the same computation of several inputs is one of these side by side."""
    target, spec = nodes[0].target, nodes[0].meta["spec"]
    operands: list[Any] | None = None
    if nodes[0].op == "call_function" and all(n.target is target and n.meta["spec"].dtype == spec.dtype for n in nodes):
        if target is prims.permute and len({tuple(n.args[1]) for n in nodes}) == 1:
            return prims.permute(_side_by_side([n.args[0] for n in nodes], nodes[0].args[1][dim]), nodes[0].args[1])
        if target is prims.unsqueeze and len({n.args[1] for n in nodes}) == 1 and (place := nodes[0].args[1] % spec.ndim) != dim:
            return prims.unsqueeze(_side_by_side([n.args[0] for n in nodes], dim - (place < dim)), place)
        if target.kind is Kind.POINTWISE:
            operands = [
                _operands_side_by_side(arguments, dim - spec.ndim) for arguments in zip(*(n.args for n in nodes), strict=True)
            ]
    if operands is None or any(o is _APART for o in operands):
        return prims.cat(tuple(value_of(n) for n in nodes), dim)
    return target(*operands)


_APART = object()


def _operands_side_by_side(arguments: Sequence[Any], dim: int) -> Any:
    """One operand of a computation of several inputs; dim: from the end. _APART where it is none."""
    first = arguments[0]
    if not isinstance(first, torch.fx.Node):
        return first if all(type(a) is type(first) and a == first for a in arguments) else _APART
    if not all(isinstance(a, torch.fx.Node) for a in arguments):
        return _APART
    specs = [a.meta["spec"] for a in arguments]
    along = [spec.ndim >= -dim and spec.sizes[dim] != 1 for spec in specs]
    if all(along) and len({(s.ndim, s.dtype) for s in specs}) == 1:
        return _side_by_side(arguments, specs[0].ndim + dim)
    return value_of(first) if not any(along) and all(a is first for a in arguments) else _APART


def _move_before(node: Any, place: Any) -> None:
    """Moves what a given matrix is computed by to where `place` can use it."""
    if node.op == "placeholder" or node < place:
        return
    for operand in node.all_input_nodes:
        _move_before(operand, place)
    place.prepend(node)


__all__ = ["join_products"]
