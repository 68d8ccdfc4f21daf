"""Small whole numbers that modules keep in tensors (strides, paddings, switches), where the program needs them while tracing: the data is
taken as it is, and a guard compares its bytes before each call. What the captured frame writes to, and what was seen with more values than
a few, stays data as in any other tensor.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from ..errors import RestartAsked
from ..guards.kinds import data_of
from ..sources import InstanceAttr, ModuleEntry
from .known import LARGEST, Known, held_data

if TYPE_CHECKING:
    from torch import fx

    from ..sources import Source

__all__ = ["check_specialised", "forget_kept", "keep_data", "specialised_tensor"]

MOST_VALUES = 2
_WHOLE = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
DTYPES = frozenset(getattr(torch, name) for name in _WHOLE)


class KeptData:
    """What captures saw of the tensors that a module keeps: name -> values, and names of those that a frame writes to."""

    def __init__(self) -> None:
        self.values: dict[str, set[bytes]] = {}
        self.written: set[str] = set()


_kept: dict[int, tuple[Any, KeptData]] = {}
"""id of a module -> a weak reference to it, and what was seen; all code that reads its tensors has this in common."""


def kept_data(owner: torch.nn.Module) -> KeptData:
    """What was seen of this module's tensors."""
    key = id(owner)
    if key not in _kept:
        _kept[key] = weakref.ref(owner, lambda gone: _kept.pop(key, None)), KeptData()
    return _kept[key][1]


def forget_kept() -> None:
    """Forgets what was seen of all modules."""
    _kept.clear()


def keep_data(node: fx.Node, tensor: torch.Tensor, source: Source) -> None:
    """Keep the data of an input that a module holds, if it is small, of whole numbers, on the CPU and not written to so far."""
    if type(source) not in (ModuleEntry, InstanceAttr) or type(tensor) is not torch.Tensor or "known" in node.meta:
        return
    if tensor.dtype not in DTYPES or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return
    example = node.meta["example_value"]
    if not 0 < tensor.numel() <= LARGEST or example.storage.version or type(example.numel()) is not int:
        return
    with torch.no_grad():
        node.meta["known"] = Known(tensor.clone(), 0, frozenset({node}))
    node.meta["kept_at"] = source


def specialised_tensor(frame: Any, node: fx.Node | None) -> torch.Tensor | None:
    """The real tensor of a node that is computed from plain numbers and from what modules keep, which is guarded then; None for others."""
    data = None if node is None else held_data(node)
    if data is None or (data.inputs and frame.root.transforms):
        return None
    return data.real if all([_specialise(frame, kept) for kept in data.inputs]) else None


def _specialise(frame: Any, node: fx.Node) -> bool:
    """Whether the data of an input is taken as it is; guards it."""
    root, source = frame.root, node.meta["kept_at"]
    if node in root.specialised:
        return True
    owner = next((value.obj for value in root.memo.values() if getattr(value, "source", None) is source.base), None)
    if not isinstance(owner, torch.nn.Module):
        return False
    kept, data = kept_data(owner), data_of(node.meta["known"].real)
    values = kept.values.setdefault(source.name, set())
    if source.name in kept.written or (data not in values and len(values) == MOST_VALUES):
        return False
    values.add(data)
    frame.guard("DATA", source, data)
    root.specialised[node] = kept
    return True


def check_specialised(root: Any) -> None:
    """Raises RestartAsked when the frame writes to what was taken as it is, which has another value in the next call."""
    written = [node for node in root.specialised if node.meta["example_value"].storage.version]
    for node in written:
        root.specialised[node].written.add(node.meta["kept_at"].name)
    if written:
        raise RestartAsked("the frame writes to data that was taken as it is")
