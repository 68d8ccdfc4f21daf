"""Elementwise ATen ops: promotion made explicit, composites written out."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import torch

from ..aten_meta.rows import clamp_bound
from ..op import Op, PrimValue, Scalar, prims
from ..promotion import is_float, result_dtype
from ..symbols import Expr
from .table import DECOMPS, Operand, Rule, aten, decomposition, overloads_of, promoted, promoted_float, to, wide

# ATen name -> prim, where integers become floats
FLOAT_UNARY = {
    n: n
    for n in (
        "sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
        "erf erfc erfinv lgamma digamma sigmoid i0"
    ).split()
}
FLOAT_UNARY |= {
    "special_i0e": "i0e", "special_i1": "i1", "special_i1e": "i1e", "special_bessel_j0": "bessel_j0",
    "special_bessel_j1": "bessel_j1", "special_bessel_y0": "bessel_y0", "special_bessel_y1": "bessel_y1",
    "special_modified_bessel_k0": "modified_bessel_k0", "special_modified_bessel_k1": "modified_bessel_k1",
    "special_scaled_modified_bessel_k0": "scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1": "scaled_modified_bessel_k1",
    "special_spherical_bessel_j0": "spherical_bessel_j0", "special_airy_ai": "airy_ai", "special_ndtri": "ndtri",
    "special_log_ndtr": "log_ndtr", "special_erfcx": "erfcx",
}  # fmt: skip
# ATen name -> prim, dtype kept
SAME_UNARY = {n: n for n in "neg sign sgn bitwise_not".split()}
# integers pass through unchanged
ROUNDING = ("floor", "ceil", "trunc", "round")
BOOL_UNARY = {n: n for n in "logical_not isnan isinf signbit".split()}
BINARY = {n: n for n in "maximum minimum fmax fmin remainder fmod bitwise_and bitwise_or bitwise_xor gcd lcm heaviside".split()}
BINARY |= {"bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right", "nextafter": "nextafter"}
BINARY |= {"__lshift__": "shift_left", "__rshift__": "shift_right"}  # Python's operators
FLOAT_BINARY = {n: n for n in "atan2 hypot copysign logaddexp logaddexp2 igamma igammac xlogy".split()}
FLOAT_BINARY |= {"special_zeta": "zeta"}
FLOAT_BINARY |= {
    f"special_{n}": n
    for n in (
        "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t "
        "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h "
        "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p"
    ).split()
}
COMPARE = {n: n for n in "eq ne lt le gt ge logical_and logical_or logical_xor".split()}
TENSOR_FORMS: tuple[str, ...] = ("default", "Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor", "Scalar_Self")
TENSOR_FORMS += ("Scalar_Other", "self_scalar", "other_scalar", "x_scalar", "n_scalar")


def _file(table: dict[str, str], make: Callable[[Op], Rule], forms: tuple[str, ...] = TENSOR_FORMS) -> None:
    for name, prim in table.items():
        for overload in overloads_of(name, *forms):
            DECOMPS[overload] = make(getattr(prims, prim))


def _float_unary(prim: Op) -> Rule:
    def rule(x: PrimValue) -> PrimValue:
        return prim(promoted_float(x)[0][0])

    return rule


def _same_unary(prim: Op) -> Rule:
    return lambda x: prim(x)


def _rounding(prim: Op) -> Rule:
    def rule(x: PrimValue) -> PrimValue:
        return prim(x) if is_float(x.dtype) else prims.clone(x)

    return rule


def _both(a: Operand, b: Operand, dtype: torch.dtype) -> tuple[Operand, Operand]:
    """Operands of which at least one is a tensor, in dtype."""
    return to(a, dtype), to(b, dtype)


def _binary(prim: Op) -> Rule:
    def rule(a: Operand, b: Operand) -> PrimValue:
        return prim(*_both(a, b, result_dtype(a, b)))

    return rule


def _float_binary(prim: Op) -> Rule:
    def rule(a: Operand, b: Operand) -> PrimValue:
        return prim(*promoted_float(a, b)[0])

    return rule


_file(FLOAT_UNARY, _float_unary)
_file(SAME_UNARY, _same_unary)
_file({n: n for n in ROUNDING}, _rounding)
_file(BOOL_UNARY, _same_unary)
_file(BINARY, _binary)
_file(FLOAT_BINARY, _float_binary)
_file(COMPARE, _binary)


@decomposition(aten.abs)
def abs(x: PrimValue) -> PrimValue:
    return prims.abs(x)


@decomposition(aten.frac)
def frac(x: PrimValue) -> PrimValue:
    return prims.frac(x)


@decomposition(aten.square)
def square(x: PrimValue) -> PrimValue:
    return prims.square(x)


@decomposition(aten.isfinite)
def isfinite(x: PrimValue) -> PrimValue:
    return prims.isfinite(x)


@decomposition(aten.round.decimals)
def round_decimals(x: PrimValue, *, decimals: int = 0) -> PrimValue:
    if not is_float(x.dtype):
        return prims.clone(x)
    y, power = wide(x), 10.0 ** builtins.abs(decimals)
    if decimals == 0:
        return prims.round(x)
    scaled = prims.mul(y, power) if decimals > 0 else prims.div(y, power)
    rounded = prims.round(scaled)
    return to(prims.div(rounded, power) if decimals > 0 else prims.mul(rounded, power), x.dtype)


@decomposition(aten.isposinf)
def isposinf(x: PrimValue) -> PrimValue:
    return prims.eq(x, math.inf) if is_float(x.dtype) else prims.full(x.sizes, False, torch.bool, x.device)


@decomposition(aten.isneginf)
def isneginf(x: PrimValue) -> PrimValue:
    return prims.eq(x, -math.inf) if is_float(x.dtype) else prims.full(x.sizes, False, torch.bool, x.device)


def _scaled(b: Any, alpha: Any, dtype: torch.dtype) -> Operand:
    if alpha == 1 and not isinstance(alpha, bool):
        return b
    if b.__class__ is PrimValue:
        return prims.mul(b, alpha)
    return b * alpha


@decomposition(*overloads_of("add", "Tensor", "Scalar"))
def add(a: PrimValue, b: Operand, *args: Scalar, alpha: Scalar = 1) -> PrimValue:
    alpha = args[0] if args else alpha
    dtype = result_dtype(a, b)
    left, right = _both(a, b, dtype)
    return prims.add(left, _scaled(right, alpha, dtype))


@decomposition(*overloads_of("sub", "Tensor", "Scalar"))
def sub(a: PrimValue, b: Operand, *args: Scalar, alpha: Scalar = 1) -> PrimValue:
    alpha = args[0] if args else alpha
    dtype = result_dtype(a, b)
    left, right = _both(a, b, dtype)
    return prims.sub(left, _scaled(right, alpha, dtype))


@decomposition(*overloads_of("rsub", "Tensor", "Scalar"))
def rsub(a: PrimValue, b: Operand, alpha: Scalar = 1) -> PrimValue:
    dtype = result_dtype(a, b)
    left, right = _both(a, b, dtype)
    return prims.sub(right, _scaled(left, alpha, dtype))


@decomposition(*overloads_of("mul", "Tensor", "Scalar"))
def mul(a: PrimValue, b: Operand) -> PrimValue:
    return prims.mul(*_both(a, b, result_dtype(a, b)))


@decomposition(*overloads_of("div", "Tensor", "Scalar"))
def div(a: PrimValue, b: Operand) -> PrimValue:
    return prims.div(*promoted_float(a, b)[0])


@decomposition(*overloads_of("div", "Tensor_mode", "Scalar_mode"))
def div_mode(a: PrimValue, b: Operand, *, rounding_mode: str | None = None) -> PrimValue:
    if rounding_mode is None:
        return div(a, b)
    prim = {"floor": prims.floor_divide, "trunc": prims.trunc_divide}[rounding_mode]
    return prim(*_both(a, b, result_dtype(a, b)))


@decomposition(*overloads_of("floor_divide", "default", "Scalar"))
def floor_divide(a: PrimValue, b: Operand) -> PrimValue:
    return prims.floor_divide(*_both(a, b, result_dtype(a, b)))


@decomposition(*overloads_of("pow", "Tensor_Tensor", "Tensor_Scalar", "Scalar"))
def pow(a: Operand, b: Operand) -> PrimValue:
    dtype = result_dtype(a, b)
    if not isinstance(b, PrimValue) and a.__class__ is PrimValue:
        easy = _pow_by_number(to(a, dtype), b)
        if easy is not None:
            return easy
    return prims.pow(*_both(a, b, dtype))


def _pow_by_number(a: PrimValue, exponent: Scalar) -> PrimValue | None:
    """Small exponents as eager's kernel does them."""
    if exponent == 2:
        return prims.mul(a, a)
    if exponent == 3:
        return prims.mul(prims.mul(a, a), a)
    if exponent == 1:
        return prims.clone(a)
    if exponent == 0:
        return prims.full(a.sizes, 1, a.dtype, a.device)
    if is_float(a.dtype):
        if exponent == 0.5:
            return prims.sqrt(a)
        if exponent == -0.5 and not a.dtype.is_complex:
            return prims.rsqrt(a)
        if exponent == -1:
            return prims.reciprocal(a)
        if exponent == -2:
            return prims.reciprocal(prims.mul(a, a))
    return None


