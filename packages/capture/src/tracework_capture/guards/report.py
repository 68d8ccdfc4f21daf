"""Which guard failed, with both values: the reason of a recompile, in words."""

import weakref

from .access import Scope
from .guard import Guard
from .kinds import kind_of
from .program import Failure, Program

__all__ = ["explain_failure", "recompile_reason"]


def explain_failure(failure: Failure) -> str:
    """One line."""
    guard = failure.guard
    if guard is None:
        return f"an input could not be read: {type(failure.value).__name__}: {failure.value}"
    if not isinstance(guard, Guard):
        return f"sizes {failure.value} do not satisfy {guard}"
    where = f"  ({guard.origin})" if guard.origin else ""
    if isinstance(failure.value, BaseException):
        return f"{guard.source} cannot be read: {type(failure.value).__name__}: {failure.value}{where}"
    if guard.kind == "SAME":
        return f"{guard.source} is no longer the same object as {guard.payload}{where}"
    if guard.kind == "DISTINCT":
        return f"two of {', '.join(map(str, guard.payload))} are now the same object{where}"
    payload = guard.payload
    if type(payload) is weakref.ref:
        payload = payload()
        if payload is None:
            return f"{guard.source} is another object; the one before is gone{where}"
    return f"{guard.source} {kind_of(guard.kind).text(failure.value, payload)}{where}"


def recompile_reason(program: Program, scope: Scope) -> str | None:
    """Why the program does not accept this frame; None when it does."""
    outcome = program.run(scope)
    return explain_failure(outcome) if isinstance(outcome, Failure) else None
