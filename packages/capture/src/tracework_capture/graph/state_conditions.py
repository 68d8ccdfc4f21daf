"""Conditions on what a module counts or switches in a small buffer (`if self.n_averaged == 0`): they are decided by the buffer's data as
it is while tracing, which a guard asks for before each call. What the graph has written to the buffer by plain arithmetic (a count that
goes up) is done again to a copy; other writes are left to the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from .. import _torch
from .constant_data import LARGEST, apply_target, is_pure, is_pure_write, version_of_example

if TYPE_CHECKING:
    from ..values.protocol.value import Frame

__all__ = ["truth_of_state"]

MOST_STEPS = 8
"""Operators that a guard may run before each call."""


class StateCondition:
    """A guard's predicate: what a few operators make of a buffer is true, or false."""

    def __init__(self, buffer: fx.Node, steps: list[fx.Node]) -> None:
        places = {node: place for place, node in enumerate([buffer, *steps])}
        self.steps = [(n.op, n.target, *fx.node.map_arg((n.args, n.kwargs), lambda m: _Place(places[m]))) for n in steps]
        self.writes = any(map(is_pure_write, steps))
        self.expected: bool | None = None
        names = ", ".join(n.target if isinstance(n.target, str) else n.target.__name__ for n in steps)
        self.__doc__ = f"the condition of {names}"

    def __call__(self, tensor: torch.Tensor) -> bool:
        return self.truth(tensor) is self.expected

    def truth(self, tensor: torch.Tensor) -> bool:
        """What the program would find now."""
        found: list[Any] = [tensor]
        with torch.no_grad(), _torch.function_modes_aside():
            if self.writes:
                found = [tensor.clone()]
            for op, target, args, kwargs in self.steps:
                given, named = _filled(args, found), _filled(kwargs, found)
                found.append(apply_target(op, target, given, named))
            return bool(found[-1])


class _Place(int):
    """Where the result of an earlier step is."""


def _filled(arg: Any, found: list[Any]) -> Any:
    if type(arg) is _Place:
        return found[arg]
    if isinstance(arg, (tuple, list)):
        return tuple(_filled(item, found) for item in arg)
    return {name: _filled(item, found) for name, item in arg.items()} if isinstance(arg, dict) else arg


def truth_of_state(frame: Any, node: fx.Node) -> bool | None:
    """The truth of a node's number, guarded; None where it is no condition on a buffer alone."""
    buffer, steps = _from_one_buffer(frame, node)
    if buffer is None or frame.modes.transforms:
        return None
    binding = buffer.meta["binding"]
    real = frame.graph.example_inputs[frame.graph.inputs.index(binding)]
    if type(real) is not torch.Tensor or real.device.type != "cpu" or real.requires_grad or real.numel() > LARGEST:
        return None
    condition = StateCondition(buffer, steps)
    try:
        condition.expected = condition.truth(real)
    except RuntimeError:  # of several numbers, or what the graph would raise, too: plain Python says so
        return None
    frame.guard("PREDICATE", binding.source, condition)
    return condition.expected


def _from_one_buffer(frame: Frame, node: fx.Node) -> tuple[fx.Node | None, list[fx.Node]]:
    """The buffer that the node is computed from, and the nodes between them, in order."""
    waiting, seen, buffers = [node], set(), set()
    while waiting:
        at = waiting.pop()
        example = at.meta.get("example_value")
        if at in seen:
            continue
        seen.add(at)
        if not isinstance(example, torch.Tensor) or example.storage in frame.recording.effects.statistics:
            return None, []
        if version_of_example(example):
            writes = [n for n in frame.graph.graph.nodes if is_pure_write(n) and _is_over(n.args[0], example.storage)]
            if len(writes) != version_of_example(example):
                return None, []
            waiting.extend(writes)
        if at.op == "placeholder":
            buffers.add(at)
        elif not (is_pure(at) or is_pure_write(at)) or len(seen) > MOST_STEPS:
            return None, []
        waiting.extend(at.all_input_nodes)
    buffer = buffers.pop() if len(buffers) == 1 else None
    if buffer is None or buffer.meta["binding"].role != "buffer":
        return None, []
    return buffer, [n for n in frame.graph.graph.nodes if n in seen and n is not buffer]


def _is_over(node: Any, storage: Any) -> bool:
    """Whether a node's result lies in this memory."""
    return isinstance(node, fx.Node) and getattr(node.meta.get("example_value"), "storage", None) is storage
