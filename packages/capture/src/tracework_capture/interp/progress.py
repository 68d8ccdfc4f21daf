"""How far the trace of a frame has come, and whether it is worth going on."""

from __future__ import annotations

from dataclasses import dataclass

from ..values.protocol.value import Frame
from .frame import SymbolicFrame

WITH_TENSORS = 6  # times options.idle_limit is allowed where there are tensors: more may follow


@dataclass(eq=False)
class Progress:
    """sees_tensors: whether there are tensors among the arguments. may_be_small: whether a single operation is left to plain Python."""

    sees_tensors: bool
    may_be_small: bool
    step: int = 0
    """Instructions of the captured frame."""
    iterations: int = 0
    """Of loops."""
    idle: int = 0
    """Instructions and iterations of loops since the graph was last seen to have grown."""
    grown: int = 0
    """How much it had then."""
    unrolled: bool = False
    """Whether the rounds left of a loop that was broken in were captured together."""
    depth: int = 0
    """Of calls that are inlined."""
    current: SymbolicFrame | None = None
    """The innermost frame."""

    def iterate(self, frame: Frame) -> None:
        """A loop goes round."""
        if frame.is_polyfill:
            return
        self.iterations += 1
        self.idle += 1
        self.expect_growth(frame)

    def expect_growth(self, frame: Frame) -> None:
        """Where a loop goes round or a function is called: what adds nothing to the graph for long is faster in plain Python."""
        limit = frame.options.idle_limit
        if self.idle > limit:
            met = frame.graph.met()
            if met != self.grown:
                self.idle, self.grown = 0, met
            limit *= WITH_TENSORS if met or self.sees_tensors else 1
            if self.idle > limit:
                frame.break_graph("long_loop", f"{limit} instructions")
