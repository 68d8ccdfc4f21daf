"""Places that are asked for what the own store does not have: folders that are only read, such as those of an image, and one place that
machines share: a folder, a Redis server, or what fsspec has a file system for.

The entries of a folder below are trusted as its files are, which only the user or root can have written; where a key was named, they have to
be sealed with it. A shared place can be written by whoever reaches it, so that there every entry is sealed with a key that was named.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tracework_runtime import container, observe
from tracework_runtime.cache.seal import Seal, content_of
from tracework_runtime.cache.store import (
    OF_THIS_MACHINE,
    Entries,
    Name,
    check_folder,
    entry_name,
    others_can_write,
    read_trusted,
    warn_once,
)
from tracework_runtime.errors import CacheCorrupt, CacheForeign, CacheUnsafe

__all__ = ["FolderBelow", "Layers", "SharedPlace"]

log = logging.getLogger("tracework.runtime.cache")


class FolderBelow:
    """A cache folder that is only read."""

    def __init__(self, folder: str | os.PathLike[str], seal: Seal | None = None) -> None:
        """seal: what entries have to be sealed with; None for any key. Raises CacheUnsafe where others can write to it, or it is not there."""
        self.folder = Path(folder).absolute()
        self._base = f"{self.folder}/v{container.FORMAT}"
        self._open: Callable[[str, bytes], bytes] = content_of if seal is None else seal.open
        self._checked: set[str] = set()
        check_folder(self.folder, make=False)

    def file(self, kind: str, key: str, suffix: str = "") -> Path:
        """Where an entry is or would be."""
        return Path(f"{self._base}/{entry_name(kind, key, suffix)}")

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry, or None where there is none that can be trusted."""
        name = entry_name(kind, key, suffix)
        try:
            for folder in (self._base, f"{self._base}/{kind}", os.path.dirname(f"{self._base}/{name}")):
                self._check(folder)
            return self._open(name, read_trusted(f"{self._base}/{name}"))
        except FileNotFoundError:
            return None
        except (CacheCorrupt, OSError) as error:
            log.warning("an entry of the cache folder %s is not used: %s", self.folder, error)
            return None

    def _check(self, folder: str) -> None:
        """Raises CacheCorrupt for a folder that others may have put entries into."""
        if folder in self._checked:
            return
        facts = os.lstat(folder)
        if not stat.S_ISDIR(facts.st_mode) or others_can_write(facts):
            raise CacheCorrupt(f"{folder}: others can have written it")
        self._checked.add(folder)


class SharedPlace:
    """A place that machines share: each entry a value of bytes below an address, sealed."""

    def __init__(self, address: str, seal: Seal) -> None:
        """Raises CacheUnsafe where there is no such file system."""
        self.address = address
        self._seal = seal
        self._files: _Files = (
            _OF_ADDRESS.get(address.partition("://")[0], _of_fsspec)(address) if "://" in address else _Folder(address)
        )

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry, or None where there is none that can be trusted."""
        name = entry_name(kind, key, suffix)
        try:
            return self._seal.open(name, self._files.read(f"v{container.FORMAT}/{name}"))
        except FileNotFoundError:
            return None
        except CacheForeign as foreign:  # left as it is, for those who have its key
            warn_once(
                f"the shared cache {self.address} has entries that were sealed with another key", "give all machines the same key"
            )
            log.info("%s", foreign.message)
            return None
        except CacheCorrupt as damage:  # what is put next takes its place
            log.warning("%s in %s", damage, self.address)
            return None
        except Exception as error:  # each file system has its own
            self._give_up(error)
            return None

    def put(self, kind: str, key: str, content: bytes, suffix: str = "") -> None:
        """Keep an entry."""
        name = entry_name(kind, key, suffix)
        try:
            self._files.write(f"v{container.FORMAT}/{name}", self._seal.close(name, content))
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """A network that fails is not waited for once more at each entry."""
        observe.add("cache.shared.failed")
        warn_once(
            f"the shared cache {self.address} cannot be used ({type(error).__name__}: {error}); this process goes on without",
            "look at its address and rights, or unset TRACEWORK_CACHE_SHARED (option cache_shared)",
        )
        self._files = _Nothing()


class _Files(Protocol):
    """Bytes by name."""

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError where there are none."""

    def write(self, name: str, data: bytes) -> None: ...


class _Nothing:
    def read(self, name: str) -> bytes:
        raise FileNotFoundError(name)

    def write(self, name: str, data: bytes) -> None:
        pass


