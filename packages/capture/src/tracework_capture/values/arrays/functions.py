"""Functions of NumPy that move, join and make arrays, and the rows of all functions of NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from ...arrays import DTYPES, multiarray, numpy
from ...atoms import NUMPY_NUMBERS
from ...errors import NotPlain
from ..number.symint import SymNumber
from ..plain.sequence import NONE, TupleValue
from ..protocol.calls import Handler, method
from ..protocol.constant import ConstantValue, force_plain, literal, plain
from ..protocol.value import Frame, Value
from ..torch.tensor import TensorValue
from . import places as numpy_places  # noqa: F401  # fills a table
from . import shapes as numpy_shapes
from . import spectra as numpy_spectra  # noqa: F401  # fills a table
from .arguments import Argument, axes_of, dtype_of, known, one_axis, sizes_of
from .array import ArrayValue
from .attributes import FLAGS
from .breaks import refuse
from .layouts import ordered, ordered_as, ordered_in_c, ordered_like
from .nodes import call, call_method, tensors_of
from .operands import (
    array_from_tensor,
    as_array,
    as_operand,
    cast,
    constant_array,
    is_unspecialised_float,
    known_result,
    to_store,
)
from .own import own_call, own_row, own_rows
from .products import correlate, promoted
from .reductions import float_dtype, reduced
from .table import function, function_row, numpy_calls, result
from .tensors import named, warn
from .ufuncs import applied, apply, ufunc_rows
from .views import inside_of, permuted, view_of, viewed


@function("repeat", method="repeat", complex=True)
def repeat(frame: Frame, a: Value, repeats: Value, axis: Argument = None) -> Value:
    a, count = as_array(frame, a), known(frame, repeats)
    if isinstance(count, (list, tuple)) and all(isinstance(c, int) and c >= 0 for c in count):
        return repeated_each(frame, a, count, axis)
    if not isinstance(count, int) or count < 0:
        return refuse(frame, "numpy.repeat with counts that are not known")
    if known(frame, axis) is None:
        return ArrayValue(call(frame, torch.repeat_interleave, call(frame, torch.reshape, a.tensor, (-1,)), count))
    found = call(frame, torch.repeat_interleave, a.tensor, count, dim=one_axis(frame, axis, a.example.ndim))
    return ArrayValue(ordered_in_c(frame, found))


def repeated_each(frame: Frame, a: ArrayValue, counts: Any, axis: Argument) -> ArrayValue:
    """repeat with a count for each item."""
    if known(frame, axis) is None:
        a, axis = ArrayValue(call(frame, torch.reshape, a.tensor, (-1,))), 0
    dim = one_axis(frame, axis, a.example.ndim)
    if a.example.shape[dim] != len(counts):
        return refuse(frame, "numpy.repeat with another number of counts")
    places = constant_array(frame, numpy.repeat(numpy.arange(len(counts)), counts)).tensor
    return ArrayValue(ordered_in_c(frame, call(frame, torch.index_select, a.tensor, dim, places)))


@function("roll", complex=True)
def roll(frame: Frame, a: Value, shift: Value, axis: Argument = None) -> Value:
    a = as_array(frame, a)
    axes = axes_of(frame, axis, a.example.ndim)
    found = call(frame, torch.roll, a.tensor, known(frame, shift), dims=axes)
    if axes is None:
        return inside_of(frame, ArrayValue(ordered_in_c(frame, found)), (-1,))
    return ArrayValue(ordered_like(frame, found, a))


@function("take", method="take")
def take(frame: Frame, a: Value, indices: Value, axis: Argument = None) -> Value:
    a, places = as_array(frame, a), as_array(frame, indices)
    if places.dtype.kind not in "iu":
        return refuse(frame, "numpy.take of indices that are no integers")
    at = cast(frame, places.tensor, numpy.dtype("int64"))
    if known(frame, axis) is None:
        return result(call(frame, operator.getitem, call(frame, torch.reshape, a.tensor, (-1,)), (at,)))
    before = (slice(None),) * one_axis(frame, axis, a.example.ndim)
    found = call(frame, operator.getitem, a.tensor, (*before, at))
    return result(call(frame, torch.clone, found, memory_format=torch.contiguous_format))


def triangle(name: str, fn: Callable[..., Any]) -> None:
    def handler(frame: Frame, m: Any, k: Any = 0) -> ArrayValue:
        m = as_array(frame, m)
        if m.example.ndim < 2:
            return refuse(frame, f"numpy.{name} of an array of one dim")
        mask = torch.empty(tuple(m.example.shape[-2:]), device="meta")
        return ArrayValue(ordered_as(frame, call(frame, fn, m.tensor, known(frame, k)), [m], [mask]))

    function(name, complex=True)(handler)


triangle("tril", torch.tril)
triangle("triu", torch.triu)


@function("sort")
def sort(frame: Frame, a: Value, axis: Argument = -1) -> ArrayValue:
    a = as_array(frame, a)
    if known(frame, axis) is None:
        a, axis = numpy_shapes.flatten(frame, a), -1
    found = tensors_of(frame, call(frame, torch.sort, a.tensor, dim=one_axis(frame, axis, a.example.ndim)))[0]
    return ArrayValue(ordered_like(frame, found, a))


@function("argsort", method="argsort")
def argsort(
    frame: Frame, a: Value, axis: Argument = -1, kind: Argument = None, order: Argument = None, *, stable: Argument = None
) -> Value:
    """Where it is stable, there is one answer; else the order of equal items is NumPy's own."""
    a = as_array(frame, a)
    if known(frame, kind) not in ("stable", "mergesort") and not known(frame, stable) or known(frame, order) is not None:
        return own_call(frame, numpy.argsort, [a, *map(valued, (axis, kind, order))], {})
    found = call(frame, torch.argsort, a.tensor, dim=one_axis(frame, axis, a.example.ndim), stable=True)
    return ArrayValue(ordered_in_c(frame, found))


