"""heapq and bisect on lists: the Python that their C stands for is traced; the standard library has both, for the same results."""

from __future__ import annotations

import bisect
import heapq
import importlib.util
import sys
import types
from typing import Any

from ... import polyfills
from ..protocol.calls import calls, traced

HEAP = "heappush heappop heapify heapreplace heappushpop _heappop_max _heapreplace_max _heapify_max".split()
TAKES_FROM = ("heappop", "heapreplace", "_heappop_max", "_heapreplace_max")
SEARCH = "bisect_left bisect_right insort_left insort_right".split()


def in_python(module: types.ModuleType, accelerator: str) -> types.ModuleType:
    """The module as its text has it, before C replaces functions of it."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None and spec.origin is not None
    spec = importlib.util.spec_from_file_location(f"{polyfills.__name__}.{module.__name__}", spec.origin)
    assert spec is not None and spec.loader is not None
    made, held = importlib.util.module_from_spec(spec), sys.modules[accelerator]
    sys.modules[accelerator] = None  # type: ignore[assignment]
    try:
        spec.loader.exec_module(made)
    finally:
        sys.modules[accelerator] = held
    return made


def row(name: str, function: Any) -> Any:
    """Traces `function`. What is no list, and taking from one that is empty, is left to C, which has its own words for errors."""

    trace = traced(function)

    def handler(frame: Any, args: Any, kwargs: Any) -> Any:
        if not args or not issubclass(args[0].python_type(), list) or (name in HEAP and kwargs):
            return frame.break_graph("call_unknown", f"{name} of something that is no list")
        if name in TAKES_FROM and not args[0].truth(frame):
            return frame.raise_new(IndexError, "index out of range")
        return trace(frame, args, kwargs)

    return handler


for _module, _accelerator, _names in ((heapq, "_heapq", HEAP), (bisect, "_bisect", SEARCH)):
    _python = in_python(_module, _accelerator)
    _in_c = [name for name in _names if getattr(getattr(_module, name, None), "__module__", None) == _accelerator]
    calls({getattr(_module, name): row(name, getattr(_python, name)) for name in _in_c})
