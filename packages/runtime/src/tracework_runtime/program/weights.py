"""Tensors that a program holds: bytes of their storages one after another, and where in them each tensor lies. No pickles.

Tensors that share memory share it again when they are read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = ["Content", "described", "memory_of", "placed"]

_ALIGNMENT = 64


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a storage, which is on the CPU, to read or to write."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    return memoryview((ctypes.c_char * size).from_address(storage.data_ptr()) if size else bytearray()).cast("B")


class Content:
    """The bytes of tensors' storages, each filled up to where the next may begin: parts of memory, not all at once."""

    def __init__(self, held: Sequence[torch.Tensor]) -> None:
        self._held = held

    def __len__(self) -> int:
        return sum(_whole(tensor.untyped_storage().nbytes()) for tensor in self._held)

    def __iter__(self) -> Iterator[memoryview]:
        for tensor in self._held:
            storage = tensor.untyped_storage()
            on_cpu = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())  # alive as long as its memory is read
            yield memory_of(on_cpu)
            yield memoryview(bytes(_whole(storage.nbytes()) - storage.nbytes()))


def described(tensors: Mapping[str, torch.Tensor]) -> tuple[dict[str, Any], Content]:
    """Where each tensor lies among the bytes, as data, and these bytes."""
    places: dict[tuple[str, int], int] = {}
    held: list[torch.Tensor] = []
    facts: dict[str, Any] = {}
    for name, tensor in tensors.items():
        flat = tensor.detach()
        storage = flat.untyped_storage()
        place = places.setdefault((str(flat.device), storage.data_ptr() or -len(held) - 1), len(held))
        if place == len(held):
            held.append(flat)
        facts[name] = {
            "storage": place,
            "dtype": str(flat.dtype).removeprefix("torch."),
            "sizes": list(flat.shape),
            "strides": list(flat.stride()),
            "offset": flat.storage_offset(),
        }
    storages = [{"device": str(t.device), "size": t.untyped_storage().nbytes()} for t in held]
    return {"storages": storages, "tensors": facts}, Content(held)


def _whole(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def placed(data: Mapping[str, Any], fill: Any) -> dict[str, torch.Tensor]:
    """The tensors of what `described` gave; `fill` is given an iterator of memory to fill with the bytes, in order."""
    buffers = [torch.empty(s["size"], dtype=torch.uint8, device="cpu") for s in data["storages"]]

    def parts() -> Iterator[memoryview]:
        for buffer in buffers:
            size = buffer.numel()
            yield memory_of(buffer)[:size]
            yield memoryview(bytearray(_whole(size) - size))

    fill(parts())
    moved = [buffer.to(s["device"]) for buffer, s in zip(buffers, data["storages"], strict=True)]
    made = {}
    for name, facts in data["tensors"].items():
        storage = moved[facts["storage"]].untyped_storage()
        empty = torch.empty(0, dtype=getattr(torch, facts["dtype"]), device=storage.device)
        made[name] = empty.set_(storage, facts["offset"], facts["sizes"], facts["strides"])
    return made