@function(method="sort")
def sort_in_place(frame: Frame, a: ArrayValue, axis: Argument = -1) -> Value:
    a.write(frame, sort(frame, a, axis).tensor)
    return NONE


# --- several arrays ------------------------------------------------------------------------------------------------------------


@function("nonzero", method="nonzero", complex=True)
def nonzero(frame: Frame, a: Value) -> Value:
    """A column of the places for each dim."""
    a = as_array(frame, a)
    if not a.example.ndim:
        return refuse(frame, "numpy.nonzero of a number")
    places = places_of_others(frame, a)
    return TupleValue([view_of(frame, places, call(frame, torch.select, places.memory, 1, dim)) for dim in range(a.example.ndim)])


@function("argwhere", complex=True)
def argwhere(frame: Frame, a: Value) -> Value:
    a = as_array(frame, a)
    if not a.example.ndim:
        return refuse(frame, "numpy.argwhere of a number")
    columns = call(frame, torch.permute, call(frame, torch.nonzero, a.tensor), (1, 0))
    made = ArrayValue(call(frame, torch.clone, columns, memory_format=torch.contiguous_format))
    return permuted(frame, made, (1, 0))


def places_of_others(frame: Frame, a: ArrayValue) -> ArrayValue:
    """A row for each item that is not zero, in C order, which torch's own kernels leave open."""
    return ArrayValue(call(frame, torch.clone, call(frame, torch.nonzero, a.tensor), memory_format=torch.contiguous_format))


@function("where", pure=False, complex=True)
def where(frame: Frame, condition: Value, x: Argument = None, y: Argument = None) -> Value:
    if x is None and y is None:
        return nonzero(frame, condition)
    if x is None or y is None:
        return frame.raise_new(ValueError, "either both or neither of x and y should be given")
    condition = as_array(frame, condition)
    chosen = cast(frame, condition.tensor, numpy.dtype(bool))
    given = [condition, *(v for v in (x, y) if isinstance(v, ArrayValue))]
    return ArrayValue(ordered_as(frame, call(frame, torch.where, chosen, *promoted(frame, (x, y))), given))


@function("clip")
def clip(
    frame: Frame, a: Value, a_min: Argument = NONE, a_max: Argument = NONE, *, min: Argument = None, max: Argument = None
) -> Value:
    found: Value = as_array(frame, a)
    a_min, a_max = a_min if min is None else min, a_max if max is None else max
    for name, limit in (("maximum", a_min), ("minimum", a_max)):
        if not (limit.is_constant() and limit.constant() is None):
            if as_array(frame, a).dtype.kind in "iub" and not isinstance(as_operand(frame, limit), (int, SymNumber, ArrayValue)):
                return refuse(frame, "numpy.clip of integers by floats")
            found = apply(frame, name, [found, limit])
    return found


