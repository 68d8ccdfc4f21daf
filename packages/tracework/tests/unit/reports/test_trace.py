"""TRACEWORK_TRACE: events as lines of JSON, which have what a report has."""

import json
import subprocess
import sys

import pytest

PROGRAM = """\
import torch, tracework
@tracework.compile
def f(x):
    y = x.sin()
    tracework.graph_break()
    return y + 1
f(torch.ones(3)), f(torch.ones(4))
"""


@pytest.mark.parametrize("variable", ["TRACEWORK_TRACE", "TORCH_TRACE"])
def test_events(variable, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, str(tmp_path / "events"))
    (tmp_path / "program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, str(tmp_path / "program.py")], check=True, timeout=120)
    (file,) = (tmp_path / "events").iterdir()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert events[0]["event"] == "start" and (events[0]["schema"], events[0]["version"]) == ("tracework.trace", 1)
    kinds = [event["event"] for event in events]
    assert {"graph", "break", "recompile", "compiled", "stage"} <= set(kinds) and kinds.count("graph") == kinds.count("compiled")
    kernels = [step for event in events if event["event"] == "compiled" for step in event["kernels"]]
    assert all(step["lines"][0]["file"].endswith("program.py") and step["bytes"] for step in kernels)
    assert all(event["time"] >= events[0]["time"] for event in events)
