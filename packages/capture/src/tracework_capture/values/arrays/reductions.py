"""Reductions of NumPy: sums, means, extremes, running sums, in the dtypes that NumPy computes and gives them in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...arrays import NUMPY_DTYPES, numpy
from ..protocol.calls import Handler
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Frame, Value
from .arguments import Argument, axes_of, dtype_of, known, one_axis
from .array import ArrayValue
from .breaks import refuse
from .layouts import ordered_as, ordered_without
from .nodes import call, tensors_of
from .operands import as_array, cast, constant_array, prepared
from .table import function, function_row, result
from .ufuncs import METHOD_FUNCTIONS, apply


def reduced(
    frame: Frame,
    name: str,
    a: ArrayValue,
    axis: Argument,
    keepdims: Argument,
    compute: Callable[..., Any],
    mask: ArrayValue | None = None,
) -> ArrayValue:
    """compute(axes, whether they are kept), laid out as NumPy does, of an array whose items a mask chooses."""
    axes, keep = axes_of(frame, axis, a.example.ndim), bool(known(frame, keepdims))
    axes = tuple(range(a.example.ndim)) if axes is None else axes
    if a.example.ndim and not axes:
        return refuse(frame, f"numpy.{name} over no axes")
    return result(ordered_without(frame, compute(axes, keep), [a, *([] if mask is None else [mask])], axes, keep))


def sum_dtype(frame: Frame, a: ArrayValue, dtype: Argument) -> numpy.dtype[Any]:
    """The dtype that sums and products are computed in."""
    asked = dtype_of(frame, dtype)
    if asked is not None:
        return asked
    if a.dtype.kind == "u":
        return refuse(frame, "sums of unsigned integers, which are uint64")
    return numpy.dtype("int64") if a.dtype.kind in "bi" else a.dtype


def mask_of(frame: Frame, where: Argument, a: ArrayValue) -> ArrayValue | None:
    """where=, an array of booleans that fits the array; None where all items are chosen."""
    if where is None or where.is_constant() and where.constant() is True:
        return None
    mask = as_array(frame, where)
    sizes = tuple(a.example.shape)
    if mask.dtype.kind != "b" or torch.broadcast_shapes(tuple(mask.example.shape), sizes) != sizes:
        return refuse(frame, "a reduction of items that are chosen by something else than booleans for each of them")
    return mask


def chosen(frame: Frame, tensor: AbstractTensor, mask: ArrayValue | None, other: Any) -> AbstractTensor:
    """The tensor with `other` where the mask says no."""
    if mask is None:
        return tensor
    return call(frame, torch.where, mask.tensor, tensor, prepared(frame, other, NUMPY_DTYPES[tensor.example.dtype]))


def counted(frame: Frame, a: ArrayValue, mask: ArrayValue, axes: tuple[int, ...], keep: bool) -> AbstractTensor:
    """How many items the mask chooses, as a tensor."""
    chosen_ones = call(frame, torch.Tensor.expand, mask.tensor, tuple(a.example.shape))
    return call(frame, torch.sum, chosen_ones, dim=axes, keepdim=keep)


def narrow(x: AbstractTensor) -> dict[str, torch.dtype]:
    """Sums and products of narrow integers are in int64 unless torch is told to stay in their dtype, as NumPy does when that is asked."""
    dtype = x.example.dtype
    return {} if dtype.is_floating_point or dtype.is_complex or dtype is torch.int64 else {"dtype": dtype}


def total(frame: Frame, x: AbstractTensor, axes: tuple[int, ...], keep: bool) -> AbstractTensor:
    return call(frame, torch.sum, x, dim=axes, keepdim=keep, **narrow(x))


def product(frame: Frame, x: AbstractTensor, axes: tuple[int, ...], keep: bool) -> AbstractTensor:
    """Along one dim after the other: torch takes one."""
    found = x
    for axis in sorted(axes, reverse=True):
        found = call(frame, torch.prod, found, dim=axis, keepdim=keep, **narrow(x))
    return found if axes else call(frame, torch.clone, x)


def over(fn: Callable[..., Any]) -> Callable[..., AbstractTensor]:
    """A function of torch that takes several dims."""
    return lambda frame, x, axes, keep: call(frame, fn, x, dim=axes, keepdim=keep)


class Reduction(NamedTuple):
    """What `reduce` of a ufunc computes."""

    compute: Callable[..., AbstractTensor]
    """Of the frame, a tensor, dims, and whether these are kept."""
    dtype: Callable[[Frame, ArrayValue, Argument], numpy.dtype[Any]]
    """What it is computed in; of the frame, the array and what is asked."""
    nothing: Any
    """What an item that is left out is computed as; None where that is the number to begin with."""


def own_dtype(frame: Frame, a: ArrayValue, dtype: Argument) -> numpy.dtype[Any]:
    return a.dtype if known(frame, dtype) is None else refuse(frame, "an extreme of another dtype")


def truth_dtype(frame: Frame, a: ArrayValue, dtype: Argument) -> numpy.dtype[Any]:
    return numpy.dtype(bool)


REDUCTIONS = {
    "add": Reduction(total, sum_dtype, 0),
    "multiply": Reduction(product, sum_dtype, 1),
    "maximum": Reduction(over(torch.amax), own_dtype, None),
    "minimum": Reduction(over(torch.amin), own_dtype, None),
    "logical_and": Reduction(over(torch.all), truth_dtype, True),
    "logical_or": Reduction(over(torch.any), truth_dtype, False),
}
"""Name of a ufunc -> its reduction."""


def reduction(
    frame: Frame,
    a: Value,
    *,
    name: str,
    axis: Argument = None,
    dtype: Argument = None,
    keepdims: Argument = False,
    initial: Argument = None,
    where: Argument = None,
) -> Value:
    """ufunc.reduce, over all axes if none is given."""
    a, row = as_array(frame, a), REDUCTIONS[name]
    mask, first = mask_of(frame, where, a), known(frame, initial)
    if (mask is not None and row.nothing is None or initial is not None) and first is None:
        return refuse(frame, f"numpy.{name}.reduce of chosen items without a first one, or one that begins with None")
    x = cast(frame, a.tensor, row.dtype(frame, a, dtype))
    x = chosen(frame, x, mask, first if row.nothing is None else row.nothing)
    found = reduced(frame, name, a, axis, keepdims, lambda axes, keep: row.compute(frame, x, axes, keep), mask)
    if initial is None:
        return found
    return apply(frame, name, [found, ArrayValue(prepared(frame, first, found.dtype), scalar=True)])


WITH_DTYPE, WITHOUT_DTYPE = "axis dtype out keepdims initial where", "axis out keepdims initial where"
for _name, _names, _given in (
    ("add", ("sum",), WITH_DTYPE),
    ("multiply", ("prod",), WITH_DTYPE),
    ("maximum", ("amax", "max"), WITHOUT_DTYPE),
    ("minimum", ("amin", "min"), WITHOUT_DTYPE),
    ("logical_and", ("all",), WITHOUT_DTYPE),
    ("logical_or", ("any",), WITHOUT_DTYPE),
):
    _row = functools.partial(reduction, name=_name)
    function(*_names, method=_names[-1], complex=_given is WITH_DTYPE, parameters=_given)(_row)
    METHOD_FUNCTIONS["reduce"][_name] = function_row(_row, getattr(numpy, _name).reduce, _name, _given is WITH_DTYPE)


def float_dtype(a: ArrayValue, dtype: numpy.dtype[Any] | None = None) -> tuple[numpy.dtype[Any], numpy.dtype[Any]]:
    """What means are computed in, and what they are given as."""
    wanted = dtype or (a.dtype if a.dtype.kind in "fc" else numpy.dtype("float64"))
    return numpy.dtype("float32") if wanted == numpy.float16 and dtype is None else wanted, wanted


@function("mean", method="mean", complex=True, parameters="axis dtype out keepdims")
def mean(
    frame: Frame, a: Value, axis: Argument = None, dtype: Argument = None, keepdims: Argument = False, where: Argument = None
) -> Value:
    a = as_array(frame, a)
    inner, wanted = float_dtype(a, dtype_of(frame, dtype))
    if wanted.kind not in "fc":
        return refuse(frame, f"a mean of dtype {wanted}")
    mask = mask_of(frame, where, a)
    x = chosen(frame, cast(frame, a.tensor, inner), mask, 0)
    return reduced(
        frame, "mean", a, axis, keepdims, lambda axes, keep: cast(frame, average(frame, x, a, mask, axes, keep), wanted), mask
    )


def average(
    frame: Frame, x: AbstractTensor, a: ArrayValue, mask: ArrayValue | None, axes: tuple[int, ...], keep: bool
) -> AbstractTensor:
    """The mean of a tensor, which holds the numbers of the array that the mask chooses."""
    if mask is None:
        return call(frame, torch.mean, x, dim=axes, keepdim=keep)
    return call(frame, torch.true_divide, call(frame, torch.sum, x, dim=axes, keepdim=keep), counted(frame, a, mask, axes, keep))


def spread(name: str, fn: Callable[..., Any]) -> None:
    """var and std."""

    def handler(
        frame: Frame,
        a: ArrayValue,
        axis: Argument = None,
        dtype: Argument = None,
        ddof: Any = 0,
        keepdims: Argument = False,
        where: Argument = None,
        mean: Argument = None,
        correction: Argument = None,
    ) -> ArrayValue:
        a, less = as_array(frame, a), known(frame, ddof if correction is None else correction)
        if ddof != 0 and correction is not None:
            return refuse(frame, f"numpy.{name} with ddof and correction")
        inner, wanted = float_dtype(a, dtype_of(frame, dtype))
        x, mask = cast(frame, a.tensor, inner), mask_of(frame, where, a)
        centre = None if mean is None else cast(frame, as_array(frame, mean).tensor, inner)

        def compute(axes: tuple[int, ...], keep: bool) -> AbstractTensor:
            if mask is None and centre is None:
                return cast(frame, call(frame, fn, x, dim=axes, correction=ConstantValue(less), keepdim=keep), wanted)
            middle = average(frame, chosen(frame, x, mask, 0), a, mask, axes, True) if centre is None else centre
            distances = chosen(frame, call(frame, torch.square, call(frame, torch.sub, x, middle)), mask, 0)
            everything = constant_array(frame, numpy.ones((), bool)) if mask is None else mask
            count = call(frame, torch.clamp, call(frame, torch.sub, counted(frame, a, everything, axes, keep), less), min=0)
            found = call(frame, torch.true_divide, call(frame, torch.sum, distances, dim=axes, keepdim=keep), count)
            return cast(frame, call(frame, torch.sqrt, found) if fn is torch.std else found, wanted)

        return reduced(frame, name, a, axis, keepdims, compute, mask)

    function(name, method=name, parameters="axis dtype out ddof keepdims")(handler)


spread("var", torch.var)
spread("std", torch.std)


def running_extreme(fn: Callable[..., Any]) -> Handler:
    """maximum.accumulate and minimum.accumulate."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, axis = as_array(frame, args[0]), kwargs.pop("axis")
        if kwargs or a.dtype.kind == "c":
            return refuse(frame, "a running extreme with these arguments")
        found = tensors_of(frame, call(frame, fn, a.tensor, dim=one_axis(frame, axis, a.example.ndim)))[0]
        return ArrayValue(ordered_as(frame, found, [a]))

    return row


