"""Between processes: hook/test_stored.py; in one: test_remembering_functions.py."""

import functools

import pytest
import torch
from tracework_capture.guards.paths import Changed
from tracework_capture.guards.remembered import Remembered
from tracework_capture.guards.store import NotPortable


def remembering(function):
    """A Remembered of calls with 1 and 2, as tracing has made them."""
    function = functools.cache(function)
    made = Remembered(function)
    for n in (1, 2):
        made.record_call(function, [n], {}, function(n))
    return made


KINDS = {
    # what is remembered there, and here -> whether that is the same
    "numbers": (lambda n: n + 1, lambda n: 1 + n, True),
    "other numbers": (lambda n: n + 1, lambda n: n + 2, False),
    "tensors": (lambda n: torch.ones(n), lambda n: torch.zeros(n), True),
    "other tensors": (lambda n: torch.ones(n), lambda n: torch.ones(n + 1), False),
    "tuples": (lambda n: (n, [2.5]), lambda n: (n, [2.5]), True),
    "other tuples": (lambda n: (n, [2.5]), lambda n: (n, [3.5]), False),
    "several": (lambda n: [n > 5], lambda n, one=[False]: one, False),  # one list for all
    "an error": (lambda n: [n], lambda n: [n] / n, False),
}


@pytest.mark.parametrize(("there", "here", "same"), KINDS.values(), ids=KINDS)
def test_in_another_process(there, here, same):
    digest, function = remembering(there).digest(), functools.cache(here)
    asks = any(text for *_, text in digest)
    try:
        made = Remembered.of(function, digest)
    except Changed:
        assert not same and asks
        return
    assert function.cache_info().misses == (2 if asks else 0)
    assert made(function) is same
    assert function.cache_info().misses + function.cache_info().hits == (2 if asks or same else 1)  # as often as the program asks
    assert not asks or made(function) is same


def test_objects_of_the_program_are_not_described():
    with pytest.raises(NotPortable):
        remembering(lambda n: object()).digest()
