"""float8 dtypes in loops: their bits to float32, which GPUs do by a function, and back, by operations on integers, which all devices have."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..ir.scalar_ops import IN_BITS, ops
from .registry import Refused

I32, F32 = torch.int32, torch.float32
FLOAT8_COST = 12
BIAS, MANTISSA = 127, 23
"""Of float32."""


class Format(NamedTuple):
    """mantissa: bits of it; bias: of the exponent; last: the greatest number's bits; infinity: its bits, where there is one; overflow: the bits
    of the least float32 that is nearer to what would follow the greatest number, or tied with it where that is even."""

    mantissa: int
    bias: int
    last: int
    infinity: int | None
    overflow: int


FORMATS = {
    torch.float8_e4m3fn: Format(3, 7, 0x7E, None, 0x43E80001),  # after 464
    torch.float8_e5m2: Format(2, 15, 0x7B, 0x7C, 0x47700000),  # 61440
}
"""Others are moved, and converted by the library."""
NAN = 0x7F
QUIET_NAN, INFINITY = 0x7FC00000, 0x7F800000


@functools.cache
def beyond(dtype: torch.dtype) -> int:
    """The bits that stand for numbers that are too large: those of a NaN in torch 2.11's float8_e4m3fn, of the greatest number later."""
    return int(torch.tensor(math.inf).to(dtype).view(torch.uint8))


def converting(source: torch.dtype, target: torch.dtype, device: torch.device) -> Callable[[Any], Any]:
    """From a value of one dtype to one of another."""
    if source == target:
        return lambda value: value
    keeps_signs = target in IN_BITS  # of NaN, which instructions of GPUs do not
    read, written = _decoding(source, device.type == "cuda" and not keeps_signs), _encoding(target)
    return lambda value: written(read(value))


def _decoding(dtype: torch.dtype, at_once: bool) -> Callable[[Any], Any]:
    """From a value as loops hold it to one of a dtype that they compute with. at_once: by what the device has for it."""
    if dtype not in IN_BITS:
        return lambda value: value
    f = _format(dtype)
    if at_once:
        return lambda value: ops.to_dtype(ops.bitcast(value, dtype), F32)

    def decoded(value: Any) -> Any:
        bits = ops.to_dtype(value, I32)
        size = ops.bitwise_and(bits, _int(0x7F))
        normal = ops.add(ops.shift_left(size, _int(MANTISSA - f.mantissa)), _int((BIAS - f.bias) << MANTISSA))
        least = ops.constant(2.0 ** (1 - f.bias - f.mantissa), F32)
        subnormal = ops.bitcast(ops.mul(ops.to_dtype(size, F32), least), I32)
        number = ops.where(ops.lt(size, _int(1 << f.mantissa)), subnormal, normal)
        if f.infinity is not None:
            number = ops.where(ops.eq(size, _int(f.infinity)), _int(INFINITY), number)
        number = ops.where(ops.gt(size, _int(f.infinity or f.last)), _int(QUIET_NAN), number)
        sign = ops.shift_left(ops.bitwise_and(bits, _int(0x80)), _int(24))
        return ops.bitcast(ops.bitwise_or(number, sign), F32)

    return decoded


def _encoding(dtype: torch.dtype) -> Callable[[Any], Any]:
    """To a value as loops hold it, from one of a dtype that they compute with: to nearest, ties to even; the sign of a NaN stays."""
    if dtype not in IN_BITS:
        return lambda value: ops.to_dtype(value, dtype)
    f = _format(dtype)
    dropped = MANTISSA - f.mantissa

    def encoded(value: Any) -> Any:
        bits = ops.bitcast(ops.to_dtype(value, F32), I32)
        size = ops.bitwise_and(bits, _int(0x7FFFFFFF))
        odd = ops.bitwise_and(ops.shift_right(size, _int(dropped)), _int(1))
        half = (1 << (dropped - 1)) - 1
        normal = ops.shift_right(ops.add(ops.add(size, _int(half - ((BIAS - f.bias) << MANTISSA))), odd), _int(dropped))
        # Float32 rounds the sum to the dtype's least number: its last digits are the bits.
        unit = 2.0 ** (MANTISSA + 1 - f.bias - f.mantissa)
        shifted = ops.bitcast(ops.add(ops.bitcast(size, F32), ops.constant(unit, F32)), I32)
        subnormal = ops.sub(shifted, _int(_bits(unit)))
        number = ops.where(ops.lt(size, _int((BIAS + 1 - f.bias) << MANTISSA)), subnormal, normal)
        number = ops.where(ops.ge(size, _int(f.overflow)), _int(beyond(dtype)), number)
        if beyond(dtype) != NAN:
            number = ops.where(ops.gt(size, _int(INFINITY)), _int(NAN), number)
        sign = ops.bitwise_and(ops.shift_right(bits, _int(24)), _int(0x80))
        return ops.to_dtype(ops.bitwise_or(number, sign), IN_BITS[dtype])

    return encoded


def _format(dtype: torch.dtype) -> Format:
    found = FORMATS.get(dtype)
    if found is None:
        raise Refused(f"loops do not compute with {dtype}")
    return found


def _int(value: int) -> Any:
    return ops.constant(value, I32)


def _bits(value: float) -> int:
    return int(torch.tensor(value, dtype=F32).view(I32))
