"""tracework report and tracework profile: a program runs as it does, and what was compiled is told."""

import json

import pytest
from tracework import cli
from typer.testing import CliRunner

PROGRAM = """\
import sys, torch

@torch.compile
def f(x):
    return (x @ x).relu() + 1

f(torch.ones(8, 8))
print("arguments", sys.argv[1:], __name__)
sys.exit(3)
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return str(file)


def test_report(program, tmp_path):
    done = CliRunner().invoke(cli.app, ["report", "-o", str(tmp_path / "r.json"), program, "-o", "x"])
    assert done.exit_code == 3, done.output
    assert "arguments ['-o', 'x'] __main__" in done.output and "graphs: 1 (3 operations)" in done.output
    assert json.loads((tmp_path / "r.json").read_text())["compiled"][0]["function"].startswith("f (program.py")


def test_profile(program, tmp_path):
    done = CliRunner().invoke(cli.app, ["profile", "-o", str(tmp_path / "p.json"), program])
    assert done.exit_code == 3 and "f (program.py:3): " in done.output and "█" in done.output
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    assert {event["name"] for event in events} >= {"capture", "inductor", "runtime"}
    assert all(event["ph"] == "X" and event["dur"] >= 0 <= event["ts"] for event in events)


def test_a_program_that_fails_has_a_report(tmp_path):
    file = tmp_path / "fails.py"
    file.write_text("import torch\ntorch.compile(lambda x: x + 1)(torch.ones(3))\nraise ValueError('as it does')\n")
    done = CliRunner().invoke(cli.app, ["report", "-o", str(tmp_path / "r.html"), str(file)])
    assert isinstance(done.exception, ValueError) and "graphs: 1" in done.output and (tmp_path / "r.html").exists()
