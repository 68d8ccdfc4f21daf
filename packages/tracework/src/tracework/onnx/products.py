"""Matrix products."""

from __future__ import annotations

from typing import Any

from .table import Refused, Value, row
from .writer import FLOATS, Writer


@row("mm", "bmm", "mv", "dot")
def _product(w: Writer, out: Any, a: Value, b: Value) -> str:
    return w.op("MatMul", a.name, b.name)


@row("vdot")
def _vdot(w: Writer, out: Any, a: Value, b: Value) -> str:
    return w.op("MatMul", a.name, b.name)


@row("addmm")
def _addmm(w: Writer, out: Any, bias: Value, a: Value, b: Value, beta: Any, alpha: Any) -> str:
    """beta 0 leaves out what is in bias, NaN included."""
    if out.dtype not in FLOATS or not all(isinstance(n, (int, float)) for n in (alpha, beta)):
        return _with_bias(w, out, bias, a, b, beta, alpha)
    if beta == 0:
        return w.op("Gemm", a.name, b.name, alpha=float(alpha))
    return w.op("Gemm", a.name, b.name, bias.name, alpha=float(alpha), beta=float(beta))


@row("baddbmm")
def _with_bias(w: Writer, out: Any, bias: Value, a: Value, b: Value, beta: Any, alpha: Any) -> str:
    product = w.op("MatMul", a.name, b.name)
    if alpha != 1:
        product = w.op("Mul", product, w.operand(alpha, out.dtype))
    if beta == 0:
        return product
    return w.op("Add", product, bias.name if beta == 1 else w.op("Mul", bias.name, w.operand(beta, out.dtype)))


@row("int_mm", own_dtypes=True)
def _int_mm(w: Writer, out: Any, a: Value, b: Value) -> str:
    if any(x.spec.is_symbolic for x in (a, b)) and a.ndim != 2:
        raise Refused("a product of integers of more than two dims")
    return w.op("MatMulInteger", a.name, b.name)
