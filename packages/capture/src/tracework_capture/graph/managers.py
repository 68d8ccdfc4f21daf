"""Context managers in the graph: the nodes of those of torch that hold for a block of it, and those that a call has entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from .._torch import exit_autocast
from ..errors import BreakGraph

if TYPE_CHECKING:
    from ..values.protocol.value import Frame

__all__ = ["end_autocast", "left", "record_plain", "refuse_open_managers"]


def left(frame: Any, manager: Any) -> None:
    """The manager is not entered any more, or once less often."""
    entered = frame.modes.entered
    place = next((n for n in reversed(range(len(entered))) if entered[n][0] is manager), None)
    if place is not None:
        del entered[place]


def refuse_open_managers(frame: Frame) -> None:
    """Breaks the graph before the call that enters a manager by hand where the graph would end before it is left: what graphs do in the
    block ends with them."""
    for manager, step, stack in frame.modes.entered:
        if not manager.outlives_graph:
            stop = BreakGraph(
                "context_unknown", f"{manager.cls.__name__} is entered by a call, and the graph ends before it is left"
            )
            stop.created_at, stop.stack = step, stack
            raise stop


def record_plain(frame: Any, target: Callable[..., Any], args: tuple[Any, ...]) -> fx.Node:
    """A node whose arguments and result are not values (autocast's enter and exit); gives the node."""
    example = frame.graph.run_on_fakes(frame, target, args, {}, "call_function")
    node: fx.Node = frame.graph.graph.call_function(target, args)
    node.meta.update(example_value=example, val=example, stack=frame.user_location(), stack_trace=frame.user_location())
    frame.graph.calls += 1
    return node


def end_autocast(frame: Any) -> None:
    """At the end of a graph: blocks that began before it and ended in it are blocks of the graph in which what held before them does.
    They really end after the graph."""
    for node in reversed(frame.modes.autocast_ended):
        record_plain(frame, exit_autocast, (node,))
    frame.modes.autocast_ended.clear()
