"""Functions of NumPy that move, join and make arrays, and the rows of all functions of NumPy."""

from __future__ import annotations

import operator

import torch

from ..arrays import DTYPES, numpy
from .constant import NUMPY_NUMBERS, ConstantValue, NotPlain, force_plain, plain
from .numpy_array import (
    ARRAY_METHODS,
    ArrayValue,
    array_from_tensor,
    as_array,
    as_operand,
    cast,
    dtype_of,
    refuse,
)
from .numpy_reductions import float_dtype, reduced
from .numpy_table import NUMPY_FUNCTIONS, axes_of, call, function, function_row, in_c_order, known, one_axis, result, sizes_of
from .numpy_ufuncs import apply, kind_of, known_result, prepared, ufunc_rows
from .sequence import NONE, ListValue, SequenceValue, TupleValue
from .symint import SymNumber
from .tensor import TensorValue


def fact(name):
    """shape, ndim: facts of an array as functions."""

    def handler(frame, a):
        return as_array(frame, a).getattr(frame, name)

    function(name)(handler)


for _name in ("shape", "ndim", "size"):
    fact(_name)


# --- shapes ----------------------------------------------------------------------------------------------------------------


@function("reshape")
def reshape(frame, a, shape):
    a = as_array(frame, a)
    return ArrayValue(call(frame, torch.reshape, a.tensor, sizes_of(frame, shape)))


def reshape_method(frame, args, kwargs):
    a, *shape = args
    if kwargs or not shape:
        return refuse(frame, "reshape with these arguments")
    return reshape(frame, a, shape[0] if len(shape) == 1 else TupleValue(shape))


ARRAY_METHODS["reshape"] = reshape_method


@function("ravel", method="ravel")
def ravel(frame, a):
    a = as_array(frame, a)
    return ArrayValue(call(frame, torch.reshape, a.tensor, (-1,))) if a.example.is_contiguous() else flatten(frame, a)


def flatten(frame, a):
    return ArrayValue(call(frame, torch.clone, call(frame, torch.reshape, a.tensor, (-1,))))


ARRAY_METHODS["flatten"] = function_row(flatten, None, "flatten")


def permuted(frame, a, dims):
    return ArrayValue(call(frame, torch.permute, a.tensor, tuple(dims)), a.scalar)


@function("transpose")
def transpose(frame, a, axes=None):
    a = as_array(frame, a)
    dims = axes_of(frame, TupleValue(axes.all_items(frame)) if isinstance(axes, ListValue) else axes, a.example.ndim)
    dims = tuple(reversed(range(a.example.ndim))) if dims is None else dims
    if sorted(dims) != list(range(a.example.ndim)):
        return refuse(frame, f"axes {dims} of an array of {a.example.ndim} dims")
    return permuted(frame, a, dims)


def transpose_method(frame, args, kwargs):
    a, *axes = args
    if kwargs:
        return refuse(frame, "transpose with these arguments")
    if not axes:
        return transpose(frame, a)
    return transpose(frame, a, axes[0] if len(axes) == 1 else TupleValue(axes))


ARRAY_METHODS["transpose"] = transpose_method


@function("swapaxes", method="swapaxes")
def swapaxes(frame, a, axis1, axis2):
    a = as_array(frame, a)
    first, second = (one_axis(frame, axis, a.example.ndim) for axis in (axis1, axis2))
    return ArrayValue(call(frame, torch.transpose, a.tensor, first, second))


@function("moveaxis")
def moveaxis(frame, a, source, destination):
    a = as_array(frame, a)
    places = [axes_of(frame, axis, a.example.ndim) for axis in (source, destination)]
    return ArrayValue(call(frame, torch.movedim, a.tensor, *places))


@function("expand_dims")
def expand_dims(frame, a, axis):
    a = as_array(frame, a)
    return ArrayValue(call(frame, torch.unsqueeze, a.tensor, one_axis(frame, axis, a.example.ndim + 1)))


