"""torch.autograd.forward_ad: a whole block of a level goes into the graph, where eager kernels compute the tangents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from torch.autograd import forward_ad

from ..._torch import dual_level
from ...errors import BreakGraph
from ..protocol.calls import call, calls
from ..protocol.constant import ConstantValue
from .context import ContextValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.calls import Handler
    from ..protocol.value import Frame, Value


class DualLevel(ContextValue):
    """forward_ad.dual_level()"""

    made_at = -1

    def enter(self, frame: Frame) -> Value:
        if frame.modes.transforms:
            frame.break_graph("context_unknown", "forward_ad.dual_level under a transform of torch.func")
        self.made_at = frame.progress.step
        frame.modes.uses_dual_levels = True
        frame.graph.plain_node(frame, forward_ad.enter_dual_level, ())
        return ConstantValue(dual_level())

    def leave(self, frame: Frame) -> None:
        frame.graph.plain_node(frame, forward_ad.exit_dual_level, ())

    def leave_at_break(self, frame: Frame) -> NoReturn:
        """Tangents do not outlive their level: the graph ends before the block begins."""
        stop = BreakGraph("context_unknown", "a block of forward_ad.dual_level with a break inside")
        stop.made_at = self.made_at
        raise stop


@call(forward_ad.dual_level)
def dual_level_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return DualLevel(forward_ad.dual_level, args, kwargs)


def node_row(fn: Callable[..., Any]) -> Handler:
    """A function whose calls are nodes."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.graph.call(frame, fn, tuple(args), kwargs)

    return handler


calls({fn: node_row(fn) for fn in (forward_ad.make_dual, forward_ad.unpack_dual)})
