"""DTensors of fakes whose sizes are symbols. How torch distributes an operator it keeps by sizes, which symbols are no keys for, and finds shapes of
results on fakes of its own, which know nothing of our symbols. Where it is asked about sizes that are symbols of ours, the answer is given here.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..symbols.expr import Expr
from ..symbols.symint import Node
from ..symbols.table import SymbolTable
from .mode import FakeMode

__all__ = ["open_distributed_sizes"]


def table_of(asked: Any) -> SymbolTable | None:
    """The table of the first symbol among sizes, facts of tensors, arguments of an operator."""
    if isinstance(asked, (torch.SymInt, torch.SymBool)):
        return asked.node.table if isinstance(asked.node, Node) else None
    if isinstance(asked, (tuple, list)):
        return next(filter(None, map(table_of, asked)), None)
    if isinstance(asked, dict):
        return table_of(tuple(asked.values()))
    if hasattr(asked, "args_schema"):
        return table_of((asked.args_schema, asked.kwargs_schema))
    return table_of(asked.tensor_meta) if hasattr(asked, "tensor_meta") else None


def _kept(asked: Any, *args: Any, **kwargs: Any) -> Any:
    """What is kept by sizes, but of symbols."""
    return (asked if table_of(args) is None else asked.__wrapped__)(*args, **kwargs)


def _kept_by(asked: Callable[..., Any], cache: Any, *args: Any, **kwargs: Any) -> Any:
    return asked(cache, *args, **kwargs) if table_of(args) is None else cache.cache.__wrapped__(*args, **kwargs)


def _planner(asked: Callable[..., Any], mesh: Any, facts: Any) -> Any:
    """What plans how a tensor of these facts is distributed otherwise."""
    kind = asked.__globals__["DTensorRedistributePlanner"]  # type: ignore[attr-defined]  # of a function
    return asked(mesh, facts) if table_of(facts) is None else kind(mesh, facts)


class _Shapes(threading.local):
    """table: of the symbols of an operator whose shapes are asked for."""

    table: SymbolTable | None = None


_shapes = _Shapes()


def _shapes_of(asked: Callable[..., Any], propagator: Any, operator: Any) -> Any:
    """Shapes of what an operator gives."""
    before, _shapes.table = _shapes.table, table_of(operator)
    try:
        return asked(propagator, operator)
    finally:
        _shapes.table = before


def _detect_fake_mode(asked: Callable[..., Any], *args: Any) -> Any:
    """On whose fakes they are found: on ours nothing records it."""
    return asked(*args) if _shapes.table is None else FakeMode(_shapes.table)


def _statically_known_true(asked: Callable[[Any], bool], question: Any) -> bool:
    """Of our symbols it becomes a condition, so that the answer is that of the numbers."""
    return asked(question) if table_of(question) is None else bool(question)


Form = dict[Any, float]
"""A sum: product of sizes, () for none -> how often."""


class Cost(float):
    """What it costs to send a tensor, as a number and as a sum over its sizes. made_of: the sizes in bytes of such tensors."""

    form: Form
    made_of: tuple[Any, ...]

    @classmethod
    def of(cls, value: float, form: Form, made_of: tuple[Any, ...]) -> Cost:
        made = cls(value)
        made.form, made.made_of = form, made_of
        return made

    def __add__(self, other: float) -> Cost:
        form = _form(other)
        terms = {product: self.form.get(product, 0.0) + form.get(product, 0.0) for product in {**self.form, **form}}
        return Cost.of(float(self) + float(other), terms, self.made_of + getattr(other, "made_of", ()))

    __radd__ = __add__

    def _scaled(self, value: float, factor: float) -> Cost:
        return Cost.of(value, {product: often * factor for product, often in self.form.items()}, self.made_of)

    def __mul__(self, other: float) -> Cost:
        return self._scaled(float(self) * other, other)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Cost:
        return self._scaled(float(self) / other, 1 / other)

    def _otherwise(self, *others: Any) -> Any:
        raise TypeError("a cost that is no sum over sizes")

    __sub__ = __rsub__ = __neg__ = __abs__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __pow__ = __rpow__ = (
        _otherwise
    )


def _form(cost: float) -> Form:
    return cost.form if isinstance(cost, Cost) else {(): float(cost)}


def _is_least(form: Form, other: Form) -> bool:
    """Whether a sum is no larger than another one for all sizes, which are never negative."""
    return all(often <= other.get(product, 0.0) for product, often in form.items()) and all(
        often >= 0 for often in other.values()
    )


def _spec_to_bytes(asked: Callable[[Any], Any], spec: Any) -> Any:
    """How many bytes a distributed tensor has."""
    count = asked(spec)
    if (table := table_of(count)) is None:
        return count
    size = count.node.value
    form = {product: float(often) for product, often in size.terms.items()} if isinstance(size, Expr) else {(): float(size)}
    return Cost.of(float(table.hint(size)), form, (count,))


def _select_min_cost_strategy(asked: Callable[..., Any], strategy: Any, *args: Any) -> Any:
    """The way to distribute an operator that costs least. It is chosen for the sizes at hand, which are fixed unless it costs least for all."""
    chosen = asked(strategy, *args)
    if len(strategy.strategies) > 1:
        costs = [sum(cost for row in spec.redistribute_cost for cost in row) for spec in strategy.strategies]
        if any(isinstance(cost, Cost) for cost in costs):
            least = next(cost for cost, spec in zip(costs, strategy.strategies) if spec is chosen)
            if not all(_is_least(_form(least), _form(cost)) for cost in costs):
                for size in (size for cost in costs for size in getattr(cost, "made_of", ())):
                    int(size)
    return chosen


PLACES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("_collective_utils", "spec_to_bytes", _spec_to_bytes),
    ("_ops._tensor_ops", "statically_known_true", _statically_known_true),
    ("_redistribute", "_gen_transform_infos", _kept),
    ("_redistribute", "get_redistribute_planner", _planner),
    ("_sharding_prop", "LocalLRUCache.__call__", _kept_by),
    ("_sharding_prop", "ShardingPropagator._propagate_tensor_meta_non_cached", _shapes_of),
    ("_sharding_prop", "_select_min_cost_strategy", _select_min_cost_strategy),
    ("_sharding_prop", "detect_fake_mode", _detect_fake_mode),
)
"""Module of torch.distributed.tensor, function or method of it, and the answer, which is given what torch would answer with."""


@functools.cache
def open_distributed_sizes() -> bool:
    """From here on DTensors may be made of fakes with symbols. Whether they may with this torch."""
    found: list[tuple[Any, str, Callable[..., Any]]] = []
    for module, name, answer in PLACES:
        owner, _, attribute = name.rpartition(".")
        holder: Any = sys.modules.get(f"torch.distributed.tensor.{module}")
        holder = getattr(holder, owner, None) if owner else holder
        if not hasattr(holder, attribute):
            return False
        found.append((holder, attribute, answer))
    for holder, name, answer in found:
        setattr(holder, name, answering(getattr(holder, name), answer))
    return True


def answering(asked: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function, or a method, that answers in the place of one."""

    @functools.wraps(asked)
    def function(*args: Any, **kwargs: Any) -> Any:
        return answer(asked, *args, **kwargs)

    return function
