"""Elementwise prims as scalar operations on broadcast operands."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tracework_primops import OPS
from tracework_primops.symbols.ranges import bounds

from ..ir.index import Expr, Size, same
from ..ir.scalar_ops import IN_BITS, ROUNDINGS, SCALAR_OPS, ops
from ..ir.views import expand_map
from .float8 import FLOAT8_COST, converting
from .registry import LOWERINGS, Refused, lowers
from .value import Lazy, TensorValue, pointwise, settled

BOOL_MEANING = {"add": "logical_or", "mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and"}
"""What arithmetic prims mean on bool operands."""

INT_FALSE = frozenset({"isnan", "isinf"})
FLOAT_ONLY = frozenset({"copysign", "nextafter", "hypot", "atan2", "lgamma"})
INT_IDENTITY = frozenset({"floor", "ceil", "trunc"})
DIVISIONS = frozenset({"floor_divide", "trunc_divide", "remainder", "fmod"})


def broadcast_sizes(*operands: Any) -> tuple[Size, ...]:
    """NumPy's rule; a size that is not 1 wins over one that is."""
    shapes = [o.sizes for o in operands if isinstance(o, TensorValue)]
    ndim = max(map(len, shapes))
    result: list[Size] = []
    for d in range(ndim):
        size: Size = 1
        for shape in shapes:
            k = d - (ndim - len(shape))
            if k >= 0 and same(size, 1):
                size = shape[k]
        result.append(size)
    return tuple(result)


def elementwise(
    low: Any,
    operands: Sequence[Any],
    dtype: torch.dtype,
    scalar: Callable[..., Any],
    cost: int = 1,
    operand_dtype: torch.dtype | None = None,
    sizes: Sequence[Size] | None = None,
) -> Lazy:
    """A lazy value of scalar(*elements); numbers take the dtype of the tensor operands."""
    tensors = [settled(o) for o in operands if isinstance(o, TensorValue)]
    sizes = broadcast_sizes(*tensors) if sizes is None else tuple(sizes)
    operand_dtype = operand_dtype or tensors[0].dtype
    readers = [_reader(settled(o), sizes, operand_dtype) for o in operands]

    def inner(index: list[Size]) -> Any:
        return scalar(*[read(index) for read in readers])

    return pointwise(sizes, dtype, tensors[0].device, inner, tensors, cost)


def _reader(operand: Any, sizes: Sequence[Size], dtype: torch.dtype) -> Callable[[list[Size]], Any]:
    if isinstance(operand, TensorValue):
        if len(operand.sizes) == len(sizes) and all(map(same, operand.sizes, sizes)):
            return operand.load
        back = expand_map(operand.sizes, sizes)
        return lambda index: operand.load(back(index))
    if isinstance(operand, Expr):
        if dtype in IN_BITS:
            raise Refused(f"a size as a {dtype}")
        return lambda index: ops.index_expr(operand, dtype)
    if isinstance(operand, complex):
        raise Refused("it has a complex operand")
    return lambda index: ops.constant(operand, dtype)


def _rounded(operand: Any, dtype: torch.dtype) -> Any:
    """A number as an element of that dtype, where halves are computed as float32: loops that compute a value anew then find what was stored."""
    if dtype not in (torch.float16, torch.bfloat16) or not isinstance(operand, (int, float)):
        return operand
    found = torch.tensor(float(operand), dtype=torch.float64).to(dtype).item()
    return operand if found == operand else found


def _result_dtype(low: Any, operands: Sequence[Any]) -> torch.dtype:
    dtype = getattr(low.spec, "dtype", None)
    return dtype if dtype is not None else next(o.dtype for o in operands if isinstance(o, TensorValue))


NEAREST: dict[str, Callable[[torch.dtype], Callable[..., Any]]] = {
    "div": lambda dtype: lambda a, b: ops.div_rn(a, b),
    "reciprocal": lambda dtype: lambda a: ops.div_rn(ops.constant(1.0, dtype), a),
}
"""Divisions that a GPU's kernels do quickly and not quite: how they are rounded to nearest."""


