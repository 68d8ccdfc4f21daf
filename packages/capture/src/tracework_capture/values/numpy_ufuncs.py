"""NumPy's universal functions on arrays: each asks NumPy itself which dtypes it computes in, casts, and calls the function of torch.

UFUNCS: name -> fn(frame, operands, dtype), operands being tensors of the dtype and numbers.
"""

from __future__ import annotations

import torch

from ..arrays import DTYPES, numpy
from ..graph.known import known_tensor
from .constant import ConstantValue, NotPlain, fold_plain, force_plain, literal, plain
from .numpy_array import ArrayValue, as_operand, cast, constant_array, dtype_of, refuse, watch_errors
from .sequence import TupleValue
from .symint import SymNumber
from .tensor import TensorValue
from .value import Value

BINARY = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "true_divide",
    "//": "floor_divide",
    "%": "remainder",
    "**": "power",
    "@": "matmul",
    "<<": "left_shift",
    ">>": "right_shift",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
}
COMPARE = {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
UNARY = {"-": "negative", "+": "positive", "~": "invert"}


def apply(frame, name, values, out=None, dtype=None):
    """The ufunc on values; with `out` the result is written there."""
    row = UFUNCS.get(name)
    if row is None:
        return refuse(frame, f"numpy.{name} of arrays")
    operands = [as_operand(frame, v) for v in values]
    if not any(isinstance(v, ArrayValue) for v in (*operands, *([out] if out is not None else []))):
        return known_result(frame, getattr(numpy, name), [force_plain(frame, v) for v in values], {})
    check_order(frame, name, [v.example for v in operands if isinstance(v, ArrayValue)])
    watch_errors(frame)
    *given, wanted = resolved(frame, name, operands, dtype)
    tensors = [computed_in(frame, prepared(frame, v, d)) for v, d in zip(operands, given, strict=True)]
    made = cast(frame, row(frame, tensors, given[0]), wanted)
    return ArrayValue(made, scalar=made.example.ndim == 0) if out is None else written(frame, name, out, made, wanted)


def check_order(frame, name, examples):
    """Results lie in memory as the operands do, in NumPy and torch alike but for the strides of dims of size 1."""
    ones = any(example.ndim > 1 and any(type(size) is int and size == 1 for size in example.shape) for example in examples)
    if ones and not all(example.is_contiguous() for example in examples):
        refuse(frame, f"numpy.{name} of arrays with a dim of size 1 that are not in C order")


def resolved(frame, name, operands, dtype=None):
    """The dtypes of the operands and of the result, as NumPy chooses them."""
    kinds = [kind_of(v) for v in operands]
    if dtype is not None and name in COMPARISONS:
        return refuse(frame, f"numpy.{name} with a dtype")
    ufunc = getattr(numpy, name)
    try:
        named = {} if dtype is None else {"signature": (None,) * ufunc.nin + (dtype,)}
        return ufunc.resolve_dtypes((*kinds, None), **named)
    except TypeError as error:
        return refuse(frame, f"numpy.{name}: {error}")


def kind_of(operand):
    """What NumPy's promotion looks at: the dtype, or the class of a Python number."""
    if isinstance(operand, SymNumber):
        return int
    if isinstance(operand, (ArrayValue, numpy.generic)):
        return operand.dtype
    return numpy.dtype(bool) if isinstance(operand, bool) else type(operand)


_WIDEST = 8  # bytes of the dtypes that hold any size


def prepared(frame, operand, dtype):
    """A tensor of the dtype; NumPy refuses numbers that do not fit."""
    if isinstance(operand, ArrayValue):
        return cast(frame, operand.tensor, dtype)
    if dtype not in DTYPES:
        return refuse(frame, f"numbers of dtype {dtype}")
    if isinstance(operand, SymNumber) and dtype.itemsize == _WIDEST:
        return frame.graph.call(frame, torch.full, ((), operand), {"dtype": ConstantValue(DTYPES[dtype])})
    if isinstance(operand, SymNumber):
        operand = force_plain(frame, operand)
    if dtype.kind in "iu" and not numpy.iinfo(dtype).min <= operand <= numpy.iinfo(dtype).max:
        return refuse(frame, f"{operand} does not fit into {dtype}")
    number = dtype.type(operand).item()
    return frame.graph.call(frame, torch.full, ((), ConstantValue(number)), {"dtype": ConstantValue(DTYPES[dtype])})


def computed_in(frame, tensor):
    """Halves are computed with as floats, as NumPy does."""
    return frame.graph.call_method(frame, "float", (tensor,)) if tensor.example.dtype is torch.float16 else tensor


def written(frame, name, out, made, dtype):
    """out=: the array, after the result was written to it."""
    if not isinstance(out, ArrayValue) or out.scalar or not numpy.can_cast(dtype, out.dtype, "same_kind"):
        return refuse(frame, f"numpy.{name}: the result of dtype {dtype} does not go into {out.describe()}")
    frame.graph.call_method(frame, "copy_", (out.tensor, made))
    return out


def known_result(frame, function, args, kwargs):
    """A pure function of known arguments; an array that it gives becomes a constant of the graph."""
    found = fold_plain(frame, function, *args, **kwargs)
    return constant_array(frame, found) if isinstance(found, numpy.ndarray) else literal(frame, found)


# --- rows ----------------------------------------------------------------------------------------------------------------


def elementwise(function):
    """A function of torch that does the same for all dtypes."""

    def compute(frame, operands, dtype):
        return frame.graph.call(frame, function, tuple(operands))

    return compute


def with_divisor(function):
    """Integers are divided only by positive numbers that are known: torch raises where NumPy warns and gives zero."""

    def compute(frame, operands, dtype):
        known = known_tensor(operands[1].node)
        if dtype.kind != "f" and (known is None or not bool((known > 0).all())):
            return refuse(frame, "division of integers by numbers that are not known to be positive")
        return frame.graph.call(frame, function, tuple(operands))

    return compute


def power(frame, operands, dtype):
    base, exponent = operands
    known = known_tensor(exponent.node)
    if dtype.kind != "f" and (known is None or not bool((known >= 0).all())):
        return refuse(frame, "integers to powers that may be negative")
    if known is not None and known.ndim == 0:
        return frame.graph.call(frame, torch.pow, (base, ConstantValue(known.item())))
    return frame.graph.call(frame, torch.pow, (base, exponent))


def floats_only(function):
    def compute(frame, operands, dtype):
        if dtype.kind != "f":
            return refuse(frame, f"{function.__name__} of integers")
        return frame.graph.call(frame, function, tuple(operands))

    return compute


def sign(frame, operands, dtype):
    made = frame.graph.call(frame, torch.sign, tuple(operands))
    if dtype.kind != "f":
        return made
    return frame.graph.call(frame, torch.where, (frame.graph.call(frame, torch.isnan, tuple(operands)), operands[0], made))


def nothing(frame, operands, dtype):
    return frame.graph.call_method(frame, "clone", tuple(operands))


def rounded(function):
    """floor, ceil, trunc, rint: integers stay."""

    def compute(frame, operands, dtype):
        return frame.graph.call(frame, function if dtype.kind == "f" else torch.clone, tuple(operands))

    return compute


def absolute(frame, operands, dtype):
    return frame.graph.call(frame, torch.clone if dtype.kind == "b" else torch.abs, tuple(operands))


def matmul(frame, operands, dtype):
    if dtype.kind == "b":
        return refuse(frame, "a matrix product of booleans")
    return frame.graph.call(frame, torch.matmul, tuple(operands))


UFUNCS = {
    **{
        name: elementwise(getattr(torch, name))
        for name in (
            "add subtract multiply true_divide negative square exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan "
            "sinh cosh tanh arcsinh arccosh arctanh arctan2 hypot maximum minimum fmax fmin not_equal less less_equal greater "
            "greater_equal logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_xor isnan isinf isfinite "
            "deg2rad rad2deg copysign signbit logaddexp logaddexp2 sqrt"
        ).split()
    },
    "equal": elementwise(torch.eq),
    "divide": elementwise(torch.true_divide),
    "radians": elementwise(torch.deg2rad),
    "degrees": elementwise(torch.rad2deg),
    "invert": elementwise(torch.bitwise_not),
    "bitwise_not": elementwise(torch.bitwise_not),
    "float_power": elementwise(torch.pow),
    "absolute": absolute,
    "fabs": absolute,
    "positive": nothing,
    "sign": sign,
    "reciprocal": floats_only(torch.reciprocal),
    "fmod": with_divisor(torch.fmod),
    "remainder": with_divisor(torch.remainder),
    "floor_divide": with_divisor(torch.floor_divide),
    "power": power,
    "rint": rounded(torch.round),
    "floor": rounded(torch.floor),
    "ceil": rounded(torch.ceil),
    "trunc": rounded(torch.trunc),
    "matmul": matmul,
}
COMPARISONS = {
    *COMPARE.values(),
    "logical_and",
    "logical_or",
    "logical_not",
    "logical_xor",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
}


def ufunc_row(ufunc):
    """numpy.name(*operands, out=None, dtype=None)"""
    name = ufunc.__name__

    def computes(frame, args, kwargs):
        try:
            given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
        except NotPlain:
            pass
        else:
            return known_result(frame, ufunc, given, named)
        out = kwargs.get("out")
        if isinstance(out, TupleValue):
            (out,) = out.all_items(frame)
        if any(isinstance(v, TensorValue) for v in (*args, out)) or set(kwargs) - {"out", "dtype"} or len(args) != ufunc.nin:
            return refuse(frame, f"numpy.{name} with these arguments")
        return apply(frame, name, args, out if isinstance(out, ArrayValue) else None, asked_dtype(frame, kwargs))

    return computes


def asked_dtype(frame, kwargs):
    """The dtype= of a call."""
    value = kwargs.get("dtype")
    return dtype_of(frame, value) if isinstance(value, Value) else None


def ufunc_rows():
    """numpy.ufunc -> row; those without a row compute on known numbers only."""
    return {u: ufunc_row(u) for u in vars(numpy).values() if isinstance(u, numpy.ufunc)}
