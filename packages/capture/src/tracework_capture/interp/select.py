"""`if <data>:` with two short arms that only compute tensors: both are traced, and an operator runs the one that the data asks for.

An arm may have such conditions in it, so elif chains, `and` and `or` are selections inside of selections. The arms have no loops, call
nothing but torch and Python functions, write to nothing that was there before, and give new tensors of the same sizes, without history.
Anything else restarts the capture without the selection, and breaks the graph at the condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..bytecode.code import CodeInfo
from ..bytecode.facts import PAIR_LOCALS
from ..bytecode.liveness import live_locals, stored_locals
from ..errors import BreakGraph, RestartCapture
from ..graph.opaque_operators import ResultFacts
from ..graph.outline import outline, region
from ..graph.region_checks import Unchanged
from ..values.binding import BoundBuiltin
from ..values.cond import fits, operator_results
from ..values.function import BoundMethodValue, FunctionValue
from ..values.sequence import TupleValue
from ..values.tensor import TensorValue, forget_nodes
from ..values.torch_fn import TorchFunctionValue
from ..values.user_object import ObjectValue
from ..values.value import SymbolicRaise, Value

if TYPE_CHECKING:
    from types import CodeType

__all__ = ["may_be_called", "may_be_inlined", "selected"]

LONGEST = 80  # instructions of both arms
MOST_NODES = 8  # of an arm: larger ones are worth compiling, on either side of a break
MOST_FAILURES = 3  # restarts that one function may cost

_LOADS = "LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_ATTR LOAD_METHOD LOAD_DEREF PUSH_NULL COPY SWAP NOP TO_BOOL"
_COMPUTES = (
    "BINARY_OP UNARY_NEGATIVE UNARY_POSITIVE COMPARE_OP BINARY_SUBSCR BUILD_TUPLE STORE_FAST PRECALL KW_NAMES CALL CALL_KW"
)
CONDITIONS = frozenset("POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE".split())
ALLOWED = frozenset([*_LOADS.split(), *_COMPUTES.split(), "JUMP_FORWARD", *CONDITIONS, *PAIR_LOCALS])
_FUNCTION = frozenset("RESUME RETURN_VALUE COPY_FREE_VARS".split())
RETURN = -1


@dataclass(frozen=True)
class Arms:
    """Where two arms start, where they meet (RETURN: both return), and all that may run in between."""

    starts: tuple[int, int]
    meet: int
    between: frozenset[int]


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


def _arms(info: Any, jump: Any) -> Arms | None:
    """The two arms; None for other code."""
    starts = jump.index + 1, jump.target
    known: dict[int, tuple[int, ...]] = {}
    meet = _meeting(*(_passed(info, start, jump.index, known) for start in starts))[:1]
    if not meet or meet[0] in starts:
        return None
    between = _between(info, starts, meet[0])
    return None if between is None else Arms(starts, meet[0], between)


def _passed(info: Any, index: int, first: int, known: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """The instructions that every way on from `index` passes, up to a return or to one that no arm may have."""
    if index in known:
        return known[index]
    instruction = info.instructions[index]
    if instruction.opname == "RETURN_VALUE":
        after: tuple[int, ...] = (RETURN,)
    elif instruction.opname not in ALLOWED or index - first > LONGEST or 0 <= instruction.target <= index:
        after = ()
    elif instruction.opname == "JUMP_FORWARD":
        after = _passed(info, instruction.target, first, known)
    elif instruction.opname in CONDITIONS:
        after = _meeting(*(_passed(info, i, first, known) for i in (index + 1, instruction.target)))
    else:
        after = _passed(info, index + 1, first, known)
    known[index] = (index, *after)
    return known[index]


def _meeting(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """What both ways pass."""
    return next((first[at:] for at, index in enumerate(first) if index in second), ())


def _between(info: Any, starts: tuple[int, int], meet: int) -> frozenset[int] | None:
    """The instructions on all ways from the starts to where they meet; None when an arm may not have one of them."""
    seen: set[int] = set()
    ways = list(starts)
    while ways:
        index = ways.pop()
        instruction = info.instructions[index]
        if index == meet or index in seen or (meet == RETURN and instruction.opname == "RETURN_VALUE"):
            continue
        if instruction.opname not in ALLOWED or len(seen) == LONGEST:
            return None
        seen.add(index)
        if instruction.target >= 0:
            ways.append(instruction.target)
        if instruction.opname != "JUMP_FORWARD":
            ways.append(index + 1)
    return frozenset(seen)


def _select(frame: Any, arms: Arms, condition: Any, jumps_if: bool) -> None:
    stored = {name for index in arms.between for name in stored_locals(frame.instructions[index])}
    before = {name: frame.locals.get(name) for name in stored}
    stack = list(frame.stack)
    traced, given = [], []
    for start in arms.starts:
        values, part = _traced(frame, start, arms.meet, stored, len(stack))
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
    results = iter(operator_results(frame, condition, traced))
    values = [_replaced(value, results) for value in given[0]]
    kept = _kept(frame, stored)
    for name in stored:
        _bind(frame, name, None)
    for name, value in zip(kept, values):
        _bind(frame, name, value)
    frame.stack.extend(values[len(kept) :])


def _kept(frame: Any, stored: set[str]) -> list[str]:
    """The names of those that are read where an arm ended."""
    return sorted(stored & live_locals(frame.info, frame.position))


def _bind(frame: Any, name: str, value: Value | None) -> None:
    if value is None:
        frame.locals.pop(name, None)
    else:
        frame.locals[name] = value


def _traced(frame: Any, first: int, meet: int, stored: set[str], depth: int) -> tuple[list[Value], Any]:
    """(what the arm leaves in the locals and on the stack, its graph as operator_results takes it)"""
    start, unchanged = region(frame.graph), Unchanged(frame)
    _run(frame, first, meet)
    if unchanged.what_changed():
        raise _Refused(f"an arm {unchanged.what_changed()}")
    values = [frame.locals.get(name) for name in _kept(frame, stored)] + frame.stack[depth:]
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
    if not all(isinstance(n.meta["example_value"], torch.Tensor) and fits(n.meta["example_value"]) for n in made.inputs):
        raise _Refused("an arm reads tensors with history or sizes that are symbols")
    return values, (tuple(ResultFacts.of(leaf.example) for leaf in leaves), made)


def _run(frame: Any, first: int, meet: int) -> None:
    root = frame.root
    outer, root.selecting = root.selecting, True
    try:
        _steps(frame, first, meet)
    finally:
        root.selecting = outer


def _steps(frame: Any, first: int, meet: int) -> None:
    from .machine import find_handler

    frame.position = first
    while frame.position != meet:
        instruction = frame.instructions[frame.position]
        if meet == RETURN and instruction.opname == "RETURN_VALUE":
            return
        frame.current = instruction
        frame.position += 1
        (instruction.run or find_handler(instruction.opname))(frame, instruction)


def may_be_called(frame: Any, function: Any) -> bool:
    """Whether an arm may call this: a function or method of torch or of Python."""
    from .handlers.attributes import MethodRef

    if isinstance(function, MethodRef) and isinstance(function.owner, ObjectValue):
        function = function.owner.getattr(frame, function.name)
    if isinstance(function, (BoundBuiltin, MethodRef)):
        return isinstance(function.owner, TensorValue)
    return isinstance(function, (TorchFunctionValue, FunctionValue, BoundMethodValue))


def may_be_inlined(code: CodeType) -> bool:
    """Whether an arm may call a function of this code, which computes and does nothing else."""
    return all(i.opname in ALLOWED or i.opname in _FUNCTION for i in CodeInfo(code).instructions)


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