def rounded(value: Any) -> Any:
    """What an op gave, with the elements of half types rounded to them, as eager's kernels store them."""
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    value = settled(value)
    if not isinstance(value, Lazy) or value.dtype not in ROUNDINGS:
        return value
    name = ROUNDINGS[value.dtype]
    return pointwise(
        value.sizes, value.dtype, value.device, lambda index: getattr(ops, name)(value.load(index)), (value,), 1, value.strides
    )


def _enter_same_name(name: str) -> None:
    row = SCALAR_OPS[name]

    def rule(low: Any, *args: Any) -> Any:
        operand = next(a for a in args if isinstance(a, TensorValue))
        dtype = operand.dtype
        if not dtype.is_floating_point and name in FLOAT_ONLY:
            raise Refused(f"{name} of {dtype}")
        if not dtype.is_floating_point and name in INT_IDENTITY:
            return args[0]
        if not dtype.is_floating_point and name in INT_FALSE:
            return constant_like(operand, False, torch.bool)
        if name in DIVISIONS and not dtype.is_floating_point and operand.device.type == "cpu" and not _is_never_zero(args[1]):
            raise Refused("a CPU traps at a division by the integer zero, where eager raises")
        if low.options.rounds and name in NEAREST and dtype.is_floating_point:
            return elementwise(low, args, _result_dtype(low, args), NEAREST[name](dtype), row.cost)
        scalar = BOOL_MEANING.get(name, name) if dtype == torch.bool else name
        return elementwise(low, args, _result_dtype(low, args), lambda *v: getattr(ops, scalar)(*v), row.cost)

    lowers(name)(rule)


def _is_never_zero(divisor: Any) -> bool:
    if isinstance(divisor, Expr):
        low, high = bounds(divisor)
        return low > 0 or high < 0
    return isinstance(divisor, (int, float)) and divisor != 0


def constant_like(like: TensorValue, value: Any, dtype: torch.dtype) -> Lazy:
    """A number everywhere."""
    return pointwise(like.sizes, dtype, like.device, lambda index: ops.constant(value, dtype), (), 0)


OF_EIGHT_BITS = frozenset((torch.bool, torch.uint8, torch.int8))
"""Their values are values of both half types, too: nothing of them is rounded."""


@lowers("convert")
def convert(low: Any, x: Any, dtype: torch.dtype) -> Any:
    """Tensor.to. What a program converts to a half type is rounded for whoever reads it, under all numerics: an overflow to inf or the
    digits that are lost may be what the program is about.
    """
    if x.dtype == dtype:
        return x
    if x.dtype in IN_BITS or dtype in IN_BITS:
        return elementwise(low, (x,), dtype, converting(x.dtype, dtype, x.device), FLOAT8_COST)
    value = elementwise(low, (x,), dtype, lambda v: ops.to_dtype(v, dtype))
    if isinstance(x, Lazy) and x.dtype.is_floating_point and dtype.is_floating_point and x.dtype.itemsize < dtype.itemsize:
        value.narrow = x
    if low.options.rounds or x.dtype in OF_EIGHT_BITS:  # with that option the driver rounds all values
        return value
    return rounded(value)


@lowers("bitcast")
def bitcast(low: Any, x: Any, dtype: torch.dtype) -> Any:
    """The same bits."""
    if torch.bool in (x.dtype, dtype) or {x.dtype, dtype} & {torch.float16, torch.bfloat16}:
        raise Refused("a bitcast of half or bool")
    held, wanted = IN_BITS.get(x.dtype, x.dtype), IN_BITS.get(dtype, dtype)
    return elementwise(low, (x,), dtype, lambda v: v if held == wanted else ops.bitcast(v, wanted))


@lowers("round")
def round(low: Any, x: Any, decimals: int = 0) -> Any:
    """Ties to even."""
    if decimals != 0:
        raise Refused("rounding to decimals")
    return elementwise(low, (x,), x.dtype, ops_named("round")) if x.dtype.is_floating_point else x


