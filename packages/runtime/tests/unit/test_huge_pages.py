"""Huge pages are asked for inside of a range alone, and hold what was there."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
from tracework_runtime import huge_pages
from tracework_runtime.host.lines import Allocate
from tracework_runtime.huge_pages import PAGE, gather, whole_pages
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
