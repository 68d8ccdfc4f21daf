"""Times of stages, and the line that says what a long compilation is doing."""

import io
import time
import types

import pytest
import torch
import tracework
from tracework import activity


def test_a_stage_counts_without_those_inside_of_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(activity, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    with activity.collected() as seconds:
        with activity.stage("capture", "f"):
            now[0] += 2
            with activity.stage("aotautograd"), activity.stage("primops"):
                now[0] += 5
        with pytest.raises(ValueError), activity.stage("runtime"):
            raise ValueError
    assert seconds == {"capture": 2, "aotautograd": 0, "primops": 5, "runtime": 0} and set(seconds) <= set(activity.STAGES)
    with activity.stage("inductor"):
        pass
    assert "inductor" not in seconds


class Terminal(io.StringIO):
    def __init__(self, is_one):
        super().__init__()
        self.isatty = lambda: is_one


@pytest.mark.parametrize("patience", [0.02, 60])
@pytest.mark.parametrize("progress", [None, True, False])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_compilation_has_a_line_that_goes(patience, progress, is_terminal, monkeypatch):
    terminal = Terminal(is_terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(activity, "PATIENCE", patience)
    waits = [0.6, 0.6] if patience < 1 else [0.02, 0.02]

    def backend(gm, inputs):
        with activity.stage("inductor"):
            time.sleep(waits.pop())
        return gm.forward

    def program(x):
        return x.sin() + 1

    call = tracework.compile(program, backend=backend, options=None if progress is None else {"progress": progress})
    call(torch.ones(2))
    text = terminal.getvalue()
    shown = patience < 1 and (is_terminal if progress is None else progress)
    assert (" s, program (test_activity.py:" in text) == shown == (": lowering, fusing and" in text)
    assert text.endswith("\x1b[?25h\r\x1b[1A\x1b[2K") if shown else text == ""  # the cursor is back, the line is gone
    call(torch.ones(2))
    assert terminal.getvalue() == text


def test_a_stream_that_is_no_stream_has_no_line(monkeypatch):
    for stream in (None, object()):
        monkeypatch.setattr("sys.stderr", stream)
        assert not activity.wanted(None)
