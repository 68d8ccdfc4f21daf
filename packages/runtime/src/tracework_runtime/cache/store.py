"""The disk cache: sealed files below one folder that only its owner can write.

Layout: <folder>/v<FORMAT>/<kind>/<first two of key>/<key><suffix>, and <folder>/v<FORMAT>/tmp for files being
written. Rules: a file appears by rename, complete or not at all; its hash is checked whenever it is read; a
damaged file is thrown away and counts as missing; nothing expires by age, the least recently used go when
the folder outgrows its limit.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path

from tracework_runtime import container, observe
from tracework_runtime.errors import CacheCorrupt, CacheUnsafe

__all__ = ["Store", "default_folder"]

log = logging.getLogger("tracework.runtime.cache")
_PUTS_BETWEEN_EVICTIONS = 256


def default_folder() -> Path:
    """The user's own cache folder."""
    return Path.home() / ".cache" / "tracework"


class Store:
    """Sealed files by (kind, key, suffix)."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, limit: int = 8 << 30) -> None:
        """Open or make the folder. Raises CacheUnsafe where others can write to it."""
        self.folder = Path(folder) if folder is not None else default_folder()
        self.limit = limit
        self.root = self.folder / f"v{container.FORMAT}"
        self.tmp = self.root / "tmp"
        self._puts = 0
        _make_private(self.folder)
        _make_private(self.root)
        _make_private(self.tmp)

    def place(self, kind: str, key: str, suffix: str = "") -> Path:
        """Where an entry is or would be."""
        return self.root / kind / key[:2] / (key + suffix)

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry, or None where there is none (or a damaged one, which is removed)."""
        path = self.place(kind, key, suffix)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            observe.add(f"cache.{kind}.miss")
            return None
        try:
            content = container.unseal(data, str(path))
        except CacheCorrupt as damage:
            log.warning("%s; it is thrown away and made again", damage.message)
            observe.add(f"cache.{kind}.damaged")
            path.unlink(missing_ok=True)
            return None
        observe.add(f"cache.{kind}.hit")
        _touch(path)
        return content

    def path(self, kind: str, key: str, suffix: str = "") -> Path | None:
        """The checked file of an entry, for the dynamic linker; None where there is none."""
        return self.place(kind, key, suffix) if self.get(kind, key, suffix) is not None else None

    def put(self, kind: str, key: str, content: bytes, suffix: str = "") -> Path:
        """Write an entry; safe against other processes writing the same one."""
        path = self.place(kind, key, suffix)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.tmp)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(container.seal(content))
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._puts += 1
        if self._puts % _PUTS_BETWEEN_EVICTIONS == 0:
            self.evict()
        return path

    def drop(self, kind: str, key: str, suffix: str = "") -> None:
        """Remove an entry if it is there."""
        self.place(kind, key, suffix).unlink(missing_ok=True)

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(facts.st_size for _, facts in self._entries())

    def evict(self) -> int:
        """Remove the least recently used entries until the limit holds; returns how many went."""
        entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime)
        total = sum(facts.st_size for _, facts in entries)
        gone = 0
        for path, facts in entries:
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= facts.st_size
            gone += 1
        if gone:
            log.info("cache %s: %d entries evicted, %d bytes kept", self.folder, gone, total)
        return gone

    def clear(self) -> None:
        """Remove every entry."""
        for path, _ in self._entries():
            path.unlink(missing_ok=True)

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        for folder, _, names in os.walk(self.root):
            if Path(folder) == self.tmp:
                continue
            for name in names:
                path = Path(folder) / name
                try:
                    found.append((path, path.stat()))
                except FileNotFoundError:
                    continue
        return found


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        pass  # a read-only cache is still a cache


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CacheUnsafe(f"cache folder {folder} cannot be made: {error}", advice="set another cache folder") from error
    facts = folder.stat()
    advice = f"chmod go-w {folder}, remove it, or set another cache folder"
    if facts.st_uid not in (os.geteuid(), 0):
        raise CacheUnsafe(f"cache folder {folder} belongs to user {facts.st_uid}, not to you", advice=advice)
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheUnsafe(f"cache folder {folder} can be written by others", advice=advice)
