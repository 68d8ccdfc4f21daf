"""Process groups and collectives of torch.distributed: groups are constants, whose names the operators of the graph are given; what is asked
of them is answered while tracing and guarded with the group of all ranks.

The functions of torch.distributed._functional_collectives are traced, those that write to tensors as polyfills; what they give is waited for in
the graph.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch
import torch.distributed as dist

from ..._torch.distributed import function_of_distributed, functional_collective
from ..._torch.operators import has_gradient
from ...graph.settings import guard_state
from ...polyfills.collectives import IN_PLACE, facts_of_group, root_in_group, text_of_operation
from ...sources import Attr, Const, Source
from ..plain.sequence import SequenceValue
from ..protocol.calls import Handler, Policy, call, calls, traced
from ..protocol.constant import ConstantValue, fold
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from ..protocol.wraps import wraps
from .call import call_torch

STATE = "default_group"
"""The row of guards.kinds.STATES that guards all that is asked of groups."""


def guard_groups(frame: Frame) -> None:
    """What follows holds for the groups that there are."""
    guard_state(frame, STATE)
    frame.memory.only_now = "process groups are those of this process"


@wraps(dist.ProcessGroup)
def wrap_group(frame: Frame, obj: Any, source: Source) -> Value:
    """A group, or a mesh of them, that is there: which one it is is guarded."""
    if type(source) is not Const:
        frame.guard("IDENTITY", source, obj)
    guard_groups(frame)
    return ConstantValue(obj, source)


@call("torch.distributed.distributed_c10d._WorldMeta.WORLD", policy=Policy.EVALUATED)
def group_of_all(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.distributed.group.WORLD"""
    guard_groups(frame)
    group = dist.group.WORLD
    return ConstantValue(None) if group is None else ConstantValue(group, Attr(Const(dist.group), "WORLD"))


def asked(module: str, name: str) -> Handler:
    """A query of groups, by the name of a function that may not be there yet."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        guard_groups(frame)
        return fold(frame, getattr(sys.modules[module], name), args, kwargs)

    return handler


QUERIES = {
    "torch.distributed.distributed_c10d": (
        "get_rank get_world_size get_process_group_ranks get_group_rank get_global_rank get_backend _get_default_group _get_group_size"
        " _get_group_size_by_name _get_group_tag _resolve_process_group _rank_not_in_group"
    ),
    "torch.distributed._functional_collectives": "_expand_group _resolve_group _resolve_group_name _group_or_group_name",
}
"""Module -> its functions that say something of groups."""
for _module, _names in QUERIES.items():
    for _name in _names.split():
        call(f"{_module}.{_name}", policy=Policy.EVALUATED)(asked(_module, _name))
for _query in (facts_of_group, root_in_group):
    call(_query, policy=Policy.EVALUATED)(asked(_query.__module__, _query.__name__))


@call(text_of_operation, policy=Policy.EVALUATED)
def text_of_operation_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return fold(frame, text_of_operation, args, kwargs)


@call("torch.distributed._functional_collectives._are_we_tracing", policy=Policy.EVALUATED)
def are_we_tracing(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Functions that give collectives' results wait for them in the graph, and put nothing around them that would."""
    return ConstantValue(True)


_rows = {function_of_distributed(name): traced(function) for name, function in IN_PLACE.items()}
calls({function: row for function, row in _rows.items() if function is not None}, policy=Policy.TRACED)

OTHERS = (
    "all_gather_coalesced all_gather_object all_to_all barrier batch_isend_irecv broadcast_object_list gather gather_object irecv isend"
    " monitored_barrier recv recv_object_list reduce scatter scatter_object_list send send_object_list"
).split()
"""Functions that are called in plain Python."""
CURE = (
    "collectives of a graph are "
    + ", ".join(name for name in IN_PLACE if not name.startswith("_"))
    + " of plain tensors without a history,"
    " and those of torch.distributed._functional_collectives, which have gradients"
)


def without_functional_form(name: str) -> Handler:
    """A collective that breaks the graph."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.break_graph("call_skipped", f"torch.distributed.{name}; {CURE}")

    return handler


for _name in OTHERS:
    call(function_of_distributed(_name), policy=Policy.BREAK, reason="call_skipped", binds=False)(without_functional_form(_name))


def operator_row(operator: Any, name: str) -> Handler:
    """A functional collective by its operator; those that talk to one rank alone, and gradients that torch has no formula for, are left to
    eager. Groups are given by their names, as stored graphs have them."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = [*args, *kwargs.values()]
        tensors = [item for value in given for item in (value.unpack(frame) if isinstance(value, SequenceValue) else [value])]
        histories = torch.is_grad_enabled() and any(isinstance(t, AbstractTensor) and t.example.requires_grad for t in tensors)
        if name not in FUNCTIONAL or histories and not has_gradient(operator.default):
            return frame.break_graph("call_skipped", f"{operator}; {CURE}")
        importlib.import_module("torch.distributed._functional_collectives")  # which says what the operators give
        guard_groups(frame)
        args = [named(value) for value in args]
        kwargs = {key: named(value) for key, value in kwargs.items()}
        return call_torch(frame, operator, args, kwargs)

    return handler


def named(value: Value) -> Value:
    """A group by its name."""
    group = value.constant() if value.is_constant() else None
    return ConstantValue(group.group_name) if isinstance(group, dist.ProcessGroup) else value


FUNCTIONAL = (
    "all_gather_into_tensor all_gather_into_tensor_coalesced all_reduce all_reduce_coalesced all_to_all_single broadcast"
    " reduce_scatter_tensor reduce_scatter_tensor_coalesced wait_tensor"
).split()
"""Operators of torch.ops._c10d_functional that are nodes of the graph."""
ONE_TO_ONE = "batch_p2p_ops irecv isend".split()
for _name in (*FUNCTIONAL, *ONE_TO_ONE):
    _operator = functional_collective(_name)
    call(_operator)(operator_row(_operator, _name))
