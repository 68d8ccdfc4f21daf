"""The only file of this package that touches private torch names; each is wrapped under our own name."""

from typing import Any

import torch


def below_views() -> Any:
    """Guard under which neither writes count versions nor views know their base, as inside of torch's own functions."""
    return torch._C._AutoDispatchBelowADInplaceOrView()


def is_view_of(target: Any) -> bool:
    """Whether a functional operator gives views of what it takes."""
    return isinstance(target, torch._ops.OpOverload) and any(r.alias_info is not None for r in target._schema.returns)


def is_torchs_own(target: Any) -> bool:
    """Whether a function of a functional graph is one of torch's operators, or takes an item or computes with sizes."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims")
    return getattr(target, "__module__", None) in ("_operator", "math", "torch")
