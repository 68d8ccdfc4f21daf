"""Integer expressions for sizes, what is known of them, and their carriers in torch.

Import the names from here; the modules below are:
expr (interned expressions), ranges (bounds and simplification with bounds), table
(symbols of one compile and the conditions recorded), symint (nodes behind torch.SymInt).
"""

from . import active
from .expr import (
    Condition,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Size,
    Symbol,
    floordiv,
    maximum,
    minimum,
    mod,
    parse,
    symbol,
)
from .ranges import bounds, is_nonnegative, simplify
from .symint import FloatExpr, FloatNode, as_quotient
from .table import RecordedCondition, SymbolTable

__all__ = [
    "Condition",
    "Expr",
    "FloatExpr",
    "FloatNode",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "RecordedCondition",
    "Size",
    "Symbol",
    "SymbolTable",
    "active",
    "as_quotient",
    "bounds",
    "floordiv",
    "is_nonnegative",
    "maximum",
    "minimum",
    "mod",
    "parse",
    "simplify",
    "symbol",
]
