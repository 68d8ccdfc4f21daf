"""Writer: makes the nodes of one ONNX model; constants, casts, and sizes that are computed in the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tracework_primops import Expr, Symbol
from tracework_primops.symbols import FloatExpr, FloorDiv, Max, Min, Mod, is_nonnegative

from .table import Refused, Value

OPSET = 20
IR_VERSION = 10
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
ELEMENT_TYPES: dict[torch.dtype, int] = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.uint16: 4, torch.int16: 5, torch.int32: 6, torch.int64: 7, torch.bool: 9,
    torch.float16: 10, torch.float64: 11, torch.uint32: 12, torch.uint64: 13, torch.bfloat16: 16,
}  # fmt: skip
"""torch dtype -> ONNX's number for it (TensorProto.DataType)."""
WIDER: dict[torch.dtype, torch.dtype] = {
    torch.float16: torch.float32, torch.bfloat16: torch.float32,
    torch.int8: torch.int32, torch.uint8: torch.int32, torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64,
}  # fmt: skip
"""What engines rarely have kernels for, and the dtype that holds all of its values."""
_FLOAT_OPS = {"/": "Div", "+": "Add", "-": "Sub", "*": "Mul", "min": "Min", "max": "Max", "**": "Pow"}
_FLOAT_FUNCTIONS = {
    "neg": "Neg",
    "abs": "Abs",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "sin": "Sin",
    "cos": "Cos",
    "tanh": "Tanh",
}


TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
"""Comparisons -> the one that is written in their place, with the operands exchanged: OpenVINO has NaN greater than everything."""


@dataclass(frozen=True)
class Traits:
    """How an engine computes.

    Attributes:
        native: the narrow dtypes that it computes with itself; others are computed in the dtype of WIDER and rounded.
        lacks: the dtypes that it would compute with in another one.
        not_for_special: ONNX operators that are wrong for NaN or infinities, and are not written where these may come.
        lacks_operators: ONNX operators that it has not in full: a Mod of floats that is exact, the places of a MaxPool.
        integers_below: what integers are exact below in all that it does, and sums_below in its sums and products over dims. None: their dtype.
    """

    native: frozenset[torch.dtype] = frozenset()
    lacks: frozenset[torch.dtype] = frozenset()
    not_for_special: frozenset[str] = frozenset()
    lacks_operators: frozenset[str] = frozenset()
    integers_below: int | None = None
    sums_below: int | None = None


USUAL = Traits()


