"""Products of arrays: dot, inner, outer, einsum, and sums of products at each place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...arrays import numpy
from ..number.symint import SymNumber
from ..protocol.constant import force_plain
from ..protocol.value import Frame, Value
from .arguments import known
from .array import ArrayValue
from .breaks import refuse
from .layouts import in_c_order, ordered_in_c
from .nodes import call, call_method
from .operands import as_array, as_operand, prepared
from .table import function, result
from .ufuncs import applied, apply, kind_of
from .views import viewed


def promoted(frame: Frame, values: Sequence[Value]) -> list[Any]:
    """Tensors of the dtype that NumPy finds for all of them."""
    operands = [as_operand(frame, v) for v in values]
    operands = [force_plain(frame, v) if isinstance(v, SymNumber) else v for v in operands]
    kinds = [k if isinstance(k := kind_of(v), numpy.dtype) else 0.0 if k is float else v for v in operands]
    dtype = numpy.result_type(*kinds)
    return [prepared(frame, v, dtype) for v in operands]


def sums_of_products(frame: Frame, a: ArrayValue, b: ArrayValue) -> ArrayValue:
    """Over the last dim of a and the first of b: numbers, or an array in C order, of the dims that are left."""
    left, right = a.example.shape[:-1], b.example.shape[1:]
    flat_a = ArrayValue(call(frame, torch.reshape, a.tensor, (math.prod(left), a.example.shape[-1])))
    flat_b = ArrayValue(call(frame, torch.reshape, b.tensor, (b.example.shape[0], math.prod(right))))
    return result(call(frame, torch.reshape, applied(frame, "matmul", [flat_a, flat_b]).tensor, (*left, *right)))


def last_first(frame: Frame, b: ArrayValue) -> ArrayValue:
    """The array with its last but one dim in front."""
    return ArrayValue(call(frame, torch.movedim, b.tensor, -2, 0)) if b.example.ndim > 1 else b


@function("dot", method="dot", complex=True)
def dot(frame: Frame, a: Value, b: Value) -> Value:
    a, b = as_array(frame, a), as_array(frame, b)
    if 0 in (a.example.ndim, b.example.ndim):
        return scaled(frame, a, b)
    if b.example.ndim > 2:
        if a.example.shape[-1] != b.example.shape[-2]:
            return refuse(frame, "numpy.dot of sizes that do not fit")
        return sums_of_products(frame, a, last_first(frame, b))
    return apply(frame, "matmul", [a, b])


def scaled(frame: Frame, a: ArrayValue, b: ArrayValue) -> ArrayValue:
    """The product with an array of no dims, in C order where the library of linear algebra computes it."""
    made = applied(frame, "multiply", [a, b])
    if made.dtype.kind not in "fc" or made.dtype == numpy.float16 or made.example.ndim > 2:
        return made
    return ArrayValue(ordered_in_c(frame, made.tensor), made.scalar)


@function("inner", complex=True)
def inner(frame: Frame, a: Value, b: Value) -> Value:
    a, b = as_array(frame, a), as_array(frame, b)
    if 0 in (a.example.ndim, b.example.ndim):
        return scaled(frame, a, b)
    if a.example.shape[-1] != b.example.shape[-1]:
        return refuse(frame, "numpy.inner of sizes that do not fit")
    return sums_of_products(frame, a, ArrayValue(call(frame, torch.movedim, b.tensor, -1, 0)))


@function("vdot", complex=True)
def vdot(frame: Frame, a: Value, b: Value) -> Value:
    a, b = (ArrayValue(call(frame, torch.reshape, as_array(frame, v).tensor, (-1,))) for v in (a, b))
    return apply(frame, "matmul", [apply(frame, "conjugate", [a]) if a.dtype.kind == "c" else a, b])


def correlate(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """multiarray.correlate(a, v, mode): sums of products of v with a at each place; 0 valid, 1 same, 2 full."""
    if kwargs or len(args) not in (2, 3):
        return refuse(frame, "numpy.correlate with these arguments")
    a, v = (as_array(frame, x) for x in args[:2])
    mode: Any = known(frame, args[2]) if len(args) > 2 else 0
    modes: dict[Any, int] = {"valid": 0, "same": 1, "full": 2}
    ends = {0: lambda n: (0, 0), 1: lambda n: (n // 2, n - 1 - n // 2), 2: lambda n: (n - 1, n - 1)}.get(modes.get(mode, mode))
    sizes = [tuple(x.example.shape) for x in (a, v)]
    if (
        ends is None
        or any(len(s) != 1 or type(s[0]) is not int or not s[0] for s in sizes)
        or a.dtype.kind == "c"
        or v.dtype.kind == "c"
    ):
        return refuse(frame, "numpy.correlate of these arrays")
    swapped = sizes[0] < sizes[1]
    long, short = (v, a) if swapped else (a, v)
    n = short.example.shape[0]
    around = ends(n)[::-1] if swapped else ends(n)
    padded = call(frame, torch.nn.functional.pad, long.tensor, around)
    windows = ArrayValue(call(frame, torch.Tensor.unfold, padded, 0, n, 1))
    made = applied(frame, "matmul", [windows, short])
    return ArrayValue(call(frame, torch.flip, made.tensor, (0,))) if swapped else made


@function("einsum", complex=True)
def einsum(frame: Frame, subscripts: Value, *operands: Value) -> Value:
    text = known(frame, subscripts)
    if not isinstance(text, str):
        return refuse(frame, "numpy.einsum without a string")
    tensors = promoted(frame, [as_array(frame, v) for v in operands])
    text = "".join(text.split())
    if tensors[0].example.dtype is torch.bool or len(operands) != text.partition("->")[0].count(",") + 1 or "..." in text:
        return refuse(frame, f"numpy.einsum {text!r}")
    given, arrow, left = text.partition("->")
    if not arrow:
        letters = given.replace(",", "")
        left = "".join(c for c in sorted(set(letters)) if letters.count(c) == 1)
        text = f"{given}->{left}"
    if len(operands) == 1 and set(left) == set(given):
        return einsum_view(frame, as_array(frame, operands[0]), text)
    in_c_order(frame, "einsum", [as_array(frame, v) for v in operands], len(left))
    made = call_method(frame, "to", call(frame, torch.einsum, text, *tensors), tensors[0].example.dtype)
    return result(call(frame, torch.clone, made) if len(operands) == 1 else made)


def einsum_view(frame: Frame, a: ArrayValue, text: str) -> ArrayValue:
    """Of one array, without a sum, it is a view."""
    if a.flips:
        return refuse(frame, "numpy.einsum of an array with negative strides")
    return viewed(frame, a, call(frame, torch.einsum, text, a.memory))
