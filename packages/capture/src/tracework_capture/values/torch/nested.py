"""Nested tensors of torch.jagged layout: values one after the other, and where each row begins. They are tensors of a wrapper subclass, whose
operators run as its class has them; what its __torch_function__ does itself is a node of the graph, too, and so are the functions that make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..._torch.tensors import NESTED, jagged_example, jagged_functions
from ...graph.inputs import check_guesses
from ...graph.wrapped import Asked
from ..protocol.calls import call, method
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .structure import leaves
from .subclass import disabled_row, functions_off


@call(vars(NESTED)["__torch_function__"].__func__)
def nested_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """NestedTensor.__torch_function__(cls, func, types, args=(), kwargs=None)"""
    given = dict(zip(("func", "types", "args", "kwargs"), args[1:])) | kwargs
    function = given["func"].real()
    if function not in jagged_functions():
        return disabled_row(frame, args[1:], kwargs)
    named = {key.constant(): value for key, value in given["kwargs"].all_items(frame)} if "kwargs" in given else {}
    with functions_off(frame):
        found: Value = frame.graph.call(frame, Asked(NESTED, function), given["args"].unpack(frame), named)
        return found


def maker(function: Callable[..., Any]) -> None:
    """A function of torch.nested that runs as it is, on fakes while tracing."""

    @call(function)
    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        layout = kwargs.get("layout")
        is_jagged = layout is not None and layout.is_constant() and layout.constant() is torch.jagged
        if function in (torch.nested.nested_tensor, torch.nested.as_nested_tensor) and not is_jagged:
            return frame.break_graph("tensor_layout", f"torch.nested.{function.__name__} of another layout than torch.jagged")
        jagged_example()
        fix_strides(frame, [*args, *kwargs.values()])
        with functions_off(frame):
            found: Value = frame.graph.call(frame, function, args, kwargs)
            return found


def fix_strides(frame: Frame, values: Iterable[Value]) -> None:
    """Strides of what becomes values of a nested tensor are numbers: those of that are multiples of its odd size, which no symbol is taken for."""
    for value in (leaf for given in values for leaf in leaves(frame, given)):
        if isinstance(value, AbstractTensor) and not value.example.is_nested:
            for stride in value.example.stride():
                int(stride)
    check_guesses(frame)


for _function in (
    torch.nested.nested_tensor,
    torch.nested.as_nested_tensor,
    torch.nested.nested_tensor_from_jagged,
    torch.nested.to_padded_tensor,
):
    maker(_function)


@method(torch.Tensor, "to_padded_tensor")
def padded(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor.to_padded_tensor(padding, output_size=None), which torch's list of overridable functions lacks."""
    with functions_off(frame):
        return frame.graph.call_method(frame, name, (self, *args), kwargs)
