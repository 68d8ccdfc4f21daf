"""Whether blocks of memory were written to since they were last looked at, as the page table says: in microseconds, whatever their size.

Linux (from 6.7 on) marks pages that are written to while they are protected by a userfaultfd in asynchronous mode: the first write to a page
takes a microsecond more, nothing else changes for who writes. One call says which pages of a range are marked and protects them again.
Every write by the program or by the kernel for it is seen, and memory that was given back or mapped anew. Not seen is what reaches the
memory past this page table: by another process that shares it, through the file that it shows, or by a device that was given its pages
before. So memory of files, shared memory too, is not watched, and callers keep out what is pinned.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
import struct
import threading
import weakref

__all__ = ["PAGE", "Block", "can_watch", "watch"]

PAGE = os.sysconf("SC_PAGE_SIZE")
_TABLE = 512 * PAGE
"""Bytes of the pages of one table."""
_libc = ctypes.CDLL(None)

_USERFAULTFD = 323
"""The system call's number on x86-64."""
_POPULATE_READ = 22
"""Advice that brings pages in as reading each would."""
_USER_MODE_ONLY = 1
"""Faults of the kernel are not delivered, which needs a privilege; in asynchronous mode none is."""
_PROTECTS_UNPOPULATED, _ASYNCHRONOUS = 1 << 13, 1 << 15
_API, _REGISTER, _SCAN = 0xC018AA3F, 0xC020AA00, 0xC0606610
_API_VERSION, _WRITE_PROTECTION = 0xAA, 2
_PROTECT_FOUND, _CHECK_ASYNCHRONOUS = 1, 2
_WRITTEN, _OF_FILE = 1 << 1, 1 << 2
_REGIONS = 64
"""Ranges of pages that one call reports."""
_regions = (ctypes.c_uint64 * (3 * _REGIONS))()
_REGIONS_AT = ctypes.addressof(_regions)
_SCAN_ARGUMENT, _WALKED = struct.Struct("12Q"), struct.Struct("Q")


class Block:
    """Whole pages that are watched."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.writes = 0
        places = (start, *range(-(-start // _TABLE) * _TABLE, end, _TABLE))
        self._touched = [ctypes.c_char.from_address(place) for place in places]

    def looked_at(self) -> int:
        """How many looks found that something was written, this one included; -1 where they are not watched (any more)."""
        with _lock:
            for place in self._touched:  # where a whole table of pages is gone, no page is there to be marked
                place.value  # noqa: B018
            found = _scan(self.start, self.end, _WRITTEN, _PROTECT_FOUND | _CHECK_ASYNCHRONOUS)
            if found != 0:  # the marks are gone now, for all who watch some of these pages
                for block in list(_blocks.values()):
                    if block.start < self.end and self.start < block.end:
                        block.writes += 1
            return self.writes if found >= 0 else -1


_lock = threading.RLock()
_blocks: weakref.WeakValueDictionary[tuple[int, int], Block] = weakref.WeakValueDictionary()
_descriptors: tuple[int, int, int] | None = None
"""Of process number (a fork has a page table of its own): userfaultfd and pagemap, both negative where the kernel has none."""


def watch(address: int, length: int) -> Block | None:
    """The whole pages between two addresses, watched from now on; None where that cannot be done, or there are none."""
    start, end = -(-address // PAGE) * PAGE, (address + length) // PAGE * PAGE
    if start >= end:
        return None
    with _lock:
        faults, _ = _opened()
        if _ioctl(faults, _REGISTER, bytearray(struct.pack("4Q", start, end - start, _WRITE_PROTECTION, 0))) < 0:
            return None
        block = _blocks.get((start, end))
        if block is None:
            block = _blocks[start, end] = Block(start, end)
        watched = (
            block.looked_at() >= 0 and _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _POPULATE_READ) == 0
        )
        return block if watched and _scan(start, end, _OF_FILE, 0) == 0 else None


@functools.cache
def can_watch() -> bool:
    """Whether this kernel lets this process watch its pages."""
    with mmap.mmap(-1, PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        address = ctypes.c_char.from_buffer(page)
        block = watch(ctypes.addressof(address), PAGE)
        del address
        found = block is not None
        del block
    return found


def _opened() -> tuple[int, int]:
    global _descriptors
    process = os.getpid()
    if _descriptors is None or _descriptors[0] != process:
        _descriptors = process, *_open()
    return _descriptors[1:]


def _forget_parent() -> None:
    """In a forked process: its lock may be held by a thread that it does not have, and descriptors are about the parent's memory."""
    global _lock, _descriptors
    for descriptor in (_descriptors or ())[1:]:
        if descriptor >= 0:
            os.close(descriptor)
    _lock, _descriptors = threading.RLock(), None


os.register_at_fork(after_in_child=_forget_parent)


def _open() -> tuple[int, int]:
    if os.uname().machine != "x86_64":
        return -1, -1
    faults = _libc.syscall(_USERFAULTFD, os.O_CLOEXEC | _USER_MODE_ONLY)
    if faults < 0:
        return -1, -1
    wanted = _PROTECTS_UNPOPULATED | _ASYNCHRONOUS
    if _ioctl(faults, _API, bytearray(struct.pack("3Q", _API_VERSION, wanted, 0))) < 0:
        os.close(faults)
        return -1, -1
    try:
        return faults, os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        os.close(faults)
        return -1, -1


def _scan(start: int, end: int, category: int, flags: int) -> int:
    """How many ranges of pages are of a category; negative where that is not known."""
    _, pages = _opened()
    found = 0
    while start < end:
        argument = bytearray(_SCAN_ARGUMENT.pack(96, flags, start, end, 0, _REGIONS_AT, _REGIONS, 0, 0, category, 0, category))
        count = _ioctl(pages, _SCAN, argument)
        if count < 0:
            return count
        found += count
        (start,) = _WALKED.unpack_from(argument, 32)
    return found


def _ioctl(descriptor: int, request: int, argument: bytearray) -> int:
    """What the call gives; -1 where it fails."""
    try:
        return fcntl.ioctl(descriptor, request, argument, True) if descriptor >= 0 else -1
    except OSError:
        return -1
