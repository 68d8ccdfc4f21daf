"""The errors that the entry point raises itself: every one names what was given and the next thing to try."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def _unpickled(cls: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error


class TraceworkError(RuntimeError):
    """Root of the errors of the entry point; RuntimeErrors, as those of torch.compile are."""

    __tracework_error__ = True
    """Whoever calls a backend lets it pass as it is."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """With message and attributes, whatever __init__ takes; primops' Pickled would bring torch."""
        return _unpickled, (type(self), self.args, dict(vars(self)))


class InvalidArgument(TraceworkError, ValueError):
    """An argument of `compile` has a value that cannot be used."""


class NotCallable(TraceworkError, TypeError):
    """What was given to `compile` cannot be called."""


class UnknownName(InvalidArgument):
    """A mode, backend or option that does not exist."""

    def __init__(self, what: str, name: object, known: Iterable[str], also: Iterable[str] = ()) -> None:
        """known: the names that are listed. also: those that may have been meant, too."""
        names = sorted(known)
        close = difflib.get_close_matches(str(name), [*names, *also], n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"unknown {what} {name!r}.{hint} Known: {', '.join(map(repr, names))}.")


class MixedDevices(InvalidArgument):
    """The tensors of one module live on devices that no graph is compiled for together, such as the CPU and "meta"."""

    def __init__(self, where: str, devices: Iterable[str]) -> None:
        found = ", ".join(sorted(devices))
        super().__init__(
            f"{where} has tensors on devices that cannot be compiled together ({found}). Move it to the CPU or to GPUs with "
            f"`.to(device)`, or compile the parts that live on one device each."
        )


class CannotCarry(InvalidArgument):
    """A function cannot be compiled ahead of its calls and carried to another process: it needs what is only here.

    Attributes:
        reasons: what, with the line of the program where it is known, and what to do.
    """

    def __init__(self, name: str, reasons: Iterable[str]) -> None:
        self.reasons = tuple(dict.fromkeys(reasons))
        lines = "".join(f"\n  {reason}" for reason in self.reasons)
        super().__init__(f"{name} cannot be carried as a whole:{lines}")


class MissingCompiler(InvalidArgument):
    """Kernels for the CPU need a C++ compiler and there is none, or the one asked for does not exist."""

    def __init__(self, cause: object) -> None:
        super().__init__(
            f"kernels for the CPU need a C++ compiler: {cause}\nNext: install one, or set TRACEWORK_CXX to its path."
        )


class CompileError(TraceworkError):
    """A stage failed on the user's program; `__cause__` is the stage's own error.

    Attributes:
        stage: "aotautograd", "primops", "inductor" or "runtime".
        location: "file:line" of the user's code where it is known, else None.
        case: the file with the graph and its inputs, on which `tracework diff`, `bisect` and `minify` work; None where none was written.
    """

    def __init__(self, stage: str, cause: BaseException, location: str | None = None) -> None:
        self.stage = stage
        self.location = location
        self.case: Path | None = None
        at = f" at {location}" if location else ""
        super().__init__(
            f"{stage} could not compile the graph{at}: {type(cause).__name__}: {cause}\n"
            f"Next: set TRACEWORK_SUPPRESS_ERRORS=1 (or options={{'suppress_errors': True}}) to run this graph uncompiled, or "
            f"backend='aot_eager' / 'eager' to see which stage is at fault."
        )

    def written_to(self, case: Path) -> None:
        """Names the case that tells of it."""
        if self.case is None:
            self.args = (f"{self.args[0]}\nCase: {case}. Next: tracework minify {case}",)
        self.case = case
