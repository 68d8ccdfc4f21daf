"""Runs a program in this process, as `python` does, with torch.compile replaced."""

from __future__ import annotations

import runpy
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from .drop_in import replace_torch_compile


def run_script(program: Sequence[str]) -> int:
    """Runs a script, or -m and a module, with its arguments; gives the code that it exits with. Its errors are told as Python does."""
    if [*program] == ["-m"]:
        print("-m needs the name of a module", file=sys.stderr)
        return 2
    before, path = sys.argv, sys.path[:]
    try:
        with replace_torch_compile():
            if program[0] == "-m":
                sys.argv, sys.path[0] = [*program[1:]], ""
                runpy.run_module(program[1], run_name="__main__", alter_sys=True)
            else:
                file = Path(program[0]).absolute()  # as Python has it, wherever the program goes
                sys.argv, sys.path[0] = [*program], str(file.resolve().parent)
                runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception as error:
        error.__traceback__ = _of_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        sys.argv, sys.path[:] = before, path
    return 0


def _of_program(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Without the calls that lead to the program."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.run_path.__code__.co_filename):
        trace = trace.tb_next
    return trace
