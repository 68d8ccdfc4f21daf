"""Which guard failed, with both values: the reason of a recompile, in words."""

from collections.abc import Callable
from typing import Any

from ..weakly_held import is_held, there
from .access import Scope
from .guard import Guard
from .kinds import kind_of, short
from .program import Failure, Program


def explain_failure(failure: Failure) -> str:
    """One line."""
    guard = failure.guard
    if guard is None:
        return f"an input could not be read: {type(failure.error).__name__}: {failure.error}"
    if not isinstance(guard, Guard):
        return f"{failure.value}  ({guard.origin})" if guard.origin else str(failure.value)
    where = f"  ({guard.origin})" if guard.origin else ""
    if failure.error is not None:
        return f"{guard.source} cannot be read: {type(failure.error).__name__}: {failure.error}{where}"
    if guard.kind == "SAME":
        return f"{guard.source} is no longer the same object as {guard.payload}{where}"
    if guard.kind == "DISTINCT":
        return f"{failure.value[0]} and {failure.value[1]} are now the same object{where}"
    if guard.kind == "RELATION":
        holds, sources = guard.payload
        now = ", ".join(f"{source} is {short(value)}" for source, value in zip(sources, failure.value))
        return f"{now}: {getattr(holds, '__doc__', None) or holds} is false{where}"
    if not is_held(guard.payload):
        return f"{guard.source} is another object; the one before is gone{where}"
    return f"{guard.source} {kind_of(guard.kind).text(failure.value, there(guard.payload))}{where}"


def _size_cure(guard: Guard, value: Any) -> str:
    """A tensor that differs: in a size, that could be open; in something else, that could not."""
    facts = guard.payload
    if type(value) is not facts.type:  # which may have no shape, or code of its own that gives it
        return CURES["TYPE"](guard, value)
    shape = tuple(value.shape)
    if len(shape) != len(facts.sizes) or value.dtype != facts.dtype or value.device != facts.device:
        return f"call it with the same dtype, device and number of dims of {guard.source}, or compile one function for each"
    changed = [dim for dim, (now, then) in enumerate(zip(shape, facts.sizes)) if then is not None and now != then]
    if not changed:
        return f"give {guard.source} one memory layout and one requires_grad (contiguous(), detach())"
    return f"mark_dynamic({guard.source}, {changed[0] if len(changed) == 1 else changed}) before the first call, or dynamic=True"


def same_object_cure(place: Any) -> str:
    """For a place where each call has another object."""
    return f"pass the same object as {place}; make it once, outside of the calls"


CURES: dict[str, Callable[[Guard, Any], str]] = {
    "TENSOR": _size_cure,
    "CONSTANT": lambda g, v: f"keep {g.source} the same, or pass it as a tensor when only tensors are computed with it",
    "DATA": lambda g, v: f"keep the numbers in {g.source} the same",
    "ORDER": lambda g, v: f"keep {g.source} on one side of {g.payload[1]!r}; each side is compiled by itself",
    "STATE": lambda g, v: f"call it in one setting of torch's {g.source}, or compile one function for each",
    "LENGTH": lambda g, v: f"keep the length of {g.source} the same",
    "TYPE": lambda g, v: f"pass one type of object as {g.source}",
    "IDENTITY": lambda g, v: same_object_cure(g.source),
    "CODE": lambda g, v: f"pass the same function as {g.source}; define it once, outside of the calls",
    "DISTINCT": lambda g, v: "pass different tensors, or always the same one twice",
    "SAME": lambda g, v: "pass different tensors, or always the same one twice",
    "CLASSES": lambda g, v: "do not change classes between calls",
}
"""Kind of guard -> what would have kept it from failing; other kinds have no advice of their own."""


def cure_of(program: Program, scope: Scope) -> str | None:
    """What would have made the program accept this frame; None when there is no advice, or it does."""
    outcome = program.run(scope)
    if not isinstance(outcome, Failure) or not isinstance(outcome.guard, Guard) or outcome.error is not None:
        return None
    advice = CURES.get(outcome.guard.kind)
    return None if advice is None else advice(outcome.guard, outcome.value)


def recompile_reason(program: Program, scope: Scope) -> str | None:
    """Why the program does not accept this frame; None when it does."""
    outcome = program.run(scope)
    return explain_failure(outcome) if isinstance(outcome, Failure) else None
