"""Functions of NumPy that are given tensors, as NumPy takes them: as arrays over their memory.

A ufunc gives its result back by Tensor.__array_wrap__, as a tensor, and so do functions of WRAPPING, which call the array's method;
functions of CONVERTING give what they give for arrays; those of ATTRIBUTE_FUNCTIONS get it from the tensor.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ...arrays import numpy
from ..objects.rows_warned import warn_
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.binding import class_value
from ..protocol.constant import ConstantValue
from ..protocol.value import Value
from ..torch.tensor import TensorValue
from .breaks import refuse
from .nodes import call, call_method
from .operands import array_from_tensor
from .ufuncs import apply

Row = Callable[[Any, list[Value], dict[str, Value]], Value]

CONVERTING = (
    "average broadcast_to concatenate count_nonzero cov diagonal dot einsum histogram inner interp linalg.norm median "
    "nan_to_num nanmean partition percentile quantile ravel roll sort stack tril triu vdot where"
).split()
"""Names in NumPy of functions that ask numpy.asarray what they are given, and nothing else of it."""


COPYING = {"dot", "inner", "nan_to_num", "vdot"}
"""Those of them that say whether it may be a copy, of which Tensor.__array__ knows nothing."""


WRAPPING = "argmax argmin argsort around clip cumprod cumsum repeat reshape round take transpose".split()
"""Names of functions that call the method of that name, which a tensor has with other arguments: TypeError, and then they call the array's
and wrap what it gives."""


ATTRIBUTE_FUNCTIONS = ("squeeze", "swapaxes")
"""Names of functions that give what the call of the attribute of that name gives, for whatever has it."""


MAKING = ("array", "asanyarray", "asarray")
"""Names of functions that do so with the items of a list, and have their own rule for a tensor alone."""


def is_tensor(frame: Any, value: Value) -> bool:
    """Whether NumPy is given a tensor; breaks where that is dispatched to its __torch_function__, or a mode."""
    if not isinstance(value, TensorValue):
        return False
    if value.python_type() is not torch.Tensor or frame.modes.function_modes:
        refuse(frame, "a function of NumPy with a tensor that is asked by __torch_function__")
    return True


def converted(frame: Any, value: Value) -> Value:
    """The argument with arrays for tensors."""
    if is_tensor(frame, value):
        assert isinstance(value, TensorValue)
        return array_from_tensor(frame, value)
    if isinstance(value, SequenceValue) and any(isinstance(item, TensorValue) for item in value.items):
        return TupleValue([converted(frame, item) for item in value.items])
    return value


def converting(
    row: Row, frame: Any, args: list[Value], kwargs: dict[str, Value], alone: bool = True, copying: bool = False
) -> Value:
    """The row, for tensors and lists of tensors, too, or for lists of them."""
    made = row(frame, [converted(frame, a) if alone or not isinstance(a, TensorValue) else a for a in args], kwargs)
    for _ in range(copying and sum(isinstance(a, TensorValue) for a in args)):
        warn(frame, numpy.copy)
    return made


def wrapped(frame: Any, array: Any) -> Value:
    """Tensor.__array_wrap__(array): over its memory, but of booleans a tensor gets bytes."""
    warn(frame, numpy.negative)
    if array.dtype.kind == "b":
        return call_method(frame, "to", array.tensor, ConstantValue(torch.uint8))
    return call(frame, getattr, array.tensor, "data")


def wrapping(ufunc: Any, row: Row, frame: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The row of a ufunc with one result."""
    if kwargs or len(args) != ufunc.nin or not any([is_tensor(frame, a) for a in args]):
        return row(frame, args, kwargs)
    return wrapped(frame, apply(frame, ufunc.__name__, [converted(frame, a) for a in args]))


def by_method(row: Row, frame: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The row of a function of WRAPPING; `out`, and tensors as other arguments, are left to it."""
    left = "out" in kwargs or any(isinstance(other, TensorValue) for other in (*args[1:], *kwargs.values()))
    if left or not args or not is_tensor(frame, args[0]):
        return row(frame, args, kwargs)
    return wrapped(frame, row(frame, [converted(frame, args[0]), *args[1:]], kwargs))


def attribute_row(name: str, row: Row, frame: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The row of a function of ATTRIBUTE_FUNCTIONS."""
    if not args or not is_tensor(frame, args[0]):
        return row(frame, args, kwargs)
    return args[0].getattr(frame, name).call(frame, args[1:], kwargs)


def warn(frame: Any, function: Callable[[torch.Tensor], Any]) -> None:
    """Says what NumPy says when it is given a tensor, where it would."""
    for message, category in warnings_of(function):
        warn_(frame, [ConstantValue(message), class_value(frame, category)], {})


@functools.cache
def warnings_of(function: Callable[[torch.Tensor], Any]) -> list[tuple[str, type[Warning]]]:
    """(text, category) of each."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(torch.zeros(1))
    return [(str(each.message), each.category) for each in found]


def named(name: str) -> Any:
    """What NumPy has by this name, None where it is not that new."""
    found: Any = numpy
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


TAKE_TENSORS: dict[Any, Callable[..., Value]] = {
    **{named(name): functools.partial(converting, copying=name in COPYING) for name in CONVERTING},
    **dict.fromkeys(map(named, WRAPPING), by_method),
    **{named(name): functools.partial(attribute_row, name) for name in ATTRIBUTE_FUNCTIONS},
    **dict.fromkeys(map(named, MAKING), functools.partial(converting, alone=False)),
    **{u: functools.partial(wrapping, u) for u in vars(numpy).values() if isinstance(u, numpy.ufunc) and u.nout == 1},
}
"""Function of NumPy -> how its row, which comes first, takes tensors."""


def taking_tensors(fn: Any, row: Row) -> Row:
    """The row of a function of NumPy, for tensors, too, where NumPy takes them."""
    change = TAKE_TENSORS.get(fn)
    return row if change is None else functools.wraps(row)(functools.partial(change, row))