class _Folder:
    """A folder that several users write to: a file appears by rename."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).absolute()

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(made, 0o644)  # who may read the folder is for its owner to say
            os.replace(made, path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise


class _OfFsspec:
    def __init__(self, files: Any, root: str) -> None:
        self._files, self._root = files, root.rstrip("/")

    def read(self, name: str) -> bytes:
        content: bytes = self._files.cat_file(f"{self._root}/{name}")
        return content

    def write(self, name: str, data: bytes) -> None:
        place = f"{self._root}/{name}"
        with contextlib.suppress(NotImplementedError):  # where there are no folders
            self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(place, data)


def _of_fsspec(address: str) -> _OfFsspec:
    protocol = address.partition("://")[0]
    try:
        import fsspec
    except ImportError as error:
        raise CacheUnsafe(
            f"the shared cache {address} needs fsspec, which is not installed", advice="pip install fsspec, or name a folder"
        ) from error
    try:
        return _OfFsspec(*fsspec.core.url_to_fs(address))
    except Exception as error:  # of a file system that lacks its package, or rights
        raise CacheUnsafe(
            f"the shared cache {address} cannot be opened: {type(error).__name__}: {error}",
            advice=f"install what fsspec needs for {protocol}://, or name a folder",
        ) from error


class _OfRedis:
    """A Redis server: each entry a value under its name, which the server forgets as it was told to."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def read(self, name: str) -> bytes:
        content: bytes | None = self._client.get(f"tracework/{name}")
        if content is None:
            raise FileNotFoundError(name)
        return content

    def write(self, name: str, data: bytes) -> None:
        self._client.set(f"tracework/{name}", data)


def _of_redis(address: str) -> _OfRedis:
    try:
        import redis
    except ImportError as error:
        raise CacheUnsafe(
            f"the shared cache {address} needs redis, which is not installed", advice="pip install 'tracework-runtime[redis]'"
        ) from error
    try:
        return _OfRedis(redis.Redis.from_url(address, socket_connect_timeout=_PATIENCE, socket_timeout=_PATIENCE))
    except ValueError as error:
        raise CacheUnsafe(f"{address} is no address of a Redis server: {error}", advice="redis://HOST:PORT/DB") from error


_PATIENCE = 5
"""Seconds that a server is waited for."""
_OF_ADDRESS: dict[str, Callable[[str], _Files]] = {"redis": _of_redis, "rediss": _of_redis}
"""Those that are no file systems, by the schemes of their addresses."""


class Layers:
    """The own store, with what lies below it. What a shared place has is copied into the own store; what a folder has stays there."""

    lasting: ClassVar[bool] = True

    def __init__(self, own: Entries, folders: Sequence[FolderBelow] = (), shared: SharedPlace | None = None) -> None:
        self.own, self.folders, self.shared = own, folders, shared
        self._dropped: set[Name] = set()
        self._found: dict[Name, Path | None] = {}
        """Where entries lie that the own store did not have; None for those in memory alone."""

    @property
    def used(self) -> Set[Name]:
        """Entries that were read or written, wherever they are."""
        return self.own.used | self._found.keys()

    def get(self, kind: str, key: str, suffix: str = "") -> bytes | None:
        """The content of an entry of the first place that has it."""
        name = (kind, key, suffix)
        content = self.own.get(*name)
        if content is not None:
            self._found.pop(name, None)
            return content
        if kind in OF_THIS_MACHINE or name in self._dropped:
            return None
        for folder in self.folders:
            content = folder.get(*name)
            if content is not None:
                observe.add(f"cache.{kind}.below")
                self._found[name] = folder.file(*name)
                return content
        content = None if self.shared is None else self.shared.get(*name)
        if content is not None:
            observe.add(f"cache.{kind}.shared")
            self._found[name] = self.own.put(kind, key, content, suffix)
        return content

    def put(self, kind: str, key: str, content: bytes, suffix: str = "") -> Path | None:
        """Keep an entry, in the shared place, too."""
        if self.shared is not None and kind not in OF_THIS_MACHINE:
            self.shared.put(kind, key, content, suffix)
        self._found.pop((kind, key, suffix), None)
        return self.own.put(kind, key, content, suffix)

    def file(self, kind: str, key: str, suffix: str = "") -> Path | None:
        """Where the content lies that `get` gave last: a place before it may have another file under this name, which is not trusted."""
        name = (kind, key, suffix)
        return self._found[name] if name in self._found else self.own.file(*name)

    def drop(self, kind: str, key: str, suffix: str = "") -> None:
        """Remove an entry from the own store; this process does not look for it below any more."""
        self._dropped.add((kind, key, suffix))
        self.own.drop(kind, key, suffix)

    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """A folder for something that is being made, which goes at its end. Raises OSError where it cannot be made."""
        return self.own.scratch()