@function(method="clip")
def clip_method(frame: Frame, a: ArrayValue, min: Argument = NONE, max: Argument = NONE) -> Value:
    return clip(frame, a, min, max)


@function("linalg.norm")
def norm(frame: Frame, x: Value, ord: Argument = None, axis: Argument = None, keepdims: Argument = False) -> Value:
    x = as_array(frame, x)
    if known(frame, ord) is not None:
        return own_call(frame, numpy.linalg.norm, [x, *map(valued, (ord, axis, keepdims))], {})
    inner = cast(frame, x.tensor, float_dtype(x)[1])
    squares = call(frame, torch.square, inner)
    return reduced(
        frame,
        "linalg.norm",
        x,
        axis,
        keepdims,
        lambda axes, keep: call(frame, torch.sqrt, call(frame, torch.sum, squares, dim=axes, keepdim=keep)),
    )


@function("nan_to_num", complex=True)
def nan_to_num(
    frame: Frame, x: Value, copy: Argument = True, nan: Argument = 0.0, posinf: Argument = None, neginf: Argument = None
) -> Value:
    x = as_array(frame, x)
    filled = {name: known(frame, value) for name, value in (("nan", nan), ("posinf", posinf), ("neginf", neginf))}
    if not all(value is None or isinstance(value, (int, float)) for value in filled.values()) or known(frame, copy) is not True:
        return refuse(frame, "numpy.nan_to_num with these arguments")
    return result(call(frame, torch.nan_to_num, x.tensor, **filled))


@function("round", "around", method="round")
def round_(frame: Frame, a: Value, decimals: Argument = 0) -> Value:
    a, places = as_array(frame, a), known(frame, decimals)
    if a.dtype.kind != "f":
        return refuse(frame, "numpy.round of integers") if places < 0 or a.dtype.kind == "b" else result(copied(frame, a).tensor)
    if places == 0:
        return apply(frame, "rint", [a])
    scale = ConstantValue(a.dtype.type(10.0 ** abs(places)))
    there, back = ("multiply", "true_divide") if places > 0 else ("true_divide", "multiply")
    made = applied(frame, back, [apply(frame, "rint", [apply(frame, there, [a, scale])]), scale])
    if a.example.ndim < 2:
        return made
    dims = tuple(range(a.example.ndim))
    return ArrayValue(ordered(frame, made.tensor, dims[::-1] if FLAGS["fnc"](a) else dims))


# --- new arrays ------------------------------------------------------------------------------------------------------------------


def copied(frame: Frame, a: ArrayValue) -> ArrayValue:
    return ArrayValue(ordered_like(frame, call(frame, torch.clone, a.tensor), a), a.scalar)


@function(method="copy", complex=True)
def copy_method(frame: Frame, a: ArrayValue) -> ArrayValue:
    return a.copied(frame)


def conjugated(frame: Frame, a: ArrayValue) -> Value:
    """Real arrays are their own conjugates."""
    return apply(frame, "conjugate", [a]) if a.dtype.kind == "c" else a


method(numpy.ndarray, "conj", "conjugate")(function_row(conjugated, None, "conj", complex=True))
method(numpy.ndarray, "__abs__")(lambda frame, args, kwargs: apply(frame, "absolute", args))


@function("astype", method="astype", complex=True)
def astype(frame: Frame, a: ArrayValue, dtype: Argument, copy: Argument = True) -> ArrayValue:
    wanted = dtype_of(frame, dtype)
    if (
        wanted is None
        or wanted not in DTYPES
        or (a.dtype.kind == "c" and wanted.kind not in "cb")
        or (a.dtype.kind == "f" and wanted.kind in "iu" and wanted.itemsize < 4)
    ):
        return refuse(frame, f"astype({wanted}) of {a.dtype}")
    if wanted == a.dtype and not known(frame, copy):
        return a
    made = call_method(frame, "to", a.tensor, DTYPES[wanted], copy=True)
    return ArrayValue(ordered_like(frame, made, a), a.scalar)


@function(method="view")
def view_method(frame: Frame, a: ArrayValue, dtype: Argument = None) -> ArrayValue:
    """The same memory as another dtype of the same size."""
    wanted = DTYPES.get(dtype_of(frame, dtype) or a.dtype)
    if wanted is None or a.scalar or a.flips or wanted.itemsize != a.dtype.itemsize or torch.bool in (wanted, a.example.dtype):
        return refuse(frame, "view() of an array with these arguments")
    return viewed(frame, a, call_method(frame, "view", a.memory, wanted))


