"""tools/campaign.py, by which random programs are run: what a program of a campaign may do and is reported."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[5] / "tools"))

import campaign


def loop():
    while True:
        time.sleep(0.1)


def compiler_that_stays():
    subprocess.Popen(["sleep", "60"])
    pid = os.fork()  # holds the pipe to the campaign open
    if not pid:
        time.sleep(60)
        os._exit(0)


WRONG = {
    "agrees": (lambda text: None, None),
    "differs": (lambda text: f"{text} differs", "the program differs"),
    "crashes": (lambda text: os.kill(os.getpid(), 9), "Crash: the process ended with status 9"),
    "exits": (lambda text: os._exit(3), "Crash: the process ended with status 768"),
    "hangs": (lambda text: loop(), "in loop"),
    "leaves processes": (lambda text: compiler_that_stays(), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_program_alone(name):
    """A hang is reported with the place; processes that a program began end with it and are not waited for."""
    wrong, expected = WRONG[name]
    begun = time.monotonic()
    program, found = campaign.alone(wrong, lambda: "the program", 1)
    assert program == "the program"
    assert found is None if expected is None else expected in found
    assert time.monotonic() - begun < 30


def test_a_generator_that_hangs_or_fails():
    assert campaign.alone(str, loop, 1)[1].startswith("Hang: ")
    assert campaign.alone(str, lambda: 1 / 0, 1)[1].startswith("Generator: ZeroDivisionError")


def test_seeds_that_fail_are_written_and_run_again(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    campaign.add_arguments(parser, "0:10")
    wrong = lambda text: f"odd: {text}" if int(text.split()[1]) % 2 else None
    work = (lambda seed: f"number {seed} of many\n"), wrong, lambda text, found, alone, seconds: f"number {text.split()[1]}"
    saved = tmp_path / "failed.txt"
    given = parser.parse_args(["--seeds", "3:8", "--jobs", "2", "--save", str(saved)])
    assert campaign.run(given, *work) == (3, 5, [3, 5, 7], [])
    assert "5 programs of 3:8" in capsys.readouterr().out
    assert sorted(campaign.saved(saved.read_text()))[0][0] == 3
    again = parser.parse_args(["--programs", str(saved), "--shrink", "5"])
    assert campaign.run(again, *work)[1:] == (3, [3, 5, 7], [])
    assert "seed 3: odd: number 3 of many\nnumber 3\n" in capsys.readouterr().out


def test_limits_are_counted_apart(capsys):
    parser = argparse.ArgumentParser()
    campaign.add_arguments(parser, "0:4")
    work = str, lambda text: {"1": f"{campaign.LIMIT}known", "2": "odd"}.get(text), lambda text, *others: text
    assert campaign.run(parser.parse_args([]), *work) == (0, 4, [2], [1])
    assert "1 failed: [2], 1 at a limit: [1]" in capsys.readouterr().out
