"""NumPy's universal functions on arrays: each asks NumPy itself which dtypes it computes in, casts, and calls the function of torch.

UFUNCS: name -> fn(frame, operands, dtype), operands being tensors of the dtype and numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ...arrays import array_errors, numpy
from ...errors import NotPlain
from ...graph.known import known_tensor
from ..number.numpy_arithmetic import NUMPY_OPERATORS
from ..number.symint import SymNumber
from ..objects.row_value import RowValue
from ..plain.rows_operators import DIVMOD
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import CALLS, method_handler, methods
from ..protocol.constant import ConstantValue, force_plain, plain
from ..protocol.kinds import AbstractArray
from ..protocol.value import Frame, Value
from ..protocol.wraps import wraps
from ..torch.tensor import TensorValue
from .arguments import dtype_of
from .array import OPERATIONS, ArrayValue
from .breaks import refuse, watch_errors
from .items import index
from .layouts import ordered_as
from .operands import as_array, as_operand, cast, is_open_float, is_open_number, known_result, prepared, to_store

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
    watch_errors(frame)
    *given, wanted = resolved(frame, name, operands, dtype)
    if any(d.kind == "c" for d in given) and name not in OF_COMPLEX:
        return refuse(frame, f"numpy.{name} of complex numbers")
    tensors = [computed_in(frame, prepared(frame, v, d)) for v, d in zip(operands, given, strict=True)]
    made = cast(frame, row(frame, tensors, given[0]), wanted)
    if name not in PRODUCTS and out is None:
        made = ordered_as(frame, made, [v for v in operands if isinstance(v, ArrayValue)])
    return ArrayValue(made, scalar=made.example.ndim == 0) if out is None else written(frame, name, out, made, wanted)


def binary(frame, array, op, other, reverse=False):
    """array op other, or the other way round."""
    if isinstance(other, TensorValue):
        return array.as_operand(frame, [other]) and refuse(frame, f"arithmetic of a {array.describe()} and a tensor")
    in_place = op.endswith("=")
    if op == "@=":
        return refuse(frame, "matrix multiplication in place")
    if array.scalar and isinstance(other, SequenceValue):
        return refuse(frame, "a number of NumPy and a sequence")
    if as_operand(frame, other, refusing=False) is None:
        return refuse(frame, f"arithmetic with a {other.describe()}")
    pair = [other, array] if reverse else [array, other]
    if op.startswith("**") and isinstance(pair[0], ArrayValue) and pair[0].dtype.kind == "b":
        return refuse(frame, "powers of booleans, whose dtype depends on the exponent")
    return apply(frame, BINARY[op.rstrip("=")], pair, out=array if in_place and not array.scalar else None)


def compare(frame, array, op, other):
    if as_operand(frame, other, refusing=False) is None:
        return refuse(frame, f"comparison with a {other.describe()}")
    return apply(frame, COMPARE[op], [array, other])


def unary(frame, array, op):
    return apply(frame, UNARY[op], [array])


OPERATIONS.add({"binary": binary, "compare": compare, "unary": unary})

SAME_AS_NUMPY = ("+", "-", "*", "/")


def arithmetic_of_open(op: str) -> Callable[[Frame, Value, Value], Value | None]:
    """The rule of an operator between one of NumPy's numbers that changes from call to call and another number."""

    def rule(frame: Frame, left: Value, right: Value) -> Value | None:
        return apply(frame, BINARY[op], (left, right)) if is_operand(left) and is_operand(right) and not array_errors() else None

    return rule


def is_operand(value: Value) -> bool:
    """Whether it is a number or an array that NumPy computes with as it is, known or open."""
    if isinstance(value, ArrayValue) or is_open_float(value) or is_open_number(value):
        return True
    return value.is_constant() and issubclass(value.python_type(), (int, float, numpy.number))


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
    if is_open_float(operand):
        return float
    if isinstance(operand, (ArrayValue, numpy.generic)):
        return operand.dtype
    return numpy.dtype(bool) if isinstance(operand, bool) else type(operand)


def computed_in(frame, tensor):
    """Halves are computed with as floats, as NumPy does."""
    return frame.graph.call_method(frame, "float", (tensor,)) if tensor.example.dtype is torch.float16 else tensor


