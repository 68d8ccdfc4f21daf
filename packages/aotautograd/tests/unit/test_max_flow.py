"""Minimum cuts against all cuts of small random networks."""

import random
from itertools import product

import pytest
from tracework_aotautograd.partition.max_flow import Network


def width(edges, side):
    return sum(capacity for tail, head, capacity in edges if tail in side and head not in side)


@pytest.mark.parametrize("seed", range(60))
def test_no_cut_is_narrower_and_none_as_narrow_lies_nearer_to_the_source(seed):
    draw = random.Random(seed)
    count = draw.randint(2, 8)
    source, sink = count - 2, count - 1
    edges = [(draw.randrange(count), draw.randrange(count), draw.choice([0, 1, 1, 2, 3, 5, 2**30])) for _ in range(3 * count)]
    found = Network(count, edges).source_side(source, sink)
    assert source in found and sink not in found
    sides = [{source, *(i for i in range(count - 2) if chosen[i])} for chosen in product((0, 1), repeat=count - 2)]
    least = min(width(edges, side) for side in sides)
    assert width(edges, found) == least
    assert all(found <= side for side in sides if width(edges, side) == least)
