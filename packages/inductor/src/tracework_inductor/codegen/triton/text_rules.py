"""TRITON_TEXT: scalar op -> Triton text, and how dtypes are written and held.

Values of half types are held as float32 between load and store. A rule takes the operands' texts and the dtype of the
first operand that decides the arithmetic; helpers that a text needs are named in PRELUDE and emitted once a kernel.
"""

from collections.abc import Callable, Sequence

import torch

from .functions import FUNCTIONS

__all__ = ["HELD", "POINTER", "PRELUDE", "TRITON_TEXT", "constant_text", "convert_text", "held"]

Rule = Callable[[Sequence[str], torch.dtype], str]

# dtype -> how a value of it is held in registers
HELD: dict[torch.dtype, str] = {
    torch.float64: "tl.float64",
    torch.float32: "tl.float32",
    torch.float16: "tl.float32",
    torch.bfloat16: "tl.float32",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.uint16: "tl.uint16",
    torch.uint32: "tl.uint32",
    torch.uint64: "tl.uint64",
    torch.bool: "tl.int1",
}

# dtype -> pointer type in a signature
POINTER: dict[torch.dtype, str] = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.uint16: "*u16",
    torch.uint32: "*u32",
    torch.uint64: "*u64",
    torch.bool: "*i1",
}

# Of one byte -> the helper that makes it a float32.
BYTES = {torch.int8: "_signed_byte", torch.uint8: "_byte"}

# The same of float8, which is held as its bits.
FLOAT8 = {torch.float8_e4m3fn: "_from_e4m3fn", torch.float8_e5m2: "_from_e5m2"}

UNSIGNED_BITS = {torch.uint8: 8, torch.uint16: 16, torch.uint32: 32, torch.uint64: 64}
HALF = {torch.float16: "tl.float16", torch.bfloat16: "tl.bfloat16"}

# Helper functions a kernel's text may call; only those it calls are written.
# Of bytes: they are the last digits of 2 ** 23 plus what they stand for. A GPU converts a sixteenth as many integers as it adds floats.
PRELUDE: dict[str, str] = {
    "_byte": """
@triton.jit
def _byte(a):
    return ((a.to(tl.int32) & 255) | 0x4B000000).to(tl.float32, bitcast=True) - 8388608.0
""",
    "_signed_byte": """
@triton.jit
def _signed_byte(a):
    return ((a.to(tl.int32) & 255) ^ 0x4B000080).to(tl.float32, bitcast=True) - 8388736.0
""",
    # What compiles the text says for which GPU; before 8.9 none converts: bits of a float32, times a power of two.
    "_from_e4m3fn": """
CAPABILITY = tl.constexpr(0)

@triton.jit
def _from_e4m3fn(a):
    if CAPABILITY >= 89:
        return a.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    bits = ((a.to(tl.int32) << 24) >> 4) & -0x78100000
    return tl.where((a & 127) == 127, float("nan"), bits.to(tl.float32, bitcast=True) * 1.329227995784916e+36)
""",
    "_from_e5m2": """
@triton.jit
def _from_e5m2(a):
    return (a.to(tl.int16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
""",
    "_floordiv": """
@triton.jit
def _floordiv(a, b):
    q = a // b
    r = a - q * b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)
""",
    "_mod": """
@triton.jit
def _mod(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
""",
    "_float_mod": """
@triton.jit
def _float_mod(a, b):
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
""",
    "_float_floordiv": """
@triton.jit
def _float_floordiv(a, b):
    m = libdevice.fmod(a, b)
    d = (a - m) / b
    d = tl.where((m != 0) & ((b < 0) != (m < 0)), d - 1, d)
    f = libdevice.floor(d)
    f = tl.where(d - f > 0.5, f + 1, f)
    f = tl.where(d != 0, f, libdevice.copysign(d * 0, a / b))
    return tl.where(b == 0, a / b, f)
""",
    "_int_pow": """
@triton.jit
def _int_pow(a, b):
    result = a * 0 + 1
    base = a
    left = b
    for _ in tl.static_range(63):
        result = tl.where((left & 1) != 0, result * base, result)
        base = base * base
        left = left >> 1
    return tl.where(b < 0, tl.where(a == 1, a, tl.where(a == -1, tl.where((b & 1) != 0, a, -a), a * 0)), result)
""",
    "_max": """
@triton.jit
def _max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_min": """
@triton.jit
def _min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_sum": """
@triton.jit
def _sum(a, b):
    return a + b
""",
    "_prod": """
@triton.jit
def _prod(a, b):
    return a * b
""",
    "_argmax": """
@triton.jit
def _argmax(a, i, b, j):
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
    "_argmin": """
@triton.jit
def _argmin(a, i, b, j):
    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
    "_last_argmax": """
@triton.jit
def _last_argmax(a, i, b, j):
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i > j))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
    "_last_argmin": """
@triton.jit
def _last_argmin(a, i, b, j):
    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i > j))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
    "_later_argmax": """
