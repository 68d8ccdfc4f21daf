"""report(): what one call, or a block of a program, was compiled to.

It is imported with the front door: what sees, makes and shows a report is imported when there is one.
"""

from __future__ import annotations

import json
import os
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import api
from .errors import InvalidArgument, NotCallable
from .explanation import uncompiled_form

CALLS = 20
SECONDS = 2.0
"""A function that is profiled is called so often, or for so long, after the call that compiles it."""


class Report:
    """What was compiled. Printed, it is ten lines; json() is plain data, save() writes one page.

    A context manager, too: it sees what is compiled in its block, and writes the page at its end where it has a file.
    """

    def __init__(self, what: str, file: str | os.PathLike[str] | None = None, profile: bool = False) -> None:
        from .reports.recorder import Recorder

        self.result: Any = None
        self._what, self._file = what, Path(file).absolute() if file is not None else None  # wherever the block goes
        self._recorder = Recorder(profile)
        self._found: dict[str, Any] | None = None
        self._process: int | None = None
        if self._file is not None and not os.access(self._file.parent, os.W_OK | os.X_OK):  # known before what may take hours
            raise InvalidArgument(f"report: {self._file} cannot be written. Give a file in a folder that can.")

    def __enter__(self) -> Report:
        self._found, self._process = None, os.getpid()
        self._recorder.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self._recorder.stop()
        own, self._process = self._process == os.getpid(), None
        if self._file is None or not own:  # a fork of the process that ends its block, too, has nothing to say
            return
        try:
            self.save(self._file)
        except Exception as failure:
            if error is None and isinstance(failure, OSError):
                raise
            warnings.warn(f"report: {failure}", RuntimeWarning, stacklevel=2)  # what the block raises is more

    def measure(self, ours: Callable[[], object], eager: Callable[[], object]) -> None:
        """Puts in the memory that a call takes, and one of eager, and what the guards take that are checked in it."""
        import tracework_capture as capture

        from .reports.memory import beside_eager

        devices = [device for each in self._recorder.compiled if each.artifact is not None for device in each.artifact.devices]
        self._recorder.memory = beside_eager(ours, eager, max(devices, default="cpu"))
        try:
            with capture.set_stance("force_eager"):  # what is compiled runs uncompiled, in the frames that have the guards
                self._recorder.guards = capture.guard_costs(ours)
        except Exception:  # whatever the function says when it runs uncompiled: a report goes without it
            self._recorder.guards = None

    def json(self) -> dict[str, Any]:
        """Plain data of a stable schema, which docs/guides/reports.md describes."""
        from .reports.document import document

        if self._found is not None:
            return self._found
        found = document(self._recorder, self._what)
        self._found = found if self._process is None else None  # in its block there is more to come
        return found

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Writes the page; a name that ends in .json gets the data instead."""
        from .reports.page import page

        path = Path(file).absolute()
        found = self.json()
        path.write_text(json.dumps(found, indent=1) if path.suffix == ".json" else page(found), encoding="utf-8")
        self._file = path
        return path

    def __str__(self) -> str:
        from .reports.text import ten_lines

        return "\n".join(ten_lines(self.json(), str(self._file) if self._file is not None else ""))


def report(target: Any = None, *, profile: bool = False, **arguments: Any) -> Any:
    """Says what was compiled, and to what.

    `report(f)(*args)` compiles f afresh, calls it and gives a Report. `with report("file.html") as found:` gives one of all that is compiled
    in the block, and writes the page at its end; without a file nothing is written.

    Args:
        target: a function, method or nn.Module, or the name of a file.
        profile: time each kernel and library call, and measure what the machine can do. What is compiled then is slower, by a microsecond or
            so for each of them, also after the block, and is not recorded as a CUDA graph; `report(f, profile=True)` calls f up to twenty times,
            and twice uncompiled, for memory and guards.
        arguments: compile()'s, with which f is compiled.

    Raises NotCallable for another target; the block InvalidArgument where its file cannot be written.
    """
    if target is None or isinstance(target, (str, os.PathLike)):
        if arguments:
            raise NotCallable(f"report() of a block takes profile= alone, not {', '.join(arguments)}, which are for a function.")
        return Report(str(target or "a block"), target, profile)
    if not callable(target):
        raise NotCallable(f"report() takes a function, method, nn.Module or file, not {type(target).__name__}: {target!r}.")
    return _of_calls(target, profile, arguments)


def _of_calls(target: Callable[..., Any], profile: bool, arguments: dict[str, Any]) -> Callable[..., Report]:
    def run(*args: Any, **kwargs: Any) -> Report:
        made = Report(getattr(target, "__qualname__", type(target).__qualname__), profile=profile)
        plain = uncompiled_form(target)
        call = api.compile(plain, **arguments, observe=lambda stage, product: None)
        with made:
            made.result = call(*args, **kwargs)
            until = time.perf_counter() + SECONDS
            for _ in range(CALLS if profile else 0):
                call(*args, **kwargs)
                if time.perf_counter() > until:
                    break
        if profile:
            made.measure(lambda: call(*args, **kwargs), lambda: plain(*args, **kwargs))
        return made

    return run
