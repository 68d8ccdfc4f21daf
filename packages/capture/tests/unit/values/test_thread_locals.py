"""Attributes of threading.local: those of the calling thread, in each call."""

import threading

import pytest
import torch
from tracework_capture.hook.context import optimize

STATE = threading.local()


def stored(x):
    STATE.last = x * 2
    STATE.seen = [x]
    STATE.seen.append(1)
    return STATE.last + STATE.seen[0], len(STATE.seen)


def counted(x):
    STATE.calls = getattr(STATE, "calls", 0) + 1
    return x * STATE.calls, STATE.calls


def read(x):
    return x * STATE.scale if hasattr(STATE, "scale") else x + 1


def lacking(x):
    try:
        return x, STATE.nothing
    except AttributeError as error:
        return x + 1, str(error)


def all_of_it(x):
    STATE.last = 3
    return x + 1, sorted(STATE.__dict__.items()), vars(STATE)["last"]


def deleted(x):
    STATE.last = 3
    before = STATE.last
    del STATE.last
    return x + 1, before, hasattr(STATE, "last")


def in_threads(f):
    """What three calls in each of three threads give, and what each thread has afterwards."""
    found = []

    def thread(number):
        if number:
            STATE.scale = number
        found.append([f(torch.arange(3.0)) for _ in range(3)])
        found.append(sorted(STATE.__dict__.items()))

    for number in range(3):
        each = threading.Thread(target=thread, args=(number,))
        each.start()
        each.join()
    return found


@pytest.mark.parametrize("f", [stored, counted, read, lacking, all_of_it, deleted], ids=lambda f: f.__name__)
def test_attributes_are_those_of_the_thread(f):
    expected = in_threads(f)
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=f not in (all_of_it, deleted))(f)
    assert repr(in_threads(compiled)) == repr(expected)
    assert len(expected) == 6