def ops_named(name: str) -> Callable[..., Any]:
    """The scalar operation of that name under whatever handler is in force when called."""
    return lambda *v: getattr(ops, name)(*v)


@lowers("frac")
def frac(low: Any, x: Any) -> Any:
    """x - trunc(x)."""
    return elementwise(low, (x,), x.dtype, lambda v: ops.sub(v, ops.trunc(v)), 2)


@lowers("sgn")
def sgn(low: Any, x: Any) -> Any:
    """Sign, for real operands."""
    return elementwise(low, (x,), x.dtype, ops_named("sign"))


POWERS: dict[float, Callable[[Any], Any]] = {
    1: lambda v: v,
    2: lambda v: ops.mul(v, v),
    3: lambda v: ops.mul(ops.mul(v, v), v),
    4: lambda v: ops.mul(ops.mul(v, v), ops.mul(v, v)),
    0.5: lambda v: ops.sqrt(v),
    -0.5: lambda v: ops.rsqrt(v),
    -1: lambda v: ops.reciprocal(v),
    -2: lambda v: ops.reciprocal(ops.mul(v, v)),
}
"""Exponents that eager does not hand to the general function either."""


@lowers("pow")
def pow(low: Any, a: Any, b: Any) -> Any:
    """a**b; some exponents are products or roots."""
    dtype = _result_dtype(low, (a, b))
    if isinstance(a, TensorValue) and isinstance(b, (int, float)) and b in POWERS and (dtype.is_floating_point or b >= 1):
        return elementwise(low, (a,), dtype, POWERS[b], 2)
    return elementwise(low, (a, b), dtype, ops_named("pow"), 12)


@lowers("where")
def where(low: Any, cond: Any, a: Any, b: Any) -> Any:
    """Selection; the numbers take the result's dtype."""
    dtype = _result_dtype(low, (a, b))
    tensors = [t for t in (cond, a, b) if isinstance(t, TensorValue)]
    sizes = broadcast_sizes(*tensors)
    read_cond = _reader(settled(cond), sizes, torch.bool)
    read_a, read_b = (_reader(_rounded(settled(o), dtype), sizes, dtype) for o in (a, b))

    def inner(index: list[Size]) -> Any:
        return ops.where(read_cond(index), read_a(index), read_b(index))

    return pointwise(sizes, dtype, tensors[0].device, inner, [settled(t) for t in tensors], 1)


@lowers("xlogy")
def xlogy(low: Any, a: Any, b: Any) -> Any:
    """a*log(b), 0 where a is 0 and b is not NaN."""

    def scalar(x: Any, y: Any) -> Any:
        zero = ops.constant(0.0, _float_dtype(a, b))
        product = ops.mul(x, ops.log(y))
        return ops.where(ops.isnan(y), y, ops.where(ops.eq(x, zero), zero, product))

    return elementwise(low, (a, b), _result_dtype(low, (a, b)), scalar, 12)


def _float_dtype(*operands: Any) -> torch.dtype:
    return next(o.dtype for o in operands if isinstance(o, TensorValue))


def _log_of_sum(name: str, exp: str, log1p: Callable[[Any, torch.dtype], Any]) -> None:
    @lowers(name)
    def rule(low: Any, a: Any, b: Any) -> Any:
        """The larger one and a logarithm of at most 2: nothing overflows."""
        dtype = _float_dtype(a, b)

        def scalar(x: Any, y: Any) -> Any:
            high = ops.maximum(x, y)
            difference = ops.neg(ops.abs(ops.sub(x, y)))
            total = ops.add(high, log1p(getattr(ops, exp)(difference), dtype))
            infinite = ops.logical_and(ops.isinf(x), ops.eq(x, y))
            return ops.where(infinite, x, total)

        return elementwise(low, (a, b), _result_dtype(low, (a, b)), scalar, 24)


_log_of_sum("logaddexp", "exp", lambda v, dtype: ops.log1p(v))
_log_of_sum("logaddexp2", "exp2", lambda v, dtype: ops.mul(ops.log1p(v), ops.constant(1 / math.log(2), dtype)))


