"""Cache of artifacts: a per-process layer over the disk store, and `get_or_make`."""

from __future__ import annotations

import functools
import logging
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from tracework_runtime import observe
from tracework_runtime.artifact import Artifact
from tracework_runtime.cache.store import Store
from tracework_runtime.errors import ArtifactError, CacheCorrupt
from tracework_runtime.options import DEFAULT_OPTIONS, RuntimeOptions

__all__ = ["Cache", "open_cache", "open_store"]

log = logging.getLogger("tracework.runtime.cache")


class Cache:
    """Artifacts by key: first this process's own, then the disk's (unless the store is private to the process)."""

    def __init__(self, store: Store, *, entries: int = 512, on_disk: bool = True) -> None:
        self.store = store
        self.on_disk = on_disk
        self.entries = entries
        self._memory: OrderedDict[str, Artifact] = OrderedDict()
        self._lock = threading.Lock()

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
        if not self.on_disk:
            return
        try:
            self.store.put("artifact", key, artifact.to_bytes(), ".twa")
        except OSError as error:
            log.warning("artifact %s not stored: %s", key[:12], error)

    def get_or_make(self, key: str, make: Callable[[], Artifact]) -> Artifact:
        """The artifact of a key; made and kept where there is none."""
        found = self.get(key)
        if found is not None:
            return found
        made = make()
        if made.key != key:
            made = made.replace(key=key)
        self.put(key, made)
        return made

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
        data = self.store.get("artifact", key, ".twa") if self.on_disk else None
        if data is None:
            return None
        try:
            artifact = Artifact.from_bytes(data)
        except (ArtifactError, CacheCorrupt, ValueError) as error:
            log.warning("stored artifact %s cannot be read (%s); it is made again", key[:12], error)
            self.store.drop("artifact", key, ".twa")
            return None
        self._remember(key, artifact)
        return artifact


@functools.cache
def _store(folder: str | None, limit: int, on_disk: bool) -> Store:
    if on_disk:
        return Store(folder, limit=limit)
    temporary = tempfile.TemporaryDirectory(prefix="tracework-")
    store = Store(Path(temporary.name) / "store", limit=limit)
    weakref.finalize(store, temporary.cleanup)
    return store


def open_store(options: RuntimeOptions = DEFAULT_OPTIONS) -> Store:
    """The store these options name: on disk, or a temporary one that goes with the process."""
    return _store(options.cache_dir, options.cache_limit, options.disk_cache)


@functools.cache
def _cache(store: Store, on_disk: bool) -> Cache:
    return Cache(store, on_disk=on_disk)


def open_cache(options: RuntimeOptions = DEFAULT_OPTIONS) -> Cache:
    """The process's artifact cache for these options."""
    return _cache(open_store(options), options.disk_cache)
