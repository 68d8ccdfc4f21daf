"""Objects that the traced program makes: the values of what tracing computed, and of nodes of the graph."""

from __future__ import annotations

import enum
import operator
import re

import numpy
import torch

from ...graph.known import learn_part
from ...sources import Const
from ..arrays.array import constant_array
from ..number.symint import size_value
from ..protocol.constant import ATOM_TYPES, ConstantValue
from ..protocol.make import make
from ..torch.inference_tensors import refuse_misuse
from ..torch.tensor import tensor_result
from .mapping import dict_of
from .ranges import RangeValue, SliceValue
from .sequence import ListValue, TupleValue, is_record

FOUND_ONE_BY_ONE = type(re.finditer("", ""))


def wrap_constant(frame, obj):
    """The value of an object that tracing produced; containers are new ones."""
    kind = type(obj)
    if kind is FOUND_ONE_BY_ONE:  # of a function that depends on its arguments alone: when it is asked makes no difference
        return ListValue([wrap_constant(frame, found) for found in obj]).iterate(frame)
    if hasattr(kind, "__next__"):
        frame.break_graph("iterator_unsupported", f"a new {kind.__name__}: it can be used only once")
    if kind in ATOM_TYPES:
        return ConstantValue(obj)
    if kind is tuple:
        return TupleValue([wrap_constant(frame, i) for i in obj])
    if kind is list:
        return ListValue([wrap_constant(frame, i) for i in obj])
    if kind is dict:
        return dict_of(frame, [(wrap_constant(frame, k), wrap_constant(frame, v)) for k, v in obj.items()])
    if kind is torch.Size or is_record(kind) and not issubclass(kind, enum.Enum):
        return TupleValue([wrap_constant(frame, i) for i in obj], cls=kind)
    if kind is slice:
        return SliceValue(*(wrap_constant(frame, getattr(obj, n)) for n in ("start", "stop", "step")))
    if kind is range:
        return RangeValue(obj)
    if kind is numpy.ndarray:
        return constant_array(frame, obj)
    return frame.wrap(obj, Const(obj))


def wrap_result(frame, node, example):
    """The value of a node of the graph."""
    refuse_misuse(frame, node, example)
    if isinstance(example, torch.Tensor):
        return tensor_result(frame, node, example)
    if isinstance(example, (list, tuple)):
        items = []
        for index, item in enumerate(example):
            if is_graph_result(item):
                part = frame.graph.graph.call_function(operator.getitem, (node, index))
                part.meta.update(example_value=item, val=item, stack=node.meta.get("stack"), stack_trace=node.meta.get("stack"))
                learn_part(part, item)
                items.append(wrap_result(frame, part, item))
            else:
                items.append(wrap_result(frame, node, item))
        if type(example) is list:
            return ListValue(items)
        return TupleValue(items, cls=type(example))
    if isinstance(example, torch.SymInt):
        return size_value(frame, example)
    if isinstance(example, dict):
        name = getattr(node.target, "__qualname__", node.target)
        return frame.break_graph(
            "call_unknown",
            f"{name} gives a {type(example).__name__}; results of a function that nonstrict_trace marks may be one",
        )
    if isinstance(example, (torch.SymBool, torch.SymFloat)):
        return ConstantValue(bool(example) if isinstance(example, torch.SymBool) else float(example))
    return wrap_constant(frame, example)


def is_graph_result(item):
    """Whether a part of a tuple result needs a node of its own."""
    if isinstance(item, torch.Tensor):
        return True
    return isinstance(item, (list, tuple)) and any(is_graph_result(i) for i in item)


def record_plain(frame, target, args):
    """A node whose arguments and result are not values (autocast's enter and exit); gives the node."""
    example = frame.graph.run_on_fakes(frame, target, args, {}, "call_function")
    node = frame.graph.graph.call_function(target, args)
    node.meta.update(example_value=example, val=example, stack=frame.user_location(), stack_trace=frame.user_location())
    frame.graph.calls += 1
    return node


make.provide(result=wrap_constant)
