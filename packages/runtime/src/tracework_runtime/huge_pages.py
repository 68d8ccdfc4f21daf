"""Memory in huge pages, where the system has them for who asks (Linux: transparent huge pages).

A large result is memory that the system has just mapped: each page costs a fault when it is written first, and one of 2 MB costs a fifth
of the 512 small ones in its place. What is read from memory again and again is read faster too, as fewer translations of addresses are
looked up. Only whole huge pages inside of a range are asked for, so that a process has no more memory than before.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

__all__ = ["PAGE", "ask", "gather", "whole_pages"]

PAGE = 1 << 21
_ADVISE, _COLLAPSE = 14, 25
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def whole_pages(address: int, nbytes: int) -> tuple[int, int]:
    """Where the huge pages inside of a range begin, and their bytes."""
    start = -(-address // PAGE) * PAGE
    return start, max((address + nbytes) // PAGE * PAGE - start, 0)


def ask(address: int, nbytes: int) -> None:
    """Of memory that nobody has written to yet; where the system refuses, pages are small."""
    start, size = whole_pages(address, nbytes)
    if size:
        _LIBC.madvise(start, size, _ADVISE)


def gather(address: int, nbytes: int) -> None:
    """Puts what lies in small pages into huge ones, at more than a GB a second; its address and its bytes stay as they are."""
    start, size = whole_pages(address, nbytes)
    if size and _has_huge_pages():
        _LIBC.madvise(start, size, _COLLAPSE)


@functools.cache
def _has_huge_pages() -> bool:
    """Whether the system has not been told to have none: to gather them works all the same."""
    try:
        return "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")
    except OSError:
        return False
