"""CPP_TEXT: scalar op -> C++ text; the functions it names are in prefix.py."""

import math
from collections.abc import Callable
from typing import Any

import torch

from .prefix import SCALAR_LIBM, VECTOR_LIBM

CPP_TYPES: dict[torch.dtype, str] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "float",
    torch.bfloat16: "float",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.int16: "int16_t",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
}
"""The type in which a value is computed."""

MEMORY_TYPES: dict[torch.dtype, str] = {**CPP_TYPES, torch.float16: "tw_half", torch.bfloat16: "tw_bf16", torch.bool: "uint8_t"}
"""The type of an element in memory."""

SIMD = "#pragma omp simd"
"""Stands before a vector loop."""

UNARY_FLOAT = ("floor", "ceil", "trunc", "sqrt", *VECTOR_LIBM, *SCALAR_LIBM)
"""Functions with the name of the op that exist for float and double."""

Text = Callable[..., str]

CPP_TEXT: dict[str, Text] = {
    "neg": lambda t, a: f"({t})(-{a})",
    "abs": lambda t, a: f"tw_abs({a})",
    "sign": lambda t, a: f"({t})(({a} > 0) - ({a} < 0))",
    "round": lambda t, a: f"tw_rint({a})",
    "rsqrt": lambda t, a: f"({t})1 / tw_sqrt({a})",
    "reciprocal": lambda t, a: f"({t})1 / {a}",
    "square": lambda t, a: f"({t})({a} * {a})",
    "relu": lambda t, a: f"({a} < 0 ? ({t})0 : {a})",
    "sigmoid": lambda t, a: f"({t})1 / (({t})1 + tw_exp(-{a}))",
    "bitwise_not": lambda t, a: f"!{a}" if t == "bool" else f"({t})(~{a})",
    "logical_not": lambda t, a: f"!{a}",
    "isnan": lambda t, a: f"({a} != {a})",
    "isinf": lambda t, a: f"tw_isinf({a})",
    "isfinite": lambda t, a: f"tw_isfinite({a})",
    "signbit": lambda t, a: f"tw_signbit({a})",
    "add": lambda t, a, b: f"({t})({a} + {b})",
    "sub": lambda t, a, b: f"({t})({a} - {b})",
    "mul": lambda t, a, b: f"({t})({a} * {b})",
    "div": lambda t, a, b: f"{a} / {b}",
    "div_rn": lambda t, a, b: f"{a} / {b}",
    "round_float16": lambda t, a: f"tw_rounded<tw_half>({a})",
    "round_bfloat16": lambda t, a: f"tw_rounded<tw_bf16>({a})",
    "floor_divide": lambda t, a, b: f"tw_floor_divide({a}, {b})",
    "trunc_divide": lambda t, a, b: f"tw_trunc_divide({a}, {b})",
    "remainder": lambda t, a, b: f"tw_remainder({a}, {b})",
    "fmod": lambda t, a, b: f"tw_fmod({a}, {b})",
    "pow": lambda t, a, b: f"tw_pow({a}, {b})",
    "atan2": lambda t, a, b: f"tw_atan2({a}, {b})",
    "hypot": lambda t, a, b: f"tw_hypot({a}, {b})",
    "nextafter": lambda t, a, b: f"tw_nextafter({a}, {b})",
    "copysign": lambda t, a, b: f"tw_copysign({a}, {b})",
    "maximum": lambda t, a, b: f"tw_max({a}, {b})",
    "minimum": lambda t, a, b: f"tw_min({a}, {b})",
    "fmax": lambda t, a, b: f"tw_fmax({a}, {b})",
    "fmin": lambda t, a, b: f"tw_fmin({a}, {b})",
    "bitwise_and": lambda t, a, b: f"({t})({a} & {b})",
    "bitwise_or": lambda t, a, b: f"({t})({a} | {b})",
    "bitwise_xor": lambda t, a, b: f"({t})({a} ^ {b})",
    "shift_left": lambda t, a, b: f"tw_shift_left({a}, {b})",
    "shift_right": lambda t, a, b: f"tw_shift_right({a}, {b})",
    "eq": lambda t, a, b: f"({a} == {b})",
    "ne": lambda t, a, b: f"({a} != {b})",
    "lt": lambda t, a, b: f"({a} < {b})",
    "le": lambda t, a, b: f"({a} <= {b})",
    "gt": lambda t, a, b: f"({a} > {b})",
    "ge": lambda t, a, b: f"({a} >= {b})",
    "logical_and": lambda t, a, b: f"((bool){a} & (bool){b})",
    "logical_or": lambda t, a, b: f"((bool){a} | (bool){b})",
    "logical_xor": lambda t, a, b: f"((bool){a} ^ (bool){b})",
    "where": lambda t, c, a, b: f"{c} ? {a} : {b}",
    "fma": lambda t, a, b, c: f"tw_fma({a}, {b}, {c})",
    **{name: (lambda t, a, name=name: f"tw_{name}({a})") for name in UNARY_FLOAT},
}

REDUCTIONS: dict[str, tuple[Callable[[str], str], str]] = {
    "sum": (lambda t: "0", "{acc} + {value}"),
    "dot": (lambda t: "0", "{acc} + {value}"),
    "prod": (lambda t: "1", "{acc} * {value}"),
    "max": (lambda t: f"tw_lowest<{t}>()", "tw_max({acc}, {value})"),
    "min": (lambda t: f"tw_highest<{t}>()", "tw_min({acc}, {value})"),
    "any": (lambda t: "0", "{acc} | {value}"),
    "all": (lambda t: "1", "{acc} & {value}"),
    "xor_sum": (lambda t: "0", "{acc} ^ {value}"),
}
"""kind -> (initial value for a type, combination)."""


def constant_text(value: Any, dtype: torch.dtype) -> str:
    """A literal."""
    if isinstance(value, str):
        value = {"nan": math.nan}.get(value) if value == "nan" else float(value) if "." in value else value == "True"
    kind = CPP_TYPES[dtype]
    if kind == "bool":
        return "true" if value else "false"
    if kind not in ("float", "double"):
        value = int(value)
        return f"({kind}){value}LL" if value > -(2**63) else "INT64_MIN"
    if value != value:
        return f'({kind})__builtin_nan("")'
    if value in (math.inf, -math.inf):
        return f"({kind}){'-' if value < 0 else ''}__builtin_inf()"
    text = f"{float(value)!r}"
    return f"{text}f" if kind == "float" else text


def conversion(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """`value` of one dtype as another, by the rules of Tensor.to."""
    a, b = CPP_TYPES[source], CPP_TYPES[target]
    if b == "bool":
        return f"({value} != 0)"
    if target.is_floating_point and not source.is_floating_point and a != "bool":
        return f"({b})tw_whole({value})"
    if target in (torch.bfloat16, torch.float16):
        return f"(float){value}" if a != "float" else value
    if a in ("float", "double") and b in ("int8_t", "uint8_t", "int16_t"):
        return f"({b})(int32_t){value}" if a == "float" else f"({b})(int64_t){value}"
    return value if a == b else f"({b}){value}"
