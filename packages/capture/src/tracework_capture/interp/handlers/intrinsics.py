"""INTRINSICS: small services of the interpreter behind one instruction each for one and for two operands (3.12+)."""

from __future__ import annotations

from collections.abc import Callable

from ...bytecode.code import Instruction
from ...bytecode.intrinsics import intrinsic_names
from ...values.objects.exception import stopped_wrongly
from ...values.objects.exception_group import raised_by_clauses
from ...values.objects.function import NewFunctionValue
from ...values.plain.sequence import TupleValue
from ...values.plain.type_parameter import TYPES, TypeParameterValue
from ...values.protocol.value import Value
from ..frame import SymbolicFrame
from .table import opcode, operators


@opcode("CALL_INTRINSIC_1", "CALL_INTRINSIC_2")
def call_intrinsic(frame: SymbolicFrame, instruction: Instruction) -> None:
    """service(value) or service(value, value)"""
    count, number = int(instruction.opname[-1]), instruction.arg
    names = intrinsic_names(count)
    name = names[number] if number < len(names) else str(number)
    row = INTRINSICS.get((count, name), "no handler")
    if isinstance(row, str):
        frame.break_graph("opcode_unsupported", f"{instruction.opname} {name}: {row}")
    frame.stack.append(row(frame, *frame.pop_many(count)))


def stopiteration_error(frame: SymbolicFrame, exception: Value) -> Value:
    """StopIteration that leaves a generator becomes RuntimeError; other exceptions pass."""
    if issubclass(exception.python_type(), StopIteration):
        return stopped_wrongly(frame, exception)
    return exception


def prepare_reraise(frame: SymbolicFrame, original: Value, raised: Value) -> Value:
    """What is raised after the except* clauses, or None."""
    return raised_by_clauses(frame, original, raised.unpack(frame))


def set_type_parameters(frame: SymbolicFrame, function: NewFunctionValue, parameters: Value) -> Value:
    """def f[T](): ..."""
    function.attributes["__type_params__"] = parameters
    return function


def set_default(frame: SymbolicFrame, parameter: TypeParameterValue, evaluate: Value) -> Value:
    """[T = default] (3.13)"""
    parameter.set_default(evaluate)
    return parameter


def makes(name: str) -> Callable[..., Value]:
    """A type parameter or a type alias."""
    return lambda frame, *operands: TypeParameterValue(name, list(operands))


INTRINSICS: dict[tuple[int, str], Callable[..., Value] | str] = {
    (1, "STOPITERATION_ERROR"): stopiteration_error,
    (1, "UNARY_POSITIVE"): lambda frame, value: value.unary(frame, "+"),
    (1, "LIST_TO_TUPLE"): lambda frame, items: TupleValue(items.unpack(frame)),
    (1, "1_INVALID"): "it is in no code object",
    (1, "PRINT"): "only expressions at an interactive prompt",
    (1, "IMPORT_STAR"): "only the code of modules has it",
    (1, "ASYNC_GEN_WRAP"): "coroutines run outside of capture",
    (2, "2_INVALID"): "it is in no code object",
    (2, "PREP_RERAISE_STAR"): prepare_reraise,
    (2, "SET_FUNCTION_TYPE_PARAMS"): set_type_parameters,
    (2, "SET_TYPEPARAM_DEFAULT"): set_default,
    **{key: makes(key[1]) for key in TYPES},
}
"""(Number of operands, name) -> what it gives for the operands, or why it is not modelled."""

operators({"PREP_RERAISE_STAR": (2, prepare_reraise)})  # 3.11
