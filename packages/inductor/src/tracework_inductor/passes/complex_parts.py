"""Complex numbers as pairs of real ones, which loops compute with: a value of a complex dtype becomes its real and its imaginary part.

What a loop reads of complex memory is a window on the parts (prims.view_as_real), and what a library call or the caller gets is
complex memory that a loop fills (prims.view_as_complex). The formulas are those of eager's kernels, whose sums are a + 1*b with a complex
product: of infinite parts they make NaN where sums of the parts would not. A prim without a row calls the eager kernel:

- pow, exp, log, sqrt, sin and the other transcendental functions: eager has a text of its own for each case of infinite parts;
- div by a tensor, reciprocal and sgn: kernels for vectors, for the rest of a row and for GPUs scale the operands each in their own way;
- prod, cumprod, norm, var_mean and products of matrices: the order of the factors is the kernel's, or a library does it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from tracework_primops import PrimGraph, PrimValue, TensorSpec, prims
from tracework_primops.op import Op
from tracework_primops.passes import dead_code
from tracework_primops.passes.edits import memory_of
from tracework_primops.promotion import real_of

from ..ir.buffer import IN_PARTS
from .rewrites import built_before, value_of


class Pair(NamedTuple):
    """A complex value: its parts are values, or numbers."""

    real: Any
    imag: Any


EACH_PART = frozenset(
    "expand permute reshape slice squeeze unsqueeze diagonal flip unfold select clone contiguous cat where gather index index_select take"
    " roll tril triu slice_scatter select_scatter diagonal_scatter neg sum cumsum device_put".split()
)
"""Prims that do the same with both parts."""


def _arithmetic(prim: Any, of_numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: prim(a, b) if isinstance(a, PrimValue) or isinstance(b, PrimValue) else of_numbers(a, b)


_plus = _arithmetic(prims.add, operator.add)
_minus = _arithmetic(prims.sub, operator.sub)
_times = _arithmetic(prims.mul, operator.mul)


def _mul(node: Any, a: Pair, b: Pair) -> Pair:
    real = _minus(_times(a.real, b.real), _times(a.imag, b.imag))
    return Pair(real, _plus(_times(a.real, b.imag), _times(a.imag, b.real)))


def _add(node: Any, a: Pair, b: Pair) -> Pair:
    return Pair(
        _plus(a.real, _minus(b.real, _times(b.imag, 0.0))),
        _plus(a.imag, _plus(b.imag, _times(b.real, 0.0))),
    )


def _sub(node: Any, a: Pair, b: Pair) -> Pair:
    return Pair(
        _plus(a.real, _minus(_times(b.real, -1.0), _times(b.imag, 0.0))),
        _plus(a.imag, _plus(_times(b.imag, -1.0), _times(b.real, 0.0))),
    )


def _div(node: Any, a: Pair, b: Pair) -> Pair | None:
    """By a real number, as eager's product with its reciprocal."""
    if isinstance(b.real, PrimValue) or b.imag != 0 or b.real == 0:
        return None
    return _mul(node, a, Pair(1.0 / b.real, 0.0))


def _join(x: Pair) -> PrimValue:
    """The parts next to each other, along a last dim of size 2."""
    dim = x.real.ndim
    return prims.cat(tuple([prims.unsqueeze(part, dim) for part in x]), dim)


def _split(x: PrimValue) -> Pair:
    return Pair(prims.select(x, x.ndim - 1, 0), prims.select(x, x.ndim - 1, 1))


def _complex(node: Any, a: PrimValue, b: PrimValue) -> Pair:
    sizes = node.meta["spec"].sizes
    return Pair(prims.expand(a, sizes), prims.expand(b, sizes))


def _convert(node: Any, x: Any, dtype: torch.dtype) -> Any:
    if not isinstance(x, Pair):
        return Pair(prims.convert(x, real_of(dtype)), prims.full(x.sizes, 0.0, real_of(dtype), x.device))
    if not dtype.is_complex:  # eager drops the imaginary part
        return prims.convert(x.real, dtype)
    return Pair(*[prims.convert(part, real_of(dtype)) for part in x])


def _full(node: Any, sizes: Any, value: Any, dtype: torch.dtype, device: torch.device) -> Pair | None:
    if not isinstance(value, (int, float, complex)):
        return None
    return Pair(*[prims.full(sizes, part, real_of(dtype), device) for part in _of_number(value)])


def _scalar_tensor(node: Any, value: Any, dtype: torch.dtype, device: torch.device) -> Pair | None:
    return _full(node, (), value, dtype, device)


