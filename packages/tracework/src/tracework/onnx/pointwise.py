"""Elementwise prims: operands broadcast and have one dtype, which is the result's unless the prim says bool."""

from __future__ import annotations

import math
from typing import Any

import torch

from .table import Refused, Value, row
from .writer import FLOATS, Writer

SAME = {
    "neg": "Neg", "floor": "Floor", "ceil": "Ceil", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "log": "Log", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sigmoid": "Sigmoid",
}  # fmt: skip
"""Functions of floats that ONNX has under its own name."""
ARITHMETIC = {"add": ("Add", "Or"), "sub": ("Sub", None), "mul": ("Mul", "And")}
"""Prim -> what it is for numbers, and for bools."""
COMPARISONS = {
    "eq": ("Equal", False), "ne": ("Equal", True), "lt": ("Less", False), "le": ("LessOrEqual", False),
    "gt": ("Greater", False), "ge": ("GreaterOrEqual", False),
}  # fmt: skip
"""Prim -> the comparison, and whether its answer is turned round."""
LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
BITWISE = {"bitwise_and": ("BitwiseAnd", "And"), "bitwise_or": ("BitwiseOr", "Or"), "bitwise_xor": ("BitwiseXor", "Xor")}
INTEGER_IDENTITY = frozenset({"floor", "ceil"})


def operands(w: Writer, *values: Any) -> tuple[torch.dtype, list[str]]:
    """The common dtype and the names; numbers take the tensors' dtype."""
    dtype = next(v.dtype for v in values if isinstance(v, Value))
    return dtype, [w.operand(v, dtype) for v in values]


def floats_only(dtype: torch.dtype) -> None:
    if dtype not in FLOATS:
        raise Refused(f"it is written for floats, and this is {dtype}")


def truth(w: Writer, value: Any, dtype: torch.dtype = torch.bool) -> str:
    """Whether elements are not 0."""
    if not isinstance(value, Value):
        return w.constant(bool(value), torch.bool)
    return value.name if value.dtype is torch.bool else w.op("Not", w.op("Equal", value.name, w.constant(0, value.dtype)))


def _same(kind: str, prim: str) -> Any:
    def write(w: Writer, out: Any, x: Value) -> str:
        if out.dtype not in FLOATS:
            if prim in INTEGER_IDENTITY:
                return x.name
            if prim != "neg" or out.dtype is torch.bool:
                raise Refused(f"it is written for floats, and this is {out.dtype}")
        return w.op(kind, x.name)

    return write


def _arithmetic(kind: str, of_bools: str | None) -> Any:
    def write(w: Writer, out: Any, a: Any, b: Any) -> str:
        dtype, names = operands(w, a, b)
        if dtype is torch.bool and of_bools is None:
            raise Refused("eager has no difference of bools")
        return w.op(of_bools or kind if dtype is torch.bool else kind, *names)

    return write


def _comparison(kind: str, turned: bool) -> Any:
    def write(w: Writer, out: Any, a: Any, b: Any) -> str:
        dtype, names = operands(w, a, b)
        if dtype is torch.bool and kind != "Equal":
            names = [w.cast(n, torch.int32) for n in names]
        found = w.op(kind, *names)
        return w.op("Not", found) if turned else found

    return write


def _logical(kind: str) -> Any:
    return lambda w, out, a, b: w.op(kind, truth(w, a), truth(w, b))


def _bitwise(kind: str, of_bools: str) -> Any:
    def write(w: Writer, out: Any, a: Any, b: Any) -> str:
        dtype, names = operands(w, a, b)
        return w.op(of_bools if dtype is torch.bool else kind, *names)

    return write


for _prim, _kind in SAME.items():
    row(_prim)(_same(_kind, _prim))
for _prim, _kinds in ARITHMETIC.items():
    row(_prim)(_arithmetic(*_kinds))
for _prim, _rule in COMPARISONS.items():
    row(_prim)(_comparison(*_rule))
for _prim, _kind in LOGICAL.items():
    row(_prim)(_logical(_kind))
for _prim, _names in BITWISE.items():
    row(_prim)(_bitwise(*_names))


@row("abs")
def _abs(w: Writer, out: Any, x: Value) -> str:
    return x.name if x.dtype is torch.bool else w.op("Abs", x.name)


