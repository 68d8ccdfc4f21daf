"""What capture hands out: CapturedGraph, its InputBindings, and the Backend protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

    from .guards.guard import GuardSet
    from .sources import Source

__all__ = ["Backend", "Break", "CapturedGraph", "InputBinding", "Origin", "Returned"]


@dataclass(frozen=True)
class InputBinding:
    """One placeholder: where its run-time value is read and what it is."""

    name: str
    source: Source
    role: str  # parameter, buffer, tensor, size, float, rng
    is_static: bool = False


@dataclass(frozen=True)
class Origin:
    """Which user function a graph came from."""

    filename: str
    line: int
    function: str
    attempt: int = 0

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Returned:
    """Recording reached the function's return."""


@dataclass(frozen=True)
class Break:
    """Recording stopped before an instruction that cannot be captured."""

    reason_id: str
    text: str
    stack: tuple[Any, ...] = ()


@dataclass(frozen=True)
class CapturedGraph:
    """One graph at level "captured", with everything needed to call it again."""

    graph: fx.GraphModule
    inputs: tuple[InputBinding, ...]
    guards: GuardSet
    symbols: Any
    origin: Origin
    stop: Returned | Break
    example_inputs: tuple[Any, ...] = field(default=(), repr=False)

    def text(self) -> str:
        """The graph and its guards, readable."""
        lines = [f"# captured graph of {self.origin}; {self.stop}"]
        lines += [f"#   {b.name}: {b.role} {b.source}" for b in self.inputs]
        lines.append(self.graph.code.strip())
        lines += [f"# guard {guard}" for guard in self.guards]
        return "\n".join(lines)


class Backend(Protocol):
    """What turns a captured graph into something callable."""

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]: ...
