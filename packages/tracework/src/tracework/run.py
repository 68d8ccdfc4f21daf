"""`tracework run ARGUMENTS` is `python ARGUMENTS` with torch.compile replaced, in that process and in every Python that it starts.

The process becomes that Python. Its environment has a folder in front of PYTHONPATH whose `sitecustomize` waits for torch: the program, its
arguments, its path and its children are Python's own business. Nothing is imported before the program asks for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .after_import import after_import
from .errors import InvalidArgument

AT_START = str(Path(__file__).parent / "at_start")
WITHOUT_IT = {"I": "isolated mode", "E": "ignored environment variables", "S": "no site"}
"""Switches of Python under which no PYTHONPATH or no sitecustomize is looked at."""


def run(arguments: Sequence[str]) -> None:
    """Becomes `python ARGUMENTS`. Raises InvalidArgument for a switch of Python that rules it out."""
    before_us = sys.orig_argv[
        1 : len(sys.orig_argv) - len(sys.argv[1:])
    ]  # python's switches, then "-m tracework" or the command's path
    flags = before_us[:-2] if before_us[-2:-1] == ["-m"] else before_us[:-1]
    for argument in (*flags, *arguments):
        if not argument.startswith("-") or argument[1:2] in ("m", "c"):
            break
        for switch in set(argument[1:]) & set(WITHOUT_IT) if argument[1:2] not in ("X", "W") else ():
            raise InvalidArgument(
                f"tracework run reaches the program by PYTHONPATH, which Python's -{switch} ({WITHOUT_IT[switch]}) leaves out. Leave"
                f" -{switch} out, or call tracework.replace_torch_compile() at the start of the program."
            )
    paths = os.environ.get("PYTHONPATH", "")
    if AT_START not in paths.split(os.pathsep):
        os.environ["PYTHONPATH"] = AT_START + os.pathsep + paths if paths else AT_START
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *flags, *arguments])


def run_dumping(arguments: Sequence[str], folder: str) -> int:
    """The same as a process of its own, in which each stage's text and the cases go to a folder; gives what it ended with."""
    command = [sys.executable, "-m", "tracework", "run", *arguments]
    return subprocess.run(command, env={**os.environ, "TRACEWORK_DUMP": folder}).returncode


def begin() -> None:
    """Replaces torch.compile as soon as torch has been imported."""

    def replace(torch: object) -> None:
        from .drop_in import replace_torch_compile  # which imports torch

        replace_torch_compile()

    after_import("torch", replace)