def from_anything(frame: Frame, data: Value, dtype: Argument, copies: bool) -> ArrayValue:
    """array and asarray."""
    if isinstance(data, TensorValue):
        data = array_from_tensor(frame, data)
    elif not isinstance(data, ArrayValue):
        data, copies = as_array(frame, data), False
    elif data.scalar:
        copies = True
    wanted = dtype_of(frame, dtype) or data.dtype
    if wanted != data.dtype:
        return ArrayValue(astype(frame, data, wanted).tensor)
    return ArrayValue(copied(frame, data).tensor) if copies else data


@function("array", complex=True)
def array(
    frame: Frame,
    object: Value,
    dtype: Argument = None,
    *,
    copy: Argument = True,
    order: Argument = "K",
    ndmin: Argument = 0,
) -> Value:
    copies = must_copy(frame, copy)
    if copies and isinstance(object, TensorValue):
        warn(frame, numpy.array)
    made = from_anything(frame, object, dtype, copies)
    asked = known(frame, order)
    if asked == "C" and (made.flips or not made.example.is_contiguous()):
        made = made.copied(frame)
    if asked == "F":
        made = in_fortran_order(frame, made)
    return numpy_shapes.at_least(frame, made, known(frame, ndmin))


def in_fortran_order(frame: Frame, a: ArrayValue) -> ArrayValue:
    """The array, or a copy whose first dim is the fastest."""
    dims = tuple(reversed(range(a.example.ndim)))
    turned = call(frame, torch.permute, a.tensor, dims)
    if not a.flips and turned.example.is_contiguous():
        return a
    turned = call(frame, torch.clone, turned, memory_format=torch.contiguous_format)
    return ArrayValue(call(frame, torch.permute, turned, dims))


@function("asfortranarray", complex=True)
def asfortranarray(frame: Frame, a: Value, dtype: Argument = None) -> Value:
    return in_fortran_order(frame, from_anything(frame, a, dtype, False))


@function("asarray", "asanyarray", complex=True)
def asarray(frame: Frame, a: Value, dtype: Argument = None, order: Argument = None, *, copy: Argument = None) -> Value:
    if known(frame, order) not in ("K", "A", None):
        return refuse(frame, "numpy.asarray with an order")
    return from_anything(frame, a, dtype, must_copy(frame, copy))


def must_copy(frame: Frame, copy: Any) -> bool:
    """Whether copy= asks for one; False asks for none, which NumPy may have to refuse."""
    asked = known(frame, copy)
    return refuse(frame, "numpy.array with copy=False") if asked is False else bool(asked)


@function("ascontiguousarray", complex=True)
def ascontiguousarray(frame: Frame, a: Value, dtype: Argument = None) -> Value:
    made = from_anything(frame, a, dtype, False)
    if made.flips or not made.example.is_contiguous():
        return made.copied(frame)
    return numpy_shapes.at_least(frame, made, 1)


@function("result_type", pure=False, complex=True)
def result_type(frame: Frame, *arrays_and_dtypes: Value) -> Value:
    operands = [v if is_dtype(v) else as_operand(frame, v) for v in arrays_and_dtypes]
    return literal(
        frame,
        numpy.result_type(
            *[dtype_of(frame, v) if isinstance(v, Value) and is_dtype(v) else kind_of_any(frame, v) for v in operands]
        ),
    )


def is_dtype(value: Value) -> bool:
    """Whether an argument names a dtype."""
    return value.is_constant() and isinstance(value.constant(), (numpy.dtype, type, str))


def kind_of_any(frame: Frame, operand: Any) -> Any:
    """What numpy.result_type takes for an operand."""
    operand = force_plain(frame, operand) if isinstance(operand, SymNumber) else operand
    operand = 0.0 if is_unspecialised_float(operand) else operand
    return operand.dtype if isinstance(operand, ArrayValue) else operand


