"""Entries of a store as one value of bytes, to be put into the store of another machine or user."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracework_runtime import container
from tracework_runtime.cache.store import Store
from tracework_runtime.errors import ArtifactError

__all__ = ["carry", "put_carried"]

_WORD = re.compile(r"[A-Za-z0-9_-]+")
_SUFFIX = re.compile(r"(\.[a-z0-9]+)?")


def carry(store: Store, names: Iterable[tuple[str, str, str]]) -> bytes:
    """The entries of these (kind, key, suffix), as far as the store still has them."""
    found = [(name, content) for name in sorted(names) if (content := store.get(*name)) is not None]
    header = {"entries": [list(name) for name, _ in found]}
    return container.pack(header, {str(number): content for number, (_, content) in enumerate(found)})


def put_carried(store: Store, data: bytes) -> list[tuple[str, str, str]]:
    """Puts carried entries into a store and returns their names. They are programs that will run: put in only what you trust.

    Raises CacheCorrupt for damage and ArtifactError for bytes that `carry` did not give; nothing is put then.
    """
    header, sections = container.unpack(data, "carried entries")
    try:
        entries = [
            ((str(kind), str(key), str(suffix)), sections[str(n)]) for n, (kind, key, suffix) in enumerate(header["entries"])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"carried entries: their list cannot be read: {error}") from error
    for (kind, key, suffix), _ in entries:
        if not (_WORD.fullmatch(kind) and _WORD.fullmatch(key) and _SUFFIX.fullmatch(suffix)):
            raise ArtifactError(f"carried entries: {kind!r}, {key!r}, {suffix!r} is not the name of an entry")
    for name, content in entries:
        store.put(name[0], name[1], content, name[2])
    return [name for name, _ in entries]
