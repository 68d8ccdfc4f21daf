"""The disk cache: sealed files below one folder that only its owner can write.

Layout: <folder>/v<FORMAT>/<kind>/<first two of key>/<key><suffix>, and <folder>/v<FORMAT>/tmp for what is being made. Rules: a file
appears by rename, complete or not at all; its seal is checked whenever it is read; what is damaged, not ours, or no file at all is
removed and counts as missing; an entry that cannot be written is not kept, with one warning; nothing expires by age, the least recently
used go when the folder outgrows its limit.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Hashable, Iterator, Set
from pathlib import Path
from typing import ClassVar, Protocol

from tracework_runtime import container, observe
from tracework_runtime.cache.seal import Seal
from tracework_runtime.cache.secret import secret
from tracework_runtime.errors import CacheCorrupt, CacheForeign, CacheUnsafe, CacheWarning

__all__ = [
    "OF_THIS_MACHINE",
    "Entries",
    "MemoryStore",
    "Name",
    "Store",
    "check_folder",
    "default_folder",
    "entry_name",
    "others_can_write",
    "read_trusted",
    "warn_once",
]

log = logging.getLogger("tracework.runtime.cache")
_PUTS_BETWEEN_EVICTIONS = 256
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_STALE = 24 * 3600.0
"""Seconds after which nobody is still making something."""
OF_THIS_MACHINE = frozenset({"package"})
"""Kinds of entries that say something of this machine's files only."""
Name = tuple[str, str, str]
"""Of an entry: kind, key and suffix."""


class Entries(Hashable, Protocol):
    """Where things are kept by (kind, key, suffix). No implementation raises for a disk or a network that fails.

    lasting: whether another process finds what this one keeps.
    """

    lasting: ClassVar[bool]

    @property
    def used(self) -> Set[Name]:
        """Entries that were read or written and can be carried."""

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry, or None where there is none that can be trusted."""

    def put(self, kind: str, key: str, content: bytes, suffix: str = "") -> Path | None:
        """Keep an entry; its file, if one has it."""

    def file(self, kind: str, key: str, suffix: str = "") -> Path | None:
        """Where what `get` gave last is, or would be; None where that is no file."""

    def drop(self, kind: str, key: str, suffix: str = "") -> None:
        """Remove an entry if it is there."""

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for something that is being made, which goes at its end. Raises OSError where it cannot be made."""


def default_folder() -> Path:
    """The user's own cache folder. Raises CacheUnsafe for a user without a home."""
    try:
        return Path.home() / ".cache" / "tracework"
    except RuntimeError as error:
        raise CacheUnsafe(f"no cache folder: {error}", advice="set a cache folder (TRACEWORK_CACHE_DIR)") from error


class MemoryStore:
    """Entries of this process, where no folder is to be used or none can be."""

    lasting: ClassVar[bool] = False

    def __init__(self) -> None:
        self._kept: dict[Name, bytes] = {}

    @property
    def used(self) -> Set[Name]:
        """All of them."""
        return self._kept.keys()

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry, or None."""
        return self._kept.get((kind, key, suffix))

    def put(self, kind: str, key: str, content: bytes, suffix: str = "") -> None:
        """Keep an entry."""
        self._kept[kind, key, suffix] = content

    def file(self, kind: str, key: str, suffix: str = "") -> None:
        """None."""

    def drop(self, kind: str, key: str, suffix: str = "") -> None:
        """Remove an entry if it is there."""
        self._kept.pop((kind, key, suffix), None)

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder in the system's place for temporary files. Raises OSError where it cannot be made."""
        return tempfile.TemporaryDirectory(prefix="tracework-", ignore_cleanup_errors=True)


