"""Memory of a call, as the profiler sees it."""

import os

import torch
import tracework
from tracework.reports.memory import POINTS, beside_eager, bytes_over_time, thinned
from tracework.reports.page import page


def chain(x):
    return ((x.sin() + 1).exp() * x).sum(1)


def test_what_is_made_and_freed():
    x = torch.rand(64, 64)
    alive = bytes_over_time(lambda: chain(x), "cpu")
    assert 2 * 64 * 64 * 4 <= max(alive) < 2 * 64 * 64 * 4 + 100 and alive[-1] == 0  # scalars come to it


def test_a_report_has_both_and_the_page_shows_them():
    found = tracework.report(chain, profile=True)(torch.rand(64, 64))
    measured = found.json()["memory"]
    assert measured["peak_bytes"] == 64 * 4 and measured["eager_peak_bytes"] >= 2 * 64 * 64 * 4
    assert "measured: 256 B at most, eager 32.8 kB" in str(found) and 'id="memory"' in page(found.json())
    (cost,) = found.json()["guard_costs"]
    assert cost["function"] == "chain" and cost["us"] > 0 and cost["dearest"] and "Guards, measured" in page(found.json())


def test_a_report_goes_without_what_cannot_be_measured():
    def fails():
        raise ValueError

    assert beside_eager(lambda: None, fails, "cpu") is None
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_thinned():
    assert thinned([3, 1]) == [3, 1]
    assert len(thinned(range(1001))) == POINTS and thinned(range(1001))[-1] == 1000
