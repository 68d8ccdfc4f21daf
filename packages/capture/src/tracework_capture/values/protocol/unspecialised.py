"""Objects that are known in this call but need not be fixed, as texts and NumPy's ints that change between calls are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...sources import Source
from .constant import ConstantValue
from .value import HeldValue, Value


class UnspecialisedConstant(HeldValue):
    """An object of the kinds that constants are. `settle()` fixes it: what needs the object calls it, and the entry then holds for that
    object only."""

    def __init__(self, obj: Any, settle: Callable[[], Any], source: Source | None = None) -> None:
        super().__init__(obj, source)
        self.settle = settle
        self.settled: ConstantValue | None = None

    def known(self) -> ConstantValue:
        """The constant, once something needed it."""
        if self.settled is None:
            self.settle()
            self.settled = ConstantValue(self.obj)
        return self.settled

    def is_constant(self) -> bool:
        return self.settled is not None

    def constant(self) -> Any:
        return self.known().constant()

    as_plain = constant

    def real(self) -> Any:
        return self.known().real()

    def same_object(self, other: Value) -> bool | None:
        return True if other is self else None


def _settling(name: str) -> Callable[..., Any]:
    return lambda self, frame, *args: getattr(self.known(), name)(frame, *args)


for _name in (
    "truth",
    "hash_key",
    "getattr",
    "call_method",
    "getitem",
    "iterate",
    "unpack",
    "length",
    "contains",
    "binary",
    "compare",
    "unary",
    "as_graph_arg",
):
    setattr(UnspecialisedConstant, _name, _settling(_name))