FLOAT_BITS = {torch.float32: (torch.int32, 23, 8), torch.float64: (torch.int64, 52, 11)}
"""dtype -> an integer of as many bits, the digits that are written of a number's fraction, and its exponent's."""


@lowers("frexp")
def frexp(low: Any, x: Any) -> Any:
    """What is no finite number, or 0, is its own fraction, with exponent 0."""
    dtype = x.dtype if x.dtype in FLOAT_BITS else torch.float32
    integer, digits, places = FLOAT_BITS[dtype]
    bias, top = (1 << (places - 1)) - 2, (1 << places) - 1
    number = lambda v: ops.constant(v, integer)

    def parts(v: Any) -> tuple[Any, Any, Any]:
        """Whether it has an exponent, that, and the bits of a number with all its digits."""
        value = ops.to_dtype(v, dtype)
        small = ops.lt(ops.abs(value), ops.constant(2.0 ** (1 - bias), dtype))
        bits = ops.bitcast(ops.where(small, ops.mul(value, ops.constant(2.0**digits, dtype)), value), integer)
        exponent = ops.bitwise_and(ops.shift_right(bits, number(digits)), number(top))
        plain = ops.logical_and(ops.isfinite(value), ops.ne(value, ops.constant(0.0, dtype)))
        return plain, ops.sub(exponent, ops.where(small, number(bias + digits), number(bias))), bits

    def mantissa(v: Any) -> Any:
        plain, _, bits = parts(v)
        sign_and_fraction = ops.bitwise_and(bits, number(~(top << digits)))
        scaled = ops.bitcast(ops.bitwise_or(sign_and_fraction, number(bias << digits)), dtype)
        return ops.to_dtype(ops.where(plain, scaled, ops.to_dtype(v, dtype)), x.dtype)

    def exponent(v: Any) -> Any:
        plain, found, _ = parts(v)
        return ops.to_dtype(ops.where(plain, found, number(0)), torch.int32)

    return elementwise(low, (x,), x.dtype, mantissa, 10), elementwise(low, (x,), torch.int32, exponent, 10)


@lowers("heaviside")
def heaviside(low: Any, a: Any, b: Any) -> Any:
    """0, b or 1 for a below, equal to, above 0."""
    dtype = _float_dtype(a, b)

    def scalar(x: Any, y: Any) -> Any:
        zero, one = ops.constant(0, dtype), ops.constant(1, dtype)
        return ops.where(ops.eq(x, zero), y, ops.where(ops.lt(x, zero), zero, ops.where(ops.gt(x, zero), one, x)))

    if not dtype.is_floating_point:
        raise Refused("heaviside of integers")
    return elementwise(low, (a, b), dtype, lambda x, y: _nan_is_zero(x, scalar(x, y), dtype), 4)


def _nan_is_zero(x: Any, value: Any, dtype: torch.dtype) -> Any:
    return ops.where(ops.isnan(x), ops.constant(0, dtype), value)


@lowers("ldexp")
def ldexp(low: Any, a: Any, b: Any) -> Any:
    """a * 2**b."""
    return elementwise(low, (a, b), _result_dtype(low, (a, b)), lambda x, y: ops.mul(x, ops.exp2(y)), 9)


@lowers("angle")
def angle(low: Any, x: Any) -> Any:
    """0 or pi for real operands."""
    if not x.dtype.is_floating_point:
        raise Refused("angle of integers")

    def scalar(v: Any) -> Any:
        zero, half_turn = ops.constant(0.0, x.dtype), ops.constant(math.pi, x.dtype)
        return ops.where(ops.isnan(v), v, ops.where(ops.lt(v, zero), half_turn, zero))

    return elementwise(low, (x,), x.dtype, scalar, 3)


@lowers("real", "conj")
def real(low: Any, x: Any) -> Any:
    """Themselves for real operands."""
    return x


SAME_NAME = tuple(name for name in SCALAR_OPS if name in OPS and name not in LOWERINGS)
"""Prims whose scalar operation has the same name and meaning: all without a rule of their own above."""

for _name in SAME_NAME:
    _enter_same_name(_name)
