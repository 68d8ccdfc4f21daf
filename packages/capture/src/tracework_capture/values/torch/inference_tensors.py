"""Tensors made in inference mode: a compiled graph makes normal ones, whose memory inference tensors share when they leave it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor

from ..._torch.functions import neg_view
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import known_values
from ..protocol.value import Frame


def is_inside(frame: Frame) -> bool:
    """Whether the traced program is in inference mode, of its own or from outside."""
    return frame.modes.inference[-1] if frame.modes.inference else torch.is_inference_mode_enabled()


def is_for_inference(frame: Frame, example: FakeTensor) -> bool:
    """Whether a result with this fake is an inference tensor in eager: what shares the memory of another is what that is."""
    found, storage = frame.modes.storages, example.storage
    if storage not in found:
        held = [v for v in known_values(frame).values() if v.obj is not None and v.example.storage is storage]
        inference = is_input_for_inference(frame, held[0]) if held else is_inside(frame)
        found[storage] = storage.version if inference else None
    return found[storage] is not None


def is_input_for_inference(frame: Frame, value: Any) -> bool:
    """Whether a tensor that was there before is an inference tensor, guarded."""
    found: bool = value.obj.is_inference()
    frame.guard("PREDICATE", value.source, torch.is_inference if found else is_normal)
    return found


def is_normal(tensor: torch.Tensor) -> bool:
    """The tensor is no inference tensor"""
    return not tensor.is_inference()


def begin_block(frame: Frame) -> None:
    """A block of the program begins: the tensors that are there are no inference tensors."""
    frame.modes.uses_inference = True
    for value in known_values(frame).values():
        if value.obj is None and not is_inside(frame):
            frame.modes.storages.setdefault(value.example.storage, None)


def end_block(frame: Frame) -> None:
    """A block ends: what was written to inference tensors until now was allowed."""
    storages = frame.modes.storages
    storages.update({storage: storage.version for storage, version in storages.items() if version is not None})


def refuse_misuse(frame: Frame, node: fx.Node, example: FakeTensor | tuple[Any, ...] | None) -> None:
    """Breaks where an inference tensor is written to outside of inference mode, or may be saved for a backward: eager refuses both; and
    where a block of the program writes to one that was there before, which the graph would do outside of the mode."""
    if not frame.modes.uses_inference:
        return
    if is_inside(frame):
        if not torch.is_inference_mode_enabled() and any(map(is_written_input, known_values(frame).values())):
            frame.break_graph("fake_failed", "an inference tensor that was there before is written to")
        return
    storages = frame.modes.storages
    if any(version is not None and storage.version != version for storage, version in storages.items()):
        frame.break_graph("fake_failed", "an inference tensor is written to outside of inference mode, which eager refuses")
    if isinstance(example, torch.Tensor) and example.requires_grad:
        read = [getattr(n.meta["example_value"], "storage", None) for n in node.all_input_nodes]
        if any(storages.get(storage) is not None for storage in read):
            frame.break_graph(
                "fake_failed", "an inference tensor where gradients are computed: eager refuses to save it for them"
            )


def is_written_input(value: AbstractTensor) -> bool:
    """Whether an inference tensor that was there before was written to."""
    return value.obj is not None and value.obj.is_inference() and bool(value.example.storage.version)


def as_inference_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """An inference tensor over the same memory."""
    if tensor.is_conj():
        return as_inference_tensor(tensor.conj()).conj()
    if tensor.is_neg():
        return neg_view(as_inference_tensor(neg_view(tensor)))
    with torch.inference_mode():
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
