"""Whole numbers in small tensors on the CPU, where the program needs them while tracing: the data is taken as it is, and a guard compares
its bytes before each call. So it is with what modules keep (strides, paddings, switches), and with lists of numbers in other inputs (sizes
of images), as with ints: until they change. What the captured frame writes to stays data.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..guards.kinds import data_of
from ..plan import Again
from ..sources import InstanceAttr, ModuleEntry
from .constant_data import LARGEST, Known, held_data

if TYPE_CHECKING:
    from torch import fx

    from ..sources import Source
    from ..values.protocol.value import Frame

__all__ = ["check_specialised", "forget_seen", "keep_data", "specialise", "specialised_tensor"]

MOST_VALUES = 2
"""How many values of what a module keeps are taken as they are."""
_WHOLE = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
DTYPES = frozenset(getattr(torch, name) for name in _WHOLE)


class SeenData:
    """What captures saw of the tensors that a module keeps: name -> values, and names of those that a frame writes to."""

    def __init__(self) -> None:
        self.values: dict[str, set[bytes]] = {}
        self.written: set[str] = set()


_seen: dict[int, tuple[Any, SeenData]] = {}
"""id of a module -> a weak reference to it, and what was seen; all code that reads its tensors has this in common."""


def seen_data(owner: torch.nn.Module) -> SeenData:
    """What was seen of this module's tensors."""
    key = id(owner)
    if key not in _seen:
        _seen[key] = weakref.ref(owner, lambda gone: _seen.pop(key, None)), SeenData()
    return _seen[key][1]


def forget_seen() -> None:
    """Forgets what was seen of all modules."""
    _seen.clear()


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
    frame, source, data = frame, node.meta["identity_source"], data_of(node.meta["known"].real)
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
