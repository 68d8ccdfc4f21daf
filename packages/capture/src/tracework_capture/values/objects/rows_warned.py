"""warnings.warn: issued after the graph, for the file and the line at which the program issues it."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import warnings
from dataclasses import dataclass
from typing import Any

from ...code_origin import is_installed
from ...sources import Const, Source
from ..plain.mapping import MISSING, touched_name
from ..plain.sequence import NONE, ListValue
from ..protocol.binding import BoundBuiltin, class_value
from ..protocol.calls import call
from ..protocol.constant import ConstantValue, force_plain, plain
from ..protocol.iteration import iterate_all
from ..protocol.value import Frame, Value
from .class_value import ClassValue
from .rows_attributes import call_after_graph

_warnings: Any = warnings
"""The module with what it has for itself."""
SIGNATURE = inspect.Signature(
    [
        inspect.Parameter("message", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        inspect.Parameter("category", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=NONE),
        inspect.Parameter("stacklevel", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=ConstantValue(1)),
        inspect.Parameter("source", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=NONE),
    ]
)
"""Of warnings.warn, without skip_file_prefixes (3.12)."""


@call(warnings.warn)
def warn_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """warnings.warn(message, category, stacklevel, source)"""
    try:
        bound = SIGNATURE.bind(*args, **kwargs)
    except TypeError:  # what warn refuses, or skip_file_prefixes, which looks at the frames of the stack
        return frame.break_graph("call_unknown", "warnings.warn with these arguments")
    bound.apply_defaults()
    message, category, level, source = bound.arguments.values()
    place, above = place_of(frame, max(operator.index(force_plain(frame, level)), 1))
    is_category = isinstance(category, ClassValue) and issubclass(category.cls, Warning)
    if not is_category and not (category.is_constant() and category.constant() is None):
        return frame.break_graph("call_unknown", "warnings.warn with a category that is none")
    changed = filters_changed(frame)
    if changed or is_recorded_in_a_list(frame):
        found = warn_at_once(frame, message, category.cls if is_category else UserWarning, place, source)
        if found is not None:
            return found
    if changed:
        return frame.break_graph("print", "a warning under filters that the program changed")
    if may_raise(frame, category.cls if is_category else UserWarning):  # before what the frame does after it
        return frame.break_graph("print", "a warning that is an error here")
    if not goes_where_nobody_looks(frame):
        return frame.break_graph("print", "a warning that the program takes up itself")
    if place is None:
        call_after_graph(frame, warnings.warn, [message, category, ConstantValue(above + 1), source], {})
    else:
        call_after_graph(frame, functools.partial(warn_at, *place), [message, category, source], {})
    return NONE


def filters_changed(frame: Frame) -> bool:
    """Whether the program has changed the filters, so that those of the end of the frame say nothing of a warning."""
    if id(warnings.filters) not in frame.memory.memo and touched_name(frame, vars(warnings), "filters") is MISSING:
        return False
    now = filters_now(frame)
    return now is not frame.memory.memo.get(id(warnings.filters)) or not isinstance(now, ListValue) or not now.is_unchanged()


def filters_now(frame: Frame) -> Value:
    """The list of filters as the program left it."""
    return frame.wrap(warnings, Const(warnings, "warnings")).getattr(frame, "filters")


def warn_at_once(
    frame: Frame, message: Value, category: type[Warning], place: tuple[dict[str, Any], str, int] | None, source: Value
) -> Value | None:
    """A warning of which the filters say what is done at once: nothing, an error, or one more in the list that the program has them
    recorded in. None where they say something else."""
    text = message.constant() if message.is_constant() else None
    if place is None or type(text) is not str:
        return None
    globals_, filename, line = place
    action = action_for(frame, text, category, globals_.get("__name__", "<string>"), line)
    if action == "ignore":
        return NONE
    if action == "error":
        return frame.raise_user(class_value(frame, category).call(frame, [message], {}))
    take_up = taken_up_by(frame) if action in ("always", "all") else None
    if take_up is None:
        return None
    given = class_value(frame, category).call(frame, [message], {})
    facts = [class_value(frame, category), ConstantValue(filename), ConstantValue(line), NONE, NONE, source]
    take_up.call(frame, [class_value(frame, warnings.WarningMessage).call(frame, [given, *facts], {})], {})
    return NONE


def action_for(frame: Frame, text: str, category: type[Warning], module: str, line: int) -> str:
    """What the filters, as the program left them, say of a warning."""
    for row in iterate_all(frame, filters_now(frame)):
        action, pattern, kind, where, at = iterate_all(frame, row)
        if (
            is_met(plain(pattern), text)
            and is_met(plain(where), module)
            and issubclass(category, kind.real())
            and plain(at) in (0, line)
        ):
            return str(plain(action))
    return str(plain(frame.wrap(warnings, Const(warnings, "warnings")).getattr(frame, "defaultaction")))


def is_met(pattern: Any, text: str) -> bool:
    """Whether a text is what a filter asks for: any, this one (in the filters that Python begins with), or one that a pattern matches."""
    return pattern is None or (pattern == text if type(pattern) is str else bool(pattern.match(text)))


def is_recorded_in_a_list(frame: Frame) -> bool:
    """Whether a list that was there before takes warnings up, and the frame has it: it may look at it."""
    record = getattr(_warnings._showwarnmsg_impl, "__self__", None)
    if type(record) is not list:
        return False
    return isinstance(frame.memory.memo.get(id(record)), ListValue) or any(
        given is record for given in frame.memory.arguments.values()
    )


def taken_up_by(frame: Frame) -> BoundBuiltin | None:
    """What is called with the record of a warning where that is a method of a list; else None."""
    module = frame.wrap(warnings, Const(warnings, "warnings"))
    shows, take_up = module.getattr(frame, "showwarning"), module.getattr(frame, "_showwarnmsg_impl")
    is_usual = shows.same_object(module.getattr(frame, "_showwarning_orig"))
    return take_up if is_usual and isinstance(take_up, BoundBuiltin) and isinstance(take_up.owner, ListValue) else None


@call(_warnings._filters_mutated)
def filters_mutated(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What each warning was issued for counts from here on as not issued."""
    call_after_graph(frame, _warnings._filters_mutated, [], {})
    return NONE