@function("squeeze", method="squeeze")
def squeeze(frame, a, axis=None):
    a = as_array(frame, a)
    axes = axes_of(frame, axis, a.example.ndim)
    if axes is None:
        axes = tuple(d for d, size in enumerate(a.example.shape) if size == 1)
    if any(a.example.shape[d] != 1 for d in axes):
        return refuse(frame, "squeeze of an axis whose size is not one")
    return ArrayValue(call(frame, torch.squeeze, a.tensor, axes), a.scalar)


def stacked(frame, sequence, axis=0):
    """An array of arrays of equal sizes, of numbers, or of nested sequences of them."""
    return joined(frame, torch.stack, "stack", sequence, axis)


def joined(frame, fn, name, sequence, axis, least=0):
    """concatenate and stack: of one dtype, which NumPy chooses."""
    items = [
        as_array(frame, v) for v in (sequence.all_items(frame) if isinstance(sequence, SequenceValue) else sequence.unpack(frame))
    ]
    if not items or any(i.example.ndim < least for i in items):
        return refuse(frame, f"numpy.{name} of these arrays")
    dtype = numpy.result_type(*[i.dtype for i in items])
    ndim = items[0].example.ndim + (fn is torch.stack)
    in_c_order(frame, name, items, ndim)
    tensors = TupleValue([cast(frame, i.tensor, dtype) for i in items])
    return ArrayValue(call(frame, fn, tensors, dim=one_axis(frame, axis, ndim)))


@function("stack")
def stack(frame, arrays, axis=0):
    return stacked(frame, arrays, axis)


@function("concatenate")
def concatenate(frame, arrays, axis=0):
    if known(frame, axis) is None:
        return refuse(frame, "numpy.concatenate of flattened arrays")
    return joined(frame, torch.cat, "concatenate", arrays, axis, 1)


def at_least(frame, a, dims):
    """atleast_1d, atleast_2d"""
    a = as_array(frame, a)
    shape = (1,) * (dims - a.example.ndim)
    return a if not shape else ArrayValue(call(frame, torch.reshape, a.tensor, shape + tuple(a.example.shape)))


@function("vstack")
def vstack(frame, tup):
    return joined(frame, torch.cat, "vstack", TupleValue([at_least(frame, v, 2) for v in tup.unpack(frame)]), 0)


@function("hstack")
def hstack(frame, tup):
    items = [at_least(frame, v, 1) for v in tup.unpack(frame)]
    return joined(frame, torch.cat, "hstack", TupleValue(items), 0 if items and items[0].example.ndim == 1 else 1)


@function("array_split")
def array_split(frame, ary, indices_or_sections, axis=0):
    a = as_array(frame, ary)
    found = call(
        frame, torch.tensor_split, a.tensor, known(frame, indices_or_sections), dim=one_axis(frame, axis, a.example.ndim)
    )
    return ListValue([ArrayValue(part) for part in found.unpack(frame)])


@function("split")
def split(frame, ary, indices_or_sections, axis=0):
    a, sections = as_array(frame, ary), known(frame, indices_or_sections)
    if isinstance(sections, int) and (sections < 1 or a.example.shape[one_axis(frame, axis, a.example.ndim)] % sections):
        return refuse(frame, "an array split into parts that are not equal")
    return array_split(frame, a, indices_or_sections, axis)


@function("tile")
def tile(frame, A, reps):
    a = as_array(frame, A)
    in_c_order(frame, "tile", [a], 2)
    return ArrayValue(call(frame, torch.clone, call(frame, torch.tile, a.tensor, sizes_of(frame, reps))))


@function("repeat", method="repeat")
def repeat(frame, a, repeats, axis=None):
    a, count = as_array(frame, a), known(frame, repeats)
    if not isinstance(count, int) or count < 0:
        return refuse(frame, "numpy.repeat with a count for each item")
    in_c_order(frame, "repeat", [a], a.example.ndim)
    if known(frame, axis) is None:
        return ArrayValue(call(frame, torch.repeat_interleave, call(frame, torch.reshape, a.tensor, (-1,)), count))
    return ArrayValue(call(frame, torch.repeat_interleave, a.tensor, count, dim=one_axis(frame, axis, a.example.ndim)))


@function("roll")
def roll(frame, a, shift, axis=None):
    a = as_array(frame, a)
    in_c_order(frame, "roll", [a], a.example.ndim)
    axes = axes_of(frame, axis, a.example.ndim)
    return ArrayValue(call(frame, torch.roll, a.tensor, known(frame, shift), dims=axes))