def _pad(node: Any, x: Pair, low_high_pairs: Any, value: Any) -> Pair:
    return Pair(*[prims.pad(part, low_high_pairs, number) for part, number in zip(x, _of_number(value), strict=True)])


ROWS: Mapping[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "square": lambda node, x: _mul(node, x, x),
    "conj": lambda node, x: Pair(x.real, prims.neg(x.imag)),
    "complex": _complex,
    "view_as_complex": lambda node, x: _split(x),
    "convert": _convert,
    "full": _full,
    "scalar_tensor": _scalar_tensor,
    "pad": _pad,
    "view_as_real": lambda node, x: _join(x),
    "real": lambda node, x: prims.clone(x.real),
    "imag": lambda node, x: prims.clone(x.imag),
    "abs": lambda node, x: prims.hypot(x.real, x.imag),
    "angle": lambda node, x: prims.atan2(x.imag, x.real),
    "eq": lambda node, a, b: prims.logical_and(prims.eq(a.real, b.real), prims.eq(a.imag, b.imag)),
    "ne": lambda node, a, b: prims.logical_or(prims.ne(a.real, b.real), prims.ne(a.imag, b.imag)),
}
"""prim -> what it gives of its arguments, of which complex tensors, and numbers beside them, are pairs: a pair, a real value, or None where
the eager kernel is called."""


def complex_parts(graph: PrimGraph) -> PrimGraph:
    """The graph with complex arithmetic as arithmetic of the parts; the same object where there is none."""
    names = {node.name for node in graph.calls if _has_row(node)}
    if not names:
        return graph
    copy = graph.copy()
    parts: dict[Any, Pair] = {}
    for node in [n for n in copy.calls if n.name in names]:
        with built_before(node):
            _rewrite(node, parts)
    return dead_code(copy)


def _has_row(node: Any) -> bool:
    if not isinstance(node.target, Op) or node.target.name not in EACH_PART and node.target.name not in ROWS:
        return False
    specs = [n.meta.get("spec") for n in (node, *node.all_input_nodes)]
    if not all(isinstance(spec, TensorSpec) for spec in specs):
        return False
    if any(arg.letter == "V" and not _is_operand(value) for value, arg in zip(node.args, node.target.args, strict=True)):
        return False
    found = {spec.dtype for spec in specs if spec.dtype.is_complex}
    return bool(found) and found <= IN_PARTS.keys()


def _is_operand(arg: Any) -> bool:
    return isinstance(arg, (torch.fx.Node, int, float, complex))


def _rewrite(node: Any, parts: dict[Any, Pair]) -> None:
    name, spec = node.target.name, node.meta["spec"]
    args = [_argument(value, arg.letter == "V", parts) for value, arg in zip(node.args, node.target.args, strict=True)]
    if name in EACH_PART:
        result = Pair(*[node.target(*[_part(arg, k) for arg in args]) for k in range(2)])
    else:
        result = ROWS[name](node, *args)
    if result is None:
        return
    if isinstance(result, Pair):
        parts[node] = result
        if memory_of(node) is not node:  # a view stays one, of what its operand becomes
            return
        whole = prims.view_as_complex(_join(result)).node
        parts[whole] = result
    else:
        whole = result.node
    whole.meta["spec"] = spec
    node.replace_all_uses_with(whole)
    node.graph.erase_node(node)  # which may check an index, as the prims of the parts do now


def _argument(arg: Any, is_operand: bool, parts: dict[Any, Pair]) -> Any:
    """A node's argument as a row takes it."""
    if isinstance(arg, torch.fx.Node):
        if not arg.meta["spec"].dtype.is_complex:
            return value_of(arg)
        if arg not in parts:
            parts[arg] = _split(prims.view_as_real(value_of(arg)))
        return parts[arg]
    if isinstance(arg, (tuple, list)):
        return tuple([_argument(a, False, parts) for a in arg])
    return _of_number(arg) if is_operand else arg


def _part(arg: Any, k: int) -> Any:
    if isinstance(arg, Pair):
        return arg[k]
    if isinstance(arg, tuple):
        return tuple([_part(a, k) for a in arg])
    return real_of(arg) if isinstance(arg, torch.dtype) else arg


def _of_number(value: Any) -> Pair:
    return Pair(value.real, value.imag) if isinstance(value, complex) else Pair(float(value), 0.0)


__all__ = ["EACH_PART", "ROWS", "complex_parts"]