class Store:
    """Sealed files by (kind, key, suffix)."""

    lasting: ClassVar[bool] = True

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, limit: int = 8 << 30, secret_key: bytes | None = None
    ) -> None:
        """Open or make the folder; its entries are sealed with `secret_key` (None: the user's own).

        Raises CacheUnsafe where others can write to it, where it cannot be made, or where there can be no key.
        """
        self.folder = (Path(folder) if folder is not None else default_folder()).absolute()
        self.limit = limit
        self.root = self.folder / f"v{container.FORMAT}"
        self.tmp = self.root / "tmp"
        self._base = str(self.root)
        self._puts = 0
        self._mended: set[str] = set()
        self._used: set[Name] = set()
        check_folder(self.folder)
        self._seal = Seal(secret() if secret_key is None else secret_key)
        self._sweep()

    @property
    def used(self) -> Set[Name]:
        """Entries that were read or written, as (kind, key, suffix)."""
        return self._used

    def file(self, kind: str, key: str, suffix: str = "") -> Path:
        """Where an entry is or would be."""
        return Path(f"{self._base}/{entry_name(kind, key, suffix)}")

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry, or None where there is none that can be trusted."""
        name = entry_name(kind, key, suffix)
        path = f"{self._base}/{name}"
        try:
            self._mend(os.path.dirname(path), make=False)
            content = self._seal.open(name, read_trusted(path))
        except FileNotFoundError:
            observe.add(f"cache.{kind}.miss")
            return None
        except CacheForeign as foreign:  # left as it is, for whoever adopts it
            warn_once(
                f"cache folder {self.folder} has entries that were sealed with another key; they are made again", foreign.advice
            )
            observe.add(f"cache.{kind}.foreign")
            return None
        except CacheCorrupt as damage:
            log.warning("%s; it is thrown away and made again", damage)
            observe.add(f"cache.{kind}.damaged")
            _remove(path)
            return None
        except OSError as error:  # perhaps for now only, and what is made will take its place
            log.warning("%s cannot be read: %s", path, error)
            observe.add(f"cache.{kind}.unread")
            return None
        observe.add(f"cache.{kind}.hit")
        self._used.add((kind, key, suffix))
        _touch(path)
        return content

    def put(self, kind: str, key: str, content: bytes, suffix: str = "") -> Path | None:
        """Write an entry; safe against other processes writing the same one. None where it cannot be written, which is warned of once."""
        name = entry_name(kind, key, suffix)
        try:
            self._write(name, self._seal.close(name, content))
            self._puts += 1
            self._used.add((kind, key, suffix))
            if self._puts % _PUTS_BETWEEN_EVICTIONS == 0:
                self.evict()
        except OSError as error:
            observe.add(f"cache.{kind}.unwritten")
            warn_once(
                f"cache folder {self.folder} cannot be written ({error.strerror or error}); what is compiled now is not kept",
                "make room there, or set another cache folder",
            )
            return None
        return self.file(kind, key, suffix)

    def drop(self, kind: str, key: str, suffix: str = "") -> None:
        """Remove an entry if it is there."""
        _remove(self.file(kind, key, suffix))

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for something that is being made, which goes at its end. Raises OSError where it cannot be made."""
        return tempfile.TemporaryDirectory(prefix=_maker(), dir=self._tmp(), ignore_cleanup_errors=True)

    def keys(self, kind: str, suffix: str = "") -> list[str]:
        """The keys of a kind's entries, whether they can be trusted or not."""
        return sorted(path.name.removesuffix(suffix) for path in (self.root / kind).glob(f"*/*{suffix}"))

    def names(self) -> dict[Name, os.stat_result]:
        """(kind, key, suffix) of every entry, whether it can be trusted or not, with the facts of its file."""
        found = {}
        for path, facts in self._entries():
            if path.is_relative_to(self.root) and len(parts := path.relative_to(self.root).parts) == len(("kind", "ke", "key")):
                key, dot, suffix = parts[-1].partition(".")
                found[parts[0], key, dot + suffix] = facts
        return found

    def untrusted(self) -> dict[Name, str]:
        """Why entries cannot be trusted, by (kind, key, suffix); all are left as they are."""
        found = {}
        for name in self.names():
            try:
                self._seal.open(entry_name(*name), read_trusted(self.file(*name)))
            except (CacheCorrupt, OSError) as error:
                found[name] = error.message if isinstance(error, CacheCorrupt) else str(error)
        return found

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
            _remove(path)
            total -= facts.st_size
            gone += 1
        if gone:
            log.info("cache %s: %d entries evicted, %d bytes kept", self.folder, gone, total)
        return gone

    def clear(self) -> None:
        """Remove every entry; what is being made stays."""
        for path, _ in self._entries():
            _remove(path)

    def adopt(self) -> int:
        """Seal with this store's key what another has sealed; returns how many entries. What is damaged is removed.

        For a folder that was copied from another machine or user: entries are programs that will run, so adopt only what you trust.
        Raises OSError where the folder cannot be written.
        """
        adopted = 0
        for path, _ in self._entries():
            if not path.is_relative_to(self.root):
                continue
            name = path.relative_to(self.root).as_posix()
            try:
                path.chmod(0o600)  # what is adopted is trusted, whatever its copy's mode is
                data = read_trusted(path)
                try:
                    self._seal.open(name, data)
                except CacheForeign:
                    self._write(name, self._seal.adopt(name, data))
                    adopted += 1
            except (CacheCorrupt, FileNotFoundError) as damage:
                log.warning("%s; it is thrown away", damage)
                _remove(path)
        return adopted

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._base}/{name}"
        handle, made = tempfile.mkstemp(prefix=_maker(), dir=self._tmp())
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            self._mend(os.path.dirname(path), make=True)
            if os.path.isdir(path):
                _remove(path)
            os.replace(made, path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise

    def _tmp(self) -> Path:
        self._mend(str(self.tmp), make=True)
        return self.tmp

    def _mend(self, folder: str, make: bool) -> None:
        """Makes every level from the root to `folder` a folder that is ours and that only we write to.

        Raises FileNotFoundError where one is missing and is not to be made, OSError where it cannot be mended.
        """
        if folder in self._mended and (not make or os.path.isdir(folder)):
            return
        if folder != self._base:
            self._mend(os.path.dirname(folder), make)
        elif make:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = os.lstat(folder) if os.path.lexists(folder) else None
        if facts is not None and (not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in (os.geteuid(), 0)):
            log.warning("%s is no folder of yours; it is thrown away", folder)
            _remove(folder)
            facts = None
        if facts is None:
            if not make:
                raise FileNotFoundError(folder)
            Path(folder).mkdir(mode=0o700, exist_ok=True)
        elif facts.st_mode & _OTHERS_WRITE:
            os.chmod(folder, stat.S_IMODE(facts.st_mode) & ~_OTHERS_WRITE)
        self._mended.add(folder)

    def _sweep(self) -> None:
        """Removes what was being made by processes that are gone."""
        try:
            left = [(Path(entry.path), entry.stat(follow_symlinks=False)) for entry in os.scandir(self.tmp)]
        except OSError:
            return
        for path, facts in left:
            if time.time() - facts.st_mtime > _STALE or _maker_is_gone(path.name):
                _remove(path)

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Those of other formats too: nobody else removes what an older version kept."""
        for root in self.folder.glob("v[0-9]*"):
            for folder, inner, names in os.walk(root):
                if Path(folder) == root and self.tmp.name in inner:
                    inner.remove(self.tmp.name)
                for name in names:
                    path = Path(folder) / name
                    try:
                        yield path, path.lstat()
                    except FileNotFoundError:
                        continue


@functools.cache
def warn_once(what: str, advice: str) -> None:
    """One CacheWarning a process for each text."""
    observe.add("cache.warning")
    warnings.warn(f"{what}\n  try: {advice}", CacheWarning, stacklevel=3)


def entry_name(kind: str, key: str, suffix: str) -> str:
    """The path of an entry below the folder of its format."""
    return f"{kind}/{key[:2]}/{key}{suffix}"


def read_trusted(path: str | Path) -> bytes:
    """The bytes of a file that only we can have written. Raises CacheCorrupt for anything else that lies there."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:  # a pipe is not waited for
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise CacheCorrupt(f"{path}: not a file")
        if others_can_write(facts):
            raise CacheCorrupt(f"{path}: others can have written it")
        return file.read()


def others_can_write(facts: os.stat_result) -> bool:
    """Whether somebody beside us and root may have written a file, or put something into a folder."""
    return facts.st_uid not in (os.geteuid(), 0) or bool(facts.st_mode & _OTHERS_WRITE)


def _remove(path: str | Path) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error)


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        pass  # a read-only cache is still a cache


