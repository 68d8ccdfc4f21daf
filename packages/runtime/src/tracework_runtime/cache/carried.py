"""Entries of a store as one value of bytes, to be put into the store of another machine or user."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracework_runtime import container
from tracework_runtime.cache.seal import Seal, content_of, is_sealed, key_bytes
from tracework_runtime.cache.store import Entries, Name
from tracework_runtime.errors import ArtifactError, CacheForeign

__all__ = ["carry", "put_carried"]

_WORD = re.compile(r"[A-Za-z0-9_-]+")
_SUFFIX = re.compile(r"(\.[a-z0-9]+)?")
_WHAT = "carried entries"


def carry(store: Entries, names: Iterable[Name], key: bytes | str | None = None) -> bytes:
    """The entries of these (kind, key, suffix), as far as the store still has them; signed with a key where one is given. Raises CacheUnsafe
    for an empty key."""
    found = [(name, content) for name in sorted(names) if (content := store.get(*name)) is not None]
    header = {"entries": [list(name) for name, _ in found]}
    packed = container.pack(header, {str(number): content for number, (_, content) in enumerate(found)})
    return packed if key is None else Seal(key_bytes(key)).close(_WHAT, packed)


def put_carried(store: Entries, data: bytes, key: bytes | str | None = None) -> list[Name]:
    """Puts carried entries into a store and returns their names. They are programs that will run: put in only what you trust.

    key: they have to be signed with it. Raises CacheForeign where they are not, CacheUnsafe for an empty key, CacheCorrupt for damage and
    ArtifactError for bytes that `carry` did not give; nothing is put then.
    """
    key = None if key is None else key_bytes(key)
    if is_sealed(data):
        data = content_of(_WHAT, data) if key is None else _signed(data, key)
    elif key is not None:
        raise CacheForeign(
            f"{_WHAT} are not signed, and a key was given", advice="sign them where they are saved, or leave the key out"
        )
    header, sections = container.unpack(data, _WHAT)
    try:
        entries = [
            ((str(kind), str(of_entry), str(suffix)), sections[str(n)])
            for n, (kind, of_entry, suffix) in enumerate(header["entries"])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"carried entries: their list cannot be read: {error}") from error
    for (kind, of_entry, suffix), _ in entries:
        if not (_WORD.fullmatch(kind) and _WORD.fullmatch(of_entry) and _SUFFIX.fullmatch(suffix)):
            raise ArtifactError(f"carried entries: {kind!r}, {of_entry!r}, {suffix!r} is not the name of an entry")
    for name, content in entries:
        store.put(name[0], name[1], content, name[2])
    return [name for name, _ in entries]


def _signed(data: bytes, key: bytes) -> bytes:
    try:
        return Seal(key).open(_WHAT, data)
    except CacheForeign as foreign:
        raise CacheForeign(
            f"{_WHAT} are signed with another key",
            advice="give the key that they were saved with, if you trust where they come from",
        ) from foreign
