"""What a program calls to steer capture, and how calls of marked functions are traced.

Functions that do nothing in plain Python are known to the interpreter by their names (torch.compile's, too).
MARKED: kind of mark (marks.py) -> what a call of a function with it gives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...errors import ForbiddenCall, NotPlain, SkipFrame, Unsupported
from ...marks import Mark, graph_break
from ...sources import Const, Source
from ..plain.sequence import NONE
from ..protocol.calls import call
from ..protocol.constant import fold_plain, plain
from ..protocol.program_code import check_frame_hooks
from ..protocol.registry import Registry
from ..protocol.value import Frame, Value
from .instance import ObjectValue
from .row_value import RowValue

_MARKS = graph_break.__module__


def _named(name: str) -> tuple[str, str]:
    return f"{_MARKS}.{name}", f"torch._dynamo.decorators.{name}"


@call(*_named("graph_break"))
def _graph_break(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frame.break_graph("explicit", _text(args, kwargs))


@call(*_named("step_unsupported"))
def _step_unsupported(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frame.break_graph("explicit_step", _text(args, kwargs))


@call(*_named("skip_frame"))
def _skip_frame(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if frame.options.fullgraph:
        raise Unsupported("explicit", "skip_frame() was called", (frame.location(),))
    if len(frame.locations()) > 1:  # inlined: the caller's graph breaks at the call, and this frame is then met by itself
        frame.break_graph("explicit", "skip_frame() was called")
    raise SkipFrame(f"skip_frame() was called {_text(args, kwargs)}".strip(), wanted=True)


@call(*_named("mark_static"))
def _mark_static(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A hint for compilers, about a tensor whose sizes this trace has taken already."""
    return NONE


@call("torch._higher_order_ops.invoke_subgraph.invoke_subgraph_placeholder")
def _region(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What nested_compile_region of torch.compile calls: the function is part of the graph."""
    return args[0].call(frame, args[1:], kwargs)


def _text(args: list[Value], kwargs: dict[str, Value]) -> str:
    given = [*args, *kwargs.values()]
    return str(plain(given[0])) if given and given[0].is_constant() else ""


# --- marked functions ------------------------------------------------------------------------------------------------------

MARKED: Registry[str, Callable[[Any, Mark, Frame, list[Value], dict[str, Value]], Value]] = Registry("MARKED")
"""kind of mark -> row(function, mark, frame, args, kwargs): what a call of the function gives. torch/ fills it, too."""


def marked_value(frame: Frame, obj: Any, source: Source, mark: Mark) -> Value:
    """The Value of a marked function; its identity is guarded."""
    frame.guard("IDENTITY", source, obj)
    return RowValue(obj, functools.partial(call_marked, obj, mark), source)


def call_marked(obj: Any, mark: Mark, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What MARKED says of the call; those that run as they are, now or with the graph, call modules of the program themselves."""
    if mark.kind in RUN_AS_THEY_ARE:
        check_frame_hooks(frame)
    return MARKED[mark.kind](obj, mark, frame, args, kwargs)


def _constant_result(obj: Any, mark: Mark, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    found = fold_plain(
        frame, obj, *[real_argument(frame, a, obj) for a in args], **{k: real_argument(frame, v, obj) for k, v in kwargs.items()}
    )
    return frame.wrap(found, Const(found))


def real_argument(frame: Frame, value: Value, function: Any) -> Any:
    """The object behind an argument of a function that is called while capturing; a break when it does not exist yet."""
    try:
        return plain(value)
    except NotPlain:
        pass
    try:
        return value.real()
    except LookupError:
        pass
    what = f"{getattr(function, '__qualname__', function)} of {value.describe()}"
    if frame.mutations.keep:
        frame.break_graph("argument_not_real", f"{what}, after a change of objects that has not been made yet")
    found = value.identity(frame) if isinstance(value, ObjectValue) else None
    return found if found is not None else frame.break_graph("argument_not_real", what)


def _disallow(obj: Any, mark: Mark, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frame.break_graph("call_disabled", f"{getattr(obj, '__qualname__', obj)}: marked with disallow_in_graph")


def forbid(obj: Any, mark: Mark | None, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Raises ForbiddenCall."""
    raise ForbiddenCall(getattr(obj, "__qualname__", repr(obj)), frame.location())


def _substitute(obj: Any, mark: Mark, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if mark.folds:
        try:
            plain_args, plain_kwargs = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
        except NotPlain:
            pass
        else:
            found = fold_plain(frame, obj, *plain_args, **plain_kwargs)
            return frame.wrap(found, Const(found))
    return frame.wrap(mark.traceable, Const(mark.traceable, mark.traceable.__qualname__)).call(frame, args, kwargs)


MARKED["assume_constant_result"] = _constant_result
MARKED["disallow_in_graph"] = _disallow
MARKED["forbid_in_graph"] = forbid
MARKED["substitute_in_graph"] = _substitute
RUN_AS_THEY_ARE = frozenset(("allow_in_graph", "assume_constant_result", "leaf_function", "nonstrict_trace"))
