"""The user's secret, which seals what the cache holds.

It lies outside of the cache folder: who can write an entry there cannot seal it.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

from tracework_runtime.errors import CacheUnsafe

__all__ = ["LENGTH", "default_file", "secret"]

LENGTH = 32


def default_file() -> Path:
    """The file of the user's secret."""
    return Path.home() / ".config" / "tracework" / "cache.key"


def secret(file: str | os.PathLike[str] | None = None) -> bytes:
    """The secret in a file, made where there is none; None: the user's own, which is made anew where others could know or change it.

    A file that is named may be read by others, who then can seal entries, so that several users can share a folder that is not theirs
    to write. Raises CacheUnsafe where there can be no secret.
    """
    try:
        path = Path(file) if file is not None else default_file()
        if not path.exists():
            _make(path, replace=False)
        elif file is None and _complaint(path, stat.S_IRWXG | stat.S_IRWXO):
            _make(path, replace=True)
        complaint = _complaint(path, stat.S_IWGRP | stat.S_IWOTH)
        if complaint:
            raise CacheUnsafe(f"the key of the cache, {path}, {complaint}", advice="remove it; a new one is made")
        return path.read_bytes()
    except (OSError, RuntimeError) as error:  # a user without a home has none either
        raise CacheUnsafe(
            f"no key for the cache: {error}", advice="set TRACEWORK_CACHE_KEY (option cache_key) to a file that you can write"
        ) from error


def _complaint(path: Path, refused: int) -> str:
    """What is wrong with a key, which may have none of the `refused` bits in its mode; or nothing."""
    facts = path.stat()
    if facts.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {facts.st_uid}, not to you"
    if facts.st_mode & refused:
        return "can be read or written by others"
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != LENGTH:
        return f"is not a file of {LENGTH} bytes"
    return ""


def _make(path: Path, replace: bool) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(LENGTH))
        if replace or not _linked(name, path):
            os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _linked(name: str, path: Path) -> bool:
    """Of several processes that make a key, the first wins. False where the file system has no hard links."""
    try:
        os.link(name, path)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True