@function("copyto", pure=False, complex=True)
def copyto(frame: Frame, dst: Value, src: Value, casting: Argument = "same_kind", where: Argument = True) -> Value:
    if not isinstance(dst, ArrayValue) or dst.scalar or known(frame, casting) not in ("same_kind", "unsafe"):
        return refuse(frame, "numpy.copyto with these arguments")
    given = as_array(frame, src)
    if not numpy.can_cast(given.dtype, dst.dtype, known(frame, casting)):
        return refuse(frame, f"numpy.copyto of {given.dtype} to {dst.dtype}")
    source = to_store(frame, dst, given)
    if isinstance(where, Value) and not (where.is_constant() and where.constant() is True):
        mask = cast(frame, as_array(frame, where).tensor, numpy.dtype(bool))
        source = call(frame, torch.where, mask, source, dst.tensor)
    dst.write(frame, source)
    return NONE


def model_array(frame: Frame, value: Value) -> ArrayValue:
    """What an array is made like: an array, or a tensor, of which NumPy takes the array that it is."""
    if type(value) is TensorValue and not value.example.requires_grad:
        return array_from_tensor(frame, value)
    return as_array(frame, value)


def filled(name: str, fn: Callable[..., Any]) -> None:
    """zeros, ones, empty, and what is made like an array."""

    def handler(frame: Frame, shape: Argument, dtype: Argument = None, order: Argument = "C") -> ArrayValue:
        if known(frame, order) != "C":
            return refuse(frame, f"numpy.{name} with an order")
        wanted = DTYPES.get(dtype_of(frame, dtype) or numpy.dtype(float)) or refuse(frame, f"an array of dtype {dtype}")
        return ArrayValue(call(frame, fn, sizes_of(frame, shape), dtype=wanted, device="cpu"))

    def like(frame: Frame, a: Value, dtype: Argument = None, order: Argument = "K") -> ArrayValue:
        if known(frame, order) != "K":
            return refuse(frame, f"numpy.{name}_like with an order")
        a = model_array(frame, a)
        wanted = DTYPES.get(dtype_of(frame, dtype) or a.dtype) or refuse(frame, f"an array of dtype {dtype}")
        return ArrayValue(ordered_like(frame, call(frame, getattr(torch, f"{name}_like"), a.tensor, dtype=wanted), a))

    function(name, pure=False)(handler)
    function(f"{name}_like", pure=False, complex=True)(like)


for _name in ("zeros", "ones", "empty"):
    filled(_name, getattr(torch, _name))


@function(method="fill")
def fill_method(frame: Frame, a: ArrayValue, value: Value) -> Value:
    a.setitem(frame, ConstantValue(Ellipsis), value)
    return NONE


def arange_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """numpy.arange: with sizes that change it stays a node."""
    if args and any(isinstance(v, SymNumber) for v in args) and not kwargs:
        return ArrayValue(call(frame, torch.arange, *args, dtype=torch.int64, device="cpu"))
    return known_call(numpy.arange)(frame, args, kwargs)


def known_call(fn: Callable[..., Any]) -> Handler:
    """A pure function of known arguments."""

    def computes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
        except NotPlain as missing:
            return refuse(frame, f"numpy.{fn.__name__} of {missing.args[0].describe()}")
        return known_result(frame, fn, given, named)

    return computes


def valued(argument: Value) -> Any:
    """An argument as a value, given or not."""
    return argument if isinstance(argument, Value) else ConstantValue(argument)


for _name in ("searchsorted", "argpartition"):
    method(numpy.ndarray, _name)(own_row(getattr(numpy, _name)))

KNOWN_ONLY = (
    "finfo iinfo dtype eye identity hanning hamming blackman bartlett kaiser indices promote_types "
    "issubdtype min_scalar_type can_cast fft.fftfreq fft.rfftfreq tril_indices triu_indices broadcast_shapes"
)


def number_class(kind: Any) -> Handler:
    """numpy.float32(x): of one item a number, of an array that has the dtype the array itself, of another one a copy."""
    plainly = known_call(kind)

    def computes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) == 1 and not kwargs and isinstance(args[0], ArrayValue):
            is_it = args[0].dtype == numpy.dtype(kind) and args[0].example.ndim
            return args[0] if is_it else result(astype(frame, args[0], numpy.dtype(kind)).tensor)
        return plainly(frame, args, kwargs)

    return computes


numpy_calls(
    ufunc_rows()
    | own_rows()
    | {kind: number_class(kind) for kind in NUMPY_NUMBERS}
    | {fn: known_call(fn) for fn in (multiarray.normalize_axis_index, *map(named, KNOWN_ONLY.split())) if fn is not None}
    | {numpy.arange: arange_row, multiarray.correlate: correlate}
)
