"""A call of a function of torch as a node of the graph."""

from __future__ import annotations

import types
from typing import Any

import torch

from ..._torch.functions import foreach_gives_lists
from ..number.floats import changes
from ..objects.controls import MARKED
from ..objects.function import call_own_code
from ..plain.sequence import NONE, TupleValue
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import remember
from ..protocol.value import Frame, Value
from .float_forms import tensor_form
from .generators import drawn


def call_torch(frame: Frame, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A node, unless an argument says that the call is plain Python; `out=` tensors are given back themselves."""
    out, name = kwargs.get("out"), getattr(fn, "__name__", "")
    if isinstance(out, AbstractTensor) and name in ARITHMETIC:
        args, kwargs = with_a_tensor(frame, args, kwargs)
    if isinstance(out, AbstractTensor) and is_fresh_empty(out) and into_empty(frame, fn, args, kwargs, out):
        return out
    result = tensor_form(frame, name, args, kwargs) or drawn(frame, fn, args, kwargs)
    if result is None and type(fn) is types.FunctionType and any(map(changes, (*args, *kwargs.values()))):
        return call_own_code(frame, fn, args, kwargs)  # what it calls may take the float as it is
    if result is None:
        result = frame.graph.call(frame, fn, tuple(args), kwargs)
    if isinstance(out, AbstractTensor):
        return out
    if writes_to_lists(name) and isinstance(fn, types.BuiltinFunctionType):
        return returned_list(args, kwargs)
    if (
        args
        and isinstance(args[0], AbstractTensor)
        and name.endswith("_")
        and not name.startswith("__")
        and isinstance(result, AbstractTensor)
    ):
        return args[0]
    return result


def returned_list(args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a function that writes to the tensors of a list gives."""
    return (args[0] if args else kwargs["self"]) if foreach_gives_lists() else NONE


def writes_to_lists(name: str) -> bool:
    """Whether a function of torch by this name does."""
    return name.startswith("_foreach_") and name.endswith("_")


MARKED["allow_in_graph"] = lambda obj, mark, frame, args, kwargs: call_torch(frame, obj, args, kwargs)


ARITHMETIC = frozenset("add sub subtract mul multiply div divide true_divide floor_divide".split())
"""Functions that take numbers alone when they are given a tensor for the result."""


def with_a_tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    """The arguments with the first one a tensor, as eager makes it of a number, where there is none: operators of a graph need one."""
    first: Any = args[0] if args else kwargs.get("input")
    second = args[1] if len(args) > 1 else kwargs.get("other")
    if any(operand is None or operand.python_type() not in (bool, int, float, complex) for operand in (first, second)):
        return args, kwargs
    made = call_torch(frame, torch.full, [TupleValue([]), first], {"device": ConstantValue(torch.device("cpu"))})
    return ([made, *args[1:]], kwargs) if args else (args, {**kwargs, "input": made})


def is_fresh_empty(out: AbstractTensor) -> bool:
    """Whether out= is an empty tensor that the graph has just made: then it becomes the result."""
    example = out.example
    alone = out.obj is None and not out.node.users and not example._is_view() and not example.requires_grad
    return alone and type(example.numel()) is int and not example.numel()


def into_empty(frame: Frame, fn: Any, args: list[Value], kwargs: dict[str, Value], out: AbstractTensor) -> bool:
    """The call without out=, whose result the empty tensor becomes; False where it is not what eager makes of it."""
    given = [a.example for a in args if isinstance(a, AbstractTensor)]
    if not given or any(example.requires_grad for example in given):
        return False
    result = frame.graph.call(frame, fn, tuple(args), {k: v for k, v in kwargs.items() if k != "out"})
    if not isinstance(result, AbstractTensor) or result.node is not next(iter(reversed(frame.graph.graph.nodes))):
        return False
    made = result.example
    is_new = all(made.storage is not example.storage for example in given)
    if made.dtype != out.example.dtype or not made.is_contiguous() or not is_new:
        frame.graph.graph.erase_node(result.node)
        return False
    out.node, out.example = result.node, made
    remember(frame, out)
    if not made.is_inference():
        frame.graph.plain_node(frame, torch.autograd.graph.increment_version, (out.node,))
    return True
