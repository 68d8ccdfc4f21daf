"""Workspaces: one for each call that runs, kept for the next, windows on them made once."""

import threading

import pytest
import torch
from tracework_runtime import workspace
from tracework_runtime.workspace import LINE, PATIENCE, give, take, window


@pytest.fixture(autouse=True)
def none_kept(monkeypatch):
    monkeypatch.setattr(workspace, "_FREE", [])


def test_a_call_gets_what_the_last_one_gave_back() -> None:
    first = take(4096)
    assert first.address % LINE == 0 and first.size == 4096
    give(first)
    assert take(4096) is first
    assert take(1000) is not first, "two calls at once"


def test_too_small_a_one_is_replaced() -> None:
    small = take(1000)
    assert small.address % LINE == 0 and small.size == 1024
    give(small)
    large = take(1 << 20)
    assert large is not small and large.size == 1 << 20
    give(large)
    assert take(1000) is large


def test_one_that_is_too_large_for_long_is_dropped() -> None:
    large = take(1 << 20)
    give(large)
    for _ in range(PATIENCE - 1):
        assert take(1000) is large
        give(large)
    assert take(1000).size < large.size


def test_windows_are_made_once_for_a_program_and_lie_in_the_workspace() -> None:
    made = []

    def windows(memory, first):
        made.append(first)
        return (
            window(memory, first + 64, 48, torch.float32, (3, 4), (1, 3), 0),
            window(memory, first + 192, 8, torch.bool, (5,), (1,), 3),
            window(memory, first + 256, 0, torch.float64, (0, 3), (3, 1), 0),
        )

    with torch.inference_mode():
        work = take(4096)
        matrix, flags, empty = work.windows(windows)
    assert work.windows(windows)[0] is matrix and len(made) == 1
    assert matrix.data_ptr() == work.address + 64 and matrix.stride() == (1, 3) and flags.data_ptr() == work.address + 195
    assert empty.shape == (0, 3) and empty.dtype == torch.float64
    assert not matrix.is_inference(), "later calls write to it outside of inference mode"
    torch.add(torch.ones(3, 4), 1.0, out=matrix)
    assert matrix.sum() == 24


def test_a_window_is_a_storage_of_its_own() -> None:
    work = take(4096)
    _, after = work.windows(
        lambda memory, first: (
            window(memory, first, 16, torch.float32, (4,), (1,), 0),
            window(memory, first + 64, 24, torch.float32, (4,), (1,), 2),
        )
    )
    after.fill_(1.0)
    assert after.storage_offset() == 2 and after.untyped_storage().nbytes() == 24
    written = torch.as_strided_scatter(after, torch.zeros(2), (2,), (1,), 3)
    assert written.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_threads_never_share_one() -> None:
    held, problems = set(), []
    lock = threading.Lock()

    def work() -> None:
        for _ in range(200):
            mine = take(1000)
            with lock:
                if mine.address in held:
                    problems.append(mine)
                held.add(mine.address)
            with lock:
                held.discard(mine.address)
            give(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems
