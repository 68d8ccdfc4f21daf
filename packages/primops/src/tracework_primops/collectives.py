"""Operators that talk to other processes: all ranks call the same ones in the same order, each once.

Those of `torch.distributed._functional_collectives` give their result before it is there: it may not be read, nor may what they read be written
to, until `wait_tensor` has been called with the result, which gives it back.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ._torch import OpOverload, wait_tensor

__all__ = ["is_collective", "is_wait", "wait_tensor"]

NAMESPACES = frozenset(("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor"))
"""Of torch's operators that are collectives, or wait for them."""


@cache
def is_collective(target: Any) -> bool:
    """Whether what a node calls talks to other processes, or waits for what they send."""
    return isinstance(target, OpOverload) and target.namespace in NAMESPACES


@cache
def is_wait(target: Any) -> bool:
    """Whether it waits for a collective whose result it is given."""
    return is_collective(target) and target._schema.name.endswith("::wait_tensor")
