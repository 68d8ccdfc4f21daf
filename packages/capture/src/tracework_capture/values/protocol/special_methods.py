"""Operators and the special methods that they stand for, by name."""

from __future__ import annotations

REFLECTED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparison -> the one that the other operand is asked."""
SPECIAL = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "^": "xor",
    "|": "or",
}
"""Operator symbol -> stem of its special method."""
COMPARE_SPECIAL = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
UNARY_SPECIAL = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
BY_METHOD = {f"__{stem}__": symbol for symbol, stem in SPECIAL.items()}
BY_REFLECTED_METHOD = {f"__r{stem}__": symbol for symbol, stem in SPECIAL.items()}
BY_INPLACE_METHOD = {f"__i{stem}__": symbol + "=" for symbol, stem in SPECIAL.items()}
BY_COMPARE_METHOD = {name: symbol for symbol, name in COMPARE_SPECIAL.items()}
BY_UNARY_METHOD = {name: symbol for symbol, name in UNARY_SPECIAL.items()}
OPERATIONS = (BY_METHOD, BY_REFLECTED_METHOD, BY_INPLACE_METHOD, BY_COMPARE_METHOD, BY_UNARY_METHOD)
