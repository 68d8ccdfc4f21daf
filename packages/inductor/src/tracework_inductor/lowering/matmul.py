"""Matrix products are library calls, written into planned buffers.

On a GPU, a matrix of two-byte elements whose rows do not start at multiples of 16 bytes puts the whole product on a
kernel several times slower. Where the product is large, its result gets padded rows, and an operand is copied into
padded rows first: what that costs is one pass over the matrix.
"""

from collections.abc import Sequence
from typing import Any

from ..ir.buffer import BufferLayout
from ..ir.index import Size, constant_product, same
from ..ir.scalar_ops import ops
from .pointwise import elementwise
from .registry import lowers
from .value import Strided, settled

_DEVICES = frozenset(("cuda",))
_ALIGNED_ELEMENTS = 8  # of two bytes
# Padding pays where the product does this much arithmetic per element of the matrix to be copied ...
_WORTH_LENGTH = 256
# ... and the matrix is this large.
_WORTH_ELEMENTS = 1 << 20


def _windows(low: Any, values: Sequence[Any]) -> list[Any]:
    """Operands in memory; any strides will do, so views stay views."""
    return [low.realize(settled(v)) for v in values]


@lowers("mm")
def mm(low: Any, a: Any, b: Any) -> Any:
    """(m,k) x (k,n)."""
    return _product(low, a, b)


@lowers("bmm")
def bmm(low: Any, a: Any, b: Any) -> Any:
    """(n,m,k) x (n,k,p)."""
    return low.extern("torch.bmm", _windows(low, (a, b)), out_form="torch.bmm")


@lowers("addmm")
def addmm(low: Any, bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta*bias + alpha*(a@b)."""
    scale = {k: v for k, v in (("beta", beta), ("alpha", alpha)) if v != 1}
    if not scale and _padded_strides(low.spec, b.sizes[0]) is not None:
        # The library adds the bias on the way only to rows without gaps; here it is fused with what reads the product.
        product = _product(low, a, b)
        return elementwise(low, (product, bias), product.dtype, lambda x, y: ops.add(x, y))
    operands = [_aligned(low, a, b.sizes[1]), _aligned(low, b, a.sizes[0])]
    return low.extern("torch.addmm", [*_windows(low, (bias,)), *operands], scale, out_form="torch.addmm")


@lowers("baddbmm")
def baddbmm(low: Any, bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta*bias + alpha*bmm(a, b)."""
    scale = {k: v for k, v in (("beta", beta), ("alpha", alpha)) if v != 1}
    return low.extern("torch.baddbmm", _windows(low, (bias, a, b)), scale, out_form="torch.baddbmm")


def _product(low: Any, a: Any, b: Any) -> Any:
    operands = [_aligned(low, a, b.sizes[1]), _aligned(low, b, a.sizes[0])]
    strides = _padded_strides(low.spec, b.sizes[0])
    return low.extern("torch.mm", operands, out_form="torch.mm", strides=strides)


def _hint(*sizes: Size) -> int:
    return constant_product(sizes)


def _worth(sizes: Sequence[Size], other: Size) -> bool:
    return _hint(other) >= _WORTH_LENGTH and _hint(*sizes) >= _WORTH_ELEMENTS


def _padded_strides(spec: Any, length: Size) -> tuple[Size, Size] | None:
    """Strides with padded rows for a row-major matrix that `length` products a element are summed into; None: as it is."""
    if spec.device.type not in _DEVICES or spec.dtype.itemsize != 2 or not _worth(spec.sizes, length):
        return None
    columns = spec.sizes[1]
    if not isinstance(columns, int) or columns % _ALIGNED_ELEMENTS == 0 or not same(spec.strides[1], 1):
        return None
    return (-(-columns // _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS, 1)


def _aligned(low: Any, value: Any, other: Size) -> Strided:
    """An operand in memory whose rows, or columns, start at multiples of 16 bytes, if that is worth a copy."""
    at = low.realize(settled(value))
    if at.device.type not in _DEVICES or at.dtype.itemsize != 2 or not _worth(at.sizes, other):
        return at
    fast = 1 if same(at.strides[1], 1) else 0
    rows, row = at.strides[1 - fast], at.sizes[fast]
    if not same(at.strides[fast], 1) or not isinstance(rows, int) or rows % _ALIGNED_ELEMENTS == 0 or not isinstance(row, int):
        return at
    if rows < row:
        return at  # overlapping or broadcast rows
    copy = _copied(low, at if fast == 1 else _turned(at), -(-row // _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS)
    return copy if fast == 1 else _turned(copy)


def _turned(at: Strided) -> Strided:
    return at.window(at.sizes[::-1], at.strides[::-1], at.offset)


def _copied(low: Any, at: Strided, row: int) -> Strided:
    """A copy with padded rows, made once for all products that read the matrix."""
    key = (at.buffer, at.offset, at.sizes, at.strides)
    known = low.padded.get(key)
    if known is None:
        buffer = low.new_buffer(BufferLayout(at.dtype, at.device, at.sizes, (row, 1)))
        low.pointwise_node(buffer, at.load)
        known = low.padded[key] = low.whole(buffer)
    return known


__all__ = ["addmm", "baddbmm", "bmm", "mm"]
