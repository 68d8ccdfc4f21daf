"""Huge pages are asked for inside of a range alone, and hold what was there."""

import ctypes
import os
import re
from pathlib import Path

import pytest
import torch
from tracework_runtime import huge_pages
from tracework_runtime.host.lines import Allocate
from tracework_runtime.huge_pages import PAGE, ReadAgain, gather, is_alone, whole_pages
from tracework_runtime.results import LARGE, large_cpu


def in_huge_pages(address: int) -> int:
    """Bytes that lie so in the mapping of an address."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            found = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif found and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    return 0


@pytest.fixture(scope="module")
def there_are() -> None:
    memory = large_cpu((LARGE,), (1,), torch.uint8).zero_()
    if not in_huge_pages(memory.data_ptr() + PAGE):
        pytest.skip("this system has no huge pages now")


@pytest.mark.parametrize(
    ("address", "nbytes", "first", "size"),
    [
        (0, PAGE, 0, PAGE),
        (1, PAGE, PAGE, 0),
        (1, 2 * PAGE, PAGE, PAGE),
        (PAGE - 1, 1, PAGE, 0),
        (PAGE, 3 * PAGE - 1, PAGE, 2 * PAGE),
    ],
)
def test_whole_pages_lie_inside(address, nbytes, first, size) -> None:
    assert whole_pages(address, nbytes) == (first, size)


def test_what_is_gathered_stays_as_it_is(there_are) -> None:
    memory = torch.arange(LARGE // 8)
    assert in_huge_pages(memory.data_ptr() + PAGE) == 0
    gather(memory.data_ptr(), memory.nbytes)
    assert in_huge_pages(memory.data_ptr() + PAGE) >= memory.nbytes - 2 * PAGE
    assert torch.equal(memory, torch.arange(LARGE // 8))


def test_nothing_is_gathered_where_the_system_has_none(monkeypatch) -> None:
    monkeypatch.setattr(huge_pages, "_has_huge_pages", lambda: False)
    monkeypatch.setattr(huge_pages, "_LIBC", ctypes.c_void_p)  # which has no madvise
    gather(PAGE, PAGE)


@pytest.mark.parametrize(
    ("device", "dtype", "sizes", "function"),
    [
        ("cpu", "float32", (LARGE // 4,), "large_cpu"),
        ("cpu", "float32", (LARGE // 4 - 1,), "empty_cpu"),
        ("cpu", "bool", (LARGE // 4,), "empty_cpu"),
        ("cpu", "float32", (4, "s0"), "large_cpu"),
        ("cuda", "float32", (LARGE, "s0"), "empty_cuda"),
    ],
)
def test_large_results_are_made_by_another_function(device, dtype, sizes, function) -> None:
    assert Allocate("x", device, dtype, sizes, (1,) * len(sizes)).function == function


def test_memory_that_a_child_has_too_is_not_alone(there_are) -> None:
    memory = torch.ones(4 * PAGE, dtype=torch.uint8)
    place = memory.data_ptr(), memory.nbytes
    assert is_alone(*place)
    end, begin = os.pipe()
    if (child := os.fork()) == 0:
        os.read(end, 1)
        os._exit(0)
    try:
        assert not is_alone(*place)
    finally:
        os.write(begin, b"x")
        os.waitpid(child, 0)
        os.close(end)
        os.close(begin)
    assert is_alone(*place)


def test_what_is_read_again_and_again_is_gathered_part_by_part(monkeypatch) -> None:
    gathered: list[tuple[int, int]] = []
    monkeypatch.setattr(huge_pages, "gather", lambda address, nbytes: gathered.append((address, nbytes)))
    monkeypatch.setattr(huge_pages, "is_alone", lambda address, nbytes: address // PAGE != tensors[1].data_ptr() // PAGE + 1)
    tensors = [torch.empty(size, dtype=torch.uint8) for size in (8, 3 * PAGE, ReadAgain.PART + 3 * PAGE, 8)]
    tensors[3] = tensors[3].expand(3 * PAGE, 8)
    read = ReadAgain()
    for _ in range(ReadAgain.CALLS):
        read(*tensors)
    assert not gathered
    for _ in range(9):
        read(*tensors)
    start, size = whole_pages(tensors[2].data_ptr(), tensors[2].nbytes)
    assert gathered == [(start, ReadAgain.PART), (start + ReadAgain.PART, size - ReadAgain.PART)], (
        "not what a child has, nor what is small"
    )
