"""A joint graph without expressions that are written twice: equal nodes become one, and products with one operand in common that are added up
become the product of a sum."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Hashable, Iterator
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor

from .. import _torch
from ..nodes import called, function_of, operand_of
from .split import has_effect, with_bases

__all__ = ["add_before_products", "merge_equal"]

aten = torch.ops.aten
MARKS = ("phase", "recompute", "recompute_region", "differentiates")
"""Values of a checkpoint are none of another's, and in the backward an input may have other data (wrappers/other_data.py)."""
TURNS = frozenset((aten.t.default, aten.transpose.int, aten.permute.default))
VIEWS = TURNS | {aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim}
"""Of the sum of two tensors they show the sum of what they show of each."""
PRODUCTS = frozenset((aten.mm.default, aten.bmm.default))
SUMS = frozenset((aten.sum.dim_IntList,))
"""What is taken of a sum that is there already: gradients of biases."""


def merge_equal(graph: fx.Graph) -> None:
    """Makes one node of those that compute the same from the same, in place. What the caller is shown, or may be shown by a view, stays as it
    is: it is memory of its own, which the caller may write to."""
    *nodes, output = graph.nodes
    shown = with_bases(output.all_input_nodes)
    known: dict[Hashable, fx.Node] = {}
    for node in nodes:
        if _is_pure(node) and node not in shown and (key := _key_of(node)) is not None:
            first = known.setdefault(key, node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def _is_pure(node: fx.Node) -> bool:
    """Whether a node gives tensors that depend on its operands alone."""
    if node.op != "call_function":
        return False
    values = node.meta.get("val")
    if not all(isinstance(x, FakeTensor) for x in (values if isinstance(values, (tuple, list)) else [values])):
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, _torch.OpOverload) or node.target.namespace != "aten" or has_effect(node):
        return False
    return not (node.target._schema.is_mutable or "empty" in node.target._schema.name)


