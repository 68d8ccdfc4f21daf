"""SCALAR_OPS: the operations a loop body may call, and the one ambient slot through which it calls them.

A loop body is a plain function of indices. It calls `ops.exp(x)`, `ops.load(name, index)` and so on; whoever runs the
body decides what that means by entering a handler: recording, printing, bounding. The slot is a context variable set
only by `handling`.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

# How the dtype of a result follows from the operands: "same" as the first operand that is a value,
# "bool", or "int64".
SAME, BOOL, SECOND = "same", "bool", "second"


ROUNDINGS = {torch.float16: "round_float16", torch.bfloat16: "round_bfloat16"}
"""Half dtype -> the scalar op that rounds what is held in float32 to a value of the dtype, and holds that."""

IN_BITS: dict[torch.dtype, torch.dtype] = dict.fromkeys(
    (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu), torch.uint8
)
"""Dtypes whose values loops move and convert, and compute nothing with -> how they hold them: as their bits."""


def as_held(value: Any, dtype: torch.dtype) -> Any:
    """A number of the dtype as loops hold it."""
    return torch.tensor(value, dtype=dtype).view(IN_BITS[dtype]).item() if dtype in IN_BITS else value


@dataclasses.dataclass(frozen=True)
class ScalarOp:
    """One row: name, number of operands, dtype rule and relative cost (1 = an addition)."""

    name: str
    arity: int
    dtype_rule: str = SAME
    cost: int = 1


def _rows() -> Iterator[ScalarOp]:
    cheap_unary = "neg abs sign floor ceil trunc round sqrt reciprocal bitwise_not square relu"
    for name in cheap_unary.split():
        yield ScalarOp(name, 1)
    yield ScalarOp("rsqrt", 1, SAME, 2)
    costly_unary = (
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid lgamma"
    )
    for name in costly_unary.split():
        yield ScalarOp(name, 1, SAME, 8)
    for name in "logical_not isnan isinf isfinite signbit".split():
        yield ScalarOp(name, 1, BOOL)
    cheap_binary = "add sub mul maximum minimum fmax fmin copysign bitwise_and bitwise_or bitwise_xor shift_left shift_right"
    for name in cheap_binary.split():
        yield ScalarOp(name, 2)
    for name in "div floor_divide trunc_divide remainder fmod".split():
        yield ScalarOp(name, 2, SAME, 3)
    for name in "pow atan2 hypot nextafter".split():
        yield ScalarOp(name, 2, SAME, 12)
    for name in "eq ne lt le gt ge logical_and logical_or logical_xor".split():
        yield ScalarOp(name, 2, BOOL)
    yield ScalarOp("where", 3, SECOND)
    yield ScalarOp("fma", 3)
    # Only under a contract of numerics: see lowering/pointwise.py.
    yield ScalarOp("div_rn", 2, SAME, 3)
    for name in ROUNDINGS.values():
        yield ScalarOp(name, 1)


SCALAR_OPS: dict[str, ScalarOp] = {row.name: row for row in _rows()}
"""name -> ScalarOp for everything that is arithmetic. Memory and structure are STRUCTURAL_OPS."""

STRUCTURAL_OPS = frozenset(
    {
        "load",  # (buffer, index, mask | None) -> value; a masked-off load gives 0
        "store",  # (buffer, index, value, mode[, mask]): mode "set", "add" (atomic), "max", "min", "mul", COLUMNS; nothing where the mask is
        # false
        "constant",  # (number, dtype)
        "index_expr",  # (expr, dtype): an index as a value
        "indirect",  # (value, size, symbol, check, mask | None, position): from here on `symbol` in an index stands for value, in [0, size);
        # check: an IndexCheck where that is not known, to be made where the mask holds; position: which element of the index it is
        "to_dtype",  # (value, dtype)
        "bitcast",  # (value, dtype)
        "reduce",  # (name, kind, value[, second]): accumulate over the reduction axes of an inner pass; second: the position of an extreme's
        # value, a dot's other factor
        "scan",  # (name, kind, value[, position]) -> running value along the reduction axis; position: of an extreme's value
        "scanned_position",  # (scan) -> where the extreme that a scan has found so far is
        "argsort",  # (value, descending) -> where in its row the element is that comes to this place when the row is sorted: NaN above all
        # numbers, equal elements as they were
        "take_along",  # (value, position) -> the value of the row's element at the position
        "local",  # (name): a reduction's result, or a value defined by an outer pass, of the same row
        "define",  # (name, value): outer pass only; makes `local(name)` available in later passes
        "scratch_store",  # (name, position, value): keep one value per inner iteration of this row
        "scratch_load",  # (name, position)
    }
)

REDUCTION_KINDS = frozenset(
    {"sum", "dot", "prod", "max", "min", "any", "all", "xor_sum", "argmax", "argmin", "mean", "squared_deviations"}
)
EXTREME_SCANS = frozenset({"last_argmax", "last_argmin"})
"""The extreme so far and its last position; a NaN is more extreme than any number."""
COLUMNS = "columns"
"""Mode of a store, and domain of a node: each block of a kernel adds up what its points store at an index that depends on the reduction axes
alone; the buffer's first axis are the blocks."""
ACROSS_ROWS = frozenset({"scan", "argsort", "take_along"})
"""What depends on the order in which a row is walked."""
SCAN_KINDS = frozenset({"sum", "prod", "logaddexp"}) | EXTREME_SCANS

_handler: contextvars.ContextVar[Any] = contextvars.ContextVar("tracework_inductor_handler")


class _Slot:
    """`ops`: forwards attribute calls to the handler in force."""

    def __getattr__(self, name: str) -> Any:
        handler = _handler.get()
        method = getattr(handler, name, None)
        if method is not None:
            return method
        if name in SCALAR_OPS:
            return lambda *args: handler.apply(name, args)
        raise AttributeError(f"SCALAR_OPS has no row {name!r} (ir/scalar_ops.py)")


ops: Any = _Slot()


def handler() -> Any:
    """The meaning of `ops` now."""
    return _handler.get()


@contextlib.contextmanager
def handling(handler: Any) -> Iterator[Any]:
    """Makes `handler` the meaning of `ops` inside the block."""
    token = _handler.set(handler)
    try:
        yield handler
    finally:
        _handler.reset(token)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which arithmetic on `dtype` is done: half types compute in float32."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
