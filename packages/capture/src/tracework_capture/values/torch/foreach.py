"""torch._foreach_*: with floats that change, one after another or in a list, as the methods of the tensors; what those that write give back."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ..._torch import foreach_zero
from ..plain.sequence import NONE, SequenceValue, TupleValue
from ..protocol.kinds import is_plain_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.value import Frame, Value

METHODS = {
    **{name: name for name in ("add", "sub", "mul", "div", "pow", "lerp", "clamp_min", "clamp_max")},
    "maximum": "clamp_min",  # with a number
    "minimum": "clamp_max",
}


def each(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The results of the method of each tensor, as eager computes them."""
    method = METHODS[name.removeprefix("_foreach_").rstrip("_")] + ("_" if name.endswith("_") else "")
    columns = [a.unpack(frame) if isinstance(a, SequenceValue) else None for a in args]
    if kwargs or len(args) < len(("self", "other")) or columns[0] is None or not all(is_plain_tensor(t) for t in columns[0]):
        return None
    count = len(columns[0])
    if any(column is not None and len(column) != count for column in columns):
        return None
    rows = zip(*(column or [a] * count for column, a in zip(columns, args)))
    made = [tensor.call_method(frame, method, others, {}) for tensor, *others in rows]
    return given_back(args, kwargs) if name.endswith("_") else TupleValue(made)


def given_back(args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a function that writes to the tensors of a list gives: the list; nothing in older versions of torch."""
    return (args[0] if args else kwargs["self"]) if gives_lists() else NONE


@functools.cache
def gives_lists() -> bool:
    zero: Callable[..., Any] = foreach_zero
    return zero([torch.zeros(())]) is not None


def writes_to_lists(name: str) -> bool:
    """Whether a function of torch by this name does."""
    return name.startswith("_foreach_") and name.endswith("_")


FOREACH_FORMS = {f"_foreach_{name}{end}": each for name in METHODS for end in ("", "_")}
