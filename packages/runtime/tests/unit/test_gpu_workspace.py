"""Workspaces of a GPU: one for each call that is under way on a stream, none that is shared while a call is recorded. CPU memory stands in."""

import types
import weakref

import pytest
import torch
from tracework_runtime import _torch, gpu_workspace
from tracework_runtime.gpu_workspace import ALIGNMENT, forget, give, take


@pytest.fixture
def gpu(monkeypatch):
    state = types.SimpleNamespace(device=0, stream=5, capturing=False)
    monkeypatch.setattr(gpu_workspace, "_FREE", {})
    monkeypatch.setattr(gpu_workspace, "_allocated", lambda size: torch.empty(size, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.capturing)
    monkeypatch.setattr(_torch, "current_gpu", lambda: state.device)
    monkeypatch.setattr(_torch, "current_raw_stream", lambda device: state.stream)
    return state


def test_a_call_gets_what_the_last_one_on_its_stream_gave_back(gpu):
    first = take(1000)
    assert first.size == ALIGNMENT and first.address == first._memory.data_ptr()
    give(first)
    again = take(ALIGNMENT)
    assert again is first and take(1000) is not first, "two calls at once"


@pytest.mark.parametrize("other", [{"stream": 6}, {"device": 1}], ids=str)
def test_another_stream_and_another_device_have_their_own(gpu, other):
    first = take(1000)
    give(first)
    plain = dict(vars(gpu))
    vars(gpu).update(other)
    second = take(1000)
    assert second is not first
    vars(gpu).update(plain)
    give(second)  # it goes home, whatever the current stream is
    assert take(1000) is first and take(1000) is not second
    vars(gpu).update(other)
    assert take(1000) is second


def test_too_small_a_one_is_replaced(gpu):
    small = take(1000)
    give(small)
    large = take(3 * ALIGNMENT)
    assert large is not small and large.size == 3 * ALIGNMENT
    give(large)
    assert take(1000) is large
    ended = weakref.ref(small._memory)
    del small
    assert ended() is None


def test_a_call_that_is_recorded_has_memory_of_its_own(gpu):
    plain = take(1000)
    give(plain)
    gpu.capturing = True
    recorded = take(1000)
    assert recorded is not plain and recorded.size == 1000
    give(recorded)
    gpu.capturing = False
    assert take(1000) is plain and take(1000) is not recorded


def test_windows_are_made_once_for_a_program(gpu):
    made = []

    def windows(memory, first):
        made.append(first)
        return (memory[:4],)

    found = take(1000)
    with torch.inference_mode():
        first = found.windows(windows)
    assert found.windows(windows) is first and made == [0] and not first[0].is_inference()
    give(found)
    assert take(1000).windows(windows) is first


def test_what_nobody_uses_can_be_given_back(gpu):
    found = take(1000)
    give(found)
    ended = weakref.ref(found._memory)
    del found
    forget()
    assert ended() is None
