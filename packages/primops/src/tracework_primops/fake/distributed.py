"""DTensors of fakes whose sizes are symbols. How torch distributes an operator it keeps by sizes, which symbols are no keys for, and finds shapes of
results on fakes of its own, which know nothing of our symbols. Where fakes of ours with symbols are on their way it asks here instead."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from .. import _torch
from ..symbols.expr import Expr
from .mode import FakeMode

__all__ = ["open_distributed_sizes"]


def _traced() -> FakeMode | None:
    """The mode whose fakes are on their way, where they may have symbols."""
    for mode in reversed(_torch.dispatch_modes()):
        if isinstance(mode, FakeMode):
            return mode if mode.table is not None and mode.table.has_symbols else None
    return None


def _are_we_tracing(asked: Callable[[], bool]) -> bool:
    """Whether nothing is kept by sizes."""
    return _traced() is not None or asked()


def _detect_fake_mode(asked: Callable[..., Any], *args: Any) -> Any:
    """On whose fakes shapes of results are found: on ours nothing records it."""
    mode = _traced()
    return FakeMode(mode.table) if mode is not None else asked(*args)


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
    if not isinstance(count, torch.SymInt) or (mode := _traced()) is None:
        return count
    size = count.node.value
    form = {product: float(often) for product, often in size.terms.items()} if isinstance(size, Expr) else {(): float(size)}
    return Cost.of(float(mode.table.hint(size)), form, (size,))


def _select_min_cost_strategy(asked: Callable[..., Any], strategy: Any, *args: Any) -> Any:
    """The way to distribute an operator that costs least. It is chosen for the sizes at hand, which are fixed unless it costs least for all."""
    chosen, mode = asked(strategy, *args), _traced()
    if mode is not None and len(strategy.strategies) > 1:
        costs = [sum(cost for row in spec.redistribute_cost for cost in row) for spec in strategy.strategies]
        least = next(cost for cost, spec in zip(costs, strategy.strategies) if spec is chosen)
        if not all(_is_least(_form(least), _form(cost)) for cost in costs):
            for size in dict.fromkeys(size for cost in costs for size in getattr(cost, "made_of", ())):
                mode.table.fix(size)
    return chosen


def _transforms(asked: Any, *args: Any, **kwargs: Any) -> Any:
    """What brings a tensor from one distribution to another."""
    return (asked if _traced() is None else asked.__wrapped__)(*args, **kwargs)


def _statically_known_true(asked: Callable[[Any], bool], question: Any) -> bool:
    """Of symbols of ours it becomes a condition, so that the answer is that of the numbers."""
    return bool(question) if isinstance(question, torch.SymBool) and _traced() is not None else asked(question)


QUESTIONS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    *((f"torch.distributed.tensor.{module}", "_are_we_tracing", _are_we_tracing) for module in _torch.KEPT_BY_SIZES),
    ("torch.distributed.tensor._collective_utils", "spec_to_bytes", _spec_to_bytes),
    ("torch.distributed.tensor._redistribute", "_gen_transform_infos", _transforms),
    ("torch.distributed.tensor._sharding_prop", "detect_fake_mode", _detect_fake_mode),
    ("torch.distributed.tensor._sharding_prop", "_select_min_cost_strategy", _select_min_cost_strategy),
    ("torch.distributed.tensor._ops._tensor_ops", "statically_known_true", _statically_known_true),
)
"""Module, what it asks, and the answer, which is given what torch would answer."""


@functools.cache
def open_distributed_sizes() -> bool:
    """From here on DTensors may be made of fakes with symbols. Whether they may with this torch."""
    places = [(sys.modules.get(module), name, answer) for module, name, answer in QUESTIONS]
    if not all(hasattr(module, name) for module, name, _ in places):
        return False
    for module, name, answer in places:
        setattr(module, name, functools.partial(answer, getattr(module, name)))
    return True
