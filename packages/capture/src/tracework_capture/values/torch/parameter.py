"""nn.Parameter(data) in the traced program: a leaf, in the graph and for the code after it; nn.Buffer(data); and Variable(data)."""

from __future__ import annotations

from typing import Any

import torch

from ..._torch import make_subclass
from ...graph.regions import leaf
from ..objects.function import call_own_code
from ..protocol.calls import call
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import remember
from ..protocol.value import Emitter, Frame, Value
from .subclass import functions_off
from .tensor import TensorValue


class NewParameterValue(TensorValue):
    """A parameter that the traced program made."""

    cls = torch.nn.Parameter
    is_plain = False

    def reload(self, emit: Emitter) -> str:
        text = super().reload(emit).removesuffix(".requires_grad_()")
        return f"{emit.const(as_parameter, 'as_parameter')}({text}, {self.example.requires_grad})"


def as_parameter(made: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """What a graph made of `leaf`, as a parameter."""
    return made if type(made) is torch.nn.Parameter else make_subclass(torch.nn.Parameter, made, requires_grad)


@call(torch.nn.Parameter)
def parameter_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
    """nn.Parameter(data, requires_grad=True)"""
    given = dict(zip(("data", "requires_grad"), args)) | kwargs
    data = given.get("data")
    if not isinstance(data, TensorValue) or frame.modes.transforms:
        return frame.break_graph("call_unknown", "construction of nn.Parameter without a tensor")
    wanted = given.get("requires_grad", ConstantValue(True)).truth(frame)
    made: Any = frame.graph.call(frame, leaf, (data, wanted))
    value = NewParameterValue(made.node, made.example)
    value.may_be_freed = made.may_be_freed
    remember(frame, value)
    return value


@call(torch.nn.Buffer)
def buffer_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """nn.Buffer(data, persistent=True) is a tensor with attributes: its __new__ is traced."""
    return call_own_code(frame, torch.nn.Buffer.__new__, [frame.constant(torch.nn.Buffer), *args], kwargs)


@call(torch.autograd.Variable)
def variable_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.autograd.Variable(data, requires_grad=False) of programs older than torch 0.4: the tensor without its history, or a leaf."""
    given = dict(zip(("data", "requires_grad"), args)) | kwargs
    data, asks = given.get("data"), given.get("requires_grad", ConstantValue(False))
    known = isinstance(data, TensorValue) and data.python_type() in (torch.Tensor, torch.nn.Parameter) and len(args) < 3
    if not known or set(given) > {"data", "requires_grad"} or frame.modes.transforms:
        return frame.break_graph("call_unknown", "construction of a Variable of something else than a tensor")
    with functions_off(frame):
        made = frame.graph.call_method(frame, "detach", (data,))
        return made.call_method(frame, "requires_grad_", [], {}) if asks.truth(frame) else made