@function("take", method="take")
def take(frame, a, indices, axis=None):
    a, places = as_array(frame, a), as_array(frame, indices)
    if places.dtype.kind not in "iu" or places.example.ndim == 0:
        return refuse(frame, "numpy.take of a single index, or of indices that are no integers")
    places = cast(frame, places.tensor, numpy.dtype("int64"))
    in_c_order(frame, "take", [a], a.example.ndim)
    if known(frame, axis) is None:
        return result(frame.graph.call(frame, operator.getitem, (call(frame, torch.reshape, a.tensor, (-1,)), (places,))))
    before = (slice(None),) * one_axis(frame, axis, a.example.ndim)
    return result(frame.graph.call(frame, operator.getitem, (a.tensor, (*before, places))))


def triangle(name, fn):
    def handler(frame, m, k=0):
        m = as_array(frame, m)
        if m.example.ndim < 2:
            return refuse(frame, f"numpy.{name} of an array of one dim")
        in_c_order(frame, name, [m], 2)
        return ArrayValue(call(frame, fn, m.tensor, known(frame, k)))

    function(name)(handler)


triangle("tril", torch.tril)
triangle("triu", torch.triu)


@function("diff")
def diff(frame, a, n=1, axis=-1):
    a = as_array(frame, a)
    in_c_order(frame, "diff", [a], a.example.ndim)
    return ArrayValue(call(frame, torch.diff, a.tensor, n=known(frame, n), dim=one_axis(frame, axis, a.example.ndim)))


@function("sort")
def sort(frame, a, axis=-1):
    a = as_array(frame, a)
    in_c_order(frame, "sort", [a], a.example.ndim)
    return ArrayValue(call(frame, torch.sort, a.tensor, dim=one_axis(frame, axis, a.example.ndim)).unpack(frame)[0])


@function("argsort")
def argsort(frame, a, axis=-1, kind=None, order=None, *, stable=None):
    """Where it is stable, there is one answer; else the order of equal items is NumPy's own."""
    a = as_array(frame, a)
    if known(frame, kind) not in ("stable", "mergesort") and not known(frame, stable) or known(frame, order) is not None:
        return refuse(frame, "numpy.argsort that is not stable")
    in_c_order(frame, "argsort", [a], a.example.ndim)
    return ArrayValue(call(frame, torch.argsort, a.tensor, dim=one_axis(frame, axis, a.example.ndim), stable=True))


ARRAY_METHODS["argsort"] = function_row(argsort, None, "argsort")


def sort_in_place(frame, a, axis=-1):
    call(frame, torch.Tensor.copy_, a.tensor, sort(frame, a, axis).tensor)
    return NONE


ARRAY_METHODS["sort"] = function_row(sort_in_place, None, "sort")


# --- several arrays ------------------------------------------------------------------------------------------------------------


def promoted(frame, values):
    """Tensors of the dtype that NumPy finds for all of them."""
    operands = [as_operand(frame, v) for v in values]
    operands = [force_plain(frame, v) if isinstance(v, SymNumber) else v for v in operands]
    kinds = [k if isinstance(k := kind_of(v), numpy.dtype) else v for v in operands]
    dtype = numpy.result_type(*kinds)
    return [prepared(frame, v, dtype) for v in operands]


@function("where", pure=False)
def where(frame, condition, x, y):
    chosen = cast(frame, as_array(frame, condition).tensor, numpy.dtype(bool))
    return ArrayValue(call(frame, torch.where, chosen, *promoted(frame, (x, y))))


@function("clip")
def clip(frame, a, a_min, a_max):
    found = as_array(frame, a)
    for name, limit in (("maximum", a_min), ("minimum", a_max)):
        if not (limit.is_constant() and limit.constant() is None):
            if as_array(frame, a).dtype.kind in "iub" and not isinstance(as_operand(frame, limit), (int, ArrayValue)):
                return refuse(frame, "numpy.clip of integers by floats")
            found = apply(frame, name, [found, limit])
    return found


def clip_method(frame, a, min=NONE, max=NONE):
    return clip(frame, a, min, max)


