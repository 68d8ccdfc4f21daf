"""Python that is traced in place of C: nothing of it is guarded, and what it does not compute is a break at the call, in the program's place."""

import copy
import heapq
import logging
import sys

import numpy as np
import pytest
import torch
from tracework_capture import polyfills
from tracework_capture.errors import Unsupported
from tracework_capture.polyfills import FOLDED, POLYFILLS, NotComputed, is_fixed
from tracework_capture.sources import Const, root
from tracework_capture.values.protocol.calls import CALLS, Policy

from .harness import capture, check

logger = logging.getLogger("values.polyfills")
NUMBERS = torch.linspace(-1, 1, 48)


def inverted(x):
    spectrum = torch.stft(x, 16, window=torch.ones(16), return_complex=True)
    return torch.istft(spectrum, 16, window=torch.ones(16))


def ordered(x, items):
    heapq.heapify(items)
    return x + heapq.heappop(items), items


def laid_out(x):
    return torch.from_numpy(np.pad(np.kron(np.vstack((x.numpy(), x.numpy())), np.full((1, 2), 2.0)), 1))


def asked(x):
    return x + 1 if logger.isEnabledFor(logging.ERROR) else x


@pytest.mark.parametrize(
    ("function", "args"),
    [(inverted, (NUMBERS,)), (ordered, (NUMBERS, [3, 1, 2])), (asked, (NUMBERS,)), (laid_out, (NUMBERS,))],
    ids=["stft", "heap", "log", "arrays"],
)
def test_nothing_of_a_polyfill_is_guarded(function, args):
    expected = function(*copy.deepcopy(args))
    run, captured = capture(function, *args)
    torch.testing.assert_close(run(), expected)
    roots = [root(guard.source) for guard in captured.guards]
    held = [r.value for r in roots if type(r) is Const]
    made = [*map(id, POLYFILLS.values()), *(id(vars(sys.modules[p.__module__])) for p in POLYFILLS.values())]
    assert not [value for value in held if id(value) in made or type(value) is dict and is_fixed(value)]


def test_each_polyfill_has_its_row():
    assert all(CALLS[original].policy is Policy.TRACED for original in POLYFILLS)
    assert all(CALLS[function].policy is Policy.EVALUATED for function in FOLDED)


PROGRAM = """
def refusing(x):
    if x.ndim:
        raise NotComputed("it has dims")
    return x

def long(x):
    for _ in range(1000):
        x = x
    return x
"""
MADE = {"__name__": f"{polyfills.__name__}.made_here", "NotComputed": NotComputed}
exec(PROGRAM, MADE)


def refused(x):
    return MADE_REFUSING(x)


def slow(x):
    return MADE_LONG(x) + 1


MADE_REFUSING, MADE_LONG = MADE["refusing"], MADE["long"]


def test_what_a_polyfill_does_not_compute_breaks_the_graph_where_it_is_called():
    with pytest.raises(Unsupported, match="it has dims") as caught:
        capture(refused, NUMBERS)
    assert caught.value.reason_id == NotComputed.reason
    assert [place.function for place in caught.value.stack] == ["refused"]


def test_the_frames_of_polyfills_count_for_no_limit():
    check(slow, NUMBERS)