@function("count_nonzero", complex=True)
def count_nonzero(frame: Frame, a: Value, axis: Argument = None, keepdims: Argument = False) -> Value:
    a = as_array(frame, a)
    x = cast(frame, cast(frame, a.tensor, numpy.dtype(bool)), numpy.dtype("int64"))
    return reduced(frame, "count_nonzero", a, axis, keepdims, lambda axes, keep: total(frame, x, axes, keep))


def place_of_extreme(name: str, fn: Callable[..., Any]) -> None:
    """argmax and argmin: the first place."""

    def handler(frame: Frame, a: ArrayValue, axis: Argument = None, keepdims: Argument = False) -> ArrayValue:
        a = as_array(frame, a)
        if 0 in a.example.shape:
            return refuse(frame, f"numpy.{name} of an empty array")
        x = call(frame, torch.Tensor.to, a.tensor, torch.uint8) if a.dtype.kind == "b" else a.tensor
        dim = None if known(frame, axis) is None else one_axis(frame, axis, a.example.ndim)
        return result(call(frame, fn, x, dim=dim, keepdim=bool(known(frame, keepdims))))

    function(name, method=name, parameters="axis out")(handler)


place_of_extreme("argmax", torch.argmax)
place_of_extreme("argmin", torch.argmin)


def running(name: str, fn: Callable[..., Any]) -> Handler:
    """cumsum and cumprod."""

    def handler(frame: Frame, a: ArrayValue, axis: Argument = None, dtype: Argument = None) -> Value:
        a = as_array(frame, a)
        computed = sum_dtype(frame, a, dtype)
        if computed.kind == "b":
            return refuse(frame, f"numpy.{name} of truth values, of which torch has none")
        x = cast(frame, a.tensor, computed)
        if known(frame, axis) is None:
            x, axis = call(frame, torch.reshape, x, (-1,)), 0
        summed = call(frame, fn, x, dim=one_axis(frame, axis, x.example.ndim), **narrow(x))
        return ArrayValue(ordered_as(frame, summed, [a]) if a.example.ndim == x.example.ndim else summed)

    function(name, method=name, complex=True, parameters="axis dtype out")(handler)
    return function_row(handler, getattr(numpy, name), name, complex=True)


METHOD_FUNCTIONS["accumulate"].update(
    add=running("cumsum", torch.cumsum),
    multiply=running("cumprod", torch.cumprod),
    maximum=running_extreme(torch.cummax),
    minimum=running_extreme(torch.cummin),
)
