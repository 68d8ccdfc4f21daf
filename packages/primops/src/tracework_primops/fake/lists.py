"""What foreach operators give over specs: the rule of their single form for each element, as eager's kernels without a fast way call it.

torch's meta kernels of these load torch's compiler, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["rule_of_list"]

Rule = Callable[..., Any]
SINGLE_FORMS = {
    "default": ("default",),
    "List": ("Tensor", "Tensor_Tensor"),
    "Tensor": ("Tensor",),
    "Scalar": ("Tensor_Scalar", "Scalar", "default"),
    "ScalarList": ("Tensor_Scalar", "Scalar", "default"),
    "ScalarAndTensor": ("Scalar",),
}
"""Overload of a foreach operator -> those of the single one that may have its form."""
OTHERWISE = {"maximum": "clamp_min", "minimum": "clamp_max"}
"""The single operators that take numbers, too."""


def rule_of_list(func: Any, rule_of: Callable[[Any], Rule | None]) -> Rule | None:
    """The rule of a foreach operator that gives a list; None where there is none for its single form."""
    name = func._schema.name.removeprefix("aten::_foreach_")
    packet = getattr(torch.ops.aten, OTHERWISE.get(name, name), None)
    single = next(
        (s for form in SINGLE_FORMS.get(func._overloadname, ()) if (s := getattr(packet, form, None)) is not None), None
    )
    listed = [str(a.type).startswith("List[") for a in _by_position(func)]
    rule = rule_of(single) if single is not None and len(_by_position(single)) == len(listed) else None
    if rule is None:
        return None

    def each(*args: Any, **kwargs: Any) -> Any:
        counts = {len(a) for a, of_list in zip(args, listed) if of_list}
        if len(counts) != 1 or counts == {0}:
            return NotImplemented  # torch's meta kernel says what is wrong
        (count,) = counts
        found = [rule(*[a[k] if of_list else a for a, of_list in zip(args, listed)], **kwargs) for k in range(count)]
        return NotImplemented if any(f is NotImplemented for f in found) else found

    return each


def _by_position(func: Any) -> list[Any]:
    return [a for a in func._schema.arguments if not a.kwarg_only]
