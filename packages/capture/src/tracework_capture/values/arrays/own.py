"""Functions of NumPy that NumPy itself computes when the graph runs: operators of the graph, which no later stage looks into.

They are pure, and the sizes and dtypes of what they give do not depend on data. What they give is seen once, with the values that the
graph computes up to there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...arrays import numpy
from ...errors import NotPlain
from ...graph.operators import Refusal, operator_of
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import Handler
from ..protocol.constant import plain
from ..protocol.value import Frame, Value
from ..torch.opaque_call import fits, observed
from .array import ArrayValue
from .breaks import refuse
from .nodes import call
from .operands import computed_now
from .tensors import named
from .views import held_sizes, inside_of

OWN = (
    "argpartition average bitwise_count cbrt choose corrcoef cov digitize geomspace histogram i0 interp isin "
    "lexsort linalg.cholesky linalg.cond linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.matrix_norm "
    "linalg.matrix_power linalg.matrix_rank linalg.multi_dot linalg.pinv linalg.qr linalg.slogdet linalg.solve "
    "linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve linalg.vector_norm linspace logspace median nanargmax "
    "nanargmin nanmax nanmean nanmedian nanmin nanpercentile nanquantile nanstd nanvar partition percentile quantile "
    "ravel_multi_index searchsorted spacing unravel_index unwrap"
).split()
"""Names in NumPy."""


class Results:
    """The function as one of tensors, and how its results are put together."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.form: Any = None

    def __call__(self, *tensors_and_constants: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        given = [as_arrays(a) for a in tensors_and_constants]
        found = self.function(*given, **{k: as_arrays(v) for k, v in kwargs.items()})
        parts = list(found) if isinstance(found, (tuple, list)) else [found]
        if not all(isinstance(p, (numpy.ndarray, numpy.generic)) for p in parts):
            raise Refusal(f"it gives a {type(found).__name__}")
        kinds = [(isinstance(p, numpy.generic), None if isinstance(p, numpy.generic) else held_sizes(p)) for p in parts]
        self.form = (type(found) if isinstance(found, (tuple, list)) else None, kinds)
        return tuple(as_tensor(p) for p in parts)


def as_arrays(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) else value


def as_tensor(part: Any) -> torch.Tensor:
    """A tensor over a result of NumPy's."""
    found = numpy.asarray(part)
    return torch.from_numpy(found if found.flags.writeable else found.copy())


def own_row(function: Callable[..., Any]) -> Handler:
    """The row of such a function."""

    def computes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return computed_now(frame, function, args, kwargs) or own_call(frame, function, args, kwargs)

    return computes


def own_call(frame: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The call as a node; breaks where it cannot be one."""
    name = f"numpy.{function.__name__}"
    arrays: list[ArrayValue] = []
    try:
        given = [template(v, arrays) for v in (*args, *kwargs.values())]
    except NotPlain:
        return refuse(frame, f"{name} with these arguments")
    flat = [a.tensor for a in arrays]
    if function is numpy.histogram and any(type(v) is str for v in given):
        return refuse(frame, f"{name} with bins whose number depends on data")
    if frame.modes.transforms or not all(map(fits, flat)) or "out" in kwargs:
        return refuse(frame, f"{name} of arrays with open sizes or gradients, or into an array")
    results = Results(functools.partial(filled, function, given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True))))
    try:
        kind, facts = observed(frame, results, flat)
    except Refusal as why:
        return refuse(frame, f"{name}: {why}")
    operator = operator_of(function, results, ([repr(v) for v in given], tuple(kwargs)), len(flat), facts)
    made = call(frame, operator, *flat)
    return together(frame, made.unpack(frame) if len(facts) > 1 else [made], *results.form)


def together(frame: Frame, tensors: list[Any], kind: Any, kinds: Any) -> Value:
    """What the program gets: arrays and numbers, alone or in a tuple."""
    parts = [ArrayValue(t, scalar=number) for t, (number, _) in zip(tensors, kinds, strict=True)]
    parts = [part if sizes is None else inside_of(frame, part, sizes) for part, (_, sizes) in zip(parts, kinds, strict=True)]
    return parts[0] if kind is None else TupleValue(parts, cls=kind)


@dataclass(frozen=True)
class Slot:
    """The place of an array in an argument."""

    number: int


def template(value: Value, arrays: list[ArrayValue]) -> Any:
    """An argument with slots for its arrays, which are added. Raises NotPlain for what is neither arrays nor known."""
    if isinstance(value, ArrayValue):
        arrays.append(value)
        return Slot(len(arrays) - 1)
    if isinstance(value, SequenceValue) and any(isinstance(v, ArrayValue) for v in value.items):
        if not all(isinstance(v, ArrayValue) for v in value.items):
            raise NotPlain(value)
        return value.python_type()(template(v, arrays) for v in value.items)
    return plain(value)


def filled(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], *arrays: Any) -> Any:
    """The call with arrays in the slots of its arguments."""
    return function(*[put_in(v, arrays) for v in args], **{name: put_in(v, arrays) for name, v in kwargs.items()})


def put_in(given: Any, arrays: tuple[Any, ...]) -> Any:
    """An argument with arrays in its slots."""
    if type(given) in (list, tuple) and given and type(given[0]) is Slot:
        return type(given)(arrays[slot.number] for slot in given)
    return arrays[given.number] if type(given) is Slot else given


def own_rows() -> dict[Any, Any]:
    """Function of NumPy -> row."""
    found = map(named, OWN)
    return {function: own_row(function) for function in found if function is not None}