@triton.jit
def _later_argmax(a, i, b, j):
    first = (a > b) | ((a != a) & (b == b))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
    "_later_argmin": """
@triton.jit
def _later_argmin(a, i, b, j):
    first = (a < b) | ((a != a) & (b == b))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
    "_number_order": """
@triton.jit
def _number_order(a, bits, sign: tl.constexpr, most: tl.constexpr):
    order = tl.where(a == 0, 0, bits ^ ((bits >> sign) & most))
    return tl.where(a != a, most, order)
""",
    "_argsort_16": """
@triton.jit
def _argsort_16(order, lane):
    return tl.sort((order << 16) | lane) & 0xFFFF
""",
    "_argsort_32": """
@triton.jit
def _argsort_32(order, lane):
    return tl.sort((order.to(tl.int64) << 32) | lane).to(tl.int32)
""",
    "_argsort_64": """
@triton.jit
def _argsort_64(order, lane):
    low = tl.sort(((order ^ 0x80000000) << 32) | lane).to(tl.int32)
    high = tl.sort(((tl.gather(order, low, 1) >> 32) << 32) | lane).to(tl.int32)
    return tl.gather(low, high, 1)
""",
    "_logaddexp": """
@triton.jit
def _logaddexp(a, b):
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where((high == low) & (high - low != 0), high, high + libdevice.log1p(tl.exp(low - high)))
""",
    **FUNCTIONS,
}


def held(dtype: torch.dtype) -> str:
    """How a value is held; raises KeyError for dtypes Triton kernels do not compute with."""
    return HELD[dtype]


def constant_text(value: float | str, dtype: torch.dtype) -> str:
    """A typed scalar; value is a number or the text of one."""
    number = value
    if value in ("True", "False"):
        number = int(value == "True")
    elif isinstance(value, str):
        number = float(value) if dtype.is_floating_point else int(value)
    if dtype == torch.bool:
        text = "1" if number else "0"
    elif dtype in UNSIGNED_BITS:
        text = repr(int(number) % (1 << UNSIGNED_BITS[dtype]))  # Triton refuses negative numbers, which wrap around in torch
    elif isinstance(number, float):
        text = f'float("{number}")' if number != number or number in (float("inf"), float("-inf")) else repr(number)
    else:
        text = repr(number)
    return f"tl.full([], {text}, {HELD[dtype]})"


def convert_text(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """A value of one dtype as another. Narrowing to a half type keeps float32: rounding happens at the store."""
    if source in FLOAT8:
        return f"{FLOAT8[source]}({value})"
    if HELD[source] == HELD[target]:
        return value
    if target == torch.bool:
        return f"({value} != 0)"
    if source in BYTES and HELD[target] == "tl.float32":
        return f"{BYTES[source]}({value})"
    return f"{value}.to({HELD[target]})"


def bitcast_text(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """The bits of a value read as another dtype of the same width."""
    if target in FLOAT8:
        return value
    if source in HALF:
        value = f"{value}.to({HALF[source]})"
    if target in HALF:
        return f"{value}.to({HALF[target]}, bitcast=True).to(tl.float32)"
    return f"{value}.to({HELD[target]}, bitcast=True)"


def _fill(template: str) -> Rule:
    return lambda args, dtype: template.format(*args)


def _by_kind(floating: str, integer: str, boolean: str | None = None) -> Rule:
    def rule(args: Sequence[str], dtype: torch.dtype) -> str:
        if dtype == torch.bool and boolean is not None:
            return boolean.format(*args)
        return (floating if dtype.is_floating_point else integer).format(*args)

    return rule


def _single(name: str, otherwise: str) -> Rule:
    """A function of FUNCTIONS, and a text for float64."""

    def rule(args: Sequence[str], dtype: torch.dtype) -> str:
        return (f"{name}({{0}})" if HELD[dtype] == "tl.float32" else otherwise).format(*args)

    return rule


def _ordered(symbol: str) -> Rule:
    def rule(args: Sequence[str], dtype: torch.dtype) -> str:
        if dtype == torch.bool:  # one-bit integers compare as signed: true is -1
            args = [f"{a}.to(tl.int8)" for a in args]
        return f"({args[0]} {symbol} {args[1]})"

    return rule


def _sign_bit(args: Sequence[str], dtype: torch.dtype) -> str:
    if not dtype.is_floating_point:
        return f"({args[0]} < 0)"
    bits = "tl.int64" if dtype == torch.float64 else "tl.int32"
    return f"({args[0]}.to({bits}, bitcast=True) < 0)"


def _square_root(args: Sequence[str], dtype: torch.dtype) -> str:
    return f"tl.sqrt({args[0]})" if dtype == torch.float64 else f"tl.sqrt_rn({args[0]})"


def _division_to_nearest(args: Sequence[str], dtype: torch.dtype) -> str:
    return f"({args[0]} / {args[1]})" if dtype == torch.float64 else f"tl.div_rn({args[0]}, {args[1]})"


def _truncated_division(args: Sequence[str], dtype: torch.dtype) -> str:
    """Of x by x the plain division may give a bit less than 1, and its whole part is 0 then."""
    return f"libdevice.trunc({_division_to_nearest(args, dtype)})" if dtype.is_floating_point else f"({args[0]} // {args[1]})"


TRITON_TEXT: dict[str, Rule] = {
    "neg": _by_kind("({0} * -1.0)", "(-{0})"),  # Triton's `-x` is 0 - x, which gives 0.0 for 0.0
    "abs": _by_kind("tl.abs({0})", "tl.abs({0})", "{0}"),
    "sign": _by_kind(
        "(({0} > 0).to({0}.dtype) - ({0} < 0).to({0}.dtype))", "(({0} > 0).to({0}.dtype) - ({0} < 0).to({0}.dtype))", "{0}"
    ),
    "floor": _by_kind("libdevice.floor({0})", "{0}"),
    "ceil": _by_kind("libdevice.ceil({0})", "{0}"),
    "trunc": _by_kind("libdevice.trunc({0})", "{0}"),
    "round": _by_kind("libdevice.rint({0})", "{0}"),
    "sqrt": _square_root,
    "rsqrt": _fill("tl.rsqrt({0})"),
    "reciprocal": _fill("(1.0 / {0})"),
    "square": _fill("({0} * {0})"),
    "relu": _by_kind("tl.maximum({0}, 0.0, propagate_nan=tl.PropagateNan.ALL)", "tl.maximum({0}, 0)"),
    "bitwise_not": _by_kind("(~{0})", "(~{0})", "({0} == 0)"),
    "exp": _fill("tl.exp({0})"),
    "exp2": _fill("tl.exp2({0})"),
    "log": _fill("tl.log({0})"),
    "log2": _fill("tl.log2({0})"),
    "erf": _single("_erf", "tl.erf({0})"),
    "one_plus_erf": _single("_one_plus_erf", "(1.0 + tl.erf({0}))"),
    "tanh": _single("_tanh", "libdevice.tanh({0})"),
    "log1p": _single("_log1p", "libdevice.log1p({0})"),
    "one_plus_tanh": _single("_one_plus_tanh", "(1.0 + libdevice.tanh({0}))"),
    "sigmoid": _single("_sigmoid", "(1.0 / (1.0 + tl.exp(-{0})))"),
    "logical_not": _fill("({0} == 0)"),
    "isnan": _by_kind("({0} != {0})", "({0} != {0})"),
    "isinf": _by_kind('(tl.abs({0}) == float("inf"))', "({0} != {0})"),
    "isfinite": _by_kind('(tl.abs({0}) < float("inf"))', "({0} == {0})"),
    "signbit": _sign_bit,
    "add": _by_kind("({0} + {1})", "({0} + {1})", "({0} | {1})"),
    "sub": _by_kind("({0} - {1})", "({0} - {1})", "({0} ^ {1})"),
    "mul": _by_kind("({0} * {1})", "({0} * {1})", "({0} & {1})"),
    "div": _fill("({0} / {1})"),
    "div_rn": _division_to_nearest,
    "round_float16": _fill("{0}.to(tl.float16).to(tl.float32)"),
    "round_bfloat16": _fill("{0}.to(tl.bfloat16).to(tl.float32)"),
    "maximum": _by_kind("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "tl.maximum({0}, {1})", "({0} | {1})"),
    "minimum": _by_kind("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "tl.minimum({0}, {1})", "({0} & {1})"),
    "fmax": _by_kind("tl.maximum({0}, {1})", "tl.maximum({0}, {1})", "({0} | {1})"),
    "fmin": _by_kind("tl.minimum({0}, {1})", "tl.minimum({0}, {1})", "({0} & {1})"),
    "copysign": _fill("libdevice.copysign({0}, {1})"),
    "bitwise_and": _fill("({0} & {1})"),
    "bitwise_or": _fill("({0} | {1})"),
    "bitwise_xor": _fill("({0} ^ {1})"),
    "shift_left": _fill("({0} << {1})"),
    "shift_right": _fill("({0} >> {1})"),
    "floor_divide": _by_kind("_float_floordiv({0}, {1})", "_floordiv({0}, {1})"),
    "trunc_divide": _truncated_division,
    "remainder": _by_kind("_float_mod({0}, {1})", "_mod({0}, {1})"),
    "fmod": _by_kind("libdevice.fmod({0}, {1})", "({0} % {1})"),
    "pow": _by_kind("libdevice.pow({0}, {1})", "_int_pow({0}, {1})"),
    "atan2": _fill("libdevice.atan2({0}, {1})"),
    "hypot": _fill("libdevice.hypot({0}, {1})"),
    "nextafter": _fill("libdevice.nextafter({0}, {1})"),
    "eq": _fill("({0} == {1})"),
    "ne": _fill("({0} != {1})"),
    "lt": _ordered("<"),
    "le": _ordered("<="),
    "gt": _ordered(">"),
    "ge": _ordered(">="),
    "logical_and": _by_kind("(({0} != 0) & ({1} != 0))", "(({0} != 0) & ({1} != 0))", "({0} & {1})"),
    "logical_or": _by_kind("(({0} != 0) | ({1} != 0))", "(({0} != 0) | ({1} != 0))", "({0} | {1})"),
    "logical_xor": _by_kind("(({0} != 0) ^ ({1} != 0))", "(({0} != 0) ^ ({1} != 0))", "({0} ^ {1})"),
    "where": _fill("tl.where({0}, {1}, {2})"),
    "fma": _by_kind("tl.fma({0}, {1}, {2})", "({0} * {1} + {2})"),
    **{
        name: _fill(f"libdevice.{name}({{0}})")
        for name in ("expm1 log10 sin cos tan asin acos atan sinh cosh asinh acosh atanh erfc lgamma").split()
    },
}