@decomposition(*overloads_of("float_power", "Tensor_Tensor", "Tensor_Scalar", "Scalar"))
def float_power(a: Operand, b: Operand) -> PrimValue:
    complex_result = result_dtype(a, b).is_complex
    dtype = torch.complex128 if complex_result else torch.float64
    return pow(to(a, dtype), to(b, dtype))


@decomposition(*overloads_of("ldexp", "Tensor"))
def ldexp(a: PrimValue, b: PrimValue) -> PrimValue:
    if (b.dtype.is_floating_point or a.dtype.itemsize == 2 or a.ndim < b.ndim) and b.dtype is not a.dtype or b.dtype.is_complex:
        return NotImplemented
    base, _ = promoted_float(a)
    return mul(base[0], prims.exp2(to(b, base[0].dtype)))


@decomposition(aten.where.self)
def where(cond: PrimValue, a: Operand, b: Operand) -> PrimValue:
    (a, b), _ = promoted(a, b)
    return prims.where(cond if cond.dtype is torch.bool else prims.ne(cond, 0), a, b)


@decomposition(*overloads_of("where", "ScalarSelf", "ScalarOther"))
def where_number(cond: PrimValue, a: Operand, b: Operand) -> PrimValue:
    return where(cond, a, b)


@decomposition(aten.where.Scalar)
def where_numbers(cond: PrimValue, a: Scalar, b: Scalar) -> PrimValue:
    dtype = result_dtype(a, b)
    return prims.where(cond, prims.full((), a, dtype, cond.device), b)


