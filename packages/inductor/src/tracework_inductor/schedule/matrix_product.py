"""A kernel of one product as what a core computes in tiles: which of its axes are rows, which are columns, which are batches."""

import dataclasses

import torch

from ..ir.body import Axis, Ref, axes_behind
from ..ir.index import INT32_LIMIT, constant_product
from .plan import LoopKernel

OPERANDS = frozenset((torch.bfloat16, torch.float16, torch.float32))
"""Dtypes of the matrices that a core multiplies."""


@dataclasses.dataclass(frozen=True)
class MatrixProduct:
    """For each point of `batches`: (rows, inner) x (inner, columns), results of which lie side by side along `columns`."""

    batches: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    name: str
    """By which what follows in the kernel knows the product."""
    factors: tuple[Ref, Ref]
    """The element of the matrix of the rows, and that of the columns, in the dtype that is multiplied."""
    dtype: torch.dtype


def matrix_product(kernel: LoopKernel) -> MatrixProduct | str:
    """The product, or why no core computes the kernel."""
    if not kernel.passes or kernel.passes[0].level != "inner" or kernel.scratch:
        return "it computes other things before the product"
    if any(p.level == "inner" for p in kernel.passes[1:]):
        return "it walks over the inner dimension again"
    body = kernel.passes[0].body
    effects = [i for i in body.instructions if i.dtype is None and i.op != "indirect"]
    if len(effects) != 1 or effects[0].op != "reduce" or effects[0].args[1] != "dot":
        return "it adds up more than one product"
    if any(True for _ in body.checks()):
        return "the matrices are looked up by indices that are checked"
    if any(isinstance(e, int) and e > INT32_LIMIT for e in (layout.elements() for layout in kernel.layouts.values())):
        return "positions take more than 32 bits"
    name, _, *values = effects[0].args
    factors, dtypes = [], set()
    for ref in values:
        widened = body.instructions[ref.position]
        ref = widened.args[0] if widened.op == "to_dtype" and widened.dtype == torch.float32 else ref
        factors.append(ref)
        dtypes.add(body.instructions[ref.position].dtype)
    if len(dtypes) != 1 or not dtypes <= OPERANDS:
        return "the matrices have dtypes that no tensor cores multiply"
    behind = [{axis.var for axis in axes_behind(body, ref)} for ref in factors]
    fastest = kernel.axes[-1].var if kernel.axes else None
    if fastest in behind[0] and fastest not in behind[1]:  # the result lies the other way round
        factors.reverse()
        behind.reverse()
    rows = tuple(a for a in kernel.axes if a.var in behind[0] and a.var not in behind[1])
    columns = tuple(a for a in kernel.axes if a.var in behind[1] and a.var not in behind[0])
    if not rows or not columns:
        return "it multiplies a vector"
    batches = tuple(a for a in kernel.axes if a not in rows and a not in columns)
    first, second = factors
    return MatrixProduct(batches, rows, columns, kernel.reduction_axes, name, (first, second), dtypes.pop())


def extents(found: MatrixProduct) -> tuple[int, int, int, int]:
    """Batches, rows, columns and inner elements, those that are not known as they are guessed."""
    batches, rows, columns, inner = (
        constant_product(a.size for a in axes) for axes in (found.batches, found.rows, found.columns, found.inner)
    )
    return batches, rows, columns, inner


__all__ = ["OPERANDS", "MatrixProduct", "extents", "matrix_product"]
