"""Iteration and generators."""

from __future__ import annotations

import inspect
import types

from ...bytecode.code import Instruction
from ...bytecode.facts import VERSION
from ...values.objects.instance import ObjectValue
from ...values.plain.iterators import ContinuedIterator, IteratorValue, iterate_alone
from ...values.protocol.value import LazyValue, SymbolicRaise, Value
from ..frame import SymbolicFrame
from .table import SUSPENDED, opcode


@opcode("GET_ITER")
def get_iter(frame: SymbolicFrame, instruction: Instruction) -> None:
    """iter(value)"""
    if frame.deferred:
        if is_continued(frame, instruction):
            left = frame.stack.pop()
            frame.stack.append(ContinuedIterator(left.obj, left.source))
            return
        frame.settle()
    value = frame.stack.pop()
    is_new = frame.parent is None and getattr(value, "pushed_at", -2) == frame.progress.step - 1
    frame.stack.append(iterate_alone(frame, value, is_new))


def is_continued(frame: SymbolicFrame, instruction: Instruction) -> bool:
    """Whether this is how a continuation begins that was given the items left of a loop (bytecode.resume)."""
    dropped = frame.instructions[instruction.index - 1]
    return dropped.opname == "DELETE_FAST" and dropped.value.startswith("__tw_stack") and type(frame.stack[-1]) is LazyValue


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The iterator of `yield from`."""
    allows = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE
    if frame.stack[-1].python_type() is types.CoroutineType and not frame.code.co_flags & allows:
        frame.raise_new(TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator")
    frame.stack.append(frame.stack.pop().iterate(frame))


@opcode("FOR_ITER")
def for_iter(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Next item, or leave the loop."""
    iterator = frame.stack[-1]
    item = iterator.next_value(frame)
    if item is not None:
        if isinstance(iterator, IteratorValue):
            iterator.in_loop = frame.parent is None
        frame.stack.append(item)
        return
    frame.position = instruction.target
    if VERSION >= (3, 12):
        frame.position += 1  # END_FOR
        if VERSION >= (3, 13):
            return  # the POP_TOP after END_FOR drops the iterator
    frame.stack.pop()


@opcode("END_FOR")
def end_for(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Only reached by jumps that skip it."""
    if VERSION >= (3, 13):
        frame.stack.pop()
    else:
        frame.pop_many(2)


@opcode("RETURN_GENERATOR")
def return_generator(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The body of a generator starts here: the call gives the generator, the first next() goes on (see interp.inline)."""
    frame.stack.append(frame.constant(None))


@opcode("YIELD_VALUE")
def yield_value(frame: SymbolicFrame, instruction: Instruction) -> str:
    """Hand a value to whoever iterates; the frame goes on at the next instruction with what was sent."""
    frame.result = frame.stack.pop()
    return SUSPENDED


def answer_of(frame: SymbolicFrame, inner: Value, value: Value) -> tuple[Value | None, Value | None]:
    """(item or None at the end, return value or None) of an iterator that is sent a value."""
    asks = value.is_constant() and value.constant() is None
    try:
        if asks and not isinstance(inner, ObjectValue):
            item = inner.next_value(frame)
        else:
            item = inner.call_method(frame, "__next__" if asks else "send", [] if asks else [value], {})
    except SymbolicRaise as raised:
        if not issubclass(raised.value.python_type(), StopIteration):
            raise
        return None, raised.value.getattr(frame, "value")
    return item, getattr(inner, "returned", None)


@opcode("SEND")
def send(frame: SymbolicFrame, instruction: Instruction) -> None:
    """`yield from`: ask the inner iterator; its end continues behind the loop with its return value."""
    value = frame.stack.pop()
    item, returned = answer_of(frame, frame.stack[-1], value)
    if item is not None:
        frame.stack.append(item)
        return
    if VERSION < (3, 12):
        frame.stack.pop()
    frame.stack.append(returned if returned is not None else frame.constant(None))
    frame.position = instruction.target


@opcode("END_SEND")
def end_send(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Drop the inner iterator below the value (3.12+)."""
    value = frame.stack.pop()
    frame.stack.pop()
    frame.stack.append(value)
