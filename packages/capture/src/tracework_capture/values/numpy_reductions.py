"""Reductions of NumPy: sums, means, extremes, running sums, in the dtypes that NumPy computes and gives them in."""

from __future__ import annotations

import torch

from ..arrays import numpy
from .constant import ConstantValue
from .numpy_array import (
    ArrayValue,
    as_array,
    cast,
    dtype_of,
    refuse,
)
from .numpy_table import axes_of, call, function, in_c_order, known, one_axis, result


def reduced(frame, name, a, axis, keepdims, compute):
    """compute(tensor, axes or None), with the dims kept if asked for."""
    axes = axes_of(frame, axis, a.example.ndim)
    left = a.example.ndim - (a.example.ndim if axes is None else len(axes))
    in_c_order(frame, name, [a], left)
    return result(compute(tuple(range(a.example.ndim)) if axes is None else axes, bool(known(frame, keepdims))))


def sum_dtype(frame, a, dtype):
    """The dtype that sums and products are computed in."""
    asked = dtype_of(frame, dtype)
    if asked is not None:
        return asked
    if a.dtype.kind == "u":
        return refuse(frame, "sums of unsigned integers, which are uint64")
    return numpy.dtype("int64") if a.dtype.kind in "bi" else a.dtype


@function("sum", method="sum")
def sum_(frame, a, axis=None, dtype=None, keepdims=False):
    a = as_array(frame, a)
    x = cast(frame, a.tensor, sum_dtype(frame, a, dtype))
    return reduced(frame, "sum", a, axis, keepdims, lambda axes, keep: call(frame, torch.sum, x, dim=axes, keepdim=keep))


@function("prod", method="prod")
def prod(frame, a, axis=None, dtype=None, keepdims=False):
    a = as_array(frame, a)
    x = cast(frame, a.tensor, sum_dtype(frame, a, dtype))

    def compute(axes, keep):
        found = x
        for axis in sorted(axes, reverse=True):
            found = call(frame, torch.prod, found, dim=axis, keepdim=keep)
        return found if axes else call(frame, torch.clone, x)

    return reduced(frame, "prod", a, axis, keepdims, compute)


def float_dtype(a, dtype=None):
    """What means are computed in, and what they are given as."""
    wanted = dtype or (a.dtype if a.dtype.kind == "f" else numpy.dtype("float64"))
    return numpy.dtype("float32") if wanted == numpy.float16 and dtype is None else wanted, wanted


@function("mean", method="mean")
def mean(frame, a, axis=None, dtype=None, keepdims=False):
    a = as_array(frame, a)
    inner, wanted = float_dtype(a, dtype_of(frame, dtype))
    if wanted.kind != "f":
        return refuse(frame, f"a mean of dtype {wanted}")
    x = cast(frame, a.tensor, inner)
    return reduced(
        frame,
        "mean",
        a,
        axis,
        keepdims,
        lambda axes, keep: cast(frame, call(frame, torch.mean, x, dim=axes, keepdim=keep), wanted),
    )


def spread(name, fn):
    """var and std."""

    def handler(frame, a, axis=None, dtype=None, ddof=0, keepdims=False):
        a = as_array(frame, a)
        inner, wanted = float_dtype(a, dtype_of(frame, dtype))
        x, correction = cast(frame, a.tensor, inner), ConstantValue(known(frame, ddof))

        def compute(axes, keep):
            return cast(frame, call(frame, fn, x, dim=axes, correction=correction, keepdim=keep), wanted)

        return reduced(frame, name, a, axis, keepdims, compute)

    function(name, method=name)(handler)


spread("var", torch.var)
spread("std", torch.std)


def extreme(names, fn):
    """max and min."""

    def handler(frame, a, axis=None, keepdims=False):
        a = as_array(frame, a)
        return reduced(frame, names[0], a, axis, keepdims, lambda axes, keep: call(frame, fn, a.tensor, dim=axes, keepdim=keep))

    function(*names, method=names[1])(handler)


extreme(("amax", "max"), torch.amax)
extreme(("amin", "min"), torch.amin)


@function("ptp")
def ptp(frame, a, axis=None, keepdims=False):
    a = as_array(frame, a)
    if a.dtype.kind == "b":
        return refuse(frame, "numpy.ptp of booleans")

    def compute(axes, keep):
        largest, smallest = (call(frame, fn, a.tensor, dim=axes, keepdim=keep) for fn in (torch.amax, torch.amin))
        return call(frame, torch.sub, largest, smallest)

    return reduced(frame, "ptp", a, axis, keepdims, compute)


def truth(name, fn):
    """all and any."""

    def handler(frame, a, axis=None, keepdims=False):
        a = as_array(frame, a)
        x = cast(frame, a.tensor, numpy.dtype(bool))
        return reduced(frame, name, a, axis, keepdims, lambda axes, keep: call(frame, fn, x, dim=axes, keepdim=keep))

    function(name, method=name)(handler)


truth("all", torch.all)
truth("any", torch.any)


@function("count_nonzero")
def count_nonzero(frame, a, axis=None, keepdims=False):
    a = as_array(frame, a)
    x = cast(frame, cast(frame, a.tensor, numpy.dtype(bool)), numpy.dtype("int64"))
    return reduced(
        frame, "count_nonzero", a, axis, keepdims, lambda axes, keep: call(frame, torch.sum, x, dim=axes, keepdim=keep)
    )


def place_of_extreme(name, fn):
    """argmax and argmin: the first place."""

    def handler(frame, a, axis=None, keepdims=False):
        a = as_array(frame, a)
        if 0 in a.example.shape:
            return refuse(frame, f"numpy.{name} of an empty array")
        x = call(frame, torch.Tensor.to, a.tensor, torch.uint8) if a.dtype.kind == "b" else a.tensor
        dim = None if known(frame, axis) is None else one_axis(frame, axis, a.example.ndim)
        return result(call(frame, fn, x, dim=dim, keepdim=bool(known(frame, keepdims))))

    function(name, method=name)(handler)


place_of_extreme("argmax", torch.argmax)
place_of_extreme("argmin", torch.argmin)


def running(name, fn):
    """cumsum and cumprod."""

    def handler(frame, a, axis=None, dtype=None):
        a = as_array(frame, a)
        x = cast(frame, a.tensor, sum_dtype(frame, a, dtype))
        if known(frame, axis) is None:
            return ArrayValue(call(frame, fn, call(frame, torch.reshape, x, (-1,)), dim=0))
        in_c_order(frame, name, [a], a.example.ndim)
        return ArrayValue(call(frame, fn, x, dim=one_axis(frame, axis, a.example.ndim)))

    function(name, method=name)(handler)


running("cumsum", torch.cumsum)
running("cumprod", torch.cumprod)
