"""NumPy's universal functions on arrays: each asks NumPy itself which dtypes it computes in, casts, and calls the function of torch.

UFUNCS: name -> fn(frame, operands, dtype), operands being tensors of the dtype and numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...arrays import array_errors, numpy
from ...graph.constant_data import known_tensor
from ...sources import Source
from ..number.number import NUMPY_OPERATORS
from ..number.symint import SymNumber
from ..objects.row_value import RowValue
from ..plain.rows_operators import DIVMOD
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.binding import BoundBuiltin
from ..protocol.calls import CALLS, Handler, method_handler, methods
from ..protocol.constant import ConstantValue, force_plain
from ..protocol.kinds import AbstractArray, AbstractTensor
from ..protocol.value import Frame, Value
from ..protocol.wraps import wraps
from ..torch.tensor import TensorValue
from .arguments import dtype_of
from .array import OPERATIONS, ArrayValue
from .breaks import refuse, watch_errors
from .items import index
from .layouts import ordered_as
from .nodes import call, call_method, tensors_of
from .operands import (
    as_array,
    as_operand,
    cast,
    computed_now,
    is_unspecialised_float,
    is_unspecialised_number,
    known_result,
    prepared,
    to_store,
)

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


def apply(
    frame: Frame, name: str, values: Sequence[Any], out: ArrayValue | None = None, dtype: numpy.dtype[Any] | None = None
) -> Value:
    """The ufunc on values; with `out` the result is written there."""
    row = UFUNCS.get(name)
    if row is None:
        return refuse(frame, f"numpy.{name} of arrays")
    operands = [as_operand(frame, v) for v in values]
    if not any(isinstance(v, ArrayValue) for v in (*operands, *([out] if out is not None else []))):
        return known_result(frame, getattr(numpy, name), [force_plain(frame, v) for v in values], {})
    watch_errors(frame)
    *given, wanted = resolved(frame, name, operands, dtype)
    if not {d.kind for d in given} <= set(TAKES.get(name, "biuf")):
        return refuse(frame, f"numpy.{name} of {' and '.join(map(str, given))}")
    tensors = [computed_in(frame, prepared(frame, v, d)) for v, d in zip(operands, given, strict=True)]
    made = cast(frame, row(frame, tensors, given[0]), wanted)
    if name not in PRODUCTS and out is None:
        made = ordered_as(frame, made, [v for v in operands if isinstance(v, ArrayValue)])
    return ArrayValue(made, scalar=made.example.ndim == 0) if out is None else written(frame, name, out, made, wanted)


def binary(frame: Frame, array: ArrayValue, op: str, other: Value, reverse: bool = False) -> Value:
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


def compare(frame: Frame, array: ArrayValue, op: str, other: Value) -> Value:
    if as_operand(frame, other, refusing=False) is None:
        return refuse(frame, f"comparison with a {other.describe()}")
    return apply(frame, COMPARE[op], [array, other])


def unary(frame: Frame, array: ArrayValue, op: str) -> Value:
    return apply(frame, UNARY[op], [array])


OPERATIONS.add({"binary": binary, "compare": compare, "unary": unary})

SAME_AS_NUMPY = ("+", "-", "*", "/")


def symbolic_arithmetic(op: str) -> Callable[[Frame, Value, Value], Value | None]:
    """The rule of an operator between one of NumPy's numbers that changes from call to call and another number."""

    def rule(frame: Frame, left: Value, right: Value) -> Value | None:
        return apply(frame, BINARY[op], (left, right)) if is_operand(left) and is_operand(right) and not array_errors() else None

    return rule


def is_operand(value: Value) -> bool:
    """Whether it is a number or an array that NumPy computes with as it is, known or open."""
    if isinstance(value, ArrayValue) or is_unspecialised_float(value) or is_unspecialised_number(value):
        return True
    return value.is_constant() and issubclass(value.python_type(), (int, float, numpy.number))


def applied(frame: Frame, name: str, values: Sequence[Value]) -> ArrayValue:
    """The same where one of the values is an array."""
    made = apply(frame, name, values)
    assert isinstance(made, ArrayValue)
    return made


def resolved(frame: Frame, name: str, operands: list[Any], dtype: numpy.dtype[Any] | None = None) -> tuple[numpy.dtype[Any], ...]:
    """The dtypes of the operands and of the result, as NumPy chooses them."""
    kinds = [kind_of(v) for v in operands]
    if dtype is not None and name in COMPARISONS:
        return refuse(frame, f"numpy.{name} with a dtype")
    ufunc = getattr(numpy, name)
    try:
        named = {} if dtype is None else {"signature": (None,) * ufunc.nin + (dtype,)}
        found: tuple[numpy.dtype[Any], ...] = ufunc.resolve_dtypes((*kinds, None), **named)
        return found
    except TypeError as error:
        return refuse(frame, f"numpy.{name}: {error}")


