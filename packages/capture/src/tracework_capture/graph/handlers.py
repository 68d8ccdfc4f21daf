"""Which except and finally blocks, and which managers, of the traced frames an exception passes on its way out."""

from __future__ import annotations

import contextlib
import dis
import itertools
import types
from collections.abc import Iterator
from typing import Any

from ..bytecode.code import CodeInfo
from ..guards.classes import find
from .raises import ANYTHING, Raised, may_be


def only_raises(frame: Any, index: int) -> bool:
    """Whether every way on from an instruction ends with a raise that leaves the function; finally blocks on its way do not keep it."""
    for instruction in _reached(frame.info, index):
        if instruction.opname in _LEAVING:
            return False
        if instruction.opname == "RAISE_VARARGS" and (handler := _handler_of(frame.info, instruction)) is not None:
            if _after_handler(frame, handler.target, ANYTHING)[0]:
                return False
    return True


def _reached(info: CodeInfo, index: int) -> Iterator[Any]:
    """The instructions on all ways on from one, each once; ways end where the function is left, and at what raises."""
    seen: set[int] = set()
    ways = [index]
    while ways:
        at = ways.pop()
        if at in seen:
            continue
        seen.add(at)
        instruction = info.instructions[at]
        yield instruction
        if instruction.opname != "RAISE_VARARGS":
            ways += followers(instruction)


def _after_handler(frame: Any, index: int, raised: Raised) -> tuple[bool, Raised]:
    """Whether a handler of one of these exceptions may go on, and which exceptions may leave the function through it. Clauses of other classes
    are passed over; what a handler raises, or code that it runs, any exception, meets the block around it."""
    info = frame.info
    seen: set[tuple[int, Raised]] = set()
    ways = [(index, raised)]
    leaving: Raised = ()
    while ways:
        way = ways.pop()
        if way in seen:
            continue
        seen.add(way)
        at, raised = way
        instruction = info.instructions[at]
        again = instruction.opname in ("RERAISE", "RAISE_VARARGS")
        if again or instruction.opname == "CALL" or instruction.opname.startswith(_RUNNING):
            anything = not again or instruction.opname == "RAISE_VARARGS" and bool(instruction.arg)
            thrown = ANYTHING if anything else raised
            if instruction.handler is not None:
                ways.append((instruction.handler.target, thrown))
            else:
                leaving += thrown
        if again:
            continue
        if instruction.opname in _LEAVING:
            return True, ()
        elif instruction.opname == "CHECK_EXC_MATCH" and not may_match(frame, at, raised):
            ways.append((info.instructions[at + 1].target, raised))  # of the jump where it does not match
        else:
            ways += [(follower, raised) for follower in followers(instruction)]
    return False, leaving


def followers(instruction: Any) -> list[int]:
    """Where a function goes on after an instruction that does not raise."""
    if instruction.opname in _LEAVING:
        return []
    ways = [instruction.target] if instruction.target >= 0 else []
    if not instruction.opname.startswith(("JUMP_FORWARD", "JUMP_BACKWARD")):
        ways.append(instruction.index + 1)
    return ways


_RUNNING = (
    *("CALL_FUNCTION", "CALL_KW", "BINARY_", "COMPARE_OP", "CONTAINS_OP", "UNARY_", "GET_ITER", "FOR_ITER", "IMPORT_", "FORMAT_"),
    *("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "DELETE_ATTR", "DELETE_SUBSCR"),
)
"""How the instructions begin that run code of the program, beside CALL; clauses load their classes by names and attributes."""
_LEAVING = frozenset({"RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "SEND", "RERAISE"})


def may_match(frame: Any, index: int, raised: Raised) -> bool:
    """Whether the clause that a CHECK_EXC_MATCH is of may be for one of these exceptions, as one is whose classes are not known."""
    kinds = frame.services.kinds_of_clause(frame, index)
    return kinds is None or may_be(raised, kinds)


def is_swallowed(frame: Any, raised: Raised) -> bool:
    """Whether one of these exceptions, raised here, may meet an except block that goes on; finally blocks, and others that raise again, do
    not."""
    for passed, handler in _handlers(frame):
        goes_on, raised = _after_handler(passed, handler.target, raised)
        if goes_on:
            return True
    return False


def _handlers(frame: Any) -> Iterator[tuple[Any, Any]]:
    """The first except or finally block of each frame that an exception raised here passes on its way out."""
    for each in frame.callers():
        handler = _handler_of(each.info, each.current)
        if handler is not None:
            yield each, handler


def _handler_of(info: CodeInfo, instruction: Any) -> Any:
    """The except or finally block that an exception of this instruction goes to; what only leaves a with block is passed over."""
    handler = instruction.handler
    while handler is not None:
        names = [i.opname for i in info.instructions[handler.target : handler.target + 3]]
        if names[:2] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
            at = handler.target + 1
        elif names == ["COPY", "POP_EXCEPT", "RERAISE"]:
            at = handler.target + 2
        else:
            return handler
        handler = info.instructions[at].handler
    return None


def is_managed(frame: Any) -> bool:
    """Whether an exception raised here passes a with block of a manager that is none of torch's: it may do anything then."""
    for each in frame.callers():
        handler, blocks = each.current.handler, 0
        while handler is not None:
            starts = each.info.instructions[handler.target : handler.target + 2]
            blocks += [i.opname for i in starts] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]
            handler = starts[-1].handler
        of_torch = (getattr(entry, "name", None) == "__exit__" and hasattr(entry.owner, "leave") for entry in each.stack)
        if blocks > sum(of_torch):
            return True
    return False


def goes_on(frame: Any, raised: Raised) -> bool:
    """Whether the program may go on after one of these exceptions, raised here: past an except block, or a manager's __exit__ that gives
    something. What contextlib.contextmanager makes is taken for one that does not end exceptions."""
    managers = [e.owner for each in frame.callers() for e in each.stack if getattr(e, "name", None) == "__exit__"]
    return is_swallowed(frame, raised) or any(_may_end_exceptions(m) for m in managers if not hasattr(m, "leave"))


def _may_end_exceptions(manager: Any) -> bool:
    kind = manager.python_type()
    leave = find(kind, "__exit__")[0]
    if not isinstance(leave, types.FunctionType):
        return True
    code = list(dis.get_instructions(leave))
    given = [(one, two) for one, two in itertools.pairwise(code) if two.opname == "RETURN_VALUE"]
    gives_none = all(one.opname == "LOAD_CONST" and one.argval is None for one, _ in given)
    gives_none = gives_none and all(each.argval is None for each in code if each.opname == "RETURN_CONST")
    return not gives_none and kind is not contextlib._GeneratorContextManager
