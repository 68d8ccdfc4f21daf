"""Inputs that overlap in memory: which do, and the row of elements that they show parts of.

A graph of values has no two inputs in one place. Where inputs overlap and one of them is written to, the graph takes the memory behind them
as one row, and what it reads and writes are views of that. How far the parts lie from each other is then part of the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from tracework_primops import FakeTensor

from ..signature import SharedMemory

__all__ = ["Extent", "overlaps", "row_of", "shared_memory"]


class Extent(NamedTuple):
    """Where the elements of an input lie: first byte, end, slot; and in which storage, by its begin and size."""

    begin: int
    end: int
    slot: int
    storage: tuple[int, int]


FAR = 2**64
"""Storages of fakes begin this far from each other."""


def extent(slot: int, tensor: torch.Tensor, known: Any) -> Extent | None:
    """Of an input; None of one without elements, or without memory that one may know. known: a fake of it, for what has no memory itself."""
    if tensor.numel() == 0 or tensor.layout is not torch.strided:
        return None
    try:
        memory = tensor.untyped_storage()
        storage, begin = (memory.data_ptr(), memory.nbytes()), tensor.data_ptr()
    except (RuntimeError, NotImplementedError):
        storage, begin = (0, 0), 0
    if not storage[0]:
        if not isinstance(known, FakeTensor) or not isinstance(offset := known.spec.offset, int) or known.is_symbolic:
            return None
        storage = FAR * (1 + id(known.storage)), 0
        begin = storage[0] + offset * tensor.element_size()
        tensor = known
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Extent(begin, begin + (last + 1) * tensor.element_size(), slot, storage)


def overlaps(inputs: Sequence[Any], known: Sequence[Any], written: Collection[int]) -> list[list[Extent]]:
    """Inputs whose extents meet, by way of others, too, where one of them is written to."""
    found = [extent(slot, x, known[slot]) for slot, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
    groups: list[list[Extent]] = []
    end = 0
    for each in sorted(each for each in found if each is not None):
        if each.begin >= end:
            groups.append([])
        groups[-1].append(each)
        end = max(end, each.end)
    return [group for group in groups if len(group) > 1 and any(each.slot in written for each in group)]


def shared_memory(group: Sequence[Extent], inputs: Sequence[Any]) -> SharedMemory | None:
    """The row behind inputs whose extents meet; None where no tensor shows all of it, or they see its bits as something else."""
    first: torch.Tensor = inputs[group[0].slot]
    size = first.element_size()
    for each in group:
        tensor = inputs[each.slot]
        alike = tensor.dtype is first.dtype and tensor.device == first.device and each.storage == group[0].storage
        is_static = all(isinstance(n, int) for n in (*tensor.shape, *tensor.stride()))
        if not alike or not is_static or tensor.is_conj() or tensor.is_neg() or (each.begin - group[0].begin) % size:
            return None
    begin, end = group[0].begin, max(each.end for each in group)
    parts = sorted((each.slot, (each.begin - begin) // size) for each in group)
    return SharedMemory(tuple(parts), (end - begin) // size)


def row_of(memory: SharedMemory, inputs: Sequence[Any]) -> torch.Tensor:
    """The row as a tensor without history, whose versions are its own."""
    slot, begin = memory.parts[0]
    part: torch.Tensor = inputs[slot].data
    return part.as_strided((memory.length,), (1,), part.storage_offset() - begin)
