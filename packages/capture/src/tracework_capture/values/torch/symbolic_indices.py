"""Indices that are symbolic ints: torch asks an index for its number, so these dims are selected one by one, which keeps them open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..number.symint import SymNumber
from ..plain.sequence import TupleValue
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor

if TYPE_CHECKING:
    from ..protocol.value import Frame, Value


def select_symbolic(frame: Frame, tensor: Any, key: Value) -> tuple[Any, Value | None]:
    """What `key` indexes once the symbolic ints in it are applied, and the rest of the key, None where nothing is left."""
    items = key.all_items(frame) if type(key) is TupleValue else [key]
    places = [place for place, item in enumerate(items) if isinstance(item, SymNumber)]
    dims = dims_of_items(items, tensor.example.ndim) if places else None
    if dims is None:
        return tensor, key
    for place in reversed(places):
        tensor = frame.graph.call_method(frame, "select", (tensor, ConstantValue(dims[place]), items[place]))
    rest = [item for item in items if not isinstance(item, SymNumber)]
    return tensor, TupleValue(rest) if rest else None


def dims_of_items(items: list[Value], ndim: int) -> list[int] | None:
    """The dim that each item of an index begins at; None for an index that torch refuses."""
    taken = [dims_taken(item) for item in items]
    left = ndim - sum(n for n in taken if n is not None)
    if left < 0 or taken.count(None) > 1:
        return None
    widths = [left if n is None else n for n in taken]
    return [sum(widths[:place]) for place in range(len(items))]


def dims_taken(item: Value) -> int | None:
    """How many dims of the tensor an item of an index stands for; None for `...`."""
    if isinstance(item, AbstractTensor):
        return item.example.ndim if item.example.dtype in (torch.bool, torch.uint8) else 1
    if item.is_constant() and (item.constant() is None or type(item.constant()) is bool):
        return 0
    return None if item.is_constant() and item.constant() is Ellipsis else 1
