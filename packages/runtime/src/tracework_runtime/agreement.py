"""Ranks of a job decide together whether what each has compiled serves a call: where it does not on one, all compile.

Each decision is a round in the store of torch.distributed: a rank writes down what it has found, and waits until all have. A rank that takes
part shows that it is alive, a beat each BEAT seconds, from its first round on; whoever waits for one without a beat for DEAD seconds raises
RankLost, which names it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import uuid
from typing import Any

from tracework_runtime import _torch, observe
from tracework_runtime.errors import RankLost, RanksApart

__all__ = ["Agreement", "all_hold"]

BEAT = 2.0
DEAD = 30.0
_YES, _NO = "1", "0"


class Agreement:
    """The ranks of one process group."""

    def __init__(self, store: Any, beats: Any, rank: int, size: int) -> None:
        """store: of torch.distributed, for this alone. beats: the same store over a connection that no wait of the other one holds up."""
        self._store, self._beats, self._rank, self._size = store, beats, rank, size
        self._generation = -1  # groups may follow each other over one store
        self._round = 0
        self._seen: dict[int, tuple[bytes, float]] = {}

    def all_hold(self, holds: bool, what: str) -> bool:
        """Whether it holds on all ranks. what: what is decided, the same on all. Raises RankLost and RanksApart."""
        with observe.timed("ranks.agree"), self._reached():
            if self._generation < 0:
                self._join()
            number, self._round = self._round, self._round + 1
            if number >= 2:  # all have read it, as they have taken part in the round after it
                self._store.delete_key(self._key(number - 2, self._rank))
            self._store.set(self._key(number, self._rank), (_YES if holds else _NO) + what)
            found = self._answers(number)
        for rank, (_, other) in enumerate(found):
            if other != what:
                raise RanksApart(
                    f"ranks are at different places: rank {rank} calls {other}, and rank {self._rank} calls {what}",
                    advice="set_enable_guard_collectives is for programs that call the same on all ranks, in one order; turn it off",
                )
        return all(answer == _YES for answer, _ in found)

    def _join(self) -> None:
        self._generation = (self._store.add("joined", 1) - 1) // self._size
        threading.Thread(target=self._beat, daemon=True).start()

    def _key(self, number: int, rank: int) -> str:
        return f"{self._generation}/{number}/{rank}"

    def _answers(self, number: int) -> list[tuple[str, str]]:
        keys = [self._key(number, rank) for rank in range(self._size)]
        pause, look = 1e-4, time.monotonic() + BEAT
        while not self._store.check(keys):  # its wait() prints a warning when its time is over
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
            if time.monotonic() > look:
                look += BEAT
                for rank, key in enumerate(keys):
                    if not self._store.check([key]):
                        self._look_at(rank)
        found = self._store.multi_get(keys) if self._store.has_extended_api() else [self._store.get(key) for key in keys]
        return [(text[0], text[1:]) for text in (answer.decode() for answer in found)]

    def _look_at(self, rank: int) -> None:
        """Raises RankLost for a rank without a beat."""
        key = f"{self._generation}/beat/{rank}"
        beat: bytes = self._store.get(key) if self._store.check([key]) else b""
        if rank not in self._seen or self._seen[rank][0] != beat:
            self._seen[rank] = beat, time.monotonic()
        elif time.monotonic() - self._seen[rank][1] > DEAD:
            raise RankLost(
                f"rank {rank} of {self._size} is gone, or hangs: the others wait for it to decide whether to compile",
                advice="look at the output of that rank; it was alive in no way for the last half minute",
            )

    def _beat(self) -> None:
        with contextlib.suppress(Exception):  # of a store that is gone: the rank itself is told at its next round
            while True:
                self._beats.set(f"{self._generation}/beat/{self._rank}", uuid.uuid4().hex)
                time.sleep(BEAT)

    @contextlib.contextmanager
    def _reached(self) -> Any:
        try:
            yield
        except RuntimeError as error:
            raise RankLost(
                f"the store of torch.distributed is gone: {error}",
                advice="the process that keeps it, rank 0 or torchrun's agent, has ended; look at its output",
            ) from error


@functools.lru_cache(1)
def _agreement(store: Any, rank: int, size: int) -> Agreement:
    return Agreement(_torch.part_of_store(store, "tracework/agree"), _torch.part_of_store(store, "tracework/agree"), rank, size)


def all_hold(holds: bool, what: str) -> bool:
    """Whether it holds on all ranks of the job; here, where torch.distributed is not initialised with several."""
    store = _torch.store_of_ranks()
    return holds if store is None else _agreement(store, *_torch.rank_and_size()).all_hold(holds, what)
