"""What can go wrong in primops; every error names the op and what to try next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Pickled:
    """Of an exception: it is pickled with its message and attributes, whatever its __init__ takes.

    Python's own way calls __init__ with the message, which fails, so that a process which is sent such an error dies of another one.
    """

    args: tuple[Any, ...]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpickled, (type(self), self.args, dict(vars(self)))


def _unpickled(cls: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error


class PrimError(Pickled, Exception):
    """Root of all errors raised by tracework_primops."""


class VerifyError(PrimError):
    """A graph breaks a rule of its level."""


class MissingRule(PrimError):
    """A table has no row for this key."""


class SealedTable(PrimError):
    """A table was changed after import in a way that is not allowed."""


class FakeTensorError(PrimError):
    """An operation on fake tensors that cannot be done."""


class MixedTensorError(FakeTensorError):
    """Fake and real tensors, or the fakes of two traces, met in one call."""

    def __init__(self, op: object, two_traces: bool = False) -> None:
        if two_traces:
            super().__init__(
                f"{op}: fake tensors of two traces met in one call. A fake of an earlier trace was kept, in a global or an attribute; "
                "make everything that the traced function uses in one mode."
            )
            return
        super().__init__(
            f"{op}: a real tensor met fake tensors in one call. Make it fake first (mode.from_real(t)) "
            "or pass it to the traced function as an input."
        )


class DataDependentError(FakeTensorError):
    """The result depends on the values of a tensor, which a fake does not have."""

    def __init__(self, op: object) -> None:
        self.op = op
        super().__init__(
            f"{op}: the result depends on the data of a tensor, which is not there while tracing. "
            "Break the graph here, or avoid the call (`item()`, `nonzero`, a tensor as a condition, ...)."
        )


class GuardOnUnbackedError(FakeTensorError):
    """A decision was asked about a size that is only known when the program runs."""

    def __init__(self, condition: object, origin: str = "") -> None:
        self.condition = condition
        place = f" at {origin}" if origin else ""
        super().__init__(
            f"the program decides on `{condition}`{place}, a size that depends on the data of a tensor. "
            "State what holds with torch._check(...), or break the graph before."
        )


class ParseError(PrimError):
    """A text is not a graph or size in our text form."""
