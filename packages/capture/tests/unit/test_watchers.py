"""Who watches a process sees what every callable that captures makes, and nothing after the block."""

import pytest
import torch
import tracework_capture as capture


def breaks(x):
    y = x + 1
    capture.graph_break()
    return (y * 2).sum()


@pytest.mark.filterwarnings("ignore")
def test_all_of_it_is_told():
    seen = []
    captured = capture.optimize(lambda gm, example_inputs: gm.forward, dynamic=False)(breaks)
    with capture.watched(lambda event, what: seen.append((event, what))):
        captured(torch.ones(3))
        captured(torch.ones(4))
        capture.report_uncompiled("no reason", "file.py:1")
    told = len(seen)
    captured(torch.ones(5))
    assert len(seen) == told
    events = [event for event, _ in seen]
    assert events.count("captured") == 4 and events.count("break") == 2 and events[-1] == "uncompiled"
    (again, *_) = [what for event, what in seen if event == "recompile"]
    assert again.name == "breaks" and "4" in again.reasons[0]
    (stop, _) = [what for event, what in seen if event == "break"]
    assert stop.place.filename == __file__ and stop.place.line == 10