@row("sign", "sgn")
def _sign(w: Writer, out: Any, x: Value) -> str:
    if x.dtype is torch.bool:
        return x.name
    found = w.op("Sign", x.name)
    return w.op("Where", w.op("IsNaN", x.name), w.constant(0, x.dtype), found) if x.dtype in FLOATS else found


@row("round")
def _round(w: Writer, out: Any, x: Value, decimals: int) -> str:
    if x.dtype not in FLOATS and decimals == 0:
        return x.name
    floats_only(x.dtype)
    if decimals == 0:
        return w.op("Round", x.name)
    ten = w.constant(10.0 ** abs(decimals), x.dtype)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return w.op(back, w.op("Round", w.op(there, x.name, ten)), ten)


def truncated(w: Writer, name: str, dtype: torch.dtype) -> str:
    """Towards zero, a float."""
    zero = w.constant(0, dtype)
    return w.op("Where", w.op("Less", name, zero), w.op("Ceil", name), w.op("Floor", name))


@row("trunc")
def _trunc(w: Writer, out: Any, x: Value) -> str:
    return truncated(w, x.name, x.dtype) if x.dtype in FLOATS else x.name


@row("frac")
def _frac(w: Writer, out: Any, x: Value) -> str:
    floats_only(x.dtype)
    return w.op("Sub", x.name, truncated(w, x.name, x.dtype))


@row("square")
def _square(w: Writer, out: Any, x: Value) -> str:
    if x.dtype is torch.bool:
        raise Refused("eager gives int64 for a square of bools")
    return w.op("Mul", x.name, x.name)


@row("rsqrt")
def _rsqrt(w: Writer, out: Any, x: Value) -> str:
    floats_only(x.dtype)
    return w.op("Reciprocal", w.op("Sqrt", x.name))


def exponential(w: Writer, name: str) -> str:
    """e to this power, a float."""
    found = w.op("Exp", name)
    return w.op("Where", w.op("IsNaN", name), name, found) if "Exp" in w.traits.not_for_special else found


@row("exp")
def _exp(w: Writer, out: Any, x: Value) -> str:
    floats_only(x.dtype)
    return exponential(w, x.name)


@row("exp2")
def _exp2(w: Writer, out: Any, x: Value) -> str:
    floats_only(x.dtype)
    return w.op("Pow", w.constant(2, x.dtype), x.name)


@row("expm1")
def _expm1(w: Writer, out: Any, x: Value) -> str:
    """Near 0, where exp(x) - 1 cancels, 2t / (1 - t) with t = tanh(x / 2)."""
    floats_only(x.dtype)
    one, two = w.constant(1, x.dtype), w.constant(2, x.dtype)
    t = w.op("Tanh", w.op("Div", x.name, two))
    near = w.op("Div", w.op("Mul", two, t), w.op("Sub", one, t))
    is_near = w.op("Less", w.op("Abs", x.name), w.constant(0.5, x.dtype))
    return w.op("Where", is_near, near, w.op("Sub", exponential(w, x.name), one))


@row("log1p")
def _log1p(w: Writer, out: Any, x: Value) -> str:
    """log(u) * x / (u - 1) with u = 1 + x rounded: the error of the sum cancels."""
    floats_only(x.dtype)
    one = w.constant(1, x.dtype)
    u = w.op("Add", x.name, one)
    log = w.op("Log", u)
    excess = w.op("Sub", u, one)
    near = w.op("Mul", log, w.op("Div", x.name, w.op("Where", w.op("Equal", excess, w.constant(0, x.dtype)), one, excess)))
    is_near = w.op("Less", w.op("Abs", x.name), w.constant(0.5, x.dtype))
    exact = w.op("Equal", u, one)
    return w.op("Where", exact, x.name, w.op("Where", is_near, near, log))


def _log_to_base(base: float) -> Any:
    def write(w: Writer, out: Any, x: Value) -> str:
        floats_only(x.dtype)
        return w.op("Mul", w.op("Log", x.name), w.constant(1 / math.log(base), x.dtype))

    return write


row("log2")(_log_to_base(2))
row("log10")(_log_to_base(10))


@row("relu")
def _relu(w: Writer, out: Any, x: Value) -> str:
    zero = w.constant(0, x.dtype)
    if x.dtype not in FLOATS:
        return w.op("Max", x.name, zero)
    return w.op("Where", w.op("Less", x.name, zero), zero, x.name) if "Relu" in w.traits.not_for_special else w.op("Relu", x.name)


