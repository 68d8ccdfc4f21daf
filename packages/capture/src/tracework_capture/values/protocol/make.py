"""Make: how a storey makes values whose classes stand in storeys above it. Each of those fills its slots when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .value import Frame, Value

if TYPE_CHECKING:
    import numpy
    from torch import fx

    from .kinds import AbstractTensor


Items: TypeAlias = list[Value]


class Make:
    """One slot a kind of value. `values/__init__.py` checks that all are filled."""

    tuple: Callable[[Items], Value]
    """A new tuple of items."""
    array: Callable[[Frame, numpy.ndarray], Value]
    """A new array with data that is known while tracing."""
    array_of: Callable[[Frame, AbstractTensor], Value]
    """The array over the memory of a tensor; breaks the graph where NumPy has none."""
    tensor: Callable[[fx.Node, Any], AbstractTensor]
    """The tensor of a node, and its FakeTensor; memory.remember finds it again."""
    builtin_method: Callable[[Value, str], Value]
    """A method that C defines, by its name, bound to its owner."""
    bound_method: Callable[[Value, Value], Value]
    """A function, bound to its owner."""
    float: Callable[..., Value]
    """A float that changes from call to call (number/floats.py FloatValue): of its node, hint, roots, source and formula."""
    size: Callable[[Frame, Any], Value]
    """An int: of an int, an Expr or a SymInt."""
    size_float: Callable[..., Value]
    """A float that is a formula over symbolic ints (number/size_floats.py SizeFloat): of the graph, the formula, its hint and span."""
    iterator: Callable[[Items], Value]
    """A new iterator over items."""
    text_iterator: Callable[[str | bytes], Value]
    """A new iterator over a text or bytes."""
    result: Callable[[Frame, Any], Value]
    """The value of an object that tracing itself made (plain/results.py)."""

    def provide(self, **makers: Callable[..., Value]) -> None:
        """Fills slots; each has one owner."""
        for slot, maker in makers.items():
            if slot not in Make.__annotations__ or slot in vars(self):
                raise RuntimeError(f"make.{slot} has an owner, or is no slot")
            setattr(self, slot, maker)

    def check(self) -> None:
        """Raises where a slot is empty."""
        missing = set(Make.__annotations__) - set(vars(self))
        if missing:
            raise RuntimeError(f"nobody provides {sorted(missing)}")


make = Make()
"""The one of this process."""
