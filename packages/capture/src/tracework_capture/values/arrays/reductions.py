"""Reductions of NumPy: sums, means, extremes, running sums, in the dtypes that NumPy computes and gives them in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...arrays import NUMPY_DTYPES, numpy
from ..plain.sequence import NONE
from ..protocol.calls import CALLS
from ..protocol.constant import ConstantValue
from .arguments import axes_of, dtype_of, known, one_axis
from .array import ArrayValue
from .breaks import refuse
from .layouts import ordered_as, ordered_without
from .nodes import call, tensors_of
from .operands import as_array, cast, constant_array, prepared
from .table import function, function_row, put, result
from .ufuncs import METHOD_FUNCTIONS, apply

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.calls import Handler
    from ..protocol.kinds import AbstractTensor
    from ..protocol.value import Frame, Value
    from .arguments import Argument


def reduced(
    frame: Frame,
    name: str,
    a: ArrayValue,
    axis: Argument,
    keepdims: Argument,
    compute: Callable[..., Any],
    mask: ArrayValue | None | None = None,
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


def is_passed(value: Value) -> bool:
    """Whether an argument is given."""
    return value is not None


def mask_of(frame: Frame, where: Argument, a: ArrayValue) -> ArrayValue | None:
    """where=, an array of booleans that fits the array; None where all items are chosen."""
    if not is_passed(where) or where.is_constant() and where.constant() is True:
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


def with_initial(frame: Frame, found: ArrayValue, name: str, initial: Argument) -> Value:
    """The result and the number that the reduction began with."""
    if not is_passed(initial):
        return found
    number = known(frame, initial)
    if number is None:
        return refuse(frame, "a reduction that begins with None")
    first = ArrayValue(prepared(frame, number, found.dtype), scalar=True)
    return apply(frame, name, [found, first])


@function("sum", method="sum", complex=True)
def sum_(
    frame: Frame,
    a: Value,
    axis: Argument = None,
    dtype: Argument = None,
    keepdims: Argument = False,
    initial: Argument = None,
    where: Argument = None,
) -> Value:
    a = as_array(frame, a)
    mask = mask_of(frame, where, a)
    x = chosen(frame, cast(frame, a.tensor, sum_dtype(frame, a, dtype)), mask, 0)
    found = reduced(frame, "sum", a, axis, keepdims, lambda axes, keep: call(frame, torch.sum, x, dim=axes, keepdim=keep), mask)
    return with_initial(frame, found, "add", initial)


@function("prod", method="prod", complex=True)
def prod(
    frame: Frame,
    a: Value,
    axis: Argument = None,
    dtype: Argument = None,
    keepdims: Argument = False,
    initial: Argument = None,
    where: Argument = None,
) -> Value:
    a = as_array(frame, a)
    mask = mask_of(frame, where, a)
    x = chosen(frame, cast(frame, a.tensor, sum_dtype(frame, a, dtype)), mask, 1)

    def compute(axes: tuple[int, ...], keep: bool) -> AbstractTensor:
        found = x
        for axis in sorted(axes, reverse=True):
            found = call(frame, torch.prod, found, dim=axis, keepdim=keep)
        return found if axes else call(frame, torch.clone, x)

    return with_initial(frame, reduced(frame, "prod", a, axis, keepdims, compute, mask), "multiply", initial)


def float_dtype(a: ArrayValue, dtype: numpy.dtype[Any] | None = None) -> tuple[numpy.dtype[Any], numpy.dtype[Any]]:
    """What means are computed in, and what they are given as."""
    wanted = dtype or (a.dtype if a.dtype.kind in "fc" else numpy.dtype("float64"))
    return numpy.dtype("float32") if wanted == numpy.float16 and dtype is None else wanted, wanted


@function("mean", method="mean", complex=True)
def mean(
    frame: Frame, a: Value, axis: Argument = None, dtype: Argument = None, keepdims: Argument = False, *, where: Argument = None
) -> Value:
    a = as_array(frame, a)
    inner, wanted = float_dtype(a, dtype_of(frame, dtype))
    if wanted.kind not in "fc":
        return refuse(frame, f"a mean of dtype {wanted}")
    mask = mask_of(frame, where, a)
    x = chosen(frame, cast(frame, a.tensor, inner), mask, 0)

    def compute(axes: tuple[int, ...], keep: bool) -> AbstractTensor:
        return cast(frame, average(frame, x, a, mask, axes, keep), wanted)

    return reduced(frame, "mean", a, axis, keepdims, compute, mask)


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
        *,
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
            return cast(frame, around(frame, fn, x, a, mask, centre, less, axes, keep), wanted)

        return reduced(frame, name, a, axis, keepdims, compute, mask)

    function(name, method=name)(handler)


def around(
    frame: Frame,
    fn: Callable[..., Any],
    x: AbstractTensor,
    a: ArrayValue,
    mask: ArrayValue | None,
    centre: Any,
    less: Any,
    axes: tuple[int, ...],
    keep: bool,
) -> AbstractTensor:
    """The spread of the chosen items around a mean, their own if none is given."""
    centre = average(frame, chosen(frame, x, mask, 0), a, mask, axes, True) if centre is None else centre
    distances = chosen(frame, call(frame, torch.square, call(frame, torch.sub, x, centre)), mask, 0)
    total = call(frame, torch.sum, distances, dim=axes, keepdim=keep)
    everything = constant_array(frame, numpy.ones((), bool)) if mask is None else mask
    count = call(frame, torch.clamp, call(frame, torch.sub, counted(frame, a, everything, axes, keep), less), min=0)
    found = call(frame, torch.true_divide, total, count)
    return call(frame, torch.sqrt, found) if fn is torch.std else found


spread("var", torch.var)
spread("std", torch.std)


def extreme(names: Any, fn: Callable[..., Any], ufunc: Any) -> None:
    """max and min."""

    def handler(
        frame: Frame,
        a: ArrayValue,
        axis: Argument = None,
        keepdims: Argument = False,
        initial: Argument = None,
        where: Argument = None,
    ) -> Value:
        a, x = as_array(frame, a), as_array(frame, a).tensor
        mask = mask_of(frame, where, a)
        if mask is not None:
            if not is_passed(initial):
                return refuse(frame, f"numpy.{names[1]} of chosen items without a first one")
            x = chosen(frame, x, mask, known(frame, initial))

        def compute(axes: tuple[int, ...], keep: bool) -> AbstractTensor:
            return call(frame, fn, x, dim=axes, keepdim=keep)

        found = reduced(frame, names[0], a, axis, keepdims, compute, mask)
        return with_initial(frame, found, ufunc, initial)

    function(*names, method=names[1])(handler)


extreme(("amax", "max"), torch.amax, "maximum")
extreme(("amin", "min"), torch.amin, "minimum")


def running_extreme(fn: Callable[..., Any]) -> Handler:
    """maximum.accumulate and minimum.accumulate."""

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, axis = as_array(frame, args[0]), kwargs.pop("axis")
        if kwargs or a.dtype.kind == "c":
            return refuse(frame, "a running extreme with these arguments")
        found = tensors_of(frame, call(frame, fn, a.tensor, dim=one_axis(frame, axis, a.example.ndim)))[0]
        return ArrayValue(ordered_as(frame, found, [a]))

    return row


@function("ptp")
def ptp(frame: Frame, a: Value, axis: Argument = None, keepdims: Argument = False) -> Value:
    a = as_array(frame, a)
    if a.dtype.kind == "b":
        return refuse(frame, "numpy.ptp of booleans")

    def compute(axes: tuple[int, ...], keep: bool) -> AbstractTensor:
        largest, smallest = (call(frame, fn, a.tensor, dim=axes, keepdim=keep) for fn in (torch.amax, torch.amin))
        return call(frame, torch.sub, largest, smallest)

    return reduced(frame, "ptp", a, axis, keepdims, compute)


def truth(name: str, fn: Callable[..., Any]) -> None:
    """all and any."""

    def handler(
        frame: Frame, a: ArrayValue, axis: Argument = None, keepdims: Argument = False, *, where: Argument = None
    ) -> ArrayValue:
        a = as_array(frame, a)
        mask = mask_of(frame, where, a)
        x = chosen(frame, cast(frame, a.tensor, numpy.dtype(bool)), mask, fn is torch.all)
        return reduced(frame, name, a, axis, keepdims, lambda axes, keep: call(frame, fn, x, dim=axes, keepdim=keep), mask)

    function(name, method=name)(handler)


truth("all", torch.all)
truth("any", torch.any)


@function("count_nonzero", complex=True)
def count_nonzero(frame: Frame, a: Value, axis: Argument = None, keepdims: Argument = False) -> Value:
    a = as_array(frame, a)
    x = cast(frame, cast(frame, a.tensor, numpy.dtype(bool)), numpy.dtype("int64"))
    return reduced(
        frame, "count_nonzero", a, axis, keepdims, lambda axes, keep: call(frame, torch.sum, x, dim=axes, keepdim=keep)
    )


def place_of_extreme(name: str, fn: Callable[..., Any]) -> None:
    """argmax and argmin: the first place."""

    def handler(frame: Frame, a: ArrayValue, axis: Argument = None, keepdims: Argument = False) -> ArrayValue:
        a = as_array(frame, a)
        if 0 in a.example.shape:
            return refuse(frame, f"numpy.{name} of an empty array")
        x = call(frame, torch.Tensor.to, a.tensor, torch.uint8) if a.dtype.kind == "b" else a.tensor
        dim = None if known(frame, axis) is None else one_axis(frame, axis, a.example.ndim)
        return result(call(frame, fn, x, dim=dim, keepdim=bool(known(frame, keepdims))))

    function(name, method=name)(handler)


place_of_extreme("argmax", torch.argmax)
place_of_extreme("argmin", torch.argmin)


def running(name: str, fn: Callable[..., Any]) -> Handler:
    """cumsum and cumprod."""

    def handler(frame: Frame, a: ArrayValue, axis: Argument = None, dtype: Argument = None, out: Argument = NONE) -> Value:
        a = as_array(frame, a)
        x = cast(frame, a.tensor, sum_dtype(frame, a, dtype))
        if known(frame, axis) is None:
            x, axis = call(frame, torch.reshape, x, (-1,)), 0
        summed = call(frame, fn, x, dim=one_axis(frame, axis, x.example.ndim))
        found = ArrayValue(ordered_as(frame, summed, [a]) if a.example.ndim == x.example.ndim else summed)
        return found if not isinstance(out, ArrayValue) and known(frame, out) is None else put(frame, name, out, found)

    function(name, method=name, complex=True)(handler)
    return function_row(handler, getattr(numpy, name), name, complex=True)


METHOD_FUNCTIONS["reduce"].update(
    add=CALLS[numpy.sum].handler,
    multiply=CALLS[numpy.prod].handler,
    maximum=CALLS[numpy.amax].handler,
    minimum=CALLS[numpy.amin].handler,
    logical_and=CALLS[numpy.all].handler,
    logical_or=CALLS[numpy.any].handler,
)
METHOD_FUNCTIONS["accumulate"].update(
    add=running("cumsum", torch.cumsum),
    multiply=running("cumprod", torch.cumprod),
    maximum=running_extreme(torch.cummax),
    minimum=running_extreme(torch.cummin),
)
