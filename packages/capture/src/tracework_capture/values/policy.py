"""What becomes of each function of torch and each method of a tensor, read off the tables that decide it."""

from __future__ import annotations

import types
from typing import Any

import torch

from ..trace_policy import BREAK as LEFT_TO_PYTHON
from ..trace_policy import call_policy, is_disabled
from .protocol.calls import CallRow, Policy, row_of, row_of_function
from .torch.graph_functions import is_graph_function
from .torch.tensor import PLAIN_METHODS

__all__ = ["break_reason", "method_policy", "method_reason", "torch_policy"]


def row_in_force(fn: Any) -> CallRow | None:
    """The row that answers for calls of a function or class, None when there is none."""
    return row_of_function(fn) if isinstance(fn, types.FunctionType) else row_of(fn)


def torch_policy(fn: Any) -> Policy:
    """What becomes of a call of a function or class of torch."""
    row = row_in_force(fn)
    if row is not None:
        return row.policy
    if is_graph_function(fn):
        return Policy.NODE
    if isinstance(fn, types.FunctionType):
        return Policy.BREAK if call_policy(fn, fn.__module__)[0] == LEFT_TO_PYTHON else Policy.TRACED
    if isinstance(fn, type) and issubclass(fn, BaseException):
        return Policy.MODELLED
    return Policy.TRACED if isinstance(fn, type) and issubclass(fn, torch.nn.Module) else Policy.BREAK


def break_reason(fn: Any) -> str | None:
    """The id in BREAK_REASONS of the break that a call of this function or class is, whose policy is BREAK."""
    row = row_in_force(fn)
    if row is not None:
        return row.reason
    if isinstance(fn, types.FunctionType):
        return "call_disabled" if is_disabled(fn) else "call_skipped"
    return "call_unknown"


def method_policy(name: str) -> Policy:
    """What becomes of a call of a method of a tensor."""
    row = row_of((torch.Tensor, name))
    if row is not None:
        return row.policy
    if name in PLAIN_METHODS:
        return Policy.BREAK
    return Policy.MODELLED if name.startswith("__") else Policy.NODE


def method_reason(name: str) -> str | None:
    """The same for a method of a tensor."""
    row = row_of((torch.Tensor, name))
    return "call_unknown" if row is None else row.reason