class Writer:
    """Nodes in order, and the constants they read.

    Args:
        traits: what is written differently for the engine.
        trial: what is written is not kept; every symbol counts as known.
    """

    def __init__(self, traits: Traits = USUAL, trial: bool = False) -> None:
        import onnx  # an optional package; what may be written is known without it

        self.helper = onnx.helper
        self.traits = traits
        self._trial = trial
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.bad: list[str] = []
        """Counts (int64) of values for which eager's kernels are asked."""
        self.index_checks = True
        self._symbols: dict[Symbol, Callable[[], str]] = {}
        self._known: dict[Any, str] = {}
        self._count = 0

    def compute_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which values of this one are computed with. Raises Refused for a dtype that ONNX or the engine lacks."""
        if dtype not in ELEMENT_TYPES or dtype is torch.uint64 or dtype in self.traits.lacks:
            raise Refused(f"the engine does not compute with {dtype}")
        return dtype if dtype in self.traits.native else WIDER.get(dtype, dtype)

    # nodes --------------------------------------------------------------------------------------

    def fresh(self, kind: str) -> str:
        """A new name."""
        self._count += 1
        return f"{kind.lower()}_{self._count}"

    def ops(self, kind: str, results: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """A node with several results."""
        names = [self.fresh(kind) for _ in range(results)]
        self.nodes.append(self.helper.make_node(kind, list(inputs), names, **attributes))
        return tuple(names)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; gives the name of its result. The same node is made once."""
        if kind in TURNED:
            return self.op(TURNED[kind], *reversed(inputs))
        key = (kind, inputs, tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items())))
        if key not in self._known:
            self._known[key] = self.ops(kind, 1, *inputs, **attributes)[0]
        return self._known[key]

    def constant(self, value: Any, dtype: torch.dtype, sizes: Sequence[int] | None = None) -> str:
        """A number, or a list of numbers, in this dtype."""
        flat = list(value) if isinstance(value, (list, tuple)) else [value]
        sizes = ([len(flat)] if isinstance(value, (list, tuple)) else []) if sizes is None else sizes
        key = ("constant", repr(flat), dtype, tuple(sizes))
        if key not in self._known:
            self._known[key] = name = self.fresh("constant")
            data = torch.tensor(flat, dtype=dtype)
            raw = data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
            self.constants.append(self.helper.make_tensor(name, ELEMENT_TYPES[dtype], list(sizes), raw, raw=True))
        return self._known[key]

    def cast(self, name: str, dtype: torch.dtype) -> str:
        """In another dtype, by ONNX's rules."""
        return self.op("Cast", name, to=ELEMENT_TYPES[dtype])

    def in_dtype(self, value: Value, dtype: torch.dtype) -> str:
        """A value's name, in this dtype."""
        return value.name if value.dtype is dtype else self.cast(value.name, dtype)

    def operand(self, value: Any, dtype: torch.dtype) -> str:
        """A tensor, a number, or what sizes give, as something that broadcasts."""
        if isinstance(value, Value):
            return self.in_dtype(value, dtype)
        if isinstance(value, Expr):
            return self.cast(self.scalar(value), dtype)
        if isinstance(value, FloatExpr):
            return self.cast(self._float(value), dtype)
        if isinstance(value, (bool, int, float)):
            return self._number(value, dtype)
        raise Refused(f"it has a {type(value).__name__} operand")

    def _number(self, value: Any, dtype: torch.dtype) -> str:
        if dtype is torch.bool or dtype in FLOATS:
            return self.constant(value, dtype)
        if isinstance(value, float) and (math.isinf(value) or math.isnan(value)):
            raise Refused(f"{value} has no meaning in {dtype}")
        info = torch.iinfo(dtype)
        if not info.min <= int(value) <= info.max:
            raise Refused(f"{value} does not fit {dtype}")
        if self.traits.integers_below is not None and abs(int(value)) >= self.traits.integers_below:
            raise Refused(f"the engine does not compute with {value}")
        return self.constant(int(value), dtype)

    # sizes --------------------------------------------------------------------------------------

    def know(self, symbol: Symbol, name: Callable[[], str]) -> None:
        """Where a symbol's value is: a function that gives the name of an int64 tensor without dims."""
        self._symbols.setdefault(symbol, name)

    def scalar(self, size: Any) -> str:
        """An integer in an int64 tensor without dims."""
        if isinstance(size, int):
            return self.constant(int(size), torch.int64)
        if not isinstance(size, Expr):
            raise Refused(f"{size} is no size")
        key = ("size", size)
        if key not in self._known:
            self._known[key] = self._symbol(size) if isinstance(size, Symbol) else self._expression(size)
        return self._known[key]

    def size(self, size: Any) -> str:
        """An integer in an int64 tensor of sizes (1,)."""
        return self.ints(int(size)) if isinstance(size, int) else self.op("Unsqueeze", self.scalar(size), self.ints(0))

    def _symbol(self, symbol: Symbol) -> str:
        if self._trial:
            return str(symbol)
        if symbol not in self._symbols:
            raise Refused(f"the symbol {symbol} is no size of an input")
        return self._symbols[symbol]()

    def _expression(self, size: Expr) -> str:
        parts: Any = size.arguments() if isinstance(size, (Max, Min, Mod, FloorDiv)) else ()
        if isinstance(size, FloorDiv):  # ONNX divides towards zero
            above, below = map(self.scalar, parts)
            if not is_nonnegative(parts[0]):
                above = self.op("Sub", above, self.op("Mod", above, below))
            return self.op("Div", above, below)
        if parts:
            return self.op(type(size).__name__, *map(self.scalar, parts))
        total = None
        for monomial, coefficient in size.terms.items():
            factors = ([self.scalar(coefficient)] if coefficient != 1 or not monomial else []) + [
                self.scalar(a) for a in monomial
            ]
            term = factors[0]
            for factor in factors[1:]:
                term = self.op("Mul", term, factor)
            total = term if total is None else self.op("Add", total, term)
        assert total is not None
        return total

    def _float(self, value: Any) -> str:
        if isinstance(value, Expr):
            return self.cast(self.scalar(value), torch.float64)
        if isinstance(value, FloatExpr):
            names = [self._float(a) for a in value.args]
            if value.op == "float":
                return names[0]
            kind = _FLOAT_OPS.get(value.op) or _FLOAT_FUNCTIONS.get(value.op)
            if kind is None:
                raise Refused(f"{value} computes a float from sizes by {value.op}")
            return self.op(kind, *names)
        return self.constant(value, torch.float64)

    def sizes(self, sizes: Sequence[Any]) -> str:
        """Integers in a one-dim int64 tensor."""
        if all(isinstance(s, int) for s in sizes):
            return self.constant([int(s) for s in sizes], torch.int64)
        return self.op("Concat", *map(self.size, sizes), axis=0)

    def ints(self, *values: int) -> str:
        """Numbers in a one-dim int64 tensor."""
        return self.constant(list(values), torch.int64)

    # what many rows do --------------------------------------------------------------------------

    def reshape(self, name: str, sizes: Sequence[Any]) -> str:
        """Other sizes; 0 means 0."""
        return self.op("Reshape", name, self.sizes(sizes), allowzero=1)

    def expand(self, name: str, sizes: Sequence[Any]) -> str:
        """Broadcast to sizes."""
        return self.op("Expand", name, self.sizes(sizes))

    def full(self, value: Any, sizes: Sequence[Any], dtype: torch.dtype) -> str:
        """A number, or what sizes give, everywhere."""
        return self.expand(self.operand(value, dtype), sizes)

    def iota(self, n: Any) -> str:
        """0, 1, ... below n, int64."""
        return self.op("Range", self.constant(0, torch.int64), self.scalar(n), self.constant(1, torch.int64))

    def line(self, n: Any, dim: int, ndim: int) -> str:
        """0, 1, ... below n along one of several dims, int64; the others are 1."""
        others = [d for d in range(ndim) if d != dim]
        return self.op("Unsqueeze", self.iota(n), self.ints(*others)) if others else self.iota(n)

    def where(self, condition: str, a: str, b: str, dtype: torch.dtype) -> str:
        """a where the condition holds, else b; both in dtype."""
        if dtype is not torch.bool:
            return self.op("Where", condition, a, b)
        chosen, other = self.op("And", condition, a), self.op("And", self.op("Not", condition), b)
        return self.op("Or", chosen, other)

    def refuse_values(self, bad: str) -> None:
        """Says where (a bool tensor) values are that eager raises an error for, or the engine cannot compute with."""
        counts = self.op("Cast", bad, to=ELEMENT_TYPES[torch.int64])
        self.bad.append(self.op("ReduceSum", counts, keepdims=0))

    def index(self, index: Value, size: Any, wrap: bool) -> str:
        """An int64 index that is in range: engines read what is out of it, or wrap it, each in its own way."""
        name = self.in_dtype(index, torch.int64)
        zero, length = self.constant(0, torch.int64), self.scalar(size)
        if wrap:
            name = self.op("Where", self.op("Less", name, zero), self.op("Add", name, length), name)
        if not self.index_checks:
            return name
        outside = self.op("Or", self.op("Less", name, zero), self.op("GreaterOrEqual", name, length))
        self.refuse_values(outside)
        return self.op("Where", outside, zero, name)
