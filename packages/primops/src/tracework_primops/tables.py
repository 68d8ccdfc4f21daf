"""How a table split over the eleven family files is filled and joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from .errors import MissingRule, SealedTable
from .op import Op
from .ops import OPS

R = TypeVar("R", bound=Callable[..., Any])


def rules_into(table: dict[Op, Callable[..., Any]]) -> Callable[..., Callable[[R], R]]:
    """A decorator ``@rule("add", "sub")`` that files a function under those ops; without names, under its own name."""

    def rule(*names: str) -> Callable[[R], R]:
        def file(function: R) -> R:
            for name in names or (function.__name__.rstrip("_"),):
                op = OPS[name]
                if op in table:
                    raise SealedTable(f"a second rule for {op} in {function.__module__}")
                table[op] = function
            return function

        return file

    return rule


def merge_families(name: str, modules: Sequence[ModuleType], ops: Mapping[str, Op]) -> dict[Op, Callable[..., Any]]:
    """Join the family tables called `name`; raises MissingRule for a prim without a row or with a row in a wrong file."""
    joined: dict[Op, Callable[..., Any]] = {}
    for module in modules:
        family = module.__name__.rsplit(".", 1)[1]
        for op, function in getattr(module, name).items():
            if op.family != family:
                raise SealedTable(f"{name}: the rule for {op} is in {module.__name__}; its family is {op.family}")
            joined[op] = function
    missing = [op for op in ops.values() if op not in joined]
    if missing:
        where = ", ".join(f"{op.name} ({op.family}.py)" for op in missing)
        raise MissingRule(f"{name}: no rule for {where}")
    return joined
