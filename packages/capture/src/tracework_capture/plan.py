"""An attempt to capture a frame: what it sets out from (Plan), how it ends (Outcome, or SkipFrame where
the frame must run as plain Python), and what it may learn for the next one (Again)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from .contracts import Break

if TYPE_CHECKING:
    from .errors import BreakGraph, UserLocation
    from .graph.captured import Captured

ATTEMPTS = 12


@dataclass(frozen=True)
class Learnt:
    """What attempts have found out about one code object, for good; nothing at first. Joined with `|`."""

    unchecked: bool = False
    """Conditions on data break the graph: they are left to no check (graph.checks)."""
    isolated: bool = False
    """Writes to inputs and operators that may raise go into graphs of their own."""
    plain_hooks: bool = False
    """Hooks of tensors are not traced: those that can be are registered as they are."""
    read_while_tracing: frozenset[Any] = frozenset()
    """Where data is read that something needs while tracing (values.number.deferred)."""
    not_selected: frozenset[Any] = frozenset()
    """Conditions on data whose arms are not selected (interp.select)."""
    fixed_dims: frozenset[tuple[Any, int]] = frozenset()
    """Dims that were opened on a guess, and that the program fixes (graph.inputs)."""
    fixed_sizes: bool = False
    """Sizes of tensors are numbers: a tensor is distributed (values.torch.distributed_tensor)."""

    def __or__(self, other: Learnt) -> Learnt:
        return Learnt(**{name: getattr(self, name) | getattr(other, name) for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class RetryRow:
    """Why a frame is captured again (`text`), with which fields of the plan changed; `from_start`: the break at which the graph was to end is
    forgotten; `free`: the attempt does not count."""

    text: str
    from_start: bool = False
    free: bool = False
    changes: tuple[tuple[str, Any], ...] = ()


RETRIES = {
    "isolated": RetryRow("an operator may raise, and the frame could not run again", from_start=True),
    "unchecked": RetryRow("a condition on data cannot be left to a check", from_start=True),
    "selection_seen": RetryRow("the program may see which tensor a selection replaced", from_start=True),
    "selection_refused": RetryRow("the arms of a condition on data are not selected"),
    "number_needed": RetryRow("what is read from a tensor is needed while tracing", from_start=True),
    "data_written": RetryRow("the frame writes to data that was taken as it is", from_start=True),
    "hook_asked": RetryRow("a hook of a module is not taken off, or its handle is looked at", from_start=True),
    "hook_untraced": RetryRow("a hook of a tensor cannot be traced"),
    "guess_fixed": RetryRow("a size that might have changed is fixed by the program"),
    "sizes_fixed": RetryRow("a tensor is distributed, whose sizes are numbers", from_start=True),
    "initialised": RetryRow("a lazy module has its parameters now", free=True),
    "by_rounds": RetryRow("a later round of a loop breaks: all rounds share what is compiled", changes=(("unrolls", False),)),
    "without_sizes": RetryRow(
        "sizes that depend on data do not stay in one graph", from_start=True, changes=(("keeps_sizes", False),)
    ),
}


class Again(Exception):
    """The frame must be captured again, with what was learnt. retry_id: a row of RETRIES; detail: which one it was, for the log."""

    def __init__(self, retry_id: str, learnt: Learnt = Learnt(), detail: str = "") -> None:  # it is frozen
        self.row = RETRIES[retry_id]
        self.learnt = learnt
        super().__init__(f"{self.row.text}: {detail}" if detail else self.row.text)


@dataclass(frozen=True)
class Stop:
    """Where the graph ends: before the instruction that an attempt reached at `step`, at which it met a break.

    stack: the places in the user's code, outermost first. raises: whether the instruction raises. refused: whether eager refuses it, as
    its shape rule did."""

    step: int
    reason: BreakGraph
    stack: tuple[UserLocation, ...]
    raises: bool = False
    refused: bool = False

    def as_break(self) -> Break:
        """The same for users."""
        return Break(self.reason.reason_id, str(self.reason), self.stack, self.reason.detail)


@dataclass(frozen=True)
class Plan:
    """What one attempt sets out from.

    keeps_sizes: whether sizes that depend on data may be symbols. answers: what remembering functions gave to earlier attempts of this
    capture, or while a stored entry was looked for (values.objects.lru_cache). unrolls: whether the rounds left of a loop that was broken in
    are captured together. attempts_left: with this one."""

    learnt: Learnt
    keeps_sizes: bool
    answers: dict[Any, Any] = field(default_factory=dict)
    stop: Stop | None = None
    unrolls: bool = True
    attempts_left: int = ATTEMPTS

    @property
    def stop_before(self) -> int:
        """The step of the captured frame before which the graph ends; -1 where it need not end."""
        return -1 if self.stop is None else self.stop.step

    @property
    def ends_in_raise(self) -> bool:
        """Whether the instruction to stop at raises."""
        return self.stop is not None and self.stop.raises

    @property
    def is_refused(self) -> bool:
        """Whether the instruction to stop at is one that eager refuses, as its shape rule did."""
        return self.stop is not None and self.stop.refused

    def after(self, again: Again) -> Plan:
        """The next attempt."""
        row = again.row
        learnt, stop = self.learnt | again.learnt, None if row.from_start else self.stop
        return replace(self, learnt=learnt, stop=stop, attempts_left=self.attempts_left - (not row.free), **dict(row.changes))

    def stopped(self, stop: Stop) -> Plan:
        """The next attempt, which ends there."""
        return replace(self, stop=stop, attempts_left=self.attempts_left - 1)


@dataclass(frozen=True)
class Done:
    """The frame was captured."""

    captured: Captured


@dataclass(frozen=True)
class Retry:
    """It is to be captured by another plan."""

    plan: Plan
    why: str


@dataclass(frozen=True)
class Stopped:
    """It breaks; `is_small`: between two breaks of one round of a loop, with too little to be worth the call of a graph."""

    stop: Stop
    is_small: bool


Outcome: TypeAlias = Done | Retry | Stopped
