"""Labels are the cheapest ones: against all choices of few variables."""

import itertools
import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracework_aotautograd.layouts.labels import NEVER, Labelling

COSTS = st.sampled_from([0, 1, 2, 3, 5, 8, 1000])
NAMES = "abcdef"


@st.composite
def problems(draw):
    labelling = Labelling()
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        false = draw(COSTS) - draw(COSTS)
        labelling.add(name, false, NEVER if draw(st.integers(0, 9)) == 0 else draw(COSTS))
    names = list(labelling.alone)
    for a, b in draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=10)):
        labelling.apart(a, b, NEVER if draw(st.integers(0, 9)) == 0 else draw(COSTS))
    return labelling


def choices(labelling):
    for labels in itertools.product([False, True], repeat=len(labelling.alone)):
        yield dict(zip(labelling.alone, labels, strict=True))


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_cheapest_and_of_these_the_fewest(labelling):
    found = labelling.solve()
    costs = [(labelling.cost(labels), sum(labels.values())) for labels in choices(labelling)]
    assert (labelling.cost(found), sum(found.values())) == min(costs) and math.isfinite(labelling.cost(found))


def test_answers_are_kept():
    class Kept(dict):
        put = dict.__setitem__

    def labelling():
        made = Labelling()
        made.add("a", 3, 1)
        made.add("b", 0, 1)
        made.apart("b", "a", 4)
        return made

    kept = Kept()
    assert labelling().solve(kept) == {"a": True, "b": True} and len(kept) == 1
    (key,) = kept
    kept[key] = b"0 1 2"  # all on the source's side
    assert labelling().solve(kept) == {"a": False, "b": False}
