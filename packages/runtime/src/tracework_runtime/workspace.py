"""Memory for the intermediate values of CPU graphs, kept from call to call.

What a call of a graph allocates and frees piece by piece, the C library may hand back to the system each time, which then has to clear
and map every page again: a sixth of a small GPT-2's training step was spent so. A graph takes one workspace when it is called and gives it
back when it returns. There are as many as graphs that were running at once, each as large as the largest of them needed.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

from tracework_runtime import huge_pages

__all__ = ["Windowed", "Workspace", "give", "take", "window"]

LINE = 64
"""Alignment of workspaces. One to huge pages would take another one of them."""
PATIENCE = 200
"""A workspace that was four times too large for so many calls in turn is dropped."""

Windows = tuple[torch.Tensor, ...]


Memory = TypeVar("Memory", torch.UntypedStorage, torch.Tensor)


class Windowed(Generic[Memory]):
    """Memory from its byte `skip` on, and the tensors that host programs made over it."""

    __slots__ = ("_made", "_memory", "_skip")

    def __init__(self, memory: Memory, skip: int = 0) -> None:
        self._memory: Memory = memory
        self._skip = skip
        self._made: weakref.WeakKeyDictionary[Callable[[Memory, int], Windows], Windows] = weakref.WeakKeyDictionary()

    def windows(self, make: Callable[[Memory, int], Windows]) -> Windows:
        """What a program's `make(memory, first byte)` gave for this memory, once."""
        found = self._made.get(make)
        if found is None:
            with torch.inference_mode(False), torch.no_grad():
                found = self._made[make] = make(self._memory, self._skip)
        return found


class Workspace(Windowed[torch.UntypedStorage]):
    """`size` bytes from `address` on."""

    __slots__ = ("_unused", "address", "size")

    def __init__(self, size: int) -> None:
        self.size = -(-size // LINE) * LINE
        with torch.inference_mode(False):  # of inference mode's tensors no others can be made later
            memory = torch.empty(self.size + LINE, dtype=torch.uint8, device="cpu").untyped_storage()
        start = memory.data_ptr()
        self.address = -(-start // LINE) * LINE
        super().__init__(memory, self.address - start)
        self._unused = 0
        huge_pages.ask(self.address, self.size)

    def suits(self, size: int) -> bool:
        """Whether a call that needs `size` bytes should have it."""
        self._unused = self._unused + 1 if 4 * size < self.size else 0
        return size <= self.size and self._unused < PATIENCE


def window(
    memory: torch.UntypedStorage,
    first: int,
    size: int,
    dtype: torch.dtype,
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int,
) -> torch.Tensor:
    """A tensor over `size` bytes of a workspace from byte `first` on, which are a storage of their own: operators such as
    as_strided_scatter count from where the storage begins. `offset` is in elements, as strides are.
    """
    # There is no storage over a buffer of nothing; a tensor without elements has a place in the workspace, too.
    piece = (ctypes.c_char * max(size, 1)).from_address(memory.data_ptr() + first)
    piece.memory = memory  # type: ignore[attr-defined]  # arrays take attributes: the tensor keeps its bytes alive
    storage = torch.frombuffer(piece, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, tuple(sizes), tuple(strides))


_FREE: list[Workspace] = []


def take(size: int) -> Workspace:
    """A workspace that nobody else has."""
    try:
        found = _FREE.pop()  # one step for all threads
    except IndexError:
        return Workspace(size)
    if found.suits(size):
        return found
    del found  # before there is another one
    return Workspace(size)


def give(workspace: Workspace) -> None:
    """Nothing of it is needed any longer. After an exception it is simply not given back."""
    _FREE.append(workspace)


def forget() -> None:
    """Frees the workspaces that nobody uses now."""
    _FREE.clear()
