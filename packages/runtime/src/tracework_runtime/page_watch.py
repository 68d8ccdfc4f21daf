"""Whether blocks of memory were written to since they were last looked at, as the page table says: in microseconds, whatever their size.

Linux (from 6.7 on) marks pages that are written to while they are protected by a userfaultfd in asynchronous mode: the first write to a page
takes a microsecond more, nothing else changes for who writes. One call says which pages of a range are marked and protects them again.
Every write by the program or by the kernel for it is seen, and memory that was given back or mapped anew. Not seen is what reaches the
memory past this page table: by another process that shares it, through the file that it shows, or by the kernel or a device that was given
its pages before. So memory of files, shared memory too, is not watched, and nothing is while pages of the process are pinned (buffers of
io_uring, memory of network adapters: to pin a page later is a write). GPUs are not among what the kernel counts: callers keep out what
they pinned.
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
from typing import NamedTuple

__all__ = ["PAGE", "Block", "can_watch", "watch"]

PAGE = os.sysconf("SC_PAGE_SIZE")
_TABLE = 512 * PAGE
"""Bytes of the pages of one table."""
_libc = ctypes.CDLL(None)

_USERFAULTFD = 323
"""The system call's number on x86-64."""
_USER_MODE_ONLY = 1
"""Faults of the kernel are not delivered, which needs a privilege; in asynchronous mode none is."""
_PROTECTS_UNPOPULATED, _ASYNCHRONOUS = 1 << 13, 1 << 15
_API, _REGISTER, _SCAN = 0xC018AA3F, 0xC020AA00, 0xC0606610
_API_VERSION, _WRITE_PROTECTION = 0xAA, 2
_PROTECT_FOUND, _CHECK_ASYNCHRONOUS = 1, 2
_WRITTEN = 1 << 1
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
        global _uncounted
        with _lock:
            if _uncounted is not None:
                _count(*_uncounted)
            _uncounted = self.start, self.end
            for place in self._touched:  # where a whole table of pages is gone, no page is there to be marked
                place.value  # noqa: B018
            found = _scan(self.start, self.end)
            if found != 0:
                _count(self.start, self.end)
            _uncounted = None
            return self.writes if found >= 0 else -1


def _count(start: int, end: int) -> None:
    """The marks of these pages are gone, for all who watch some of them."""
    for block in list(_blocks.values()):
        if block.start < end and start < block.end:
            block.writes += 1


_lock = threading.RLock()
_uncounted: tuple[int, int] | None = None
"""Where a look began: it may end in between, as KeyboardInterrupt is raised anywhere, and what it found is lost then."""
_blocks: weakref.WeakValueDictionary[tuple[int, int], Block] = weakref.WeakValueDictionary()


class _Descriptors(NamedTuple):
    process: int
    """A fork has a page table of its own."""
    faults: int
    """Of userfaultfd; negative, as the other, where the kernel has none."""
    pages: int
    """Of pagemap."""
    opened: tuple[tuple[int, int] | None, ...]
    """What both are: programs that become daemons close all descriptors, and the numbers come to mean files of theirs."""


_descriptors: _Descriptors | None = None


def watch(address: int, length: int) -> Block | None:
    """The whole pages between two addresses, watched from now on; None where that cannot be done, or there are none."""
    start, end = -(-address // PAGE) * PAGE, (address + length) // PAGE * PAGE
    if start >= end or not _is_private(start, end):
        return None
    with _lock:
        faults = _opened().faults
        if _ioctl(faults, _REGISTER, bytearray(struct.pack("4Q", start, end - start, _WRITE_PROTECTION, 0))) < 0:
            return None
        block = _blocks.get((start, end))
        if block is None:
            block = _blocks[start, end] = Block(start, end)
        return block if block.looked_at() >= 0 and not _has_pinned() else None


def _is_private(start: int, end: int) -> bool:
    """Whether no file is behind these pages. One that was copied when it was written to can become the file's again, without a mark."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                first, last = (int(n, 16) for n in line[: line.index(b" ")].split(b"-"))
                if first >= end:
                    break
                if last > start:
                    _, rights, _, device = line.split(maxsplit=4)[:4]
                    if not rights.endswith(b"p") or device != b"00:00":
                        return False
    except OSError:
        return False
    return True


def _has_pinned() -> bool:
    """Whether pages of this process are pinned, as far as that is counted: for long, by other than a GPU."""
    try:
        with open("/proc/self/status", "rb") as status:
            return any(line.startswith(b"VmPin:") and int(line.split()[1]) > 0 for line in status)
    except OSError:
        return True


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


def _opened() -> _Descriptors:
    global _descriptors
    process = os.getpid()
    if _descriptors is None or _descriptors.process != process:
        faults, pages = _open()
        _descriptors = _Descriptors(process, faults, pages, (_identity(faults), _identity(pages)))
    return _descriptors


def _identity(descriptor: int) -> tuple[int, int] | None:
    """What is open under a number."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _forget_parent() -> None:
    """In a forked process: its lock may be held by a thread that it does not have, and descriptors are about the parent's memory."""
    global _lock, _descriptors
    if _descriptors is not None:
        for descriptor, opened in zip((_descriptors.faults, _descriptors.pages), _descriptors.opened, strict=True):
            if opened is not None and _identity(descriptor) == opened:
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


def _scan(start: int, end: int) -> int:
    """How many ranges of pages were written to, which are protected again; negative where that is not known."""
    pages = _opened().pages
    found = 0
    while start < end:
        flags = _PROTECT_FOUND | _CHECK_ASYNCHRONOUS
        argument = bytearray(_SCAN_ARGUMENT.pack(96, flags, start, end, 0, _REGIONS_AT, _REGIONS, 0, 0, _WRITTEN, 0, _WRITTEN))
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
