"""Whole numbers in small tensors on the CPU, where the program needs them while tracing: the data is taken as it is, and a guard compares
its bytes before each call. So it is with what modules keep (strides, paddings, switches), and with lists of numbers in other inputs (sizes
of images), as with ints: until they change. What the captured frame writes to stays data.

Conditions on what a module counts or switches in a small buffer (`if self.n_averaged == 0`) are decided by the buffer's data as it is while
tracing, which a guard asks for before each call. What the graph has written to the buffer by plain arithmetic (a count that goes up) is done again
to a copy; other writes are left to the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from .. import _torch
from ..guards.kinds import data_of
from ..plan import Again
from ..sources import InstanceAttr, ModuleEntry, Source
from .constant_data import LARGEST, Known, apply_target, held_data, is_pure, is_pure_write, version_of_example
from .module_data import seen_data

if TYPE_CHECKING:
    from ..values.protocol.value import Frame

MOST_VALUES = 2
"""How many values of what a module keeps are taken as they are."""
_WHOLE = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
DTYPES = frozenset(getattr(torch, name) for name in _WHOLE)


def keep_data(node: fx.Node, tensor: torch.Tensor, source: Source) -> None:
    """Keep the data of an input, if it is small, of whole numbers, on the CPU and not written to so far."""
    if type(tensor) is not torch.Tensor or "known" in node.meta:
        return
    if tensor.dtype not in DTYPES or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return
    example = node.meta["example_value"]
    if not 0 < tensor.numel() <= LARGEST or example.storage.version or type(example.numel()) is not int:
        return
    with torch.no_grad():
        node.meta["known"] = Known(tensor.clone(), 0, frozenset({node}))
    node.meta["identity_source"] = source


def specialised_tensor(frame: Any, node: fx.Node | None, listed: bool = False) -> torch.Tensor | None:
    """The real tensor of a node that is computed from plain numbers and such inputs, which are guarded then; None for others.

    listed: the program asks for a list of its numbers. A single number (a count, a place) of what is no module's is likely to change."""
    data = None if node is None else held_data(node)
    if data is None or (data.inputs and frame.modes.transforms):
        return None
    return data.real if specialise(frame, data.inputs, listed) else None


def specialise(frame: Any, inputs: frozenset[fx.Node], listed: bool = False) -> bool:
    """Whether the data of all of these inputs is taken as it is; guards it."""
    return all([_specialise(frame, node, listed) for node in inputs])


def _specialise(frame: Any, node: fx.Node, listed: bool) -> bool:
    """Whether the data of an input is taken as it is; guards it."""
    source, data = node.meta["identity_source"], data_of(node.meta["known"].real)
    if _shares_written_memory(frame, node):
        return False
    if node in frame.inputs.specialised:
        return True
    owner = _owner(frame, source)
    if owner is not None:
        kept = seen_data(owner)
        values = kept.values.setdefault(source.name, set())
        if source.name in kept.written or (data not in values and len(values) == MOST_VALUES):
            return False
        values.add(data)
        written = kept.written
    else:
        written = frame.history.written
        if not listed or frame.options.dynamic or str(source) in written or frame.inputs.changes(source, data):
            return False
    frame.guard("DATA", source, data)
    frame.inputs.specialised[node] = written
    return True


def _shares_written_memory(frame: Frame, node: fx.Node) -> bool:
    """Whether the graph has written to another input over the same memory, as an array of NumPy is."""
    inputs = dict(zip((n for n in frame.graph.graph.nodes if n.op == "placeholder"), frame.graph.example_inputs))
    written = [
        real for each, real in inputs.items() if isinstance(real, torch.Tensor) and each.meta["example_value"].storage.version
    ]
    return any(_overlap(real, inputs[node]) for real in written)


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the storages of two tensors have bytes in common."""
    if one.device != other.device or one.layout is not torch.strided:
        return False
    (start, size), (other_start, other_size) = (
        (s.data_ptr(), s.nbytes()) for s in (one.untyped_storage(), other.untyped_storage())
    )
    return start < other_start + other_size and other_start < start + size


def _owner(frame: Frame, source: Source) -> torch.nn.Module | None:
    """The module that keeps what is at `source`."""
    if not isinstance(source, (ModuleEntry, InstanceAttr)):
        return None
    owner = next((value.obj for value in frame.memory.memo.values() if getattr(value, "source", None) is source.base), None)
    return owner if isinstance(owner, torch.nn.Module) else None


def check_specialised(frame: Frame) -> None:
    """Raises Again when the frame writes to what was taken as it is, which has another value in the next call."""
    written = [node for node in frame.inputs.specialised if node.meta["example_value"].storage.version]
    for node in written:
        source = node.meta["identity_source"]
        frame.inputs.specialised[node].add(str(source) if _owner(frame, source) is None else source.name)
    if written:
        raise Again("data_written")


# --- conditions on buffers -------------------------------------------------------------------------------------------------

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
        with torch.no_grad(), _torch.modes.function_modes_aside():
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
