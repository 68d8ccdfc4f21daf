"""Memory for the intermediate values of a GPU's graphs, kept from call to call, for each stream.

What is done on a stream is done in order: the kernels of the next call that takes a workspace come after those of the last one that gave it
back, so only calls that are under way at once, nested or in several threads, need one each. A call that is being recorded into a CUDA graph
gets memory of the graph's own, since nobody can say where and when the graph will be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tracework_runtime import _torch
from tracework_runtime.workspace import Windowed

__all__ = ["GpuWorkspace", "forget", "give", "take", "window"]

ALIGNMENT = 2 << 20
"""Sizes are multiples of it, as they are in torch's allocator."""


class GpuWorkspace(Windowed[torch.Tensor]):
    """`size` bytes from `address` on, on the current GPU and stream."""

    __slots__ = ("address", "home", "size")

    def __init__(self, size: int, home: list[GpuWorkspace] | None) -> None:
        self.home = home
        self.size = size if home is None else -(-size // ALIGNMENT) * ALIGNMENT
        with torch.inference_mode(False):  # of inference mode's tensors no others can be made later
            super().__init__(_allocated(self.size))
        self.address = self._memory.data_ptr()


def _allocated(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


class _Piece:
    """Some bytes of a workspace as others than torch describe them: a tensor of it keeps it alive, and with it the whole memory."""

    def __init__(self, memory: torch.Tensor, first: int, size: int) -> None:
        self.memory = memory
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (memory.data_ptr() + first, False),
            "strides": None,
            "version": 2,
        }


def window(
    memory: torch.Tensor,
    first: int,
    size: int,
    dtype: torch.dtype,
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int,
) -> torch.Tensor:
    """A tensor over `size` bytes of a workspace from byte `first` on, which are a storage of their own, as on the CPU."""
    storage = torch.as_tensor(_Piece(memory, first, size), device=memory.device).untyped_storage()
    return torch.empty(0, dtype=dtype, device=memory.device).set_(storage, offset, tuple(sizes), tuple(strides))


_FREE: dict[tuple[int, int], list[GpuWorkspace]] = {}


def take(size: int) -> GpuWorkspace:
    """A workspace that nobody else has, for the current GPU and stream."""
    if torch.cuda.is_current_stream_capturing():
        return GpuWorkspace(size, None)
    gpu = _torch.current_gpu()
    home = _FREE.setdefault((gpu, _torch.current_raw_stream(gpu)), [])
    try:
        found = home.pop()  # one step for all threads
    except IndexError:
        return GpuWorkspace(size, home)
    return found if found.size >= size else GpuWorkspace(size, home)


def give(workspace: GpuWorkspace) -> None:
    """Nothing of it is needed any longer, but by what its stream was told to do. After an exception it is simply not given back."""
    if workspace.home is not None:
        workspace.home.append(workspace)


def forget() -> None:
    """Gives torch's allocator the workspaces that nobody uses now."""
    for home in _FREE.values():
        home.clear()
