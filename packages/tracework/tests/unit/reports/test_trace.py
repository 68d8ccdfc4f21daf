"""TRACEWORK_TRACE: events as lines of JSON, which have what a report has."""

import json
import os

import pytest
import torch
import tracework
from tracework.reports import trace
from tracework.reports.trace import Trace


def f(x):
    y = x.sin()
    tracework.graph_break()
    return y + 1


def test_events(tmp_path, monkeypatch):
    folder = tmp_path / "events"
    monkeypatch.setenv("TRACEWORK_TRACE", str(folder))
    call = tracework.compile(f)
    try:
        call(torch.ones(3)), call(torch.ones(4))
    finally:
        trace._begun.pop(str(folder)).close()
    (file,) = folder.iterdir()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert events[0]["event"] == "start" and (events[0]["schema"], events[0]["version"]) == ("tracework.trace", 1)
    kinds = [event["event"] for event in events]
    assert {"graph", "break", "recompile", "compiled", "stage"} <= set(kinds) and kinds.count("graph") == kinds.count("compiled")
    kernels = [step for event in events if event["event"] == "compiled" for step in event["kernels"]]
    assert all(step["lines"][0]["file"].endswith("test_trace.py") and step["bytes"] for step in kernels)
    assert all(event["time"] >= events[0]["time"] for event in events)


def events_of(file):
    return [json.loads(line)["event"] for line in file.read_text().splitlines()]


def test_a_forked_process_has_a_file_of_its_own(tmp_path):
    own = Trace(tmp_path)
    child = os.fork()
    if not child:
        try:
            own._write("stage")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    own._write("graph")
    found = {file.stem.rpartition("-")[2]: events_of(file) for file in tmp_path.iterdir()}
    assert found == {str(os.getpid()): ["start", "graph"], str(child): ["start", "stage"]}


def test_a_disk_that_is_full_ends_the_trace_and_not_the_program(tmp_path):
    class Full:
        def write(self, text):
            raise OSError("no space left")

    own = Trace(tmp_path)
    own._file = Full()
    with pytest.warns(RuntimeWarning, match="no space left"):
        own._write("stage")
    own._write("stage")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRACEWORK_TRACE", str(tmp_path / "file" / "below"))
    with pytest.raises(tracework.InvalidArgument, match="TRACEWORK_TRACE"):
        tracework.compile(lambda x: x)
