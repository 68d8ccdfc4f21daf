"""A guard on what functions of functools.cache and lru_cache remember."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from .. import _C
from ..atoms import is_atom
from ..signals import let_through
from .addresses import address_of, digest_of_attribute
from .guard import payload_key
from .kinds import same_constant
from .paths import Changed
from .portable import Predicate

_CONTAINERS = (tuple, list, dict, set, frozenset)


def question(function: Any, args: list[Any], kwargs: dict[str, Any], before: int) -> Any:
    """What stands for a call of the function in a frame, after so many other ones."""
    return id(function), payload_key(args), payload_key([*kwargs.items()]), before


class Remembered(Predicate):
    """it gives what it gave while tracing"""

    runs_program = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls: list[
            tuple[list[Any], dict[str, Any], Any]
        ] = []  # (args, kwargs, result) in the program's order, which says what is forgotten next
        self.function = weakref.ref(function)
        self.counts = None  # what the function counted until tracing had asked it for the last time, until the guard was asked

    def number_with(self, args: list[Any], kwargs: dict[str, Any]) -> int:
        """Of different calls, this one too."""
        return len(
            {(payload_key(a), payload_key([*k.items()])) for a, k in [*((a, k) for a, k, _ in self.calls), (args, kwargs)]}
        )

    def record_call(self, function: Any, args: list[Any], kwargs: dict[str, Any], found: Any) -> None:
        """Notes a call that tracing made."""
        self.calls.append((args, kwargs, found))
        self.counts = function.cache_info()

    def was_asked(self) -> None:
        """The guard has asked for this run, and is asked once more before the code that it guards."""
        function: Any = self.function()
        self.counts = None if function is None else function.cache_info()

    def is_as_traced(self, function: Any) -> bool:
        """Whether nobody asked the function since tracing did, which stands for the calls of this run."""
        counts, self.counts = self.counts, None
        return counts is not None and function is self.function() and function.cache_info() == counts

    def __call__(self, function: Any) -> bool:
        if self.is_as_traced(function):
            return True
        remembered = _C.Scoped(function, None)
        for args, kwargs, expected in self.calls:
            try:
                found = remembered(*args, **kwargs)
            except Exception as error:  # the program meets it where it calls the function
                let_through(error)
                return False
            if not (same_constant(found, expected) if is_atom(expected) else found is expected):
                return False
        return True

    def gives(self) -> list[Any]:
        return [found for _, _, found in self.calls if not is_atom(found)]

    def digest(self) -> list[Any]:
        """The calls with their results. Of objects it is said what tracing takes from them without a guard, and which of them are the same one."""
        numbers: dict[int, int] = {}
        return [
            [args, [*kwargs.items()], found, ""]
            if is_atom(found)
            else [args, [*kwargs.items()], numbers.setdefault(id(found), len(numbers)), _described(found)]
            for args, kwargs, found in self.calls
        ]

    @classmethod
    def of(cls, found: Any, digest: list[Any], answers: dict[Any, Any] | None = None) -> Remembered:
        """Where it gives objects it is asked for them, once for each call that the program will make now. answers: what was asked for this
        run already, by question(), to which this is added."""
        answers = {} if answers is None else answers
        made = cls(found)
        asks = any(description for *_, description in digest)
        for args, kwargs, expected, _ in digest:
            if not asks:
                made.calls.append((args, dict(kwargs), expected))
                continue
            asked = question(found, args, dict(kwargs), len(made.calls))
            try:
                if asked not in answers:
                    answers[asked] = _C.Scoped(found, None)(*args, **dict(kwargs)), args, kwargs
            except Exception as error:
                let_through(error)
                raise Changed(f"what a function remembers is not there: {type(error).__name__}") from error
            made.record_call(found, args, dict(kwargs), answers[asked][0])
        now = made.digest()
        if [row[3] for row in now] != [row[3] for row in digest] or not all(
            same_constant(one[2], other[2]) for one, other in zip(now, digest)
        ):
            raise Changed("what a function remembers is something else")
        return made


def _described(value: Any, depth: int = 4) -> str:
    """What tracing takes from a result: whole constants, and the kinds of tensors, whose numbers it does not see. Raises NotPortable."""
    if isinstance(value, torch.Tensor):
        return f"tensor {address_of(type(value))} {value.dtype} {value.device} {tuple(value.shape)} {value.requires_grad}"
    if type(value) in _CONTAINERS and depth:
        parts = [_described(part, depth - 1) for part in (value.items() if type(value) is dict else value)]
        return f"{type(value).__name__} {sorted(parts) if type(value) in (set, frozenset) else parts}"
    return digest_of_attribute(value)