@row("bitwise_not")
def _bitwise_not(w: Writer, out: Any, x: Value) -> str:
    return w.op("Not" if x.dtype is torch.bool else "BitwiseNot", x.name)


@row("logical_not")
def _logical_not(w: Writer, out: Any, x: Value) -> str:
    return w.op("Not", truth(w, x))


@row("isnan")
def _isnan(w: Writer, out: Any, x: Value) -> str:
    return w.op("IsNaN", x.name) if x.dtype in FLOATS else w.full(False, x.sizes, torch.bool)


@row("isinf")
def _isinf(w: Writer, out: Any, x: Value) -> str:
    if x.dtype not in FLOATS:
        return w.full(False, x.sizes, torch.bool)
    return w.op("Equal", w.op("Abs", x.name), w.constant(math.inf, x.dtype))


@row("isfinite")
def _isfinite(w: Writer, out: Any, x: Value) -> str:
    if x.dtype not in FLOATS:
        return w.full(True, x.sizes, torch.bool)
    return w.op("Less", w.op("Abs", x.name), w.constant(math.inf, x.dtype))


def negative(w: Writer, name: str, dtype: torch.dtype) -> str:
    """Whether the sign bit is set; a NaN counts as positive."""
    zero = w.constant(0, dtype)
    below = w.op("Less", name, zero)
    if dtype not in FLOATS:
        return below
    return w.op("Or", below, w.op("Less", w.op("Reciprocal", name), zero))  # 1 / -0.0 is -inf


@row("signbit")
def _signbit(w: Writer, out: Any, x: Value) -> str:
    return w.full(False, x.sizes, torch.bool) if x.dtype is torch.bool else negative(w, x.name, x.dtype)


@row("real", "conj")
def _real(w: Writer, out: Any, x: Value) -> str:
    return x.name


@row("angle")
def _angle(w: Writer, out: Any, x: Value) -> str:
    floats_only(x.dtype)
    below = w.op("Less", x.name, w.constant(0, x.dtype))
    found = w.op("Where", below, w.constant(math.pi, x.dtype), w.constant(0, x.dtype))
    return w.op("Where", w.op("IsNaN", x.name), x.name, found)


@row("convert", own_dtypes=True)
def _convert(w: Writer, out: Any, x: Value, dtype: torch.dtype) -> str:
    """Floats become integers by way of int64, as eager's do: engines differ for what does not fit."""
    for d in (x.dtype, dtype):
        w.compute_dtype(d)
    if dtype is torch.bool and x.dtype is not torch.bool:
        wide = w.compute_dtype(x.dtype)
        return w.op("Not", w.op("Equal", w.in_dtype(x, wide), w.constant(0, wide)))
    if x.dtype in FLOATS and dtype not in FLOATS:
        wide = w.compute_dtype(x.dtype)
        number = w.in_dtype(x, wide)
        if w.traits.integers_below is not None:
            w.refuse_values(w.op("Not", w.op("Less", w.op("Abs", number), w.constant(w.traits.integers_below, wide))))
        whole = w.cast(truncated(w, number, wide), torch.int64)
        return whole if dtype is torch.int64 else w.cast(whole, dtype)
    return w.in_dtype(x, dtype)