@decomposition(*overloads_of("masked_fill", "Scalar", "Tensor"))
def masked_fill(x: PrimValue, mask: PrimValue, value: Operand) -> PrimValue:
    if value.__class__ is PrimValue and result_dtype(x, value) is not x.dtype and x.dtype is not torch.bool:
        return NotImplemented  # eager's kernel refuses a number that the dtype cannot hold
    value = to(value, x.dtype)
    if value.__class__ is not PrimValue and not x.dtype.is_complex:
        value = _cast_number(value, x.dtype)
    return prims.where(mask, value, x)


def _cast_number(value: Any, dtype: torch.dtype) -> Scalar:
    if isinstance(value, Expr):
        return value
    if dtype is torch.bool:
        return bool(value)
    return float(value) if dtype.is_floating_point else int(value) if isinstance(value, (bool, float)) else value


@decomposition(*overloads_of("clamp", "default", "Tensor"))
def clamp(x: PrimValue, min: Operand | None = None, max: Operand | None = None) -> PrimValue:
    (x, min, max), _ = promoted(x, min, max)
    # eager's order: an upper bound below the lower one wins
    x = x if min is None else bounded(prims.maximum, x, min)
    return x if max is None else bounded(prims.minimum, x, max)


def bounded(prim: Op, x: PrimValue, bound: Operand) -> PrimValue:
    """The second of two equal operands is the result, -0.0 and 0.0 among them: eager keeps x at a bound that is a number."""
    if bound.__class__ is PrimValue:
        return prim(x, bound)
    return prim(clamp_bound(bound, x.dtype, upper=prim is prims.minimum), x)


