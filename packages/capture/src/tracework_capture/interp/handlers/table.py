"""The OPCODES table and the decorator that fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OPCODES", "RETURNED", "SUSPENDED", "opcode"]

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
unsupported("a class statement runs arbitrary code", "LOAD_BUILD_CLASS")
unsupported("annotations of a module or class body", "SETUP_ANNOTATIONS")
unsupported("only expressions at an interactive prompt", "PRINT_EXPR")
unsupported("a specialised form that plain code objects do not show", "ENTER_EXECUTOR", "INTERPRETER_EXIT", "RESERVED")