class RecordOfWarnings(Value):
    """The list to which warnings go that are issued after the graph: whoever looks at it before breaks the graph."""

    cls = list

    def __init__(self, source: Source) -> None:
        super().__init__(source)


def goes_where_nobody_looks(frame: Frame) -> bool:
    """Whether warnings may wait: what takes them up is as it was before the frame, and the frame has not seen the list they go to."""
    for name in ("showwarning", "_showwarnmsg_impl"):
        found = touched_name(frame, vars(warnings), name)
        if found is not MISSING and found is not frame.memory.memo.get(id(getattr(warnings, name))):
            return False
    shown = getattr(warnings.showwarning, "__code__", None)
    if shown is None or not is_installed(shown):  # a function of the program
        return False
    record = getattr(_warnings._showwarnmsg_impl, "__self__", None)  # that of catch_warnings(record=True)
    if type(record) is not list:
        return True
    known = frame.memory.memo.setdefault(id(record), RecordOfWarnings(Const(record, "warnings")))
    frame.memory.keep.append(record)
    return isinstance(known, RecordOfWarnings)


def may_raise(frame: Frame, category: type[Warning]) -> bool:
    """Whether the filters, as the program left them, make an error of some warnings of this category; UserWarning may stand for any,
    as the class of a message that is a warning."""
    if (
        not frame.in_block and frame.current.handler is None and id(warnings.filters) not in frame.memory.memo
    ):  # the program left them as they were
        found = AreErrors(category, is_error_here(warnings, category))
        frame.guard("PREDICATE", Const(warnings, "warnings"), found)
        return found.answer
    for row in iterate_all(frame, filters_now(frame)):
        action, _, kind, *_ = iterate_all(frame, row)
        if force_plain(frame, action) == "error" and (issubclass(category, kind.real()) or category is UserWarning):
            return True
    return False


def is_error_here(module: types.ModuleType, category: type[Warning]) -> bool:
    """Whether the filters, as they are, make an error of some warnings of this category."""
    return any(f[0] == "error" and (issubclass(category, f[2]) or category is UserWarning) for f in module.filters)


@dataclass(frozen=True)
class AreErrors:
    """the filters of warnings say as before whether some of this category are errors"""

    category: type
    answer: bool

    def __call__(self, module: types.ModuleType) -> bool:
        return is_error_here(module, self.category) == self.answer


def place_of(frame: Frame, level: int) -> tuple[tuple[dict[str, Any], str, int] | None, int]:
    """(globals, file, line) of the frame at this level, counted from 1; or None and the level counted from the caller of the whole."""
    above: Frame | None = frame
    while above is not None and level > 1:
        above, level = above.parent, level - 1
    return (None, level) if above is None else ((above.globals, above.code.co_filename, above.line()), 0)


def warn_at(globals_: dict[str, Any], filename: str, line: int, message: Any, category: type[Warning], source: Any) -> None:
    """What warnings.warn does once it has found the frame that it warns for."""
    if isinstance(message, Warning):
        category = type(message)
    registry = globals_.setdefault("__warningregistry__", {})
    module = globals_.get("__name__", "<string>")
    warnings.warn_explicit(message, category or UserWarning, filename, line, module, registry, source=source)
