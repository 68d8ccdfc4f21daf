"""What reprlib.recursive_repr, and the __repr__ that dataclass makes, put around the function that writes the text of an object."""

from __future__ import annotations

import dataclasses
import reprlib
import types

from ...sources import Const
from ..protocol.calls import call
from ..protocol.constant import ConstantValue
from ..protocol.value import Frame, Value
from .function import FunctionValue

MAKERS = [reprlib.recursive_repr()]
if hasattr(dataclasses, "_recursive_repr"):  # before 3.13, which takes that of reprlib
    MAKERS.append(dataclasses._recursive_repr)


@call(*(maker(repr).__code__ for maker in MAKERS))
def shown_once(frame: Frame, function: types.FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The text of an object, or dots inside of its own. Which objects are being shown is known while tracing: the set that the wrapper
    keeps of them has none before the frame."""
    if len(args) != 1 or kwargs:
        return frame.break_graph("call_unknown", f"{function.__qualname__} with these arguments")
    cells = FunctionValue(function, Const(function, function.__qualname__)).closure(frame)
    held = {name: found for name, cell in zip(function.__code__.co_freevars, cells) if (found := cell.get(frame)) is not None}
    if held["repr_running"].truth(frame):
        return frame.break_graph("value_not_known", f"{function.__qualname__} inside of itself")
    if any(shown is args[0] for shown in frame.queries.shown):
        return held.get("fillvalue", ConstantValue("..."))
    frame.queries.shown.append(args[0])
    try:
        return held["user_function"].call(frame, args, {})
    finally:
        frame.queries.shown.pop()
