"""DTensors, tensors of a wrapper subclass (wrapper_tensor.py) whose operators talk to other processes: meshes and placements are constants,
the functions between them and plain tensors are nodes of the graph, run by torch's own code on fakes.

Sizes that all ranks share evenly may be symbols (tracework_primops.fake.distributed). What draws random numbers, or sends what is no tensor of a
graph, is left to eager.
"""

from __future__ import annotations

import sys
from typing import Any

from ..._torch.distributed import Placement, loss_switch, losses_in_parts
from ...graph.wrapped import Construct
from ...polyfills.collectives import distribute_tensor
from ...sources import Const, Source
from ..objects.construction import MADE_IN_GRAPHS
from ..protocol.calls import Handler, Policy, call, traced
from ..protocol.constant import ConstantValue, fold, literal
from ..protocol.value import Frame, Value
from ..protocol.wraps import wraps_named
from .collectives import guard_groups, wrap_group
from .context import Blocks, ContextValue
from .wrapper_tensor import WrapperTensorValue, argument, guard_handlers

API = "torch.distributed.tensor._api"
PARALLEL = "torch.distributed.tensor.parallel"
PLACEMENTS = "torch.distributed.tensor.placement_types"


wraps_named("torch.distributed.device_mesh.DeviceMesh")(wrap_group)


@wraps_named(*(f"{PLACEMENTS}.{name}" for name in "Partial Replicate Shard _MaskPartial _StridedShard".split()))
def wrap_placement(frame: Frame, obj: Any, source: Source) -> Value:
    """A placement, which nobody changes, but for the mask that one keeps."""
    if type(source) is not Const:
        frame.guard("CONSTANT", source, obj)
    return ConstantValue(obj, source)


def is_placement(cls: type) -> bool:
    """Whether instances of a class are placements that never change."""
    return cls.__module__ == PLACEMENTS and cls.__name__ in ("Partial", "Replicate", "Shard", "_StridedShard")


def new_placement(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(*args, **kwargs)"""
    return fold(frame, cls, args, kwargs)


if Placement is not None:
    MADE_IN_GRAPHS[Placement] = is_placement, new_placement


def of_api(name: str) -> Any:
    """What the module has under a dotted name."""
    found: Any = sys.modules[API]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def node(name: str, argument_name: str | None, default: Any, wanted: Any) -> Handler:
    """A function or method that is a node of the graph, where an argument is as wanted: else it sends what is no tensor of a graph."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if argument_name is not None:
            given = kwargs.get(argument_name, ConstantValue(default))
            if not given.is_constant() or given.constant() is not wanted:
                return frame.break_graph(
                    "call_skipped", f"{name} without {argument_name}={wanted}, which is no node of the graph"
                )
        guard_groups(frame)
        nodes: list[Any] = []
        positional = [argument(frame, value, nodes) for value in args]
        named = {key: argument(frame, value, nodes) for key, value in kwargs.items()}
        return frame.graph.call(frame, Construct(of_api(name), positional, named), tuple(nodes))

    return handler


NODES: dict[str, tuple[str | None, Any, Any]] = {
    "DTensor.from_local": ("run_check", False, False),
    "DTensor.full_tensor": (None, None, None),
    "DTensor.redistribute": (None, None, None),
    "DTensor.to_local": (None, None, None),
    **dict.fromkeys(("empty", "full", "ones", "zeros"), (None, None, None)),
}
"""Function of torch.distributed.tensor -> the argument that has to be so, and its default."""
for _name, _argument in NODES.items():
    call(f"{API}.{_name}", f"torch.distributed.tensor.{_name}", policy=Policy.NODE)(node(_name, *_argument))


@call(f"{API}.distribute_tensor", "torch.distributed.tensor.distribute_tensor", policy=Policy.NODE)
def distribute(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """distribute_tensor(...), which sends a tensor from one rank, unless each has it."""
    sent = kwargs.get("src_data_rank", ConstantValue(0))
    how = DISTRIBUTE if sent.is_constant() and sent.constant() is None else SEND
    return how(frame, args, kwargs)


DISTRIBUTE, SEND = node("distribute_tensor", None, None, None), traced(distribute_tensor)


def attribute(name: str) -> Handler:
    """A property that is a constant."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        (tensor,) = args
        if not isinstance(tensor, WrapperTensorValue):
            return frame.break_graph("attribute_unknown", f"{name} of {tensor.describe()}")
        return literal(frame, getattr(tensor.example, name))

    return handler


for _name in ("device_mesh", "placements"):
    call(f"{API}.DTensor.{_name}", policy=Policy.EVALUATED)(attribute(_name))


@call(f"{PARALLEL}.loss.loss_parallel")
def loss_parallel(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """loss_parallel()"""
    return ContextValue(sys.modules[f"{PARALLEL}.loss"].loss_parallel, loss_block, args, kwargs)


def loss_block(frame: Frame, manager: ContextValue) -> Blocks:
    """A block in which losses are computed of logits as they are shared, entered for real while tracing: nodes are what torch calls where it
    begins and ends. Of a block in another one eager raises where the outer one ends."""
    if losses_in_parts():
        frame.break_graph("context_unknown", "loss_parallel() inside of loss_parallel()")
    guard_handlers(frame)
    frame.modes.states_written.setdefault("losses_in_parts", False)
    frame.graph.plain_node(frame, loss_switch(True), ())
    yield None
    frame.graph.plain_node(frame, loss_switch(False), ())
