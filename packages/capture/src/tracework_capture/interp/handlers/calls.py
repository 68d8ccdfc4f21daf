"""Calls and function creation."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, cast

from ... import _C
from ..._torch.modules import module_call
from ...bytecode.code import Instruction
from ...bytecode.facts import VERSION
from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...polyfills.torch_functions import name_of_called
from ...sources import Const
from ...values.objects.function import BoundMethodValue, CellValue, FunctionValue, NewFunctionValue
from ...values.objects.row_value import RowValue
from ...values.plain.mapping import DictValue, pairs_of_mapping
from ...values.plain.sequence import constant_of_code
from ...values.protocol.iteration import iterate_all
from ...values.protocol.kinds import AbstractTuple
from ...values.protocol.value import SymbolicRaise, Value
from ...values.torch.module import ModuleValue
from ..frame import NULL, SymbolicFrame
from ..select import may_be_called
from .table import RETURNED, opcode


@opcode("KW_NAMES")
def kw_names(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Names of the keyword arguments of the next call (3.11, 3.12)."""
    frame.keyword_names = frame.code.co_consts[instruction.arg]


@opcode("CALL")
def call(frame: SymbolicFrame, instruction: Instruction) -> None:
    """callable(*args); keyword names were set by KW_NAMES."""
    names, frame.keyword_names = frame.keyword_names, ()
    args = frame.pop_many(instruction.arg)
    frame.stack.append(call_entries(frame, args, names))


@opcode("CALL_KW")
def call_kw(frame: SymbolicFrame, instruction: Instruction) -> None:
    """callable(*args, **kwargs), names on top (3.13)."""
    names = tuple(frame.stack.pop().constant())
    args = frame.pop_many(instruction.arg)
    frame.stack.append(call_entries(frame, args, names))


def call_entries(frame: SymbolicFrame, args: list[Value], names: Sequence[str]) -> Value:
    """Call the two stack entries below the arguments."""
    first, second = frame.pop_many(2)
    if VERSION >= (3, 13):
        function, owner = first, second
    elif first is NULL:
        function, owner = second, NULL
    else:
        function, owner = first, second
    if owner is not NULL:
        args = [owner, *args]
    kwargs = {}
    if names:
        kwargs = dict(zip(names, args[-len(names) :]))
        args = args[: -len(names)]
    if frame.recording.selecting and not may_be_called(frame, function):
        frame.break_graph("call_unknown", f"{function.describe()} in an arm of a condition on data")
    return function.call(frame, args, kwargs)


@opcode("CALL_FUNCTION_EX")
def call_function_ex(frame: SymbolicFrame, instruction: Instruction) -> None:
    """callable(*args, **kwargs)"""
    mapping = frame.stack.pop() if instruction.arg & 1 else None
    starred = frame.stack.pop()
    if VERSION >= (3, 13):
        frame.stack.pop()
        function = frame.stack.pop()
    else:
        function = frame.stack.pop()
        frame.stack.pop()
    if not is_iterable(starred):
        refuse_starred(frame, function, f"argument after * must be an iterable, not {_C.type_name(starred.python_type())}")
    args = iterate_all(frame, starred, asks_length=True)
    frame.stack.append(function.call(frame, args, keyword_arguments(frame, mapping)))


def is_iterable(value: Value) -> bool:
    """Whether iter() finds anything to begin with; opcodes say in words of their own that it does not."""
    kind = value.python_type()
    return any(lookup_class(kind, name)[0] is not NO_ATTRIBUTE for name in ("__iter__", "__getitem__"))


def refuse_starred(frame: SymbolicFrame, function: Value, text: str) -> NoReturn:
    """TypeError about a starred argument of a call."""
    name = frame.wrap(name_of_called, Const(name_of_called, "name_of_called")).call(frame, [function], {})
    frame.raise_new(TypeError, f"{name.constant()} {text}")


def keyword_arguments(frame: SymbolicFrame, mapping: Value | None) -> dict[str, Value]:
    """The name -> Value of a ** argument."""
    if mapping is None:
        return {}
    kwargs = {}
    for key in mapping.call_method(frame, "keys", [], {}).unpack(frame):
        if issubclass(key.python_type(), str) and not key.is_constant():
            frame.break_graph("call_unknown", f"a keyword that is {key.describe()}")
        if not key.is_constant() or type(key.constant()) is not str:
            frame.raise_new(TypeError, "keywords must be strings")
        kwargs[key.constant()] = mapping.getitem(frame, key)
    return kwargs


