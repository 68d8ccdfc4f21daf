"""The values of nodes of the graph."""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch import fx
from tracework_primops import FakeTensor

from ...graph.constant_data import learn_part
from ..number.symint import size_value
from ..plain.results import wrap_constant
from ..plain.sequence import ListValue, TupleValue
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.make import make
from ..protocol.value import Frame, Value
from .inference_tensors import refuse_misuse
from .tensor import TensorValue, tensor_result
from .wrapper_tensor import WrapperTensorValue, wrapper_result


def wrap_result(frame: Frame, node: fx.Node, example: Any) -> Value:
    """The value of a node of the graph."""
    refuse_misuse(frame, node, example)
    if isinstance(example, FakeTensor) or type(example) is torch.Tensor:  # a real one on the meta device is as good
        return tensor_result(frame, node, cast("FakeTensor", example))
    if isinstance(example, torch.Tensor):
        return wrapper_result(frame, node, example)
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


def tensor_of_node(node: fx.Node, example: Any) -> AbstractTensor:
    """The value of a node that gives one tensor."""
    return TensorValue(node, example) if isinstance(example, FakeTensor) else WrapperTensorValue(node, example, type(example))


make.provide(tensor=tensor_of_node)


def is_graph_result(item: FakeTensor | None) -> bool:
    """Whether a part of a tuple result needs a node of its own."""
    if isinstance(item, torch.Tensor):
        return True
    return isinstance(item, (list, tuple)) and any(is_graph_result(i) for i in item)