def kind_of(operand: Any) -> Any:
    """What NumPy's promotion looks at: the dtype, or the class of a Python number."""
    if isinstance(operand, SymNumber):
        return int
    if is_unspecialised_float(operand):
        return float
    if isinstance(operand, (ArrayValue, numpy.generic)):
        return operand.dtype
    return numpy.dtype(bool) if isinstance(operand, bool) else type(operand)


def computed_in(frame: Frame, tensor: AbstractTensor) -> AbstractTensor:
    """Halves are computed with as floats, as NumPy does."""
    return call_method(frame, "float", tensor) if tensor.example.dtype is torch.float16 else tensor


def written(frame: Frame, name: str, out: Any, made: Any, dtype: Any) -> Value:
    """out=: the array, after the result was written to it."""
    if not isinstance(out, ArrayValue) or out.scalar or not numpy.can_cast(dtype, out.dtype, "same_kind"):
        return refuse(frame, f"numpy.{name}: the result of dtype {dtype} does not go into {out.describe()}")
    out.write(frame, made)
    return out


# --- rows ----------------------------------------------------------------------------------------------------------------


def elementwise(function: Callable[..., Any]) -> Callable[..., AbstractTensor]:
    """A function of torch that does the same for all dtypes."""

    def compute(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
        return call(frame, function, *operands)

    return compute


def with_divisor(function: Callable[..., Any], by_minus_one: bool) -> Callable[..., AbstractTensor]:
    """Integers by 0 are 0 (torch raises), and the smallest of all by -1 is what fits (the processor raises)."""

    def compute(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
        a, b = operands
        known = known_tensor(b.node)
        if dtype.kind == "f" or known is not None and bool((known > 0).all()):
            return call(frame, function, a, b)
        zero = call(frame, torch.eq, b, ConstantValue(0))
        minus = call(frame, torch.eq, b, ConstantValue(-1 if dtype.kind == "i" else 0))
        special = call(frame, torch.logical_or, zero, minus)
        found = call(frame, function, a, call(frame, torch.where, special, call(frame, torch.ones_like, b), b))
        nothing = call(frame, torch.zeros_like, found)
        at_minus = call(frame, torch.neg, a) if by_minus_one else nothing
        if dtype.kind == "i":
            found = call(frame, torch.where, minus, at_minus, found)
        return call(frame, torch.where, zero, nothing, found)

    return compute


def power(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
    base, exponent = operands
    known = known_tensor(exponent.node)
    if dtype.kind != "f" and (known is None or not bool((known >= 0).all())):
        return refuse(frame, "integers to powers that may be negative")
    if known is not None and known.ndim == 0:
        return call(frame, torch.pow, base, ConstantValue(known.item()))
    return call(frame, torch.pow, base, exponent)


def of_kinds(kinds: str, function: Callable[..., Any]) -> Callable[..., AbstractTensor]:
    """A function of torch for dtypes of these kinds; numbers of others stay as they are."""

    def compute(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
        return call(frame, function if dtype.kind in kinds else torch.clone, *operands)

    return compute


def keeping_nan(function: Callable[..., Any]) -> Callable[..., AbstractTensor]:
    """A function that is NaN of NaN, which torch's is not."""

    def compute(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
        made = call(frame, function, *operands)
        return made if dtype.kind != "f" else call(frame, torch.where, call(frame, torch.isnan, operands[0]), operands[0], made)

    return compute


def nextafter(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
    """The next half is none of the float that halves are computed in."""
    if dtype.itemsize < 4:
        return refuse(frame, f"numpy.nextafter of {dtype}")
    return call(frame, torch.nextafter, *operands)


def vecdot(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
    if operands[0].example.shape[-1:] != operands[1].example.shape[-1:]:
        return refuse(frame, "numpy.vecdot of these arrays")
    a, b = (call(frame, torch.unsqueeze, t, dim) for t, dim in zip(operands, (-2, -1), strict=True))
    return call(frame, torch.squeeze, call(frame, torch.matmul, a, b), (-2, -1))


def shifted(function: Callable[..., Any]) -> Callable[..., AbstractTensor]:
    """Shifts by as many bits as the dtype has, or by negative numbers, are NumPy's own."""

    def compute(frame: Frame, operands: list[AbstractTensor], dtype: numpy.dtype[Any]) -> AbstractTensor:
        known = known_tensor(operands[1].node)
        if known is None or not bool(((known >= 0) & (known < 8 * dtype.itemsize)).all()):
            return refuse(frame, "shifts by numbers that are not known")
        return call(frame, function, *operands)

    return compute


TAKES = {
    **dict.fromkeys(
        "add subtract multiply true_divide divide negative positive conjugate exp log sqrt sin cos tan sinh cosh tanh equal not_equal "
        "absolute square isnan isfinite isinf".split(),
        "biufc",
    ),
    **dict.fromkeys(("fmod", "remainder", "floor_divide", "vecdot"), "iuf"),
    "matmul": "iufc",
    "reciprocal": "fc",
}
"""Name -> kinds of dtypes that the function of torch computes with as NumPy does; of others all but complex numbers."""

UFUNCS: dict[str, Callable[..., AbstractTensor]] = {
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
    **dict.fromkeys(("absolute", "fabs"), of_kinds("iufc", torch.abs)),
    "positive": of_kinds("", torch.clone),
    "sign": keeping_nan(torch.sign),
    "reciprocal": elementwise(torch.reciprocal),
    "fmod": with_divisor(torch.fmod, False),
    "remainder": with_divisor(torch.remainder, False),
    "floor_divide": with_divisor(torch.floor_divide, True),
    "power": power,
    "conjugate": of_kinds("c", torch.conj_physical),
    "heaviside": keeping_nan(torch.heaviside),
    "nextafter": nextafter,
    "gcd": elementwise(torch.gcd),
    "lcm": elementwise(torch.lcm),
    "left_shift": shifted(torch.bitwise_left_shift),
    "right_shift": shifted(torch.bitwise_right_shift),
    "ldexp": elementwise(torch.ldexp),
    "rint": of_kinds("f", torch.round),
    **{name: of_kinds("f", getattr(torch, name)) for name in ("floor", "ceil", "trunc")},
    "matmul": elementwise(torch.matmul),
    "vecdot": vecdot,
}
PRODUCTS = {"matmul", "vecdot"}
"""What gives C order, whatever the operands have."""
COMPARISONS = {*COMPARE.values(), *"logical_and logical_or logical_not logical_xor isnan isinf isfinite signbit".split()}


def ufunc_row(ufunc: Any) -> Handler:
    """numpy.name(*operands, out=None, dtype=None)"""
    name = ufunc.__name__

    @functools.wraps(UFUNCS.get(name, known_result))
    def computes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        now = computed_now(frame, ufunc, args, kwargs)
        if now is not None:
            return now
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
            made: Value = apply(frame, name, operands, out, dtype_of(frame, kwargs.get("dtype")))
            return ArrayValue(made.tensor) if as_array_always and isinstance(made, ArrayValue) else made
        return applied_where(frame, name, operands, out, where)

    return computes


def fits_ufunc(ufunc: Any, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether there are as many arguments as it takes, and one result."""
    return ufunc.nout == 1 and len(args) in (ufunc.nin, ufunc.nin + ("out" not in kwargs))


def applied_where(frame: Frame, name: str, operands: list[Any], out: ArrayValue | None, where: Value) -> Value:
    """ufunc(..., out=array, where=mask): the array keeps what it has where the mask says no."""
    if out is None or out.scalar:
        return refuse(frame, f"numpy.{name} of chosen items without an array for the result")
    made, mask = applied(frame, name, operands), cast(frame, as_array(frame, where).tensor, numpy.dtype(bool))
    return written(frame, name, out, call(frame, torch.where, mask, cast(frame, made.tensor, out.dtype), out.tensor), made.dtype)


def two_results(ufunc: Any, compute: Callable[..., Any]) -> Handler:
    """The row of a ufunc with two results."""

    def computes(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        now = computed_now(frame, ufunc, args, kwargs)
        if now is not None:
            return now
        if kwargs or len(args) != ufunc.nin:
            return refuse(frame, f"numpy.{ufunc.__name__} with these arguments")
        return TupleValue(compute(frame, *args))

    return computes


def divmod_(frame: Frame, a: Value, b: Value) -> list[Value]:
    return [apply(frame, name, [a, b]) for name in ("floor_divide", "remainder")]


def modf(frame: Frame, x: ArrayValue) -> list[Any]:
    """The fraction has the sign of the number, and is zero of infinity."""
    whole = applied(frame, "trunc", [x])
    if whole.dtype.kind != "f":
        return refuse(frame, "numpy.modf of integers")
    rest = applied(frame, "subtract", [x, whole]).tensor
    infinite = applied(frame, "isinf", [x]).tensor
    rest = call(frame, torch.where, infinite, call(frame, torch.zeros_like, rest), rest)
    part = ArrayValue(rest, scalar=rest.example.ndim == 0)
    return [apply(frame, "copysign", [part, x]), whole]


def frexp(frame: Frame, x: Value) -> list[Any]:
    x = as_array(frame, x)
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        return refuse(frame, f"numpy.frexp of {x.dtype}")
    found = [ordered_as(frame, t, [x]) for t in tensors_of(frame, call(frame, torch.frexp, x.tensor))]
    return [ArrayValue(t, scalar=t.example.ndim == 0) for t in found]


def ufunc_rows() -> dict[Any, Handler]:
    """numpy.ufunc -> row; those without a row compute on known numbers only."""
    rows = {u: ufunc_row(u) for u in vars(numpy).values() if isinstance(u, numpy.ufunc)}
    two: dict[Any, Callable[..., list[Any]]] = {numpy.divmod: divmod_, numpy.modf: modf, numpy.frexp: frexp}
    return rows | {ufunc: two_results(ufunc, compute) for ufunc, compute in two.items()}


class UfuncValue(RowValue):
    """One of NumPy's universal functions; its methods are rows of CALLS: handler(frame, name of the ufunc, args, kwargs)."""

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        handler = method_handler(numpy.ufunc, name)
        return (
            super().call_method(frame, name, args, kwargs) if handler is None else handler(frame, self.fn.__name__, args, kwargs)
        )

    def getattr(self, frame: Frame, name: str) -> Value:
        return BoundBuiltin(self, name) if (numpy.ufunc, name) in CALLS else super().getattr(frame, name)


METHOD_FUNCTIONS: dict[str, dict[str, Handler]] = {"reduce": {}, "accumulate": {}}
"""Method of ufuncs -> name of a ufunc -> the row of what computes it (reductions.py)."""


def along_axis(method: str) -> Handler:
    """reduce and accumulate, along the first axis if none is given."""

    def row(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = METHOD_FUNCTIONS[method].get(name)
        names = ("array", "axis", "dtype", "out", "keepdims", "initial", "where")
        given = dict(zip(names, args)) | kwargs
        if found is None or len(args) > len(names) or not given.keys() <= set(names):
            return refuse(frame, f"numpy.{name}.{method} with these arguments")
        array = given.pop("array")
        return found(frame, [array], {"axis": ConstantValue(0)} | given)

    return row


def outer(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """ufunc.outer(a, b)"""
    if kwargs or len(args) != 2:
        return refuse(frame, f"numpy.{name}.outer with these arguments")
    a, b = (as_array(frame, v) for v in args)
    if not a.example.ndim or not b.example.ndim:
        return apply(frame, name, [a, b])
    sizes = (*a.example.shape, *[1] * b.example.ndim)
    return apply(frame, name, [ArrayValue(call(frame, torch.reshape, a.tensor, sizes)), b])


def add_at(frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """numpy.add.at(array, indices, numbers): also where an index is there several times."""
    array = args[0] if args else None
    if name != "add" or kwargs or len(args) != 3 or not isinstance(array, ArrayValue) or array.flips or not array.writeable:
        return refuse(frame, f"numpy.{name}.at with these arguments")
    keys, numbers = index(frame, array, args[1]), to_store(frame, array, args[2])
    if not keys or not all(isinstance(k, TensorValue) for k in keys):
        return refuse(frame, f"numpy.{name}.at with indices that are no arrays")
    call_method(frame, "index_put_", array.tensor, TupleValue(list(keys)), numbers, ConstantValue(True))
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
def wrap_ufunc(frame: Frame, obj: Any, source: Source) -> Value:
    """A universal function of NumPy; those of other libraries break when they are called."""
    row = CALLS.get(obj)
    frame.guard("IDENTITY", source, obj)
    return UfuncValue(obj, unknown_ufunc(obj) if row is None else row.handler, source)


def unknown_ufunc(ufunc: Any) -> Handler:
    return lambda frame, args, kwargs: refuse(frame, f"the ufunc {ufunc.__name__}")


DIVMOD[AbstractArray] = divmod_
NUMPY_OPERATORS.add({op: symbolic_arithmetic(op) for op in SAME_AS_NUMPY})
