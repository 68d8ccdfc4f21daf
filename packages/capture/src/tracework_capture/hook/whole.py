"""A call captured as a whole, without running it: one graph, where its inputs are read, and how the call's result is put together.

The replacement code of the frame is run once, with a Slot in the place of whatever a call of it is given: what it makes of these is the
result as data.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any, NoReturn

from ..contracts import GIVEN_OTHERWISE, CapturedGraph
from ..errors import CaptureError, SkipFrame
from ..graph.captured import BackendFailed
from ..options import CaptureOptions
from ..plan import Learnt
from .context import _capture_frame, disabled_call
from .frame_input import FrameInput, forget_frames
from .history import History

CONTAINERS = (tuple, list, dict)
"""Types of arguments that are looked into."""


class Slot(int):
    """What a call has in a place. kind: "input" or "output" of the graph, whose number `place` is, or "argument", whose path it is.

    An int, so that it may be a size; what computes with it raises.
    """

    kind: str
    place: Any

    def __new__(cls, kind: str, place: Any) -> Slot:
        made = super().__new__(cls, _NO_SIZE)
        made.kind, made.place = kind, place
        return made

    def __repr__(self) -> str:
        return f"Slot({self.kind!r}, {self.place!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slot) and (self.kind, self.place) == (other.kind, other.place)

    def __hash__(self) -> int:
        return hash((self.kind, self.place))

    def _refuse(self, *others: Any) -> NoReturn:
        raise TypeError(f"{self!r} is not known here")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _refuse
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = __bool__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __float__ = __str__ = __format__ = _refuse  # type: ignore[assignment]


_NO_SIZE = 2**61
"""The number that slots are: nothing has it, so that a slot that was taken for a number shows."""


@dataclasses.dataclass(frozen=True)
class WholeCall:
    """What a call was captured as. compiled: what the backend made of the graph. result: what the call gives, with slots."""

    graph: CapturedGraph
    compiled: Any
    result: Any


class NotWhole(CaptureError):
    """A call does more than calling one graph and giving what it computes; `reasons` say what, each in a few words."""

    def __init__(self, name: str, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__(f"{name} does more than to compute its result: it {'; it '.join(reasons)}")


def capture_whole(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], backend: Any, options: CaptureOptions
) -> WholeCall:
    """`function`, whose parameters are *args and **kwargs, called with these; `backend` keeps sizes open that are symbols.

    A call without operations has an empty graph. Raises Unsupported where the graph would break, NotWhole for side effects, CaptureError for
    a frame that is left alone, and what the backend raises.
    """
    code: types.CodeType = function.__code__  # type: ignore[attr-defined]
    closure = function.__closure__  # type: ignore[attr-defined]
    made: list[Any] = []

    def keep(gm: Any, examples: list[Any]) -> Callable[..., Any]:
        made.append(backend(gm, examples))
        count = len(next(iter(reversed(gm.graph.nodes))).args[0])

        def give_slots(*given: Any) -> tuple[Slot, ...]:
            return tuple(Slot("output", place) for place in range(count))

        give_slots.__tracework_writes_last__ = True  # type: ignore[attr-defined]  # it writes to nothing
        return give_slots

    whole_options = dataclasses.replace(options.with_sizes(True), keep_empty=True, whole=True)
    given = FrameInput(code, {"args": args, "kwargs": kwargs}, function.__globals__, closure)  # type: ignore[attr-defined]
    try:
        captured = _capture_frame()(given, keep, whole_options, History(Learnt(unchecked=True)), disabled_call)
    except SkipFrame as skipped:
        raise CaptureError(f"{code.co_qualname}: {skipped.detail}") from skipped
    except BackendFailed as failed:
        cause = failed.__cause__
        assert cause is not None  # what the backend raised
        forget_frames(cause, None)
        raise cause from None
    assert captured.graph is not None
    inputs = captured.graph.inputs
    changed = [f"takes {b.source} by its {b.role}" for b in inputs if b.role in GIVEN_OTHERWISE]
    if captured.effects or changed or captured.checked:
        checked = ("leaves a condition on data to a check",) if captured.checked else ()
        raise NotWhole(options.named(code), (*captured.effects, *changed, *checked))
    replacement = types.FunctionType(captured.code, function.__globals__, code.co_name, None, closure)  # type: ignore[attr-defined]
    slots = tuple(Slot("input", place) for place in range(len(inputs)))
    try:
        result = replacement(slots, _slots(args, ("args",)), _slots(kwargs, ("kwargs",)))
    except Exception as error:  # a slot is no number and no tensor
        raise NotWhole(
            options.named(code), (f"computes its result outside of the graph ({type(error).__name__}: {error})",)
        ) from error
    return WholeCall(captured.graph, made[0], result)


def _slots(value: Any, path: tuple[Any, ...]) -> Any:
    """An argument with a slot for each part that is no container."""
    if type(value) is dict:
        return {key: _slots(part, (*path, key)) for key, part in value.items()}
    if type(value) in CONTAINERS:
        return type(value)(_slots(part, (*path, place)) for place, part in enumerate(value))
    return Slot("argument", path)
