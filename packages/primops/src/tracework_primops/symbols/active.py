"""The table that sizes are compared with while an op runs on fakes, so that shape rules need not carry it.

Without one (static sizes, or rules run on prims whose sizes were decided before), comparison is structural.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .expr import Condition, Expr, Size

if TYPE_CHECKING:
    from .table import SymbolTable


class _Slot(threading.local):
    table: SymbolTable | None = None


_slot = _Slot()


def table() -> SymbolTable | None:
    """The table of the op being run, or None."""
    return _slot.table


def carrier() -> SymbolTable:
    """The table, for who met a symbol: an op on symbols runs under the table that made them."""
    current = _slot.table
    assert current is not None
    return current


def swap(new: SymbolTable | None) -> SymbolTable | None:
    """Set the table and return the previous one."""
    old, _slot.table = _slot.table, new
    return old


def equal(a: Size, b: Size) -> bool:
    """a == b; for symbols decided, and recorded, by the active table."""
    if a is b:
        return True
    if a.__class__ is int and b.__class__ is int:
        return a == b
    return decide("==", a, b)


def is_one(size: Size) -> bool:
    """Whether a size is known to be 1; nothing is recorded."""
    if size.__class__ is int:
        return size == 1
    return _slot.table is not None and _slot.table.is_true(Condition.compare("==", size, 1)) is True


def is_fixed_one(size: Size) -> bool:
    """Whether a size is 1 in the example. All that it is computed from is fixed then: what follows is written for the number."""
    current = _slot.table
    if current is None or not isinstance(size, Expr) or not equal(size, 1):
        return False
    for symbol in size.free_symbols:
        current.fix(symbol)
    return True


def decide(op: str, a: Size, b: Size) -> bool:
    """`a op b`, decided and recorded by the active table; False when there is none and symbols do not cancel."""
    condition = Condition.compare(op, a, b)
    if condition.expr.__class__ is int:
        return condition.evaluate({})
    current = _slot.table
    if current is None:
        return False
    return current.guard(condition)
