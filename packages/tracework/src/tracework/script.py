"""Runs a program in this process, as `python` does, with torch.compile replaced."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from .drop_in import replace_torch_compile


def run_script(program: Sequence[str]) -> int:
    """Runs a script, or -m and a module, with its arguments; gives the code that it exits with. Its errors are its own."""
    before, path = sys.argv, sys.path[:]
    try:
        with replace_torch_compile():
            if program[0] == "-m":
                sys.argv, sys.path[0] = [*program[1:]], ""
                runpy.run_module(program[1], run_name="__main__", alter_sys=True)
            else:
                sys.argv, sys.path[0] = [*program], str(Path(program[0]).parent)
                runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[:] = before, path
    return 0