def written(frame, name, out, made, dtype):
    """out=: the array, after the result was written to it."""
    if not isinstance(out, ArrayValue) or out.scalar or not numpy.can_cast(dtype, out.dtype, "same_kind"):
        return refuse(frame, f"numpy.{name}: the result of dtype {dtype} does not go into {out.describe()}")
    out.write(frame, made)
    return out


# --- rows ----------------------------------------------------------------------------------------------------------------


def elementwise(function):
    """A function of torch that does the same for all dtypes."""

    def compute(frame, operands, dtype):
        return frame.graph.call(frame, function, tuple(operands))

    return compute


def with_divisor(function, by_minus_one):
    """Integers by 0 are 0 (torch raises), and the smallest of all by -1 is what fits (the processor raises)."""

    def compute(frame, operands, dtype):
        a, b = operands
        known = known_tensor(b.node)
        if dtype.kind == "f" or known is not None and bool((known > 0).all()):
            return frame.graph.call(frame, function, (a, b))
        if dtype.kind == "b":
            return refuse(frame, "division of booleans")
        call = frame.graph.call
        zero = call(frame, torch.eq, (b, ConstantValue(0)))
        minus = call(frame, torch.eq, (b, ConstantValue(-1 if dtype.kind == "i" else 0)))
        special = call(frame, torch.logical_or, (zero, minus))
        found = call(frame, function, (a, call(frame, torch.where, (special, call(frame, torch.ones_like, (b,)), b))))
        nothing = call(frame, torch.zeros_like, (found,))
        at_minus = call(frame, torch.neg, (a,)) if by_minus_one else nothing
        if dtype.kind == "i":
            found = call(frame, torch.where, (minus, at_minus, found))
        return call(frame, torch.where, (zero, nothing, found))

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
        if dtype.kind not in "fc":
            return refuse(frame, f"{function.__name__} of integers")
        return frame.graph.call(frame, function, tuple(operands))

    return compute


def sign(frame, operands, dtype):
    made = frame.graph.call(frame, torch.sign, tuple(operands))
    if dtype.kind != "f":
        return made
    return frame.graph.call(frame, torch.where, (frame.graph.call(frame, torch.isnan, tuple(operands)), operands[0], made))


def heaviside(frame, operands, dtype):
    """Of NaN it is NaN; torch's is 0."""
    made = frame.graph.call(frame, torch.heaviside, tuple(operands))
    return frame.graph.call(frame, torch.where, (frame.graph.call(frame, torch.isnan, (operands[0],)), operands[0], made))


def nextafter(frame, operands, dtype):
    """The next half is none of the float that halves are computed in."""
    if dtype.itemsize < 4:
        return refuse(frame, f"numpy.nextafter of {dtype}")
    return frame.graph.call(frame, torch.nextafter, tuple(operands))


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


def vecdot(frame, operands, dtype):
    if dtype.kind not in "fiu" or operands[0].example.shape[-1:] != operands[1].example.shape[-1:]:
        return refuse(frame, "numpy.vecdot of these arrays")
    a, b = (frame.graph.call(frame, torch.unsqueeze, (t, dim)) for t, dim in zip(operands, (-2, -1), strict=True))
    return frame.graph.call(frame, torch.squeeze, (frame.graph.call(frame, torch.matmul, (a, b)), (-2, -1)))


def conjugate(frame, operands, dtype):
    return frame.graph.call(frame, torch.conj_physical if dtype.kind == "c" else torch.clone, tuple(operands))


def shifted(function):
    """Shifts by as many bits as the dtype has, or by negative numbers, are NumPy's own."""

    def compute(frame, operands, dtype):
        known = known_tensor(operands[1].node)
        if known is None or not bool(((known >= 0) & (known < 8 * dtype.itemsize)).all()):
            return refuse(frame, "shifts by numbers that are not known")
        return frame.graph.call(frame, function, tuple(operands))

    return compute