@decomposition(*overloads_of("clamp_min", "default", "Tensor"))
def clamp_min(x: PrimValue, min: Operand) -> PrimValue:
    return bounded(prims.maximum, *promoted(x, min)[0])


@decomposition(*overloads_of("clamp_max", "default", "Tensor"))
def clamp_max(x: PrimValue, max: Operand) -> PrimValue:
    return bounded(prims.minimum, *promoted(x, max)[0])


@decomposition(aten.addcmul)
def addcmul(x: PrimValue, a: PrimValue, b: PrimValue, *, value: Scalar = 1) -> PrimValue:
    (x, a, b), dtype = promoted(x, a, b)
    product = prims.mul(a, b) if value == 1 else prims.mul(prims.mul(a, value), b)
    return prims.add(x, product)


@decomposition(aten.addcdiv)
def addcdiv(x: PrimValue, a: PrimValue, b: PrimValue, *, value: Scalar = 1) -> PrimValue:
    (x, a, b), dtype = promoted(x, a, b)
    return prims.add(x, prims.div(a if value == 1 else prims.mul(a, value), b))


@decomposition(*overloads_of("lerp", "Scalar", "Tensor"))
def lerp(start: PrimValue, end: PrimValue, weight: PrimValue | float) -> PrimValue:
    """Eager's formula: from the nearer end."""
    wide_start, wide_end, out = wide(start), wide(end), start.dtype
    difference = prims.sub(wide_end, wide_start)
    if not isinstance(weight, PrimValue):
        near = prims.add(wide_start, prims.mul(difference, weight))
        far = prims.sub(wide_end, prims.mul(difference, 1 - weight))
        return to(near if builtins.abs(weight) < 0.5 else far, out)
    weight = to(weight, difference.dtype)
    near = prims.add(wide_start, prims.mul(difference, weight))
    far = prims.sub(wide_end, prims.mul(difference, prims.sub(1, weight)))
    return to(prims.where(prims.lt(prims.abs(weight), 0.5), near, far), out)


@decomposition(*overloads_of("real", "default"))
def real(x: PrimValue) -> PrimValue:
    return prims.real(x) if x.dtype.is_complex else x


@decomposition(*overloads_of("imag", "default"))
def imag(x: PrimValue) -> PrimValue:
    return prims.imag(x)


def _conj(x: PrimValue) -> PrimValue:
    return prims.conj(x) if x.dtype.is_complex else x


for _name in ("_conj", "_conj_physical", "conj_physical"):
    DECOMPS[getattr(aten, _name).default] = _conj


@decomposition(aten.angle)
def angle(x: PrimValue) -> PrimValue:
    return prims.angle(promoted_float(x)[0][0])


@decomposition(aten.complex)
def complex(a: PrimValue, b: PrimValue) -> PrimValue:
    return prims.complex(a, b)


@decomposition(*overloads_of("polygamma", "default"))
def polygamma(n: int, x: PrimValue) -> PrimValue:
    return prims.polygamma(n, promoted_float(x)[0][0])


@decomposition(*overloads_of("special_xlog1py", "default", "self_scalar", "other_scalar"))
def xlog1py(a: Operand, b: Operand) -> PrimValue:
    (left, right), dtype = promoted_float(a, b)
    b_value = right if right.__class__ is PrimValue else prims.full((), right, dtype, left.device)
    product = prims.mul(left, prims.log1p(b_value))
    a_value = left if left.__class__ is PrimValue else prims.full((), left, dtype, b_value.device)
    kept = prims.where(prims.eq(a_value, 0), 0.0, product)
    return prims.where(prims.isnan(b_value), math.nan, kept)


