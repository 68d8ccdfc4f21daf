"""An error that the program's handler of a signal raises while something is compiled is the program's, wherever it comes."""

import collections
import signal
import time

import pytest
import torch
import tracework


class Late(TimeoutError):
    """As programs have it: also an OSError, which caches take for one of their own."""


@pytest.fixture(scope="module")
def loaded():
    """An import that is interrupted leaves half a module, as in any program: what a compilation imports is there before."""
    tracework.compile(lambda x: torch.sin(x) @ x + 1)(torch.rand(3, 3, requires_grad=True)).sum().backward()


@pytest.fixture
def alarm(loaded):
    def late(number, frame):
        raise Late("late")

    before = signal.signal(signal.SIGALRM, late)
    yield late
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def long(x):
    for number in range(20):
        x = torch.sin(x @ x / 16 + number)
    return x


@pytest.mark.parametrize("training", [False, True])
def test_a_timeout_during_a_compilation_is_the_programs(alarm, training):
    seen = collections.Counter()
    for attempt in range(12):
        compiled = tracework.compile(long, dynamic=False)
        x = torch.rand(3 + attempt, 3 + attempt, requires_grad=training)
        signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.03 * attempt)
        try:
            found = compiled(x)
            found = found.sum().backward() if training else found
            signal.setitimer(signal.ITIMER_REAL, 0)
            seen["ran"] += 1
        except Exception as error:
            seen[type(error)] += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert signal.getsignal(signal.SIGALRM) is alarm
    assert set(seen) <= {Late, "ran"} and seen[Late]


def test_handlers_may_change_handlers(alarm):
    """A handler for one time only: what it puts in its place stays."""

    def once(number, frame):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        raise Late("late")

    signal.signal(signal.SIGALRM, once)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    with pytest.raises(Late):
        tracework.compile(long, dynamic=False)(torch.rand(9, 9))
        time.sleep(30)  # where the compilation is over by then
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN


def test_what_a_handler_does_without_an_error_is_done(alarm):
    calls = []
    signal.signal(signal.SIGALRM, lambda number, frame: calls.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    x = torch.rand(7, 7)
    found = tracework.compile(long, dynamic=False)(x)
    signal.setitimer(signal.ITIMER_REAL, 0)
    torch.testing.assert_close(found, long(x))
    assert calls