ARRAY_METHODS["clip"] = function_row(clip_method, None, "clip")


@function("dot", method="dot")
def dot(frame, a, b):
    a, b = as_array(frame, a), as_array(frame, b)
    if 0 in (a.example.ndim, b.example.ndim):
        return apply(frame, "multiply", [a, b])
    if b.example.ndim > 2:
        return refuse(frame, "numpy.dot of arrays of more dims")
    return apply(frame, "matmul", [a, b])


@function("outer")
def outer(frame, a, b):
    flat = [ArrayValue(call(frame, torch.reshape, as_array(frame, v).tensor, (-1,))) for v in (a, b)]
    column = ArrayValue(call(frame, torch.unsqueeze, flat[0].tensor, 1))
    return apply(frame, "multiply", [column, flat[1]])


@function("einsum")
def einsum(frame, subscripts, *operands):
    text = known(frame, subscripts)
    if not isinstance(text, str):
        return refuse(frame, "numpy.einsum without a string")
    tensors = promoted(frame, [as_array(frame, v) for v in operands])
    if tensors[0].example.dtype is torch.bool or len(operands) != text.partition("->")[0].count(",") + 1 or "->" not in text:
        return refuse(frame, f"numpy.einsum {text!r}")
    made = frame.graph.call_method(frame, "to", (call(frame, torch.einsum, text, *tensors), tensors[0].example.dtype))
    return result(call(frame, torch.clone, made) if len(operands) == 1 else made)


@function("linalg.norm")
def norm(frame, x, ord=None, axis=None, keepdims=False):
    x = as_array(frame, x)
    if known(frame, ord) is not None:
        return refuse(frame, f"numpy.linalg.norm of order {known(frame, ord)}")
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


