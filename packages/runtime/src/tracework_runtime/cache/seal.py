"""The seal of a cache entry: a hash, which shows damage, and the hash under the user's secret, which shows who wrote it.

Both cover the entry's name as well as its content, so that no entry stands for another. The seal comes last, so that a sealed shared
object can still be opened by the dynamic linker.
"""

from __future__ import annotations

import hashlib
import hmac

from tracework_runtime.errors import CacheCorrupt, CacheForeign, CacheUnsafe

__all__ = ["Seal", "content_of", "is_sealed", "key_bytes"]

_MAGIC = b"TWSEAL02"
_TRAILER = len(_MAGIC) + 32 + 32


class Seal:
    """Seals and checks entries with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def close(self, name: str, content: bytes) -> bytes:
        """The content with its seal behind it."""
        digest = _digest(name, content)
        return b"".join((content, _MAGIC, digest, self._mark(digest)))

    def open(self, name: str, data: bytes) -> bytes:
        """The content of sealed bytes.

        Raises CacheCorrupt for bytes that were not written under this name, CacheForeign for those that another secret has sealed.
        """
        content, digest, mark = _parts(name, data)
        if not hmac.compare_digest(mark, self._mark(digest)):
            raise CacheForeign(
                f"{name}: sealed with another key",
                advice="`tracework adopt` (Store.adopt) if you trust where the folder comes from",
            )
        return content

    def adopt(self, name: str, data: bytes) -> bytes:
        """Bytes that any secret has sealed, sealed with this one. Raises CacheCorrupt for damage."""
        return self.close(name, content_of(name, data))

    def _mark(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")


def key_bytes(key: bytes | str) -> bytes:
    """A key that was given for what is carried or saved. Raises CacheUnsafe for an empty one."""
    if not key:
        raise CacheUnsafe(
            "the key is empty: anybody could sign with it", advice="give bytes or a text that others do not know, or no key"
        )
    return key.encode() if isinstance(key, str) else key


def is_sealed(data: bytes) -> bool:
    """Whether bytes end as sealed ones do."""
    return data[-_TRAILER:].startswith(_MAGIC)


def content_of(name: str, data: bytes) -> bytes:
    """The content of bytes that any secret has sealed. Raises CacheCorrupt for damage."""
    return _parts(name, data)[0]


def _parts(name: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    content, trailer = data[:-_TRAILER], data[-_TRAILER:]
    if len(trailer) != _TRAILER or not trailer.startswith(_MAGIC):
        raise CacheCorrupt(f"{name}: cut short or not written by tracework")
    digest, mark = trailer[len(_MAGIC) : -32], trailer[-32:]
    if _digest(name, content) != digest:
        raise CacheCorrupt(f"{name}: not what was written under this name")
    return content, digest, mark


def _digest(name: str, content: bytes) -> bytes:
    digest = hashlib.sha256(b"%d:%s\0" % (len(name), name.encode()))
    digest.update(content)
    return digest.digest()
