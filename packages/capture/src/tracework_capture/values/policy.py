"""What becomes of each function of torch and each method of a tensor, read off the tables that decide it."""

from __future__ import annotations

import types

import torch

from ..hook.policy import BREAK as LEFT_TO_PYTHON
from ..hook.policy import call_policy, is_disabled
from .torch.context import CONTEXTS
from .torch.functions import TORCH_ROWS, is_graph_function
from .torch.tensor import PLAIN_METHODS, TENSOR_METHODS
from .wrap import function_row

__all__ = ["BREAK", "EVALUATED", "GRAPH", "MODELLED", "TRACED", "break_reason", "method_policy", "method_reason", "torch_policy"]

GRAPH = "a node of the graph"
EVALUATED = "evaluated while tracing"
MODELLED = "modelled by a row of its own"
TRACED = "its Python code is traced"
BREAK = "breaks the graph"


def row_policy(row):
    """The kind of a row: those that always break, and those that always answer, are made by functions of these names."""
    kind = getattr(row, "__name__", "")
    return BREAK if kind == "breaks" else EVALUATED if kind == "evaluates" else MODELLED


def row_of(fn):
    """The row that answers for calls of a function or class, None when there is none."""
    try:
        row = TORCH_ROWS.get(fn) or CONTEXTS.get(fn)
    except TypeError:
        return None
    return function_row(fn, TORCH_ROWS) if row is None and isinstance(fn, types.FunctionType) else row


def torch_policy(fn):
    """What becomes of a call of a function or class of torch."""
    row = row_of(fn)
    if row is not None:
        return row_policy(row)
    if is_graph_function(fn):
        return GRAPH
    if isinstance(fn, types.FunctionType):
        return BREAK if call_policy(fn, fn.__module__)[0] == LEFT_TO_PYTHON else TRACED
    if isinstance(fn, type) and issubclass(fn, BaseException):
        return MODELLED
    return TRACED if isinstance(fn, type) and issubclass(fn, torch.nn.Module) else BREAK


def break_reason(fn):
    """The id in BREAK_REASONS of the break that a call of this function or class is, whose policy is BREAK."""
    row = row_of(fn)
    if row is not None:
        return row.reason
    if isinstance(fn, types.FunctionType):
        return "call_disabled" if is_disabled(fn) else "call_skipped"
    return "call_unknown"


def method_policy(name):
    """What becomes of a call of a method of a tensor."""
    row = TENSOR_METHODS.get(name)
    if row is not None:
        return row_policy(row)
    if name in PLAIN_METHODS:
        return BREAK
    if name.startswith("__"):
        return MODELLED
    return GRAPH


def method_reason(name):
    """The same for a method of a tensor."""
    row = TENSOR_METHODS.get(name)
    return "call_unknown" if row is None else row.reason
