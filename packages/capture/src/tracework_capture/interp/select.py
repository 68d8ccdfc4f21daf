"""`if <data>:` with two short arms that only compute tensors: both are traced, and an operator runs the one that the data asks for.

The arms have no jumps of their own, call nothing but torch, write to nothing that was there before, and give new tensors of the same
sizes, without history. Anything else restarts the capture without the selection, and breaks the graph at the condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..bytecode.liveness import live_locals
from ..errors import BreakGraph, RestartCapture
from ..graph.opaque_operators import ResultFacts
from ..graph.outline import outline, region
from ..graph.region_checks import Unchanged
from ..values.cond import fits, operator_result
from ..values.sequence import TupleValue
from ..values.tensor import TensorValue, forget_nodes
from ..values.torch_fn import TorchFunctionValue
from ..values.user_object import BoundBuiltin
from ..values.value import SymbolicRaise, Value

__all__ = ["selected"]

LONGEST = 40  # instructions of an arm
MOST_NODES = 8  # of an arm: larger ones are worth compiling, on either side of a break
MOST_FAILURES = 3  # restarts that one function may cost

_LOADS = "LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_ATTR LOAD_METHOD LOAD_DEREF PUSH_NULL COPY SWAP NOP"
_COMPUTES = "BINARY_OP UNARY_NEGATIVE UNARY_POSITIVE COMPARE_OP BINARY_SUBSCR BUILD_TUPLE STORE_FAST PRECALL KW_NAMES CALL"
ALLOWED = frozenset([*_LOADS.split(), *_COMPUTES.split()])


@dataclass(frozen=True)
class Arm:
    """Instructions from `start` up to `end`."""

    start: int
    end: int


class _Refused(Exception):
    """These arms are not selected."""


def selected(frame: Any, jump: Any, condition: Any, jumps_if: bool) -> bool:
    """Whether the conditional jump, taken when the condition is `jumps_if`, was replaced by a selection; the frame goes on where the
    arms meet. Raises RestartCapture."""
    root = frame.root
    key = frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_name, jump.index
    if jump.handler is not None or frame.in_block or root.transforms or root.function_modes or root.subclass_functions_off:
        return False
    if root.inference or torch._C._is_any_autocast_enabled() or not fits(condition.example) or condition.example.numel() != 1:
        return False
    if key in root.history.not_selected or len(root.history.not_selected) >= MOST_FAILURES:
        return False
    arms = _arms(frame.info, jump)
    if arms is None:
        return False
    try:
        _select(frame, arms, condition, jumps_if)
    except (_Refused, BreakGraph, SymbolicRaise) as refused:
        root.history.not_selected.add(key)
        raise RestartCapture(f"the arms of a condition on data are not selected: {refused}") from None
    return True


def _arms(info: Any, jump: Any) -> tuple[Arm, Arm] | None:
    """The two arms, which both end where they meet or with a return; None for other code."""
    if jump.target <= jump.index:
        return None
    first = _straight(info, jump.index + 1, jump.target)
    if first is None or first == jump.target:
        return None
    last = info.instructions[first]
    stop = last.target if last.opname == "JUMP_FORWARD" else len(info.instructions)
    second = _straight(info, jump.target, stop)
    if second is None or (second == stop) is not (last.opname == "JUMP_FORWARD"):
        return None
    return Arm(jump.index + 1, first), Arm(jump.target, second)


def _straight(info: Any, start: int, stop: int) -> int | None:
    """Where straight code ends: at `stop`, a jump forward or a return; None for code that is not straight, or long."""
    for index in range(start, min(stop, start + LONGEST)):
        opname = info.instructions[index].opname
        if opname in ("JUMP_FORWARD", "RETURN_VALUE"):
            return index
        if opname not in ALLOWED:
            return None
    return stop if stop - start <= LONGEST else None


def _select(frame: Any, arms: tuple[Arm, Arm], condition: Any, jumps_if: bool) -> None:
    end = frame.instructions[arms[0].end]
    meet = arms[0].end if end.opname == "RETURN_VALUE" else end.target
    stored = {i.value for arm in arms for i in frame.instructions[arm.start : arm.end] if i.opname == "STORE_FAST"}
    kept = sorted(stored & live_locals(frame.info, meet))
    before = {name: frame.locals.get(name) for name in stored}
    stack = list(frame.stack)
    traced, given = [], []
    for arm in arms:
        values, part = _traced(frame, arm, kept, len(stack))
        traced.append(part)
        given.append(values)
        for name, value in before.items():
            _bind(frame, name, value)
        if any(a is not b for a, b in zip(stack, frame.stack)):
            raise _Refused("they change what was on the stack")
        frame.stack[:] = stack
    _check_others(*given)
    if jumps_if:
        traced.reverse()
    results = iter(operator_result(frame, condition, traced).unpack(frame))
    values = [_replaced(value, results) for value in given[0]]
    for name in stored:
        _bind(frame, name, None)
    for name, value in zip(kept, values):
        _bind(frame, name, value)
    frame.stack.extend(values[len(kept) :])
    frame.position = meet


def _bind(frame: Any, name: str, value: Value | None) -> None:
    if value is None:
        frame.locals.pop(name, None)
    else:
        frame.locals[name] = value


def _traced(frame: Any, arm: Arm, kept: list[str], depth: int) -> tuple[list[Value], Any]:
    """(what the arm leaves in the locals and on the stack, its graph as operator_result takes it)"""
    start, unchanged = region(frame.graph), Unchanged(frame)
    _run(frame, arm)
    if unchanged.what_changed():
        raise _Refused(f"an arm {unchanged.what_changed()}")
    values = [frame.locals.get(name) for name in kept] + frame.stack[depth:]
    leaves = [leaf for value in values for leaf in _leaves(value)]
    nodes = start.nodes(frame.graph)
    inside = set(nodes)
    if len(nodes) > MOST_NODES or not leaves or not all(leaf.node in inside and fits(leaf.example) for leaf in leaves):
        raise _Refused("an arm is long, or gives something else than new tensors of known sizes without history")
    made = outline(frame.graph, nodes, [leaf.node for leaf in leaves], "Arm")
    memory = [leaf.example.storage for leaf in leaves]
    read = [n.meta["example_value"].storage for n in made.inputs if hasattr(n.meta["example_value"], "storage")]
    if len({*map(id, memory)}) < len(memory) or {*map(id, memory)} & {*map(id, read)}:
        raise _Refused("results of an arm share memory")
    forget_nodes(frame, inside)
    return values, (tuple, tuple(ResultFacts.of(leaf.example) for leaf in leaves), made)


def _run(frame: Any, arm: Arm) -> None:
    frame.position = arm.start
    frame.root.selecting = True
    try:
        _steps(frame, arm)
    finally:
        frame.root.selecting = False


def _steps(frame: Any, arm: Arm) -> None:
    from .machine import find_handler

    while frame.position != arm.end:
        instruction = frame.current = frame.instructions[frame.position]
        frame.position += 1
        if instruction.opname == "CALL" and not all(map(_is_of_torch, frame.stack[-instruction.arg - 2 :][:2])):
            raise _Refused("an arm calls something else than torch")
        (instruction.run or find_handler(instruction.opname))(frame, instruction)


def _is_of_torch(entry: Any) -> bool:
    """Whether one of the two entries below the arguments is NULL, a tensor, or a function or method of torch."""
    from .frame import NULL
    from .handlers.attributes import MethodRef

    if entry is NULL or isinstance(entry, (TensorValue, TorchFunctionValue)):
        return True
    return isinstance(entry, (BoundBuiltin, MethodRef)) and isinstance(entry.owner, TensorValue)


def _leaves(value: Value | None) -> list[TensorValue]:
    """The tensors of a value that an arm gives."""
    if type(value) is TensorValue:
        return [value]
    if type(value) is TupleValue and value.cls is tuple:
        return [leaf for item in value.items for leaf in _leaves(item)]
    if value is not None and value.is_constant():
        return []
    raise _Refused("an arm gives something else than tensors and constants")


def _check_others(first: list[Value], second: list[Value]) -> None:
    """What is no tensor is the same constant in both arms."""
    if len(first) != len(second):
        raise _Refused("the arms leave different numbers of values")
    for a, b in zip(first, second):
        if type(a) is not type(b):
            raise _Refused("the arms give different kinds of values")
        if type(a) is TupleValue:
            _check_others(a.items, b.items)
        elif type(a) is not TensorValue and (a.python_type() is not b.python_type() or not _is_one(a.constant(), b.constant())):
            raise _Refused("the arms give different constants")


def _is_one(a: Any, b: Any) -> bool:
    """Whether two constants are the same in every respect; 0.0 and -0.0 are not."""
    return a is b or (type(a) in (int, bool, str) and a == b)


def _replaced(value: Value, results: Any) -> Value:
    if type(value) is TensorValue:
        return next(results)
    return TupleValue([_replaced(item, results) for item in value.items]) if type(value) is TupleValue else value
