"""torch.optim: what its functions do around the arithmetic, which is traced as any other code."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.optim import optimizer as torch_optimizer

from ..._torch.modules import (
    group_tensors_by_device_and_dtype,
    group_tensors_of_optimizer,
    value_in_optimizer,
    with_grad_mode_of_optimizer,
)
from ...sources import Const
from ..number.floats import StepCount
from ..plain.mapping import dict_of
from ..plain.sequence import ListValue, TupleValue
from ..protocol.calls import call, calls
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .context import set_grad

_WITH_GRAD_MODE = with_grad_mode_of_optimizer(lambda self: None).__code__


def step_in_grad_mode(frame: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Optimizer.step runs with grad mode off, unless the optimizer is a differentiable one."""
    inner = cast("tuple[types.CellType, ...]", function.__closure__)[function.__code__.co_freevars.index("func")].cell_contents
    defaults = args[0].getattr(frame, "defaults")
    before = torch.is_grad_enabled()
    set_grad(frame, bool(force_plain(frame, defaults.getitem(frame, frame.constant("differentiable")))))
    try:
        return frame.wrap(inner, Const(inner, inner.__qualname__)).call(frame, args, kwargs)
    finally:
        set_grad(frame, before)


def step_count(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The number of steps, which plain Python computes with in double precision."""
    if isinstance(args[0], AbstractTensor):
        count: Any = frame.graph.call_method(frame, "to", (args[0], torch.float64), {"copy": True})
        return StepCount(count.node)
    return args[0]


call(_WITH_GRAD_MODE)(step_in_grad_mode)
"""Python functions that are known by their code: code -> fn(frame, function, args, kwargs)."""


def zero_grad(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.compile leaves zero_grad to plain Python; its code can be traced."""
    inner = vars(torch_optimizer.Optimizer.zero_grad)["__wrapped__"]
    return frame.wrap(inner, Const(inner, inner.__qualname__)).call(frame, args, kwargs)


def group_tensors(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Lists of tensors and Nones grouped by the device and dtype of the first list's tensors, with their places when asked for."""
    given = dict(zip(("tensorlistlist", "with_indices"), args)) | kwargs
    columns: list[list[Any]] = [column.unpack(frame) for column in given["tensorlistlist"].unpack(frame)]
    if not columns[0] or not all(isinstance(value, AbstractTensor) for value in columns[0]):
        return frame.break_graph("call_unknown", "groups of no tensors, or of some and None")
    places: dict[Any, list[int]] = {}
    first: dict[Any, Any] = {}
    for index, value in enumerate(columns[0]):
        key = value.example.device, value.example.dtype
        places.setdefault(key, []).append(index)
        first.setdefault(key, value.example)
    # of a table of C++: Adafactor's results depend on it
    order = group_tensors_by_device_and_dtype([[*first.values()]])
    wanted = "with_indices" in given and given["with_indices"].truth(frame)
    made = []
    for key in order:
        rows = places[key]
        lists = ListValue([ListValue([column[row] for row in rows] if column else []) for column in columns])
        indices = ListValue([ConstantValue(row) for row in rows] if wanted else [])
        made.append((TupleValue([ConstantValue(part) for part in key]), TupleValue([lists, indices])))
    return dict_of(frame, made)


calls(
    {
        group_tensors_by_device_and_dtype: group_tensors,
        group_tensors_of_optimizer: group_tensors,  # torch makes one group of all where it compiles
        value_in_optimizer: step_count,
        torch_optimizer.Optimizer.zero_grad: zero_grad,
    }
)
