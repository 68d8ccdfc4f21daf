"""tracework report and tracework profile: a program runs as it does, and what was compiled is told."""

import json
import os

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


FAILS = """\
import os, sys, torch
torch.compile(lambda x: x + 1)(torch.ones(3))
os.chdir("elsewhere")
print(__file__, sys.path[0])
raise ValueError("as it does")
"""


def test_a_program_that_moves_and_fails_has_a_report_and_its_own_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "fails.py").write_text(FAILS)
    done = CliRunner().invoke(cli.app, ["report", "-o", "r.html", "fails.py"])
    assert done.exit_code == 1 and "graphs: 1" in done.output and (tmp_path / "r.html").exists()
    assert f"{tmp_path / 'fails.py'} {tmp_path}\n" in done.output
    trace = f'Traceback (most recent call last):\n  File "{tmp_path / "fails.py"}", line 5, in <module>\n'
    assert trace in done.output and "ValueError: as it does\n" in done.output


def test_a_fork_of_a_program_has_no_report(tmp_path, monkeypatch):
    (tmp_path / "forks.py").write_text("import os\nos.getpid = lambda: 1\n")  # as the child of a fork sees it
    monkeypatch.setattr(os, "getpid", os.getpid)
    done = CliRunner().invoke(cli.app, ["report", "-o", str(tmp_path / "r.html"), str(tmp_path / "forks.py")])
    assert (done.exit_code, done.output) == (0, "") and not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "-m"], "-m needs the name of a module"),
        (["report", "-o", "nowhere/r.html", "program.py"], "InvalidArgument: report: "),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_runs(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2 and said in done.output
