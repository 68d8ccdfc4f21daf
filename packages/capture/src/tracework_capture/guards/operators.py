"""What tracing takes from an operator of the program's: its schema, the functions that say what it gives and what its gradients are, and all
that these read, as digests.

What an operator computes is asked when it runs, and is no part of that. Functions outside of torch are looked into as far as names lead; what
cannot be told raises NotPortable.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import types
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from .. import _torch
from ..code_origin import is_of_torch
from .addresses import address_of, digest_of_attribute, digest_of_code
from .store import NotPortable

TORCHS = ("aten", "prims", "prim")
"""Namespaces of operators whose rules are torch's."""
_MODULES = ("torch", "math", "operator")
"""Modules that nothing of the program's is in."""
_UNDER_WAY: ContextVar[tuple[Any, ...]] = ContextVar("_UNDER_WAY", default=())
"""Operators whose digests are being made, each of which the one before reads."""


def digest_of_operator(operator: Any) -> str:
    """Of an overload, a packet of overloads, or what torch.library.custom_op gave. Raises NotPortable."""
    made = _torch.custom_operator(operator)
    if made is None:
        return _digest_of_defined(operator)
    functions = _torch.rules_of_custom_operator(made)
    around = _UNDER_WAY.get()
    if made in around:  # a gradient may be computed by the operator itself
        return f"the {around.index(made)}th around"
    seen: dict[int, int] = {}
    under_way = _UNDER_WAY.set((*around, made))
    try:
        parts = [_torch.schema_of_custom_operator(made), *(_reached(function, seen) for function in functions)]
    finally:
        _UNDER_WAY.reset(under_way)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _digest_of_defined(operator: Any) -> str:
    """Of an operator that torch.library.define made, whose one rule is a fake in Python. Raises NotPortable."""
    parts: list[Any] = []
    for overload in _torch.overloads_of(operator):
        fake, rest = _torch.fake_of_operator(overload)
        if rest:
            raise NotPortable(f"{overload} has a rule for {', '.join(rest)}, whose function cannot be seen")
        if fake is None:
            raise NotPortable(f"no function of Python's says what {overload} gives (torch.library.register_fake)")
        parts.append((_torch.schema_of_operator(overload), _reached(fake, {})))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _reached(value: Any, seen: dict[int, int]) -> Any:
    """What a function reads. seen: numbers of the functions that were met, by id."""
    if isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] in _MODULES:
            return value.__name__
        raise NotPortable(f"module {value.__name__} is read by the rule of an operator")
    if not isinstance(value, types.FunctionType):
        return address_of(value) if isinstance(value, (type, types.BuiltinFunctionType)) else digest_of_attribute(value)
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
    if is_of_torch(value.__code__):  # what torch wraps a function of the program's in may note whether it was called
        return [value.__qualname__, [_reached(each, seen) for each in cells if type(each) is not bool]]
    given = [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    read = [(name, value.__globals__.get(name, vars(builtins).get(name))) for name in sorted({*_names(value.__code__)})]
    return [
        digest_of_code(value.__code__),
        [_reached(each, seen) for each in given],
        [(name, _reached(each, seen)) for name, each in read if each is not None],
    ]


def _names(code: types.CodeType) -> Iterator[str]:
    """Names of the globals that code reads."""
    yield from (read.argval for read in dis.get_instructions(code) if read.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
