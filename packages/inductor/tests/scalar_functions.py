"""The scalar operations that prims of floats are lowered to by name, with operands in their domains: one list for all targets."""

import torch
from tracework_inductor.ir.scalar_ops import SCALAR_OPS
from tracework_inductor.lowering.pointwise import SAME_NAME

POSITIVE = {"log", "log2", "log10", "sqrt", "rsqrt", "lgamma", "pow"}
SMALL = {"asin", "acos", "atanh", "log1p", "erfc"}
LARGE = {"acosh"}
INT_ONLY = {"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"}
FLOAT_UNARY = [n for n in SAME_NAME if SCALAR_OPS[n].arity == 1 and n not in INT_ONLY]
FLOAT_BINARY = [n for n in SAME_NAME if SCALAR_OPS[n].arity == 2 and n not in INT_ONLY and n not in ("nextafter",)]


def operand(name: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random numbers for which the function has a value."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(7, 33, generator=generator)
    if name in POSITIVE:
        x = x.abs() + 0.1
    elif name in SMALL:
        x = x.clamp(-2, 2) / 2.1
    elif name in LARGE:
        x = x.abs() + 1.1
    return x.to(dtype)