@row("div")
def _div(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, names = operands(w, a, b)
    floats_only(dtype)
    return w.op("Div", *names)


def divisor(w: Writer, b: Any, name: str, dtype: torch.dtype) -> str:
    """An integer that engines can divide by; eager raises an error for 0, and they end the process."""
    if isinstance(b, int) and b != 0:
        return name
    zero = w.op("Equal", name, w.constant(0, dtype))
    w.refuse_values(zero)
    return w.op("Where", zero, w.constant(1, dtype), name)


def numbers(w: Writer, a: Any, b: Any) -> tuple[torch.dtype, str, str]:
    """Operands of a division with rounding."""
    dtype, (x, y) = operands(w, a, b)
    if dtype is torch.bool:
        raise Refused("it is written for numbers, and these are bools")
    return dtype, x, y if dtype in FLOATS else divisor(w, b, y, dtype)


def float_remainder(w: Writer, x: str, y: str) -> str:
    """With the sign of x, exact."""
    if "Mod" in w.traits.lacks_operators:
        raise Refused("the engine's remainder of floats is that of a rounded quotient")
    return w.op("Mod", x, y, fmod=1)


@row("floor_divide")
def _floor_divide(w: Writer, out: Any, a: Any, b: Any) -> str:
    """As Python: the exact remainder is taken off before the division, which is then rounded to the nearest integer."""
    dtype, x, y = numbers(w, a, b)
    zero, one = w.constant(0, dtype), w.constant(1, dtype)
    if dtype not in FLOATS:
        return w.op("Div", w.op("Sub", x, w.op("Mod", x, y)), y)
    rest = float_remainder(w, x, y)
    quotient = w.op("Div", w.op("Sub", x, rest), y)
    other_sign = w.op("Xor", w.op("Less", rest, zero), w.op("Less", y, zero))
    lower = w.op("And", other_sign, w.op("Not", w.op("Equal", rest, zero)))
    quotient = w.op("Where", lower, w.op("Sub", quotient, one), quotient)
    floor = w.op("Floor", quotient)
    far = w.op("Greater", w.op("Sub", quotient, floor), w.constant(0.5, dtype))
    whole = w.op("Where", far, w.op("Add", floor, one), floor)
    plain = w.op("Div", x, y)
    whole = w.op("Where", w.op("Equal", quotient, zero), w.op("Mul", plain, zero), whole)
    return w.op("Where", w.op("Equal", y, zero), plain, whole)


@row("trunc_divide")
def _trunc_divide(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, x, y = numbers(w, a, b)
    found = w.op("Div", x, y)
    return truncated(w, found, dtype) if dtype in FLOATS else found


@row("remainder")
def _remainder(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, x, y = numbers(w, a, b)
    if dtype not in FLOATS:
        return w.op("Mod", x, y)
    zero = w.constant(0, dtype)
    rest = float_remainder(w, x, y)
    other_sign = w.op("Xor", w.op("Less", rest, zero), w.op("Less", y, zero))
    return w.op("Where", w.op("And", other_sign, w.op("Not", w.op("Equal", rest, zero))), w.op("Add", rest, y), rest)


@row("fmod")
def _fmod(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, x, y = numbers(w, a, b)
    return float_remainder(w, x, y) if dtype in FLOATS else w.op("Mod", x, y, fmod=1)


@row("pow")
def _pow(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, names = operands(w, a, b)
    floats_only(dtype)
    return w.op("Pow", *names)


@row("atan2")
def _atan2(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, (y, x) = operands(w, a, b)
    floats_only(dtype)
    zero, pi = w.constant(0, dtype), w.constant(math.pi, dtype)
    signed_pi = w.op("Where", negative(w, y, dtype), w.op("Neg", pi), pi)
    both_infinite = w.op("And", *[w.op("Equal", w.op("Abs", n), w.constant(math.inf, dtype)) for n in (x, y)])
    both_zero = w.op("And", *[w.op("Equal", n, zero) for n in (x, y)])
    left = negative(w, x, dtype)
    quarter = w.op("Div", w.op("Where", negative(w, y, dtype), w.op("Neg", pi), pi), w.constant(4, dtype))
    infinite = w.op("Where", left, w.op("Sub", signed_pi, quarter), quarter)
    ratio = w.op("Where", w.op("Or", both_infinite, both_zero), w.constant(0, dtype), w.op("Div", y, x))
    angle = w.op("Atan", ratio)
    angle = w.op("Where", left, w.op("Add", angle, signed_pi), angle)
    angle = w.op("Where", both_zero, w.op("Where", left, signed_pi, y), angle)
    return w.op("Where", both_infinite, infinite, angle)


def extreme(w: Writer, kind: str, x: str, y: str, dtype: torch.dtype) -> str:
    """Max or Min; NaN where one of them is."""
    if dtype not in FLOATS or kind not in w.traits.not_for_special:
        return w.op(kind, x, y)
    first = w.op("Or", w.op("IsNaN", x), w.op("LessOrEqual", *((y, x) if kind == "Max" else (x, y))))
    return w.op("Where", first, x, y)


def _extreme(kind: str, of_bools: str) -> Any:
    def write(w: Writer, out: Any, a: Any, b: Any) -> str:
        dtype, (x, y) = operands(w, a, b)
        return w.op(of_bools, x, y) if dtype is torch.bool else extreme(w, kind, x, y, dtype)

    return write


def _extreme_without_nan(kind: str, of_bools: str) -> Any:
    def write(w: Writer, out: Any, a: Any, b: Any) -> str:
        dtype, (x, y) = operands(w, a, b)
        if dtype not in FLOATS:
            return w.op(of_bools if dtype is torch.bool else kind, x, y)
        second = w.op("LessOrEqual", *((x, y) if kind == "Max" else (y, x)))
        return w.op("Where", w.op("Or", w.op("IsNaN", x), second), y, x)

    return write


row("maximum")(_extreme("Max", "Or"))
row("minimum")(_extreme("Min", "And"))
row("fmax")(_extreme_without_nan("Max", "Or"))
row("fmin")(_extreme_without_nan("Min", "And"))


@row("hypot")
def _hypot(w: Writer, out: Any, a: Any, b: Any) -> str:
    """The larger one times sqrt(1 + ratio**2), which does not overflow."""
    dtype, names = operands(w, a, b)
    floats_only(dtype)
    x, y = [w.op("Abs", n) for n in names]
    zero, one = w.constant(0, dtype), w.constant(1, dtype)
    large, small = (extreme(w, kind, x, y, dtype) for kind in ("Max", "Min"))
    plain = w.op("Or", w.op("Equal", large, zero), w.op("Equal", large, w.constant(math.inf, dtype)))
    ratio = w.op("Div", small, w.op("Where", plain, one, large))
    found = w.op("Mul", large, w.op("Sqrt", w.op("Add", one, w.op("Mul", ratio, ratio))))
    infinite = w.op("Or", *[w.op("Equal", n, w.constant(math.inf, dtype)) for n in (x, y)])
    return w.op("Where", infinite, w.constant(math.inf, dtype), w.op("Where", plain, large, found))


@row("copysign")
def _copysign(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, (x, y) = operands(w, a, b)
    floats_only(dtype)
    size = w.op("Abs", x)
    return w.op("Where", negative(w, y, dtype), w.op("Neg", size), size)


def _log_of_sum(base: float) -> Any:
    def write(w: Writer, out: Any, a: Any, b: Any) -> str:
        dtype, (x, y) = operands(w, a, b)
        floats_only(dtype)
        large = extreme(w, "Max", x, y, dtype)
        equal = w.op("Equal", x, y)  # two equal infinities have no difference
        gap = w.op("Where", equal, w.constant(0, dtype), w.op("Neg", w.op("Abs", w.op("Sub", x, y))))
        scale = w.constant(math.log(base), dtype)
        more = w.op("Div", w.op("Log", w.op("Add", exponential(w, w.op("Mul", gap, scale)), w.constant(1, dtype))), scale)
        return w.op("Add", large, more)

    return write


row("logaddexp")(_log_of_sum(math.e))
row("logaddexp2")(_log_of_sum(2))


@row("xlogy")
def _xlogy(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, (x, y) = operands(w, a, b)
    floats_only(dtype)
    zero = w.constant(0, dtype)
    nothing = w.op("And", w.op("Equal", x, zero), w.op("Not", w.op("IsNaN", y)))
    return w.op("Where", nothing, zero, w.op("Mul", x, w.op("Log", y)))


@row("ldexp")
def _ldexp(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, (x, y) = operands(w, a, b)
    floats_only(dtype)
    return w.op("Mul", x, w.op("Pow", w.constant(2, dtype), y))


@row("heaviside")
def _heaviside(w: Writer, out: Any, a: Any, b: Any) -> str:
    dtype, (x, y) = operands(w, a, b)
    if dtype is torch.bool:
        raise Refused("it is written for numbers, and these are bools")
    zero, one = w.constant(0, dtype), w.constant(1, dtype)
    step = w.op("Where", w.op("Greater", x, zero), one, zero)
    return w.op("Where", w.op("Equal", x, zero), y, step)


@row("where")
def _where(w: Writer, out: Any, condition: Value, a: Any, b: Any) -> str:
    return w.where(condition.name, w.operand(a, out.dtype), w.operand(b, out.dtype), out.dtype)


@row("fma")
def _fma(w: Writer, out: Any, a: Any, b: Any, c: Any) -> str:
    _, (x, y, z) = operands(w, a, b, c)
    return w.op("Add", w.op("Mul", x, y), z)
