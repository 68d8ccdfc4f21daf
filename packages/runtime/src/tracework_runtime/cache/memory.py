"""Cache of artifacts: a per-process layer over the disk store, and `get_or_make`."""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tracework_runtime import observe
from tracework_runtime.artifact import Artifact
from tracework_runtime.cache.layers import FolderBelow, Layers, SharedPlace
from tracework_runtime.cache.ranks import Make, Take, shared
from tracework_runtime.cache.seal import Seal
from tracework_runtime.cache.secret import secret
from tracework_runtime.cache.store import Entries, MemoryStore, Store, warn_once
from tracework_runtime.errors import ArtifactError, CacheCorrupt, CacheUnsafe
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["Cache", "open_cache", "open_store"]

log = logging.getLogger("tracework.runtime.cache")
T = TypeVar("T")
Share = Callable[[Sequence[str], Make, Take], None]


class Cache:
    """Artifacts by key: first this process's own, then the disk's, if the store is on one."""

    def __init__(self, store: Entries, *, entries: int = 512, share: Share | None = None) -> None:
        """share: has one of several ranks make what all of them need."""
        self.store = store
        self.entries = entries
        self._share = share
        self._memory: OrderedDict[str, Artifact] = OrderedDict()
        self._read: set[str] = set()
        self._refused: set[str] = set()
        self._lock = threading.RLock()  # a destructor that runs while it is held may compile

    def get(self, key: str) -> Artifact | None:
        """The artifact of a key, or None."""
        with self._lock:
            found = self._memory.get(key)
            if found is not None:
                self._memory.move_to_end(key)
        if found is not None:
            observe.add("cache.memory.hit")
            return found
        return self._from_disk(key)

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact in memory and on disk."""
        self._remember(key, artifact)
        if self.store.lasting:
            self.store.put("artifact", key, artifact.to_bytes(), ".twa")

    def get_or_make(self, key: str, make: Callable[[], Artifact]) -> Artifact:
        """The artifact of a key; made and kept where there is none."""
        found = self.get(key)
        if found is not None:
            return found
        if self._share is None or key in self._refused:
            return self._made(key, make)
        got: list[Artifact] = []

        def make_here(names: list[str]) -> Mapping[str, bytes]:
            got.append(self._made(key, make))
            return {name: got[0].to_bytes() for name in names}

        def take(name: str, content: bytes | None) -> bool:
            artifact = self._from_disk(key)  # of a folder that the ranks share
            if artifact is None and content is not None and (artifact := self._parsed(key, content)) is not None:
                self.put(key, artifact)
            got.extend([] if artifact is None else [artifact])
            return artifact is not None

        self._share([key], make_here, take)
        return got[0]

    def _made(self, key: str, make: Callable[[], Artifact]) -> Artifact:
        made = make()
        if made.key != key:
            made = made.replace(key=key)
        self.put(key, made)
        return made

    def loaded(self, get: Callable[[], Artifact], load: Callable[[Artifact], T]) -> T:
        """`load(get())`; once more, with an artifact that is made anew, where one that was read from the disk cannot be loaded."""
        artifact = get()
        try:
            return load(artifact)
        except Exception as error:
            if not self._discard(artifact.key):
                raise
            log.warning("stored artifact %s cannot be loaded (%s); it is made again", artifact.key[:12], error)
            return load(get())

    def _discard(self, key: str) -> bool:
        """Forgets an artifact that was read from the disk; False where this process made it itself."""
        with self._lock:
            if key not in self._read:
                return False
            self._read.discard(key)
            self._refused.add(key)
            self._memory.pop(key, None)
        self.store.drop("artifact", key, ".twa")
        return True

    def forget(self) -> None:
        """Empty the per-process layer."""
        with self._lock:
            self._memory.clear()

    def _remember(self, key: str, artifact: Artifact) -> None:
        with self._lock:
            self._memory[key] = artifact
            while len(self._memory) > self.entries:
                self._memory.popitem(last=False)

    def _from_disk(self, key: str) -> Artifact | None:
        data = self.store.get("artifact", key, ".twa") if self.store.lasting else None
        if data is None:
            return None
        artifact = self._parsed(key, data)
        if artifact is None:
            self.store.drop("artifact", key, ".twa")
            return None
        self._remember(key, artifact)
        return artifact

    def _parsed(self, key: str, data: bytes) -> Artifact | None:
        """An artifact that another process has made; None where it cannot be used."""
        try:
            artifact = Artifact.from_bytes(data)
            if artifact.key != key:
                raise ArtifactError(f"it is the artifact of another key, {artifact.key[:12]}")
        except (ArtifactError, CacheCorrupt) as error:
            log.warning("stored artifact %s cannot be used (%s); it is made again", key[:12], error)
            return None
        with self._lock:
            self._read.add(key)
        return artifact


@functools.cache
def _store(folder: str | None, limit: int, on_disk: bool, key: str | None, below: tuple[str, ...], place: str | None) -> Entries:
    if not on_disk:
        return MemoryStore()
    own: Entries
    try:
        own = Store(folder, limit=limit, secret_key=secret(key))
    except CacheUnsafe as unsafe:
        warn_once(f"{unsafe.message}; what is compiled is kept for this process only", unsafe.advice)
        own = MemoryStore()
    if not below and place is None:
        return own
    folders = [found for name in below if (found := _or_none(functools.partial(_below, name, key))) is not None]
    shared_place = None if place is None else _or_none(functools.partial(_shared, place, key))
    return Layers(own, folders, shared_place)


def _or_none(make: Callable[[], T]) -> T | None:
    """What is made; None where that is unsafe, which is warned of."""
    try:
        return make()
    except CacheUnsafe as unsafe:
        warn_once(f"{unsafe.message}; it is left out", unsafe.advice)
        return None


def _below(folder: str, key: str | None) -> FolderBelow:
    return FolderBelow(folder, None if key is None else Seal(secret(key)))


def _shared(address: str, key: str | None) -> SharedPlace:
    if key is None:
        raise CacheUnsafe(
            f"the shared cache {address} needs a key, which its users have in common",
            advice="set TRACEWORK_CACHE_KEY (option cache_key) to a file that all of them have",
        )
    return SharedPlace(address, Seal(secret(key)))


def open_store(options: RuntimeOptions = DEFAULT_OPTIONS) -> Entries:
    """The store that these options name, or one in memory: where none is to be on disk, or none can be, which is warned of once."""
    places = options.cache_layers, options.cache_shared or None
    return _store(options.cache_dir, options.cache_limit, options.disk_cache, options.cache_key, *places)


@functools.cache
def _cache(store: Entries, key: str | None) -> Cache:
    return Cache(store, share=functools.partial(shared, key, "artifact"))


def open_cache(options: RuntimeOptions = DEFAULT_OPTIONS) -> Cache:
    """The process's artifact cache for these options."""
    return _cache(open_store(options), options.cache_key)