OF_COMPLEX = frozenset(
    "add subtract multiply true_divide divide negative positive conjugate exp log sqrt sin cos tan sinh cosh tanh equal not_equal absolute "
    "square reciprocal isnan isfinite isinf matmul".split()
)
"""What functions of torch do with complex numbers as NumPy does."""

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
    "fmod": with_divisor(torch.fmod, False),
    "remainder": with_divisor(torch.remainder, False),
    "floor_divide": with_divisor(torch.floor_divide, True),
    "power": power,
    "conjugate": conjugate,
    "heaviside": heaviside,
    "nextafter": nextafter,
    "gcd": elementwise(torch.gcd),
    "lcm": elementwise(torch.lcm),
    "left_shift": shifted(torch.bitwise_left_shift),
    "right_shift": shifted(torch.bitwise_right_shift),
    "ldexp": elementwise(torch.ldexp),
    "rint": rounded(torch.round),
    "floor": rounded(torch.floor),
    "ceil": rounded(torch.ceil),
    "trunc": rounded(torch.trunc),
    "matmul": matmul,
    "vecdot": vecdot,
}
PRODUCTS = {"matmul", "vecdot"}
"""What gives C order, whatever the operands have."""
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

    @functools.wraps(UFUNCS.get(name, known_result))
    def computes(frame, args, kwargs):
        try:
            given, named = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
        except NotPlain:
            pass
        else:
            return known_result(frame, ufunc, given, named)
        operands, out = args[: ufunc.nin], kwargs.get("out", args[ufunc.nin] if len(args) == ufunc.nin + 1 else None)
        if isinstance(out, TupleValue):
            (out,) = out.all_items(frame)
        known_names = {"out", "dtype", "subok", "where"}
        if (
            any(isinstance(v, TensorValue) for v in (*args, out))
            or set(kwargs) - known_names
            or not fits_ufunc(ufunc, args, kwargs)
        ):
            return refuse(frame, f"numpy.{name} with these arguments")
        as_array_always = out is not None and out.is_constant() and out.constant() is Ellipsis
        out = out if isinstance(out, ArrayValue) else None
        where = kwargs.get("where")
        if where is None or where.is_constant() and where.constant() is True:
            made = apply(frame, name, operands, out, asked_dtype(frame, kwargs))
            return ArrayValue(made.tensor) if as_array_always else made
        return applied_where(frame, name, operands, out, where)

    return computes


def fits_ufunc(ufunc, args, kwargs):
    """Whether there are as many arguments as it takes, and one result."""
    return ufunc.nout == 1 and len(args) in (ufunc.nin, ufunc.nin + ("out" not in kwargs))


def applied_where(frame, name, operands, out, where):
    """ufunc(..., out=array, where=mask): the array keeps what it has where the mask says no."""
    if out is None or out.scalar:
        return refuse(frame, f"numpy.{name} of chosen items without an array for the result")
    made, mask = apply(frame, name, operands), cast(frame, as_array(frame, where).tensor, numpy.dtype(bool))
    if not numpy.can_cast(made.dtype, out.dtype, "same_kind"):
        return refuse(frame, f"numpy.{name}: the result of dtype {made.dtype} does not go into {out.describe()}")
    out.write(frame, frame.graph.call(frame, torch.where, (mask, cast(frame, made.tensor, out.dtype), out.tensor)))
    return out


def asked_dtype(frame, kwargs):
    """The dtype= of a call."""
    value = kwargs.get("dtype")
    return dtype_of(frame, value) if isinstance(value, Value) else None


def two_results(ufunc, compute):
    """The row of a ufunc with two results."""

    def computes(frame, args, kwargs):
        try:
            return known_result(frame, ufunc, [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()})
        except NotPlain:
            if kwargs or len(args) != ufunc.nin:
                return refuse(frame, f"numpy.{ufunc.__name__} with these arguments")
        return TupleValue(compute(frame, *args))

    return computes


def divmod_(frame, a, b):
    return [apply(frame, name, [a, b]) for name in ("floor_divide", "remainder")]


def modf(frame, x):
    """The fraction has the sign of the number, and is zero of infinity."""
    whole = apply(frame, "trunc", [x])
    if whole.dtype.kind != "f":
        return refuse(frame, "numpy.modf of integers")
    rest = apply(frame, "subtract", [x, whole]).tensor
    infinite = apply(frame, "isinf", [x]).tensor
    rest = frame.graph.call(frame, torch.where, (infinite, frame.graph.call(frame, torch.zeros_like, (rest,)), rest))
    rest = ArrayValue(rest, scalar=rest.example.ndim == 0)
    return [apply(frame, "copysign", [rest, x]), whole]


