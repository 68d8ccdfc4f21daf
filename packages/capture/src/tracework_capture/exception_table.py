"""Where exceptions go in a code object, and whether closing a generator of it runs anything."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator


def exception_table(code: types.CodeType) -> list[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, push lasti) rows, offsets in bytes; the format is in CPython's exception_handling_notes."""
    data = iter(code.co_exceptiontable)
    rows = []
    try:
        while True:
            start, length, target, packed = (_varint(data) for _ in range(4))
            rows.append((start * 2, (start + length) * 2, target * 2, packed >> 1, bool(packed & 1)))
    except _End:
        return rows


def cleans_up(code: types.CodeType) -> bool:
    """Whether a generator of this code may do something when it is closed: it has try or with blocks, or delegates to others."""
    opcodes = code.co_code
    if _SEND in opcodes[::2]:
        return True
    return any(not dis.opname[opcodes[target]].startswith("CALL_INTRINSIC") for _, _, target, _, _ in exception_table(code))


_SEND = dis.opmap["SEND"]


class _End(Exception):
    pass


def _varint(data: Iterator[int]) -> int:
    byte = next(data, None)
    if byte is None:
        raise _End
    value = byte & 63
    while byte & 64:
        byte = next(data)
        value = (value << 6) | (byte & 63)
    return value
