"""Whether the bytes of a shared object or a cubin, both ELF files, are all there: linkers and drivers that are given a part of one end the process."""

from __future__ import annotations

import struct

__all__ = ["is_whole"]

_START = b"\x7fELF\x02"
_HEADER = 64


def is_whole(content: bytes) -> bool:
    """Whether the tables of segments and sections, of which one comes last, lie within the file."""
    if len(content) < _HEADER or not content.startswith(_START):
        return False
    segments, sections = struct.unpack_from("<QQ", content, 32)
    segment_size, segment_count, section_size, section_count = struct.unpack_from("<4H", content, 54)
    return max(segments + segment_size * segment_count, sections + section_size * section_count) <= len(content)
