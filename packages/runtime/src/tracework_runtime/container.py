"""One file format for everything stored: a JSON header and binary sections, sealed by a hash.

Layout: MAGIC, format number (u32), header length (u64), header JSON, sections one after another, and the
trailer of `seal`. Nothing here is ever a pickle.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

from tracework_runtime.errors import ArtifactError, CacheCorrupt

__all__ = ["FORMAT", "pack", "seal", "unpack", "unseal"]

FORMAT = 5
MAGIC = b"TRACEWRK"
SEAL = b"TWSEAL01"
_HEAD = struct.Struct("<8sIQ")
_TRAILER = len(SEAL) + 32


def seal(content: bytes) -> bytes:
    """`content` with its hash behind it."""
    return content + SEAL + hashlib.sha256(content).digest()


def unseal(data: bytes, name: str = "entry") -> bytes:
    """The content of sealed bytes. Raises CacheCorrupt where the hash does not fit."""
    content, trailer = data[:-_TRAILER], data[-_TRAILER:]
    if len(trailer) != _TRAILER or not trailer.startswith(SEAL):
        raise CacheCorrupt(f"{name}: cut short or not written by tracework")
    if hashlib.sha256(content).digest() != trailer[len(SEAL) :]:
        raise CacheCorrupt(f"{name}: content does not have the hash it was written with")
    return content


def pack(header: Mapping[str, Any], sections: Mapping[str, bytes]) -> bytes:
    """Header and sections as sealed bytes."""
    table, offset = {}, 0
    for name, blob in sections.items():
        table[name] = [offset, len(blob)]
        offset += len(blob)
    text = json.dumps({"header": header, "sections": table}, sort_keys=True).encode()
    return seal(_HEAD.pack(MAGIC, FORMAT, len(text)) + text + b"".join(sections.values()))


def unpack(data: bytes, name: str = "entry") -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header and sections of packed bytes.

    Raises CacheCorrupt for damage and ArtifactError for a format of another version.
    """
    content = unseal(data, name)
    if len(content) < _HEAD.size or not content.startswith(MAGIC):
        raise ArtifactError(f"{name}: not a tracework file")
    _, version, length = _HEAD.unpack_from(content)
    if version != FORMAT:
        raise ArtifactError(
            f"{name}: written in format {version}, this version reads format {FORMAT}",
            advice="compile again with the installed version",
        )
    start = _HEAD.size + length
    try:
        document = json.loads(content[_HEAD.size : start])
        sections = {key: content[start + o : start + o + n] for key, (o, n) in document["sections"].items()}
        return document["header"], sections
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{name}: its header cannot be read: {error}") from error
