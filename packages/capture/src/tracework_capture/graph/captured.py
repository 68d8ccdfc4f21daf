"""What one capture gives."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..contracts import Break, CapturedGraph, Returned
from ..errors import ControlMisuse


class BackendFailed(Exception):
    """The backend raised; the error itself is __cause__."""


@dataclass(frozen=True)
class GraphCall:
    """How generated code calls what the backend made of a graph. called: the constant that is called; recipe: what the backend says its
    callable is made of, None where it cannot be made from data; count: of results; backend: its name; refused: why there is no recipe;
    changes, modes, draws: what stands between the two (graph.changed_inputs); due: the results that have to have a history."""

    called: Any
    recipe: Any
    count: int
    backend: str
    refused: str = ""
    changes: tuple[tuple[int, str], ...] = ()
    modes: tuple[str, ...] = ()
    due: tuple[tuple[int, str, str], ...] = ()
    draws: tuple[tuple[int, Any], ...] = ()


@dataclass
class Captured:
    """What one capture of a frame gives: replacement code, what its guards are and what they collect."""

    code: types.CodeType
    guards: Any
    collect: tuple[Any, ...]
    graph: CapturedGraph | None
    symbols: Any
    stop: Returned | Break
    raising_codes: tuple[types.CodeType, ...] = ()
    checked: bool = False  # conditions on data are left to checks
    given_back: bool = True  # the backend gave the graph back as it was
    effects: tuple[str, ...] = ()  # what the code does beside calling the graph and making its result
    seconds: dict[str, float] = field(default_factory=dict)
    call: GraphCall | None = None
    inlined: tuple[types.CodeType, ...] = ()
    only_now: str | None = None


def name_of(backend: Any) -> str:
    """The backend in messages."""
    return getattr(backend, "__name__", None) or repr(backend)


def refuse_results(backend: str, count: int, given: Any) -> NoReturn:
    """Raises ControlMisuse for what a compiled graph gave."""
    how = f" of {len(given)}" if isinstance(given, (tuple, list)) else ", not a tuple,"
    raise ControlMisuse(
        f"what the backend {backend} made of a graph gave a {type(given).__name__}{how} for its {count} result{'s' * (count > 1)}."
        " Give the tuple of results, as the graph module's forward does."
    )


def with_history(
    compiled: Callable[..., Any], due: Sequence[tuple[int, str, str]], count: int, backend: str
) -> Callable[..., Any]:
    """Raises ControlMisuse at a call that gives a tensor without a history where the program's has one: gradients would be lost.

    due: places of such results among `count`, with their names and where they are from.
    """
    if not due:
        return compiled

    def call(*given: Any) -> Any:
        made = compiled(*given)
        if isinstance(made, (tuple, list)) and len(made) == count:
            for place, name, origin in due:
                if not made[place].requires_grad:
                    raise ControlMisuse(
                        f"what the backend {backend} made of a graph gave {name}, result {place} (at {origin}), without"
                        " a history, and its gradient would be lost. Call the function under torch.no_grad(), or let the backend compile"
                        " forward and backward, as tracework_aotautograd.aot_compile does with a forward_compiler."
                    )
        return made

    return call
