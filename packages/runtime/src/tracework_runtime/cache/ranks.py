"""One rank makes, others fetch: ranks of a job that need the same thing while they compile agree on who makes it, and are sent it.

All goes through the store of torch.distributed, in which each rank claims what it is to make. A rank that makes something shows that it is
alive, a beat each BEAT seconds; whoever waits for it and sees none for DEAD seconds claims it in the next round. What is sent is sealed with
the cache's key, as what lies in its folder is. Ranks that share a folder are sent it all the same: it is little beside a compilation.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tracework_runtime import _torch, observe
from tracework_runtime.cache.seal import Seal
from tracework_runtime.cache.secret import secret
from tracework_runtime.cache.store import warn_once
from tracework_runtime.errors import CacheCorrupt, CacheForeign, CacheUnsafe

__all__ = ["Ranks", "open_ranks", "shared"]

log = logging.getLogger("tracework.runtime.cache")
BEAT = 2.0
DEAD = 20.0
PATIENCE = 900.0
"""Seconds after which a rank makes itself what another one is still at."""
MOST_BYTES = 64 << 20
"""Of what is sent, for one process keeps all of it."""
_MADE, _FAILED = b"made", b"failed"
_ONE_KEY = "set TRACEWORK_CACHE_KEY (option cache_key) to copies of one file for all ranks"

Make = Callable[[list[str]], Mapping[str, bytes]]
"""Makes what has these names; gives the bytes of each."""
Take = Callable[[str, bytes | None], bool]
"""Takes what another rank has made, None where it is not sent; False where that cannot be used."""


class Ranks:
    """The ranks of this process's job."""

    def __init__(self, store: Any, seal: Seal) -> None:
        """store: of torch.distributed, for this alone."""
        self._store, self._seal = store, seal
        self._name = uuid.uuid4().hex

    def share(self, names: Sequence[str], make: Make, take: Take) -> None:
        """Sees to it that each name is made by one rank, and made or taken here. Raises what `make` raises."""
        turns, since = dict.fromkeys(names, 0), time.monotonic()
        seen: dict[str, tuple[bytes, float]] = {}
        owners: dict[str, str] = {}
        while turns:
            owners.update({name: self._claim(name, turn) for name, turn in turns.items() if name not in owners})
            mine = [name for name, owner in owners.items() if owner == self._name]
            if mine:
                self._make(mine, turns, make)
            elif time.monotonic() - since > PATIENCE:
                mine = list(turns)
                make(mine)
            else:
                with observe.timed("ranks.wait"):
                    ended = self._ended(owners, turns, seen)
                for name in ended:
                    content = self._sent(name, turns[name])
                    if content is None:
                        turns[name] += 1
                        del owners[name]
                    elif content != _FAILED and take(name, content or None):
                        observe.add("ranks.fetched")
                        mine.append(name)
                    else:  # what stands against it there may do so here, and is to be seen
                        make([name])
                        mine.append(name)
            for name in mine:
                del turns[name], owners[name]

    def _claim(self, name: str, turn: int) -> str:
        """Whose turn it is."""
        owner: bytes = self._store.compare_set(f"{name}/{turn}", "", self._name)
        if not owner:
            raise RuntimeError(f"{self._store} keeps nothing")
        return owner.decode()

    def _make(self, mine: list[str], turns: Mapping[str, int], make: Make) -> None:
        made: Mapping[str, bytes] = {}
        try:
            with self._beating():
                made = make(mine)
        finally:
            observe.add("ranks.made", len(made))
            for name in mine:
                content = made.get(name)
                sent = b"" if content is None or len(content) > MOST_BYTES else self._seal.close(name, content)
                self._store.set(f"{name}/{turns[name]}/end", (_FAILED if content is None else _MADE) + sent)

    def _ended(self, owners: Mapping[str, str], turns: Mapping[str, int], seen: dict[str, tuple[bytes, float]]) -> list[str]:
        """The names that others have made, or do not make any more; waits until there are some, or somebody is to look at its patience."""
        pause, until = 0.005, time.monotonic() + 10.0
        while time.monotonic() < until:
            ended = [name for name, turn in turns.items() if self._store.check([f"{name}/{turn}/end"])]
            ended = ended or [name for name, owner in owners.items() if self._is_gone(owner, seen)]
            if ended:
                return ended
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return []

    def _is_gone(self, owner: str, seen: dict[str, tuple[bytes, float]]) -> bool:
        key = f"beat/{owner}"
        beat: bytes = self._store.get(key) if self._store.check([key]) else b""
        if owner not in seen or seen[owner][0] != beat:
            seen[owner] = beat, time.monotonic()
        return time.monotonic() - seen[owner][1] > DEAD

    def _sent(self, name: str, turn: int) -> bytes | None:
        """What the rank has sent whose turn it was: nothing where it was too much, _FAILED, or None where it is gone."""
        key = f"{name}/{turn}/end"
        if not self._store.check([key]):
            observe.add("ranks.gone")
            log.warning("the rank that was making %s is gone; another one makes it", name)
            return None
        end: bytes = self._store.get(key)
        if end in (_MADE, _FAILED):
            return end.removeprefix(_MADE)
        try:
            return self._seal.open(name, end.removeprefix(_MADE))
        except CacheForeign:
            warn_once("ranks have different keys of the cache; each makes what it needs itself", _ONE_KEY)
            return b""
        except CacheCorrupt as error:
            log.warning("what another rank has made is not used: %s", error)
            return b""

    @contextlib.contextmanager
    def _beating(self) -> Iterator[None]:
        """Others see in the block that this rank is alive."""
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def _beat(self, over: threading.Event) -> None:
        with contextlib.suppress(Exception):  # of a store that is gone: whoever waits goes on by himself
            while True:
                self._store.set(f"beat/{self._name}", uuid.uuid4().hex)
                if over.wait(BEAT):
                    return


@functools.lru_cache(1)
def _ranks(store: Any, key: str | None) -> Ranks | None:
    try:
        return Ranks(_torch.part_of_store(store, "tracework"), Seal(secret(key)))
    except CacheUnsafe as unsafe:
        log.warning("ranks do not share what they compile: %s", unsafe)
        return None


def open_ranks(key: str | None) -> Ranks | None:
    """The ranks of the job, where torch.distributed is initialised with several; None where they have no key to seal with."""
    store = _torch.store_of_ranks()
    return None if store is None else _ranks(store, key)


def shared(key: str | None, kind: str, names: Sequence[str], make: Make, take: Take) -> None:
    """Makes what has these names, each its kind's own, or takes it from ranks that do; without ranks, and where their store fails, makes
    all of it."""
    ranks = open_ranks(key)
    if ranks is None:
        make(list(names))
        return
    before = f"{kind}/"
    left = dict.fromkeys(names)
    failed: list[BaseException] = []

    def made_here(full: list[str]) -> Mapping[str, bytes]:
        mine = [name.removeprefix(before) for name in full]
        try:
            made = make(mine)
        except BaseException as error:
            failed.append(error)
            raise
        for name in mine:
            left.pop(name, None)
        return {before + name: content for name, content in made.items()}

    def taken(full: str, content: bytes | None) -> bool:
        name = full.removeprefix(before)
        took = take(name, content)
        if took:
            left.pop(name, None)
        return took

    try:
        ranks.share([before + name for name in names], made_here, taken)
    except Exception as error:  # each kind of store has its own
        if failed:
            raise failed[0] from None
        log.warning("ranks do not share what they compile: %s", error)
        if left:
            make(list(left))
