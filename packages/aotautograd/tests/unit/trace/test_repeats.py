"""Which writes of checkpoints a backward repeats."""

import pytest
from tracework_aotautograd.trace.repeats import InCheckpoint, in_order


def write(place, *levels):
    return InCheckpoint(0, place, None, levels, 1, None)


@pytest.mark.parametrize(
    ("levels", "last_kept", "times"),
    [
        ([("a", False)], {}, 0),
        ([("a", False)], {"a": 4}, 0),
        ([("a", False)], {"a": 5}, 1),
        ([("a", True)], {}, 1),
        ([("a", False), ("b", False)], {"a": 7}, 1),
        ([("a", False), ("b", False)], {"a": 7, "b": 8}, 2),
        ([("a", True), ("b", True)], {}, 2),
    ],
)
def test_times(levels, last_kept, times):
    assert write(5, *levels).times(last_kept) == times


def test_the_last_checkpoint_is_first():
    a, b = ("a", False), ("b", False)
    writes = [write(1, a), write(2, a), write(3, b), write(4, ("c", False), b)]
    assert [each.place for each in in_order(writes)] == [3, 4, 1, 2]
