"""What capture hands out: CapturedGraph, its InputBindings, and the Backend protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .errors import BREAK_REASONS, describe_break, excerpt

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

    from .errors import UserLocation
    from .guards.guard import GuardSet
    from .sources import Source


@dataclass(frozen=True)
class InputBinding:
    """One placeholder: where its run-time value is read and what it is."""

    name: str
    source: Source
    role: str  # parameter, buffer, tensor, size, float, computed, rng
    is_static: bool = False


GIVEN_OTHERWISE = frozenset({"float", "computed", "rng"})
"""Roles of inputs that a graph does not get as they are read: numbers as tensors, what is computed of others, draws."""


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
    """Recording stopped before an instruction that cannot be captured.

    reason_id: a key of BREAK_REASONS. text: what happened, on one line. stack: the places in the user's code, outermost first.
    """

    reason_id: str
    text: str
    stack: tuple[UserLocation, ...] = ()
    detail: str = ""

    @property
    def place(self) -> UserLocation | None:
        """Where it was, None when that is not known."""
        return self.stack[-1] if self.stack else None

    def report(self) -> str:
        """The break with its source line and a caret under the expression, why it is one, and what removes it."""
        return describe_break(self.reason_id, self.detail, self.stack)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        reason = BREAK_REASONS[self.reason_id]
        return {
            "reason_id": self.reason_id,
            "what": reason.what,
            "why": reason.why,
            "cure": reason.cure,
            "detail": self.detail,
            "stack": [{"file": p.filename, "line": p.line, "function": p.function, "column": p.column} for p in self.stack],
            "source": excerpt(self.stack[-1]) if self.stack else "",
        }


@dataclass(frozen=True)
class PlainFrame:
    """A function that runs as plain Python, why, and the break that could not be continued when that was it."""

    name: str
    why: str
    stop: Break | None = None
    filename: str = ""
    line: int = 0


@dataclass(frozen=True)
class Stored:
    """What became of an entry beside the process. loaded: it came from there; why: it is not kept, and what stands against it, empty where it
    is."""

    name: str
    filename: str
    line: int
    loaded: bool = False
    why: str = ""


@dataclass(frozen=True)
class Recompile:
    """A call that no entry fitted: for each entry, which guard failed, with both values; and what would have kept them from failing."""

    name: str
    filename: str
    line: int
    reasons: tuple[str, ...]
    cures: tuple[str, ...] = ()


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
        ending = f"broken by {self.stop.text} at {self.stop.place}" if isinstance(self.stop, Break) else "whole"
        lines = [f"# captured graph of {self.origin}; {ending}"]
        lines += [f"#   {b.name}: {b.role} {b.source}" for b in self.inputs]
        lines.append(self.graph.code.strip())
        lines += [f"# guard {guard}" for guard in self.guards]
        return "\n".join(lines)


SYMBOLIC_SIZES = "__tracework_symbolic_sizes__"
"""The attribute of a backend whose value true says that what it makes of a graph with symbols serves all sizes that the guards let in."""


REPEATS_WRITES = "__tracework_repeats_writes__"
"""The attribute of a backend whose value true says that the backward of what it makes of a graph repeats what checkpoints write to inputs."""


class Backend(Protocol):
    """What turns a captured graph into something callable.

    Sizes and ints that change are symbols in the graph (SymInts in the placeholders' meta["example_value"], the present numbers among
    `example_inputs`) where the backend says that it keeps them open, by the attribute SYMBOLIC_SIZES, or gives the graph back as it is.
    What another one makes of a graph may have the present numbers in it: it gets a graph for each, guarded, without symbols.
    Checkpoints that write to inputs, as batch norm does to its statistics, are in graphs for backends that have the attribute REPEATS_WRITES.
    """

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]: ...


RECIPE = "__tracework_recipe__"
"""The attribute of what a backend makes of a graph that says, as plain data, what it is made of: EntryStore.restore makes it again."""

REFUSED = "__tracework_no_recipe__"
"""The attribute of what a backend makes of a graph that has no recipe: why."""

TRIES_SYMBOLS = "tries_symbols"
"""In the meta of a graph that has symbols for sizes of DTensors: where it is refused, it is captured again with numbers."""

ENTRIES = "__tracework_entries__"
"""The attribute of a backend that has the EntryStore in which what is captured for it is kept."""


BESIDE = "__tracework_beside__"
"""The attribute of a function to compile beside another one, which is called first, as a rule."""


class EntryStore(Protocol):
    """Where entries outlive the process. Neither `get` nor `put` raises for a disk that fails. `get` gives only what `put` was given: the bytes
    have code in them."""

    def get(self, key: str) -> bytes | None:
        """What was put under a key by a process of the same packages, devices and options."""

    def put(self, key: str, content: bytes) -> None:
        """Keeps it."""

    def missed(self) -> None:
        """A frame is to be captured of which nothing is stored: what that takes is imported, before programs change how Python does."""

    def restore(self, recipe: Any) -> Callable[..., Any] | None:
        """What a recipe was the recipe of; None where a part of it is gone."""
