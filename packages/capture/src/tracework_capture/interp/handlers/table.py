"""The OPCODES table and the decorator that fills it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ...bytecode.code import Instruction
from ...values.protocol.value import Value
from ..frame import SymbolicFrame

RETURNED, SUSPENDED = "returned", "suspended"

OPCODES: dict[str, Any] = {}


def opcode(*names: str) -> Callable[[Any], Any]:
    """Register a handler for opcodes."""

    def register(handler: Any) -> Any:
        for name in names:
            if name in OPCODES:
                raise KeyError(f"OPCODES: second row for {name}")
            OPCODES[name] = handler
        return handler

    return register


def operators(rows: Mapping[str, tuple[int, Callable[..., Value | None]]]) -> None:
    """Rows for instructions that put what rule(frame, *operands) gives, if anything, in the place of so many operands."""
    for name, (count, rule) in rows.items():
        opcode(name)(_operator(count, rule))


def _operator(count: int, rule: Callable[..., Value | None]) -> Callable[[SymbolicFrame, Instruction], None]:
    @functools.wraps(rule)
    def handler(frame: SymbolicFrame, instruction: Instruction) -> None:
        given = rule(frame, *frame.pop_many(count))
        if given is not None:
            frame.stack.append(given)

    return handler


def displays(rows: Mapping[str, Callable[[SymbolicFrame, list[Value]], Value]]) -> None:
    """Rows for instructions that put rule(frame, operands) in the place of as many operands as their argument says."""
    for name, rule in rows.items():
        opcode(name)(_display(rule))


def _display(rule: Callable[[SymbolicFrame, list[Value]], Value]) -> Callable[[SymbolicFrame, Instruction], None]:
    @functools.wraps(rule)
    def handler(frame: SymbolicFrame, instruction: Instruction) -> None:
        frame.stack.append(rule(frame, frame.pop_many(instruction.arg)))

    return handler


def find_handler(opname: str) -> Any:
    """The handler of an opcode, or one that breaks the graph."""
    handler = OPCODES.get(opname)
    if handler is None or isinstance(handler, str):
        why = handler or "no handler"

        def unsupported(frame: SymbolicFrame, instruction: Instruction) -> None:
            frame.break_graph("opcode_unsupported", f"{opname}: {why}")

        return unsupported
    return handler


def unsupported(reason: str, *names: str) -> None:
    """Rows for opcodes that are not modelled."""
    for name in names:
        OPCODES[name] = reason


unsupported(
    "coroutines run outside of capture",
    "GET_AWAITABLE",
    "GET_AITER",
    "GET_ANEXT",
    "END_ASYNC_FOR",
    "BEFORE_ASYNC_WITH",
    "ASYNC_GEN_WRAP",
    "CLEANUP_THROW",
)
unsupported("only expressions at an interactive prompt", "PRINT_EXPR")
unsupported(
    "only the interpreter itself runs it: it is in no code object",
    "ENTER_EXECUTOR",
    "EXIT_INIT_CHECK",
    "INTERPRETER_EXIT",
    "RESERVED",
)
unsupported(
    "only while sys.monitoring watches: code objects show the plain instruction",
    *(
        f"INSTRUMENTED_{name}"
        for name in (
            "CALL CALL_FUNCTION_EX CALL_KW END_FOR END_SEND FOR_ITER INSTRUCTION JUMP_BACKWARD JUMP_FORWARD LINE LOAD_SUPER_ATTR "
            "POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE RESUME RETURN_CONST RETURN_VALUE YIELD_VALUE"
        ).split()
    ),
)
unsupported(
    "a pseudo instruction: the compiler replaces it before the code object is made",
    "JUMP",
    "JUMP_NO_INTERRUPT",
    "LOAD_SUPER_METHOD",
    "LOAD_ZERO_SUPER_ATTR",
    "LOAD_ZERO_SUPER_METHOD",
    "POP_BLOCK",
    "SETUP_CLEANUP",
    "SETUP_FINALLY",
    "SETUP_WITH",
)
