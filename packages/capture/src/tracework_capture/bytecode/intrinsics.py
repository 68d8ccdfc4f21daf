"""What the instructions CALL_INTRINSIC_1 and CALL_INTRINSIC_2 do (3.12+): their names, and functions that do the same."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable
from typing import Any

from .assemble import Part, assemble


def intrinsic_names(operands: int) -> tuple[str, ...]:
    """The names of the intrinsics with so many operands, by the instruction's argument: TYPEVAR, say. Before 3.12 there are none."""
    return tuple(name.removeprefix("INTRINSIC_") for name in getattr(dis, f"_intrinsic_{operands}_descs", ()))


@functools.cache
def intrinsic_function(operands: int, number: int) -> Callable[..., Any]:
    """A function of the operands that consists of the instruction."""

    def template(first: Any, second: Any = None) -> Any:
        return first, second

    code = template.__code__
    place = (code.co_firstlineno, None, None, None)
    steps = [
        ("RESUME", 0),
        *(("LOAD_FAST", slot) for slot in range(operands)),
        (f"CALL_INTRINSIC_{operands}", number),
        ("RETURN_VALUE", 0),
    ]
    parts = [Part(opname, arg, place) for opname, arg in steps]
    template.__code__ = assemble(code, parts, co_varnames=code.co_varnames, co_freevars=())
    template.__name__ = f"intrinsic_{intrinsic_names(operands)[number].lower()}"
    return template
