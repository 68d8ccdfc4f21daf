"""Calls of C functions that capture does not know, with tensors: observed once on the real values, then an operator of the graph."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ...errors import NotPlain
from ...graph.builder import GraphBuilder
from ...graph.checks import is_plain_call
from ...graph.constant_data import apply_target
from ...graph.operators import NAMESPACE, Refusal, is_foreign, observe, operator_of
from ...signals import let_through
from ..objects.row_value import CALLS_WITHOUT_ROW
from ..plain.sequence import ListValue, TupleValue
from ..protocol.constant import plain
from ..protocol.kinds import AbstractTensor
from ..protocol.program_code import check_frame_hooks
from ..protocol.value import Frame, Value
from .tensor import TensorValue

log = logging.getLogger("tracework.capture.opaque")


def opaque_call(frame: Frame, function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result as a value; None when the call must break the graph."""
    values = [*args, *kwargs.values()]
    tensors = [v for v in values if isinstance(v, TensorValue)]
    if not is_foreign(function) or not tensors or not all(map(fits, tensors)) or frame.modes.transforms:
        return None
    check_frame_hooks(frame)
    try:
        constants = [None if isinstance(v, TensorValue) else (plain(v),) for v in values]
    except NotPlain:
        return None
    call = with_constants(frame.services.call_disabled(function), constants, len(args), tuple(kwargs))
    try:
        kind, facts = observed(frame, call, tensors)
    except Refusal as why:
        log.info("%s breaks the graph: %s", function, why)
        return None
    operator = operator_of(function, call, (constants, tuple(kwargs)), len(tensors), facts)
    return call_of_kind(frame, operator, tensors, kind, len(facts))


def call_of_kind(frame: Frame, operator: Any, arguments: Sequence[Value], kind: type, count: int) -> Value:
    """A call of an operator that gives `count` tensors, as the kind of object (a tensor, tuple or list) that the program gets."""
    found = frame.graph.call(frame, operator, tuple(arguments))
    if kind is torch.Tensor:
        return found
    items = found.unpack(frame) if count > 1 else [found]
    return ListValue(items) if kind is list else TupleValue(items)


def fits(value: AbstractTensor) -> bool:
    """A plain tensor of known sizes that autograd does not follow."""
    example = value.example
    if value.python_type() is not torch.Tensor or (torch.is_grad_enabled() and example.requires_grad):
        return False
    return example.device.type != "meta" and all(type(n) is int for n in (*example.shape, *example.stride()))


def with_constants(function: Callable[..., Any], constants: Any, count: int, names: tuple[str, ...]) -> Callable[..., Any]:
    """The function of the tensors only."""

    def call(*tensors: Any) -> Any:
        left = iter(tensors)
        given = [next(left) if c is None else c[0] for c in constants]
        return function(*given[:count], **dict(zip(names, given[count:], strict=True)))

    return call


def observed(frame: Frame, call: Callable[..., Any], tensors: Sequence[AbstractTensor]) -> tuple[type, tuple[Any, ...]]:
    """What one call gives, on the values that the graph computes up to here from this call's inputs."""
    with preserved_state(), torch.no_grad():
        env = values_so_far(frame.graph)
        return observe(call, [env[t.node] for t in tensors])


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """The generators are as before, and grad mode."""
    state = torch.get_rng_state()
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            yield
    finally:
        torch.set_rng_state(state)
        if on_gpu is not None:
            torch.cuda.set_rng_state_all(on_gpu)


def values_so_far(builder: GraphBuilder) -> dict[fx.Node, torch.Tensor]:
    """fx node -> value, computed from copies of the inputs. Raises Refusal where the graph does more than compute."""
    inputs = {binding.name: real for binding, real in zip(builder.inputs, builder.example_inputs, strict=True)}
    found = {}
    for node in builder.graph.nodes:
        if node.op == "placeholder":
            real = inputs[node.name]
            found[node] = real.detach().clone() if isinstance(real, torch.Tensor) else real
            continue
        if not is_plain_call(node) and getattr(node.target, "namespace", None) != NAMESPACE:
            raise Refusal(f"the graph before it calls {node.target}")
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), found.__getitem__)
        try:
            found[node] = apply_target(node.op, node.target, args, kwargs)
        except Exception as error:
            let_through(error)
            raise Refusal(f"the graph before it raises {type(error).__name__}") from error
    return found


CALLS_WITHOUT_ROW["opaque"] = opaque_call
