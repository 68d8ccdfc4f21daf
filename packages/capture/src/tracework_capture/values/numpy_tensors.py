"""Functions of NumPy that are given tensors, as NumPy takes them: as arrays over their memory.

A ufunc gives its result back by Tensor.__array_wrap__, as a tensor; functions of CONVERTING give what they give for arrays.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..arrays import numpy
from .constant import ConstantValue
from .numpy_array import array_from_tensor, refuse
from .numpy_ufuncs import apply
from .sequence import SequenceValue, TupleValue
from .tensor import TensorValue
from .value import Value

Row = Callable[[Any, list[Value], dict[str, Value]], Value]

CONVERTING = (
    "allclose array_equal average column_stack concatenate cov diff dstack einsum expand_dims histogram hstack interp isclose linalg.norm "
    "median outer pad percentile quantile roll sort stack tile trace unique vstack where"
).split()
"""Names in NumPy of functions that ask numpy.asarray what they are given, and nothing else of it."""


MAKING = ("array", "asanyarray", "asarray")
"""Names of functions that do so with the items of a list, and have their own rule for a tensor alone."""


def is_tensor(frame: Any, value: Value) -> bool:
    """Whether NumPy is given a tensor; breaks where its __torch_function__, or a mode, would be asked."""
    if not isinstance(value, TensorValue):
        return False
    if value.python_type() is not torch.Tensor or frame.root.function_modes:
        refuse(frame, "a function of NumPy with a tensor that is asked by __torch_function__")
    return True


def converted(frame: Any, value: Value) -> Value:
    """The argument with arrays for tensors."""
    if is_tensor(frame, value):
        return array_from_tensor(frame, value)
    if isinstance(value, SequenceValue) and any(isinstance(item, TensorValue) for item in value.items):
        return TupleValue([converted(frame, item) for item in value.items])
    return value


def converting(row: Row, alone: bool = True) -> Row:
    """The row, for tensors and lists of tensors, too, or for lists of them."""

    def computes(frame: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return row(frame, [converted(frame, a) if alone or not isinstance(a, TensorValue) else a for a in args], kwargs)

    return computes


def wrapping(ufunc: Any, row: Row) -> Row:
    """The row of a ufunc with one result: of booleans a tensor gets bytes."""
    name = ufunc.__name__

    def computes(frame: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs or len(args) != ufunc.nin or not any([is_tensor(frame, a) for a in args]):
            return row(frame, args, kwargs)
        made = apply(frame, name, [converted(frame, a) for a in args])
        warn(frame)
        as_bytes = made.dtype.kind == "b"
        return frame.graph.call_method(frame, "to", (made.tensor, ConstantValue(torch.uint8))) if as_bytes else made.tensor

    return computes


def warn(frame: Any) -> None:
    """Says what NumPy says of Tensor.__array_wrap__, where it would."""
    from .builtins.warned import warn_
    from .user_class import class_value

    for message, category in warnings_of_wrapping():
        warn_(frame, [ConstantValue(message), class_value(frame, category)], {})


@functools.cache
def warnings_of_wrapping() -> list[tuple[str, type[Warning]]]:
    """(text, category) of each."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        numpy.negative(torch.zeros(1))
    return [(str(each.message), each.category) for each in found]


def on_tensors(rows: Mapping[Any, Row], named: Callable[[str], Any]) -> dict[Any, Row]:
    """The rows of those functions among `rows` that take tensors, with `named` finding a function by its name in NumPy."""
    found = {fn: converting(rows[fn]) for fn in map(named, CONVERTING) if fn in rows}
    found |= {fn: converting(rows[fn], alone=False) for fn in map(named, MAKING) if fn in rows}
    return found | {fn: wrapping(fn, row) for fn, row in rows.items() if isinstance(fn, numpy.ufunc) and fn.nout == 1}
