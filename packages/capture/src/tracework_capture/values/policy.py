"""What becomes of a call of any callable, read off the tables that decide it."""

from __future__ import annotations

import collections
import enum
import functools
import inspect
import types
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .._torch.tensors import TensorBase
from ..arrays import numpy
from ..atoms import ATOM_TYPES
from ..trace_policy import BREAK as LEFT_TO_PYTHON
from ..trace_policy import call_policy, is_disabled
from .objects.construction import construct, has_modelled_instances, type_call
from .objects.enum_member import member_of
from .objects.lru_cache import CachedFunction
from .objects.refused_classes import refusal
from .objects.row_value import CFunctionValue
from .plain.sequence import is_record
from .protocol.calls import CallRow, Policy, place_of, row_of, row_of_function
from .protocol.operators import call_dunder
from .protocol.pure import is_pure
from .torch.graph_functions import is_graph_function
from .torch.tensor import PLAIN_METHODS, TensorOperations

DISPATCHER: Any = type(numpy.prod)
"""The type of NumPy's functions that ask their arguments for __array_function__; without a row, what they dispatch to is traced."""


class Rule(NamedTuple):
    """What becomes of calls of one callable."""

    policy: Policy
    reason: str | None
    """The id in BREAK_REASONS of the break that the call is, where the policy is BREAK."""
    place: str
    """file:line of what decides it."""


def rule_of(fn: Any) -> Rule:
    """The rule in force for a function or class."""
    row = row_of_function(fn) if isinstance(fn, types.FunctionType) else row_of(fn)
    if row is not None:
        return _of_row(row)
    if is_graph_function(fn):
        return Rule(Policy.NODE, None, place_of(is_graph_function))
    if isinstance(fn, types.FunctionType):
        # By the module that its code is in, as calls are: numpy.full says that it is in "numpy". What a wrapper calls is asked about, too.
        code_of = getattr(inspect.unwrap(fn), "__globals__", fn.__globals__)
        if call_policy(fn, code_of.get("__name__"))[0] != LEFT_TO_PYTHON:
            return Rule(Policy.TRACED, None, place_of(fn))
        return Rule(Policy.BREAK, "call_disabled" if is_disabled(fn) else "call_skipped", place_of(call_policy))
    if isinstance(fn, type):
        return _of_class(fn)
    owner = getattr(fn, "__objclass__", None)
    if owner is not None:
        return rule_of_method(owner, fn.__name__)
    if isinstance(fn, DISPATCHER) and isinstance(fn._implementation, types.FunctionType):
        return rule_of(fn._implementation)
    if is_pure(fn):
        return Rule(Policy.EVALUATED, None, place_of(is_pure))
    return Rule(Policy.BREAK, "call_unknown", place_of(CFunctionValue.call))


def rule_of_method(owner: type, name: str) -> Rule:
    """The rule in force for a method that C defines, known by the class that has it and its name."""
    for cls in (*owner.__mro__[: -1 if owner is not object else None], *ALSO_OF.get(owner, ())):
        row = row_of((cls, name)) or row_of(cls.__dict__.get(name))
        if row is not None:
            return _of_row(row)
    is_tensor = issubclass(owner, TensorBase)
    if is_tensor and name in PLAIN_METHODS:
        return Rule(Policy.BREAK, "call_unknown", place_of(TensorOperations.call_method))
    if name.startswith("__"):
        return Rule(Policy.MODELLED, None, place_of(call_dunder))
    if is_tensor:
        return Rule(Policy.NODE, None, place_of(TensorOperations.call_method))
    if owner in ATOM_TYPES or is_pure(getattr(owner, name, None)):
        return Rule(Policy.EVALUATED, None, place_of(is_pure))
    return Rule(Policy.BREAK, "call_unknown", place_of(CFunctionValue.call))


ALSO_OF: dict[type, tuple[type, ...]] = {
    TensorBase: (torch.Tensor,),
    frozenset: (set,),
    **dict.fromkeys((list, tuple, collections.deque), (Sequence,)),
}
"""Class -> others whose rows its values take, too."""


def _of_row(row: CallRow) -> Rule:
    return Rule(row.policy, row.reason, row.place)


def _of_class(cls: type) -> Rule:
    """As construct() goes about it: by a metaclass's __call__, then by __new__ and __init__."""
    if issubclass(cls, BaseException) or is_record(cls) or cls.__module__ == "torch.return_types":
        return Rule(Policy.MODELLED, None, place_of(construct))
    if isinstance(cls, enum.EnumMeta) and cls._member_names_:
        return Rule(Policy.MODELLED, None, place_of(member_of))
    if refusal(cls) is not None and not has_modelled_instances(cls):
        return Rule(Policy.BREAK, "call_unknown", place_of(refusal))
    for made_by in (type(cls).__call__, cls.__new__, cls.__init__):
        if isinstance(made_by, types.FunctionType):
            return Rule(Policy.TRACED, None, place_of(made_by))
    return Rule(Policy.MODELLED, None, place_of(type_call))


def rule_of_result(fn: Any) -> Rule | None:
    """The rule in force for what a decorator gives, where that is no function."""
    return Rule(Policy.MODELLED, None, place_of(CachedFunction.query)) if fn in (functools.lru_cache, functools.cache) else None