def check_folder(folder: Path, *, make: bool = True) -> None:
    """Makes the cache folder; raises CacheUnsafe where others can write to it or put another in its place."""
    try:
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = folder.resolve(strict=True)
        facts = real.stat()
        open_to_all = [p for p in real.parents if p.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH]
    except (OSError, RuntimeError) as error:
        what = "made" if make else "used"
        raise CacheUnsafe(f"cache folder {folder} cannot be {what}: {error}", advice="set another cache folder") from error
    advice = f"chmod go-w {folder}, remove it, or set another cache folder"
    if facts.st_uid not in (os.geteuid(), 0):
        advice = f"chown {os.geteuid()} {folder} and what is in it if you trust that, or set another cache folder"
        raise CacheUnsafe(f"cache folder {folder} belongs to user {facts.st_uid}, not to you", advice=advice)
    if facts.st_mode & _OTHERS_WRITE:
        raise CacheUnsafe(f"cache folder {folder} can be written by others", advice=advice)
    if open_to_all:
        advice = f"chmod o-w {open_to_all[0]} (or +t), or set another cache folder"
        raise CacheUnsafe(f"cache folder {folder} lies in {open_to_all[0]}, which can be written by others", advice=advice)


@functools.cache
def _machine() -> str:
    """Where a process number means the same process: this boot, this namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return hashlib.sha256(f"{boot} {os.stat('/proc/self/ns/pid').st_ino}".encode()).hexdigest()[:12]
    except OSError:
        return "unknown"


def _maker() -> str:
    """How the name of what this process is making begins."""
    return f"{_machine()}-{os.getpid()}-"


def _maker_is_gone(name: str) -> bool:
    machine, _, rest = name.partition("-")
    pid = rest.partition("-")[0]
    if machine != _machine() or machine == "unknown" or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
