"""`if <data>:` with short arms that only compute tensors: both are traced, and an operator runs the one that the data asks for.

An arm may have such conditions in it, so elif chains, `and` and `or` are selections inside of selections. The arms have no loops, call
nothing but torch and Python functions, and give new tensors of the same sizes, without history, or numbers known when the graph has run.
What they write to is copied first, and written to with what the arm gives. Arms of elementwise arithmetic are both computed, and the
data chooses between their results. An arm that leaves a tensor of before, as that of an `if` without `else`, gives a copy of it, while
nobody can tell (graph/replaced.py). Anything else restarts the capture without the selection, and breaks the graph at the condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from .._torch.settings import any_autocast
from ..bytecode.code import CodeInfo
from ..bytecode.facts import PAIR_LOCALS
from ..bytecode.liveness import live_locals, stored_locals
from ..errors import BreakGraph
from ..graph.handlers import followers
from ..plan import Again, Learnt
from ..values.number.floats import DataBool
from ..values.objects.class_value import ClassValue
from ..values.objects.function import BoundMethodValue, FunctionValue
from ..values.objects.instance import ObjectValue
from ..values.objects.row_value import RowValue
from ..values.protocol.binding import BoundBuiltin
from ..values.protocol.kinds import AbstractTensor
from ..values.protocol.region import Region
from ..values.protocol.value import SymbolicRaise, Value
from ..values.torch.functions import TorchFunctionValue
from ..values.torch.regions.control_flow import fits
from ..values.torch.tensor import TensorValue
from .branch_results import Refused, Traced, merged, traced_arm
from .handlers.attributes import MethodRef
from .handlers.table import find_handler

LONGEST = 80  # instructions of both arms
MOST_FAILURES = 3  # restarts that one function may cost

_LOADS = "POP_TOP LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_ATTR LOAD_METHOD LOAD_DEREF PUSH_NULL COPY SWAP NOP TO_BOOL"
_COMPUTES = "BINARY_OP UNARY_NEGATIVE UNARY_POSITIVE COMPARE_OP BINARY_SUBSCR BUILD_SLICE BINARY_SLICE BUILD_TUPLE STORE_FAST PRECALL KW_NAMES CALL CALL_KW"
CONDITIONS = frozenset("POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE".split())
ALLOWED = frozenset([*_LOADS.split(), *_COMPUTES.split(), "STORE_SUBSCR", "JUMP_FORWARD", *CONDITIONS, *PAIR_LOCALS])
_FUNCTION = frozenset("RESUME RETURN_VALUE COPY_FREE_VARS".split())
OF_CONSTANTS = (torch.finfo, torch.iinfo, abs, float, int, len, max, min, round)
RETURN = -1


@dataclass(frozen=True)
class Arms:
    """Where two arms start, where they meet (RETURN: both return), and all that may run in between."""

    starts: tuple[int, int]
    meet: int
    between: frozenset[int]


def selected(frame: Any, jump: Any, condition: Any, jumps_if: bool) -> bool:
    """Whether the conditional jump, taken when the condition is `jumps_if`, was replaced by a selection; the frame goes on where the
    arms meet. Raises Again."""
    key = frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_name, jump.index
    if frame.modes.transforms or frame.modes.function_modes or frame.modes.subclass_functions_off or frame.modes.inference:
        return False
    tensor = condition.as_tensor(frame) if isinstance(condition, DataBool) else condition
    if any_autocast() or not fits(tensor.example) or tensor.example.numel() != 1:
        return False
    not_selected = frame.plan.learnt.not_selected
    if key in not_selected or len(not_selected) >= MOST_FAILURES:
        return False
    arms = _arms(frame.info, jump)
    if arms is None:
        return False
    try:
        _select(frame, arms, condition, tensor, jumps_if, frame.in_block or jump.handler is not None, key)
    except (Refused, BreakGraph, SymbolicRaise) as refused:
        raise Again("selection_refused", Learnt(not_selected=frozenset((key,))), str(refused)) from None
    return True


def _arms(info: Any, jump: Any) -> Arms | None:
    """The two arms; None for other code."""
    starts = jump.index + 1, jump.target
    known: dict[int, tuple[int, ...]] = {}
    meet = _meeting(*(_passed(info, start, jump.index, known) for start in starts))[:1]
    if not meet or starts[0] == starts[1]:
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
    elif instruction.opname == "JUMP_BACKWARD" and instruction.target < first:
        after = (instruction.target,)  # the next iteration of the loop that both arms are in
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
        if instruction.opname not in ALLOWED and instruction.opname != "JUMP_BACKWARD" or len(seen) == LONGEST:
            return None
        seen.add(index)
        ways += followers(instruction)
    return frozenset(seen)


def _select(frame: Any, arms: Arms, condition: Any, tensor: AbstractTensor, jumps_if: bool, in_block: bool, key: Any) -> None:
    stored = {name for index in arms.between for name in stored_locals(frame.instructions[index])}
    before = {name: frame.locals.get(name) for name in stored}
    stack = list(frame.stack)

    def traced(start: int, other: Traced | None) -> Traced:
        found = _traced(frame, start, arms.meet, stored, len(stack), other)
        for name, value in before.items():
            _bind(frame, name, value)
        if any(a is not b for a, b in zip(stack, frame.stack)):
            raise Refused("they change what was on the stack")
        frame.stack[:] = stack
        return found

    first = traced(arms.starts[0], None)
    second = traced(arms.starts[1], first)
    if first.leaves_more(second):
        first = traced(arms.starts[0], second)
    pair = (second, first) if jumps_if else (first, second)
    values = merged(frame, condition, tensor, pair, in_block, key)
    kept = _live_names(frame, stored)
    for name in stored:
        _bind(frame, name, None)
    for name, value in zip(kept, values):
        _bind(frame, name, value)
    frame.stack.extend(values[len(kept) :])


def _live_names(frame: Any, stored: set[str]) -> list[str]:
    """The names of those that are read where an arm ended."""
    return sorted(stored & live_locals(frame.info, frame.position))


def _bind(frame: Any, name: str, value: Value | None) -> None:
    if value is None:
        frame.locals.pop(name, None)
    else:
        frame.locals[name] = value


def _traced(frame: Any, first: int, meet: int, stored: set[str], depth: int, other: Traced | None) -> Traced:
    """What the arm leaves in the locals and on the stack, its graph, and the tensors that it writes to; `other` is the other arm, where it
    is known."""
    region = Region(frame)
    _run(frame, first, meet)
    if region.changes_objects():
        raise Refused("an arm changes Python objects")
    values = [frame.locals.get(name) for name in _live_names(frame, stored)] + frame.stack[depth:]
    return traced_arm(frame, values, region, other)


def _run(frame: Any, first: int, meet: int) -> None:
    outer, frame.recording.selecting = frame.recording.selecting, True
    try:
        frame.position = first
        while frame.position != meet:
            instruction = frame.instructions[frame.position]
            if meet == RETURN and instruction.opname == "RETURN_VALUE":
                return
            frame.current = instruction
            frame.position += 1
            (instruction.run or find_handler(instruction.opname))(frame, instruction)
    finally:
        frame.recording.selecting = outer


def may_be_called(frame: Any, function: Any) -> bool:
    """Whether an arm may call this: a function or method of torch or of Python, or what makes one constant of others."""
    if isinstance(function, MethodRef) and isinstance(function.owner, ObjectValue):
        function = function.owner.getattr(frame, function.name)
    if isinstance(function, (BoundBuiltin, MethodRef)):
        return isinstance(function.owner, TensorValue)
    if isinstance(function, (ClassValue, RowValue)):
        return any(function.real() is known for known in OF_CONSTANTS)
    return isinstance(function, (TorchFunctionValue, FunctionValue, BoundMethodValue))


def may_be_inlined(code: CodeType) -> bool:
    """Whether an arm may call a function of this code, which computes and does nothing else."""
    return all(i.opname in ALLOWED or i.opname in _FUNCTION for i in CodeInfo(code).instructions)
