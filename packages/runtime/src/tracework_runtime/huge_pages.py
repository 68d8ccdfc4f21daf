"""Memory in huge pages, where the system has them for who asks (Linux: transparent huge pages).

A large result is memory that the system has just mapped: each page costs a fault when it is written first, and one of 2 MB costs a fifth
of the 512 small ones in its place. What is read from memory again and again is read faster too, as fewer translations of addresses are
looked up. Only whole huge pages inside of a range are asked for, so that a process has no more memory than before. Pages that another process
has too, as those of weights that were loaded before a fork, stay as they are: they would be copied.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from pathlib import Path

import torch

__all__ = ["PAGE", "ReadAgain", "ask", "gather", "is_alone", "whole_pages"]

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


def is_alone(address: int, nbytes: int) -> bool:
    """Whether a range is memory of this process alone and of no file, as far as some of its pages say."""
    step = max(nbytes // _LOOKED_AT, _SMALL)
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as table:
            return all(_is_own(table.fileno(), at) for at in range(address, address + nbytes, step))
    except OSError:
        return False


def _is_own(table: int, address: int) -> bool:
    (entry,) = struct.unpack("Q", os.pread(table, 8, address // _SMALL * 8))
    return entry & (_PRESENT | _OF_A_FILE | _EXCLUSIVE) == _PRESENT | _EXCLUSIVE


_SMALL = os.sysconf("SC_PAGE_SIZE")
_LOOKED_AT = 64
"""Pages of a range."""
_EXCLUSIVE, _OF_A_FILE, _PRESENT = 1 << 56, 1 << 61, 1 << 63


class ReadAgain:
    """What a program reads whole at each call, which is called with it: put into huge pages, a part a call, once there were CALLS of them."""

    CALLS = 256
    """To move memory takes some 50 times as long as to read it, and what is gained is up to a quarter of that."""
    LEAST = 2 * PAGE
    """Bytes of a tensor."""
    PART = 4 * PAGE

    def __init__(self) -> None:
        self._calls = self._number = self._moved = 0

    def __call__(self, *tensors: torch.Tensor) -> None:
        self._calls += 1
        if self._calls <= self.CALLS or self._number >= len(tensors):
            return
        start, size = _place(tensors[self._number])
        start, size = start + self._moved, min(size - self._moved, self.PART)
        if size > 0 and is_alone(start, size):
            gather(start, size)
            self._moved += size
        else:
            self._number, self._moved = self._number + 1, 0


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """The whole huge pages of a tensor that is worth it."""
    start, storage = tensor.data_ptr(), tensor.untyped_storage()
    nbytes = min(tensor.nbytes, storage.data_ptr() + storage.nbytes() - start)  # elements may be in one place
    return whole_pages(start, nbytes) if tensor.device.type == "cpu" and nbytes >= ReadAgain.LEAST else (0, 0)


@functools.cache
def _has_huge_pages() -> bool:
    """Whether the system has not been told to have none: to gather them works all the same."""
    try:
        return "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")
    except OSError:
        return False
