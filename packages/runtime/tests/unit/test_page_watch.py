"""Pages that are watched: every way of writing to them is seen, by all who watch them."""

import ctypes
import gc
import mmap
import os
import threading

import pytest
import torch
from tracework_runtime import page_watch
from tracework_runtime.page_watch import PAGE, can_watch, watch

pytestmark = pytest.mark.skipif(not can_watch(), reason="this kernel does not say what was written to")
PAGES = 3000
"""More than the page table has in one place, and more than a large page."""


def of(tensor):
    return watch(tensor.data_ptr(), tensor.nbytes)


def memory():
    return torch.arange(PAGES * PAGE // 4, dtype=torch.int32)


def by_readv(tensor):
    with open("/dev/zero", "rb") as zeros:
        os.readv(zeros.fileno(), [tensor.numpy()[3 * PAGE : 3 * PAGE + 10]])


def by_the_kernel_for_another(tensor):
    """As a debugger writes."""
    with open("/proc/self/mem", "r+b", buffering=0) as file:
        file.seek(tensor.data_ptr() + 5 * PAGE)
        file.write(b"1")


def by_a_thread(tensor):
    thread = threading.Thread(target=tensor.fill_, args=(3,))
    thread.start()
    thread.join()


def given_back(tensor):
    """The pages are zeros from then on, without a write."""
    start = -(-tensor.data_ptr() // PAGE) * PAGE
    length = (tensor.data_ptr() + tensor.nbytes) // PAGE * PAGE - start
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_DONTNEED) == 0


WRITES = {
    "one element": lambda t: t[12345].fill_(7),
    "the same value": lambda t: t[12345].copy_(t[12345].clone()),
    "numpy": lambda t: t.numpy().__setitem__(-PAGE, 1),
    "a view": lambda t: t.view(-1, 4)[PAGE : PAGE + 1].add_(1),
    "all": lambda t: t.zero_(),
    "readv": by_readv,
    "the kernel": by_the_kernel_for_another,
    "a thread": by_a_thread,
    "given back": given_back,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_are_seen_by_all_who_watch(write) -> None:
    tensor = memory()
    block, part = of(tensor), of(tensor[PAGE:])
    again = of(tensor)
    assert again is block
    for _ in range(3):
        before, of_part = block.looked_at(), part.looked_at()
        assert (block.looked_at(), part.looked_at(), block.looked_at()) == (before, of_part, before)
        write(tensor)
        assert part.looked_at() > of_part
        assert block.looked_at() > before


def test_nothing_is_seen_where_nothing_was_written() -> None:
    tensor, neighbour = memory(), memory()
    block = of(tensor)
    before = block.looked_at()
    neighbour.add_(1)
    assert tensor.sum() != 0
    gc.collect()
    assert block.looked_at() == before


def test_every_page_counts() -> None:
    tensor = memory()
    block = of(tensor)
    first = (block.start - tensor.data_ptr()) // 4
    pages = (block.end - block.start) // PAGE
    assert pages >= PAGES - 1
    for page in {0, 1, 511, 512, 513, 1023, 1024, pages // 2, pages - 2, pages - 1}:
        for place in (0, PAGE // 4 - 1):
            before = block.looked_at()
            tensor[first + page * PAGE // 4 + place] += 1
            assert block.looked_at() > before
    tensor[:: 2 * PAGE // 4] += 1  # more ranges than one call reports
    before = block.writes
    assert block.looked_at() > before
    assert block.looked_at() == block.writes


def test_less_than_a_page_is_not_watched() -> None:
    tensor = memory()
    start = -(-tensor.data_ptr() // PAGE) * PAGE
    assert watch(start + 1, PAGE) is None
    assert watch(start, PAGE - 1) is None
    block = watch(start + 1, 2 * PAGE)
    assert (block.start, block.end) == (start + PAGE, start + 2 * PAGE)


def test_what_others_may_write_to_is_not_watched(tmp_path) -> None:
    shared = memory().share_memory_()
    assert of(shared) is None
    path = tmp_path / "weights"
    path.write_bytes(bytes(4 * PAGE))
    for is_shared in (True, False):
        mapped = torch.from_file(str(path), shared=is_shared, size=4 * PAGE, dtype=torch.uint8)
        assert of(mapped) is None
        mapped.add_(1)  # a private one has no page of the file now, until they are given back
        assert of(mapped) is None
    with mmap.mmap(-1, 4 * PAGE) as anonymous:  # shared with forks
        address = ctypes.c_char.from_buffer(anonymous)
        assert watch(ctypes.addressof(address), 4 * PAGE) is None
        del address


def test_memory_mapped_anew_is_not_watched_any_more() -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    arguments = ctypes.c_size_t(8 * PAGE), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, *arguments, -1, ctypes.c_long(0))
    block = watch(address, 8 * PAGE)
    assert block.looked_at() == block.writes
    fixed = 0x10
    half = ctypes.c_size_t(4 * PAGE), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed
    assert libc.mmap(ctypes.c_void_p(address + 4 * PAGE), *half, -1, ctypes.c_long(0)) == address + 4 * PAGE
    before = block.writes
    assert block.looked_at() == -1 and block.writes > before
    again = watch(address, 8 * PAGE)
    assert again is block and block.looked_at() > before
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(8 * PAGE))


def test_a_forked_process_watches_its_own_pages() -> None:
    tensor = memory()
    block = of(tensor)
    before = block.looked_at()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert block.looked_at() == -1
            own = of(tensor)
            seen = own.looked_at()
            assert seen > before and own.looked_at() == seen
            tensor.view(-1).numpy()[PAGE] = 7
            assert own.looked_at() > seen
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert block.looked_at() >= before
    before = block.looked_at()
    tensor[PAGE] = 8
    assert block.looked_at() > before


def test_what_an_interrupted_look_found_is_not_lost(monkeypatch) -> None:
    tensor = memory()
    block, part = of(tensor), of(tensor[PAGE:])
    before, of_part = block.looked_at(), part.looked_at()
    tensor[-PAGE] = 7
    with monkeypatch.context() as patched:

        def interrupted(*args, scan=page_watch._scan):
            scan(*args)
            raise KeyboardInterrupt

        patched.setattr(page_watch, "_scan", interrupted)
        with pytest.raises(KeyboardInterrupt):
            block.looked_at()
    assert part.looked_at() > of_part
    before_next = block.looked_at()
    assert before_next > before and block.looked_at() == before_next


def test_a_forked_process_closes_no_files_of_the_program(tmp_path) -> None:
    """Whose numbers are those of descriptors that it closed, as daemons close all."""
    tensor = memory()
    daemon = os.fork()
    if daemon == 0:
        code = 1
        try:
            block = of(tensor)
            assert block.looked_at() >= 0
            opened = page_watch._descriptors
            for descriptor in (opened.faults, opened.pages):
                os.close(descriptor)
            for number in range(2):
                os.open(tmp_path / str(number), os.O_CREAT | os.O_WRONLY)
            assert block.looked_at() == -1
            child = os.fork()
            if child == 0:
                written = [os.write(descriptor, b"1") for descriptor in (opened.faults, opened.pages)]
                os._exit(written != [1, 1])
            code = os.waitpid(child, 0)[1]
        finally:
            os._exit(code)
    assert os.waitpid(daemon, 0)[1] == 0


@pytest.fixture
def pin():
    """A function that has io_uring pin memory, which it writes to without the page table from then on."""
    libc, setup, register = ctypes.CDLL(None), 425, 427
    ring = libc.syscall(setup, 1, ctypes.create_string_buffer(120))
    if ring < 0:
        pytest.skip("no io_uring here")

    def pins(address: int, length: int) -> None:
        if libc.syscall(register, ring, 0, (ctypes.c_uint64 * 2)(address, length), 1) != 0:
            pytest.skip("this process may not pin memory")

    yield pins
    os.close(ring)


def test_nothing_is_watched_while_pages_are_pinned(pin) -> None:
    tensor = memory()
    block = of(tensor)
    before = block.looked_at()
    pin(block.start + PAGE, PAGE)
    assert block.looked_at() > before, "to pin is a write"
    assert of(tensor) is None


@pytest.mark.parametrize("step", ["_API", "_REGISTER", "_SCAN"])
def test_a_kernel_without_it(monkeypatch, step: str) -> None:
    monkeypatch.setattr(page_watch, "_descriptors", None)
    monkeypatch.setattr(page_watch, step, 0x1234)
    assert of(memory()) is None
