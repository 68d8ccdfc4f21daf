"""INTRINSICS: small services of the interpreter behind one instruction each for one and for two operands (3.12+)."""

from ...bytecode.intrinsics import intrinsic_names
from ...values.objects.exception_group import raised_by_clauses
from ...values.plain.sequence import TupleValue
from ...values.plain.type_parameter import TYPES, TypeParameterValue
from .table import opcode


@opcode("CALL_INTRINSIC_1")
def call_intrinsic_1(frame, instruction):
    """service(value)"""
    frame.stack.append(call_intrinsic(frame, instruction.arg, [frame.stack.pop()]))


@opcode("CALL_INTRINSIC_2")
def call_intrinsic_2(frame, instruction):
    """service(value, value)"""
    frame.stack.append(call_intrinsic(frame, instruction.arg, frame.pop_many(2)))


def call_intrinsic(frame, number, operands):
    """What the service gives."""
    names = intrinsic_names(len(operands))
    name = names[number] if number < len(names) else str(number)
    row = INTRINSICS.get((len(operands), name), "no handler")
    if isinstance(row, str):
        return frame.break_graph("opcode_unsupported", f"CALL_INTRINSIC_{len(operands)} {name}: {row}")
    return row(frame, *operands)


def stopiteration_error(frame, exception):
    """StopIteration that leaves a generator becomes RuntimeError; other exceptions pass."""
    if issubclass(exception.python_type(), StopIteration):
        return frame.root.services.stopped_wrongly(frame, exception)
    return exception


def prepare_reraise(frame, original, raised):
    """What is raised after the except* clauses, or None."""
    return raised_by_clauses(frame, original, raised.unpack(frame))


def set_type_parameters(frame, function, parameters):
    """def f[T](): ..."""
    function.attributes["__type_params__"] = parameters
    return function


def set_default(frame, parameter, evaluate):
    """[T = default] (3.13)"""
    parameter.set_default(evaluate)
    return parameter


def makes(name):
    """A type parameter or a type alias."""
    return lambda frame, *operands: TypeParameterValue(name, operands)


INTRINSICS = {
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
