"""Why a frame is captured again, and with what: programs for rows of RETRIES, compared with eager."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch
import tracework_capture
from tracework_capture.errors import BreakGraph
from tracework_capture.plan import RETRIES, Again, Learnt, Plan, Stop

SOURCES = Path(tracework_capture.__file__).parent


def a_lazy_module():
    module = torch.nn.LazyLinear(3)
    return (lambda x: module(x) * 2), [torch.ones(2, 4)]


def a_size_that_a_weight_fixes():
    weight = torch.arange(3)
    return (lambda tokens: (tokens + weight) * 2), [torch.ones(2, 3, dtype=torch.long), torch.ones(4, 3, dtype=torch.long)]


def a_number_that_a_list_is_asked_with():
    def program(x):
        scale = [1.0, 2.0, 3.0][x.long().sum().item()]
        return x * scale

    return program, [torch.tensor([1.0, 0.0])]


def arms_that_change_an_object():
    def program(x):
        seen = []
        if x.sum() > 0:
            y = x + seen.__len__()
        else:
            y = x.view(-1)[:1]
        return y * 2

    return program, [torch.ones(3)]


def a_size_in_data_before_a_break():
    def program(place):
        found = torch.arange(6.0)[place:] * 2
        tracework_capture.graph_break()
        return found + 1

    return program, [torch.tensor(2)]


PROGRAMS = {
    "initialised": a_lazy_module,
    "guess_fixed": a_size_that_a_weight_fixes,
    "number_needed": a_number_that_a_list_is_asked_with,
    "selection_refused": arms_that_change_an_object,
    "without_sizes": a_size_in_data_before_a_break,
}


@pytest.mark.parametrize("reason", PROGRAMS)
def test_a_frame_is_captured_again(reason, caplog):
    program, inputs = PROGRAMS[reason]()
    compiled = tracework_capture.optimize(lambda graph, _: graph.forward, unbacked=None)(program)
    with caplog.at_level(logging.DEBUG, "tracework.capture.attempts"):
        results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results):
        torch.testing.assert_close(result, program(x), rtol=0, atol=0)
    assert any(f"captured again: {RETRIES[reason].text}" in line for line in caplog.messages), caplog.messages


def test_each_row_is_asked_for_somewhere():
    asked = {found for path in SOURCES.rglob("*.py") for found in re.findall(r'\bAgain\(\s*"(\w+)"', path.read_text())}
    assert asked == {*RETRIES}


def test_what_is_learnt_adds_up():
    one, other = (
        Learnt(isolated=True, read_while_tracing=frozenset((1,))),
        Learnt(unchecked=True, read_while_tracing=frozenset((2,))),
    )
    assert one | other == Learnt(isolated=True, unchecked=True, read_while_tracing=frozenset((1, 2)))
    assert Learnt() | one == one == one | one


@pytest.mark.parametrize("reason", RETRIES)
def test_the_next_plan(reason):
    """Learns, counts the attempt unless it is free, and forgets where to stop if all is to be traced anew."""
    row, stop = RETRIES[reason], Stop(7, BreakGraph("explicit"), ())
    plan = Plan(Learnt(isolated=True), keeps_sizes=True).stopped(stop)
    following = plan.after(Again(reason, Learnt(unchecked=True)))
    assert following.learnt == Learnt(isolated=True, unchecked=True)
    assert following.attempts_left == plan.attempts_left - (0 if row.free else 1)
    assert following.stop_before == (-1 if row.from_start else 7)
    assert (following.unrolls, following.keeps_sizes) == (reason != "by_rounds", reason != "without_sizes")