def _key_of(node: fx.Node) -> Hashable | None:
    """Equal for nodes that compute the same; None where an argument has no hash."""
    key = (node.target, *(_hashed(part) for part in (node.args, sorted(node.kwargs.items()), [node.meta.get(m) for m in MARKS])))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _hashed(value: Any) -> Hashable:
    """Tells 1 from 1.0 and True, and 0.0 from -0.0."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_hashed, value))
    return type(value), value.hex() if isinstance(value, float) else value


def add_before_products(graph: fx.Graph, late: Collection[fx.Node]) -> None:
    """Where products (or sums) of gradients that have one operand in common are added up, adds up the gradients instead, in place: the gradient
    of a product that is written twice is one product. The sum is rounded before, not after. late: the nodes that tangents are needed for."""
    sums = _Sums(graph, late)
    for kinds in (PRODUCTS, SUMS):  # sums come last: they wait for what products add up
        waiting = [node for node in graph.nodes if node in late and _adds(node)]
        while waiting:
            top = waiting.pop(0)
            if top.users and not _is_term(top):
                waiting += sums.rewrite(top, kinds)


def _adds(node: fx.Node) -> bool:
    """Whether it is the sum of two tensors alike."""
    if node.target is not aten.add.Tensor or node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
        return False
    return all(_alike(node, operand_of(node, place)) for place in (0, 1))


def _alike(one: fx.Node, other: fx.Node) -> bool:
    x, y = one.meta["val"], other.meta["val"]
    if not (isinstance(x, FakeTensor) and isinstance(y, FakeTensor)):
        return False
    return x.dtype == y.dtype and x.device == y.device and not x.is_symbolic and not y.is_symbolic and x.shape == y.shape


def _is_term(node: fx.Node) -> bool:
    """Whether a longer sum alone reads it."""
    return len(node.users) == 1 and _adds(next(iter(node.users)))


class _Sums:
    """What is added up in a graph."""

    def __init__(self, graph: fx.Graph, late: Collection[fx.Node]) -> None:
        self._graph, self._late = graph, {*late}
        self._added: dict[tuple[fx.Node, fx.Node], fx.Node] = {}  # pairs of operands -> their sum, of those that were made here
        self._made: list[fx.Node] = []

    def rewrite(self, top: fx.Node, kinds: frozenset[Any]) -> list[fx.Node]:
        """Makes one term of those of a sum whose products, or sums, have the same operand beside the one that is added up. Gives the sums of these
        operands that are new."""
        terms = [*_terms(top)]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, term in enumerate(terms):
            for key in _keys(term, kinds):
                groups.setdefault(key, []).append(number)
        self._made = []
        left: dict[int, fx.Node] = dict(enumerate(terms))
        with self._graph.inserting_before(top):
            for (place, *_), numbers in groups.items():
                numbers = [n for n in dict.fromkeys(numbers) if left.get(n) is terms[n]]
                operands = [operand_of(_product(terms[n]), place) for n in numbers]
                if len(numbers) > 1 and self._may_be_added(operands) and self._is_worth_it(operands, kinds):
                    left[numbers[0]] = self._together(terms[numbers[0]], operands, place)
                    for number in numbers[1:]:
                        del left[number]
            if len(left) < len(terms):
                whole = functools.reduce(functools.partial(called, self._graph, top, aten.add.Tensor), left.values())
                top.replace_all_uses_with(whole)
                self._erase(top)
                self._added = {pair: whole if made is top else made for pair, made in self._added.items()}
        return self._made

    def _erase(self, node: fx.Node) -> None:
        """A node that nobody reads, and what nobody reads then."""
        operands = node.all_input_nodes
        self._graph.erase_node(node)
        for operand in operands:
            if operand in self._late and operand.op == "call_function" and not operand.users:
                self._erase(operand)

    def _may_be_added(self, operands: list[fx.Node]) -> bool:
        return all(x in self._late and _alike(operands[0], x) for x in operands)

    def _is_worth_it(self, operands: list[fx.Node], kinds: frozenset[Any]) -> bool:
        return kinds is PRODUCTS or (len(operands) == 2 and _pair(*operands) in self._added)

    def _together(self, term: fx.Node, operands: list[fx.Node], place: int) -> fx.Node:
        """The term with the sum of these in the place of its own operand."""
        turns = []
        while operands[0].target in TURNS and len({(x.target, _hashed(x.args[1:])) for x in operands}) == 1:
            turns.append(operands[0])
            operands = [*map(operand_of, operands)]
        made = functools.reduce(self._sum, operands)
        product = _product(term)
        for view in reversed(turns):
            made = called(self._graph, view, function_of(view), made, *view.args[1:])
        made = called(self._graph, product, function_of(product), *product.args[:place], made, *product.args[place + 1 :])
        for view in reversed([*_views(term)]):
            made = called(self._graph, view, function_of(view), made, *view.args[1:])
        return made

    def _sum(self, one: fx.Node, other: fx.Node) -> fx.Node:
        pair = _pair(one, other)
        found = self._added.get(pair)
        if found is None or not found.users:  # which is erased
            with self._graph.inserting_after(pair[1]):
                found = self._added[pair] = called(self._graph, pair[1], aten.add.Tensor, *pair)
            self._late.add(found)
            self._made.append(found)
        return found


def _pair(one: fx.Node, other: fx.Node) -> tuple[fx.Node, fx.Node]:
    return (one, other) if one < other else (other, one)


def _terms(node: fx.Node) -> Iterator[fx.Node]:
    """What is added up, the first one first."""
    for operand in (operand_of(node, 0), operand_of(node, 1)):
        if _adds(operand) and len(operand.users) == 1:
            yield from _terms(operand)
        else:
            yield operand


def _views(term: fx.Node) -> Iterator[fx.Node]:
    """The views through which a term shows a product, the last one first, as far as nothing else reads them."""
    while term.target in VIEWS and len(term.users) == 1:
        yield term
        term = operand_of(term)


def _product(term: fx.Node) -> fx.Node:
    """What a term shows."""
    views = [*_views(term)]
    return operand_of(views[-1]) if views else term


def _keys(term: fx.Node, kinds: frozenset[Any]) -> Iterator[tuple[Any, ...]]:
    """By the place of the operand that would be added up: equal for terms that are alike but for it."""
    product = _product(term)
    if product.target not in kinds or len(product.users) != 1 or product.kwargs:
        return
    views = tuple((view.target, _hashed(view.args[1:])) for view in _views(term))
    marks = _hashed([product.meta.get(mark) for mark in MARKS])
    for place in range(2 if product.target in PRODUCTS else 1):
        others = _hashed([arg for number, arg in enumerate(product.args) if number != place])
        yield place, product.target, views, marks, others