@decomposition(*overloads_of("special_entr", "default"))
def entr(x: PrimValue) -> PrimValue:
    (x,), dtype = promoted_float(x)
    inside = prims.where(prims.gt(x, 0), prims.mul(prims.neg(x), prims.log(x)), x)
    negative = prims.where(prims.lt(x, 0), -math.inf, inside)
    return prims.where(prims.eq(x, 0), 0.0, negative)


@decomposition(aten.sinc)
def sinc(x: PrimValue) -> PrimValue:
    (x,), dtype = promoted_float(x)
    product = prims.mul(x, math.pi)
    return prims.where(prims.eq(x, 0), 1.0, prims.div(prims.sin(product), product))


@decomposition(aten.deg2rad)
def deg2rad(x: PrimValue) -> PrimValue:
    return mul(x, math.pi / 180)


@decomposition(aten.rad2deg)
def rad2deg(x: PrimValue) -> PrimValue:
    return mul(x, 180 / math.pi)


@decomposition(aten.nan_to_num)
def nan_to_num(x: PrimValue, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> PrimValue:
    if not is_float(x.dtype):
        return prims.clone(x)
    if x.dtype.is_complex:
        return NotImplemented
    info = torch.finfo(x.dtype)
    y = prims.where(prims.isnan(x), 0.0 if nan is None else nan, x)
    y = prims.where(prims.eq(y, math.inf), info.max if posinf is None else posinf, y)
    return prims.where(prims.eq(y, -math.inf), info.min if neginf is None else neginf, y)


@decomposition(aten.logit)
def logit(x: PrimValue, eps: float | None = None) -> PrimValue:
    (x,), _ = promoted_float(x)
    if eps is not None:
        x = prims.minimum(prims.maximum(x, eps), 1 - eps)
    return prims.log(prims.div(x, prims.sub(1, x)))


@decomposition(aten.tanh_backward)
def tanh_backward(grad: PrimValue, out: PrimValue) -> PrimValue:
    y = wide(out)
    return to(prims.mul(wide(grad), _conj(prims.sub(1, prims.mul(y, y)))), grad.dtype)


@decomposition(aten.sigmoid_backward)
def sigmoid_backward(grad: PrimValue, out: PrimValue) -> PrimValue:
    y = _conj(wide(out))
    return to(prims.mul(prims.mul(wide(grad), prims.sub(1, y)), y), grad.dtype)


@decomposition(aten.logit_backward)
def logit_backward(grad: PrimValue, x: PrimValue, eps: float | None = None) -> PrimValue:
    g, y = wide(grad), wide(x)
    value = prims.div(g, prims.mul(y, prims.sub(1, y)))
    low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1 - eps, 0.0)
    inside = prims.logical_and(prims.ge(y, low), prims.le(y, high))
    return to(prims.where(inside, value, outside), grad.dtype)


@decomposition(aten.polar)
def polar(length: PrimValue, angle: PrimValue) -> PrimValue:
    (length, angle), _ = promoted(length, angle)
    return prims.complex(prims.mul(length, prims.cos(angle)), prims.mul(length, prims.sin(angle)))


@decomposition(aten.frexp.Tensor)
def frexp(x: PrimValue) -> tuple[PrimValue, PrimValue]:
    return prims.frexp(x)


@decomposition(aten.mvlgamma)
def mvlgamma(x: PrimValue, p: int) -> PrimValue:
    (x,), _ = promoted_float(x)
    total = prims.full(x.sizes, p * (p - 1) * math.log(math.pi) / 4, x.dtype, x.device)
    for j in range(p):
        total = prims.add(total, prims.lgamma(prims.sub(x, j / 2)))
    return total


@decomposition(aten.linalg_cross)
def linalg_cross(a: PrimValue, b: PrimValue, *, dim: int = -1) -> PrimValue:
    (a, b), _ = promoted(a, b)
    dim = dim + max(a.ndim, b.ndim) if dim < 0 else dim

    def turned(x: PrimValue, by: int) -> PrimValue:
        return prims.roll(x, (-by,), (dim,))

    return prims.sub(prims.mul(turned(a, 1), turned(b, 2)), prims.mul(turned(a, 2), turned(b, 1)))