@function("isclose")
def isclose(frame, a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    first, second = promoted(frame, [a, b])
    if not first.example.dtype.is_floating_point:
        return refuse(frame, "numpy.isclose of integers")
    limits = {"rtol": known(frame, rtol), "atol": known(frame, atol), "equal_nan": known(frame, equal_nan)}
    return result(call(frame, torch.isclose, first, second, **limits))


@function("nan_to_num")
def nan_to_num(frame, x):
    x = as_array(frame, x)
    return result(call(frame, torch.nan_to_num, x.tensor))


@function("round", "around", method="round")
def round_(frame, a, decimals=0):
    a, places = as_array(frame, a), known(frame, decimals)
    if a.dtype.kind != "f":
        return refuse(frame, "numpy.round of integers") if places < 0 or a.dtype.kind == "b" else copied(frame, a)
    if places == 0:
        return apply(frame, "rint", [a])
    scale = ConstantValue(a.dtype.type(10.0 ** abs(places)))
    there, back = ("multiply", "true_divide") if places > 0 else ("true_divide", "multiply")
    return apply(frame, back, [apply(frame, "rint", [apply(frame, there, [a, scale])]), scale])


# --- new arrays ------------------------------------------------------------------------------------------------------------------


def copied(frame, a):
    return ArrayValue(call(frame, torch.clone, a.tensor), a.scalar)


@function("copy")
def copy(frame, a):
    return copied(frame, as_array(frame, a))


def copy_method(frame, a):
    return ArrayValue(call(frame, torch.clone, a.tensor, memory_format=torch.contiguous_format), a.scalar)


ARRAY_METHODS["__abs__"] = lambda frame, args, kwargs: apply(frame, "absolute", args)
ARRAY_METHODS["copy"] = function_row(copy_method, None, "copy")


def astype(frame, a, dtype, copy=True):
    wanted = dtype_of(frame, dtype)
    if wanted not in DTYPES or (a.dtype.kind == "f" and wanted.kind in "iu" and wanted.itemsize < 4):
        return refuse(frame, f"astype({wanted}) of {a.dtype}")
    if wanted == a.dtype and not known(frame, copy):
        return a
    return ArrayValue(frame.graph.call_method(frame, "to", (a.tensor, DTYPES[wanted]), {"copy": True}), a.scalar)


ARRAY_METHODS["astype"] = function_row(astype, None, "astype")


def from_anything(frame, data, dtype, copies):
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


@function("array")
def array(frame, object, dtype=None):
    return from_anything(frame, object, dtype, True)


@function("asarray")
def asarray(frame, a, dtype=None):
    return from_anything(frame, a, dtype, False)


def filled(name, fn):
    """zeros, ones, empty, and what is made like an array."""

    def handler(frame, shape, dtype=float):
        wanted = DTYPES.get(dtype_of(frame, dtype)) or refuse(frame, f"an array of dtype {dtype}")
        return ArrayValue(call(frame, fn, sizes_of(frame, shape), dtype=wanted, device="cpu"))

    def like(frame, a, dtype=None):
        a = as_array(frame, a)
        wanted = DTYPES.get(dtype_of(frame, dtype) or a.dtype) or refuse(frame, f"an array of dtype {dtype}")
        in_c_order(frame, f"{name}_like", [a], a.example.ndim)
        return ArrayValue(call(frame, getattr(torch, f"{name}_like"), a.tensor, dtype=wanted))

    function(name, pure=False)(handler)
    function(f"{name}_like", pure=False)(like)


for _name in ("zeros", "ones", "empty"):
    filled(_name, getattr(torch, _name))


@function("full", pure=False)
def full(frame, shape, fill_value, dtype=None):
    number = as_operand(frame, fill_value)
    number = force_plain(frame, number) if isinstance(number, SymNumber) else number
    wanted = dtype_of(frame, dtype) or (number.dtype if isinstance(number, ArrayValue) else numpy.asarray(number).dtype)
    if isinstance(number, ArrayValue):
        return refuse(frame, "numpy.full of a number that is not known")
    filler = prepared(frame, number, wanted)
    return ArrayValue(
        call(
            frame,
            torch.clone,
            call(frame, torch.Tensor.expand, filler, sizes_of(frame, shape)),
            memory_format=torch.contiguous_format,
        )
    )


@function("full_like", pure=False)
def full_like(frame, a, fill_value, dtype=None):
    a = as_array(frame, a)
    in_c_order(frame, "full_like", [a], a.example.ndim)
    return full(frame, TupleValue(a.getattr(frame, "shape").items), fill_value, dtype_of(frame, dtype) or a.dtype)


def fill_method(frame, a, value):
    a.setitem(frame, ConstantValue(Ellipsis), value)
    return NONE


ARRAY_METHODS["fill"] = function_row(fill_method, None, "fill")


def arange_row(frame, args, kwargs):
    """numpy.arange: with sizes that change it stays a node."""
    if args and any(isinstance(v, SymNumber) for v in args) and not kwargs:
        return ArrayValue(frame.graph.call(frame, torch.arange, tuple(args), {"dtype": torch.int64, "device": "cpu"}))
    return known_call(numpy.arange)(frame, args, kwargs)


def known_call(fn):
    """A pure function of known arguments."""

    def computes(frame, args, kwargs):
        try:
            given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
        except NotPlain as missing:
            return refuse(frame, f"numpy.{fn.__name__} of {missing.args[0].describe()}")
        return known_result(frame, fn, given, named)

    return computes


KNOWN_ONLY = (
    "median average allclose array_equal interp percentile quantile isscalar real imag angle searchsorted finfo iinfo ndim size dtype "
    "linspace logspace geomspace eye identity tri hanning hamming blackman bartlett kaiser meshgrid indices diag cross kron "
    "result_type promote_types can_cast issubdtype"
)


def numpy_rows():
    """Function, ufunc or class of numbers -> row."""
    rows = {fn: known_call(fn) for name in KNOWN_ONLY.split() if (fn := getattr(numpy, name, None)) is not None}
    rows |= {numpy.arange: arange_row, numpy.linalg.inv: known_call(numpy.linalg.inv)}
    return rows | {kind: number_class(kind) for kind in NUMPY_NUMBERS} | ufunc_rows() | NUMPY_FUNCTIONS


def number_class(kind):
    """numpy.float32(x)"""
    plainly = known_call(kind)

    def computes(frame, args, kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], ArrayValue):
            return astype(frame, args[0], numpy.dtype(kind))
        return plainly(frame, args, kwargs)

    return computes
