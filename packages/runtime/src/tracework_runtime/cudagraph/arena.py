"""Arena: the memory that the recordings of a stream use while they are replayed, and in which nothing outlives a replay.

Replays on a stream are ordered: what one needs only while it runs, the next one may use. What a recording hands out lies in a pool of its
own, from which host programs take what they return (host/program.py); a small result of a library call that makes much else is copied
there. Whether they did is looked at behind each recording, since a library may give a part of what it was given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tracework_runtime import _torch
from tracework_runtime._C import set_keeping
from tracework_runtime.cudagraph.budget import BUDGET

__all__ = ["Arena"]

_ARENAS: dict[tuple[int, int], Arena] = {}


class Arena:
    """A pool for the recordings that are replayed on one stream of a device. It ends with the last of them."""

    def __init__(self, device: int, stream: int) -> None:
        self.device, self._key = device, (device, stream)
        self.pool = torch.cuda.graph_pool_handle()
        self.bytes = self._users = 0

    @classmethod
    def entered(cls, device: int, stream: int) -> Arena:
        """A stream's, for one recording more, which has to leave it once."""
        while True:
            arena = _ARENAS.setdefault((device, stream), cls(device, stream))
            arena._users += 1
            if _ARENAS.get((device, stream)) is arena:  # else its last recording went just now, in any thread
                return arena

    def leave(self) -> None:
        """A recording is gone. What it has of the pool is given back afterwards."""
        self._users -= 1
        if not self._users and _ARENAS.get(self._key) is self:
            del _ARENAS[self._key]
            BUDGET.arenas.pop(self._key, None)

    @contextlib.contextmanager
    def keeping(self, pools: list[tuple[int, int]]) -> Iterator[None]:
        """A block, within one in which this thread's memory comes from the arena, where what host programs return comes from another pool.

        Adds that to `pools`, which are to be given back once.
        """
        device, arena, own = self.device, self.pool, torch.cuda.graph_pool_handle()

        def keep(make: Any, *given: Any) -> Any:
            _torch.leave_pool(device, arena)
            _torch.enter_pool(device, own)
            try:
                return make(*given)
            finally:
                _torch.leave_pool(device, own)
                _torch.enter_pool(device, arena)
                for again in (own, arena):  # both were entered once already
                    _torch.release_pool(device, again)

        _torch.enter_pool(device, own)
        pools.append(own)
        _torch.leave_pool(device, own)
        set_keeping(keep, torch.clone)
        try:
            yield
        finally:
            set_keeping(None, None)

    def holds(self, values: Iterable[Any]) -> bool:
        """Whether a tensor among `values` lies in it. Counts what it has become."""
        parts = _torch.pool_parts(self.pool)
        self.bytes = BUDGET.arenas[self._key] = sum(size for _, size in parts)
        addresses = {value.untyped_storage().data_ptr() for value in values if isinstance(value, torch.Tensor)}
        return any(first <= address < first + size for first, size in parts for address in addresses)