def frexp(frame, x):
    x = as_array(frame, x)
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        return refuse(frame, f"numpy.frexp of {x.dtype}")
    found = [ordered_as(frame, t, [x]) for t in frame.graph.call(frame, torch.frexp, (x.tensor,)).unpack(frame)]
    return [ArrayValue(t, scalar=t.example.ndim == 0) for t in found]


def ufunc_rows():
    """numpy.ufunc -> row; those without a row compute on known numbers only."""
    rows = {u: ufunc_row(u) for u in vars(numpy).values() if isinstance(u, numpy.ufunc)}
    two = {numpy.divmod: divmod_, numpy.modf: modf, numpy.frexp: frexp}
    return rows | {ufunc: two_results(ufunc, compute) for ufunc, compute in two.items()}


class UfuncValue(RowValue):
    """One of NumPy's universal functions; its methods are rows of CALLS: handler(frame, name of the ufunc, args, kwargs)."""

    def call_method(self, frame, name, args, kwargs):
        handler = method_handler(numpy.ufunc, name)
        return (
            super().call_method(frame, name, args, kwargs) if handler is None else handler(frame, self.fn.__name__, args, kwargs)
        )

    def getattr(self, frame, name):
        return BoundBuiltin(self, name) if (numpy.ufunc, name) in CALLS else super().getattr(frame, name)


METHOD_FUNCTIONS = {"reduce": {}, "accumulate": {}}
"""Method of ufuncs -> name of a ufunc -> the row of what computes it (numpy_reductions.py)."""


def along_axis(method):
    """reduce and accumulate, along the first axis if none is given."""

    def row(frame, name, args, kwargs):
        found = METHOD_FUNCTIONS[method].get(name)
        names = ("array", "axis", "dtype", "out", "keepdims", "initial", "where")
        given = dict(zip(names, args)) | kwargs
        if found is None or len(args) > len(names) or not given.keys() <= set(names):
            return refuse(frame, f"numpy.{name}.{method} with these arguments")
        array = given.pop("array")
        return found(frame, [array], {"axis": ConstantValue(0)} | given)

    return row


def outer(frame, name, args, kwargs):
    """ufunc.outer(a, b)"""
    if kwargs or len(args) != 2:
        return refuse(frame, f"numpy.{name}.outer with these arguments")
    a, b = (as_array(frame, v) for v in args)
    if not a.example.ndim or not b.example.ndim:
        return apply(frame, name, [a, b])
    sizes = (*a.example.shape, *[1] * b.example.ndim)
    return apply(frame, name, [ArrayValue(frame.graph.call(frame, torch.reshape, (a.tensor, sizes))), b])


def add_at(frame, name, args, kwargs):
    """numpy.add.at(array, indices, numbers): also where an index is there several times."""
    array = args[0] if args else None
    if name != "add" or kwargs or len(args) != 3 or not isinstance(array, ArrayValue) or array.flips or not array.writeable:
        return refuse(frame, f"numpy.{name}.at with these arguments")
    keys, numbers = index(frame, array, args[1]), to_store(frame, array, args[2])
    if not keys or not all(isinstance(k, TensorValue) for k in keys):
        return refuse(frame, f"numpy.{name}.at with indices that are no arrays")
    frame.graph.call_method(frame, "index_put_", (array.tensor, TupleValue(list(keys)), numbers, ConstantValue(True)))
    return ConstantValue(None)


methods(
    numpy.ufunc,
    {
        **{method: along_axis(method) for method in METHOD_FUNCTIONS},
        "outer": outer,
        "at": add_at,
        "reduceat": lambda frame, name, args, kwargs: refuse(frame, f"numpy.{name}.reduceat"),
    },
)


@wraps(numpy.ufunc)
def wrap_ufunc(frame, obj, source):
    """A universal function of NumPy; those of other libraries break when they are called."""
    row = CALLS.get(obj)
    frame.guard("IDENTITY", source, obj)
    return UfuncValue(obj, unknown_ufunc(obj) if row is None else row.handler, source)


def unknown_ufunc(ufunc):
    return lambda frame, args, kwargs: refuse(frame, f"the ufunc {ufunc.__name__}")


DIVMOD[AbstractArray] = divmod_
NUMPY_OPERATORS.add({op: arithmetic_of_open(op) for op in SAME_AS_NUMPY})