def starred_pairs(frame: SymbolicFrame, mapping: Value, refuse: Callable[[str], NoReturn]) -> Iterator[tuple[Value, Value]]:
    """The (key, value) pairs of what stands behind **; an AttributeError on the way means that it is no mapping."""
    try:
        yield from pairs_of_mapping(frame, mapping)
    except SymbolicRaise as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            refuse(_C.type_name(mapping.python_type()))
        raise


def merged_pairs(frame: SymbolicFrame, function: Value, mapping: Value) -> Iterator[tuple[Value, Value]]:
    """The pairs of a mapping that goes into the keyword arguments of a call of the function; their order is guarded where it matters."""
    names = mapping.unordered_names() if isinstance(mapping, DictValue) else None
    if names is None or not takes_in_any_order(frame, function, names):
        yield from starred_pairs(
            frame, mapping, lambda kind: refuse_starred(frame, function, f"argument after ** must be a mapping, not {kind}")
        )
        return
    frame.guard("LENGTH", mapping.source, len(names))
    for name in names:
        key = frame.constant(name)
        yield key, mapping.getitem(frame, key)


def takes_in_any_order(frame: SymbolicFrame, function: Value, names: Iterable[str]) -> bool:
    """Whether nobody can tell in which order a function is given these keyword arguments: they are parameters of its own."""
    body = function.function if isinstance(function, BoundMethodValue) else function
    if isinstance(body, RowValue) and body.fn is module_call and isinstance(function, BoundMethodValue):
        forward = function.owner.forward_alone(frame) if isinstance(function.owner, ModuleValue) else None
        return forward is not None and takes_in_any_order(frame, forward, names)
    if not isinstance(body, FunctionValue) or body.code.co_flags & inspect.CO_VARKEYWORDS:
        return False
    code = body.code
    return set(names) <= set(code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount])


@opcode("MAKE_FUNCTION")
def make_function(frame: SymbolicFrame, instruction: Instruction) -> None:
    """A function from a code object; up to 3.12 flags say what lies below it."""
    code = frame.stack.pop().constant()
    flags = 0 if VERSION >= (3, 13) else instruction.arg
    closure = frame.stack.pop() if flags & 8 else None
    annotations = frame.stack.pop() if flags & 4 else None
    kwdefaults = frame.stack.pop() if flags & 2 else None
    defaults = frame.stack.pop() if flags & 1 else None
    function = NewFunctionValue(code, frame.globals, [], {}, ())
    for flag, value in ((1, defaults), (2, kwdefaults), (4, annotations), (8, closure)):
        if value is not None:
            set_part(frame, function, flag, value)
    frame.stack.append(function)


def set_part(frame: SymbolicFrame, function: NewFunctionValue, flag: int, value: Value) -> None:
    """Defaults, keyword defaults, annotations (name, value, name, value, ...) or closure of a new function."""
    if flag == 1:
        function._defaults = value.unpack(frame)
    elif flag == 2:
        function._kwdefaults = keyword_arguments(frame, value)
    elif flag == 4:
        function.annotations = cast("AbstractTuple", value)
    elif flag == 8:
        function._closure = cast("tuple[CellValue, ...]", tuple(value.unpack(frame)))


@opcode("LOAD_BUILD_CLASS")
def load_build_class(frame: SymbolicFrame, instruction: Instruction) -> None:
    """What makes a class of its body: a builtin, the call of which breaks the graph."""
    frame.stack.append(frame.wrap(builtins.__build_class__, Const(builtins.__build_class__, "__build_class__")))


@opcode("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Parts of a new function, one at a time (3.13)."""
    function = cast("NewFunctionValue", frame.stack.pop())
    set_part(frame, function, instruction.arg, frame.stack.pop())
    frame.stack.append(function)


@opcode("RETURN_VALUE")
def return_value(frame: SymbolicFrame, instruction: Instruction) -> str:
    """Leave the frame."""
    frame.result = frame.stack.pop()
    return RETURNED


@opcode("RETURN_CONST")
def return_const(frame: SymbolicFrame, instruction: Instruction) -> str:
    """Leave the frame with a constant (3.12+)."""
    frame.result = constant_of_code(frame, instruction.value)
    return RETURNED
