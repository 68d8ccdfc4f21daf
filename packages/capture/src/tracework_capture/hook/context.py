"""The front door: optimize, disable, run_only, capture one call, reset."""

from __future__ import annotations

import functools
import inspect
import logging
import types
from typing import TYPE_CHECKING, Any

from ..errors import CaptureError, SkipFrame
from ..graph.inputs import SizeHistory
from ..options import CaptureOptions
from .compile_frame import FrameInput, capture_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..contracts import CapturedGraph

__all__ = ["capture", "frame_of"]

log = logging.getLogger("tracework.capture")


def frame_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[FrameInput, types.FunctionType]:
    """The frame that function(*args, **kwargs) would run, and its Python function."""
    if isinstance(function, types.MethodType):
        return frame_of(function.__func__, (function.__self__, *args), kwargs)
    if not isinstance(function, types.FunctionType):
        call = getattr(type(function), "forward", None) or getattr(type(function), "__call__", None)
        if not isinstance(call, types.FunctionType):
            raise CaptureError(f"{function!r} is not a Python function, method or module: nothing to capture")
        return frame_of(call, (function, *args), kwargs)
    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    return FrameInput(function.__code__, dict(bound.arguments), function.__globals__, function.__closure__), function


def _run_graph(gm: Any, example_inputs: list[Any]) -> Any:
    return gm.forward


def capture(function: Callable[..., Any], *args: Any, dynamic: bool | None = None, **kwargs: Any) -> CapturedGraph:
    """The one graph of function(*args, **kwargs), without running it.

    Raises Unsupported where the graph would break, CaptureError when there is nothing to record.
    """
    given, _ = frame_of(function, args, kwargs)
    options = CaptureOptions(fullgraph=True, dynamic=dynamic)
    try:
        captured = capture_frame(given, _run_graph, options, SizeHistory(), lambda fn: fn)
    except SkipFrame as skipped:
        raise CaptureError(f"{given.code.co_qualname}: {skipped.detail}") from skipped
    assert captured.graph is not None
    return captured.graph


assert functools is not None
