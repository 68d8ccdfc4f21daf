"""Matrix products are library calls, written into planned buffers; row_padding.py says whose rows are padded, vector_products.py which
are loops."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir.buffer import BufferLayout
from ..ir.cores import GEMM, PACKED
from ..ir.index import same
from ..ir.scalar_ops import ops
from .cpu_products import own_addend, own_product
from .fallback import SUPPORTED_DTYPES
from .operands import as_in_eager
from .pointwise import elementwise
from .product_pieces import product_in_pieces
from .reduction import accumulator, reduce
from .registry import Refused, lowers
from .row_padding import ROW_BYTES, fast_axis, other_axis, padded_rows, row_alignment
from .tile_products import with_tiles
from .value import Lazy, Strided, settled
from .vector_products import vector_product
from .view import reshape

SCALED, INTEGERS = "torch._scaled_mm", "torch._int_mm"


def _windows(low: Any, values: Sequence[Any]) -> list[Any]:
    """Operands in memory; any strides will do, so views stay views, and copies of what lies well become views."""
    return [_where_it_lies(low, v) or low.realize(settled(v)) for v in values]


def _where_it_lies(low: Any, value: Any) -> Strided | None:
    """The window on one buffer that a value is which was not computed yet, if the library takes it without a copy of its own."""
    value = settled(value)
    if not isinstance(value, Lazy) or low.options.numerics != "default" or value.ndim < 2:
        return None
    at = low.place(value)
    fast = fast_axis(at.sizes, at.strides) if at is not None else None
    if at is None or fast is None or not all(isinstance(t, int) for t in at.strides[-2:]):
        return None
    rows = at.sizes[fast], at.strides[other_axis(fast, at.sizes)]
    if not all(isinstance(n, int) for n in rows) or rows[0] > rows[1]:
        return None
    offset = at.offset + low.buffers[at.buffer].offset
    aligned = at.device.type == "cpu" or row_alignment(at.sizes, at.strides, offset, fast, at.dtype.itemsize) >= ROW_BYTES
    return at if aligned else None


def _is_outer(low: Any, a: Any) -> bool:
    """Whether a product adds nothing up: a loop multiplies, together with what computes its operands."""
    default = low.options.numerics == "default" and low.spec.device.type == "cuda" and low.spec.dtype.is_floating_point
    return default and same(a.sizes[-1], 1)


@lowers("mm")
def mm(low: Any, a: Any, b: Any) -> Any:
    """(m,k) x (k,n)."""
    if _is_outer(low, a):
        return elementwise(low, (a, b), low.spec.dtype, lambda x, y: ops.mul(x, y))
    if low.node in low.vector_products:
        return vector_product(low, a, b)
    if rows := low.product_pieces.get(low.node):
        return _with_tiles(low, lambda: product_in_pieces(low, None, a, b, rows), a, b)
    return _with_tiles(low, lambda: _product(low, "torch.mm", a, b), a, b)


@lowers("bmm")
def bmm(low: Any, a: Any, b: Any) -> Any:
    """(n,m,k) x (n,k,p)."""
    if _is_outer(low, a):
        return elementwise(low, (a, b), low.spec.dtype, lambda x, y: ops.mul(x, y))
    if low.node in low.vector_products:
        return vector_product(low, a, b)
    return _with_tiles(low, lambda: _product(low, "torch.bmm", a, b), a, b)


@lowers("addmm")
def addmm(low: Any, bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta*bias + alpha*(a@b)."""
    if low.node in low.vector_products:
        return vector_product(low, a, b, bias, beta, alpha)
    if rows := low.product_pieces.get(low.node):
        return _with_tiles(low, lambda: product_in_pieces(low, bias, a, b, rows), a, b, bias)
    return _with_bias(low, ("torch.mm", "torch.addmm"), bias, (a, b), beta, alpha)


@lowers("baddbmm")
def baddbmm(low: Any, bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta*bias + alpha*bmm(a, b)."""
    if low.node in low.vector_products:
        return vector_product(low, a, b, bias, beta, alpha)
    return _with_bias(low, ("torch.bmm", "torch.baddbmm"), bias, (a, b), beta, alpha)


@lowers("mv")
def mv(low: Any, a: Any, x: Any) -> Any:
    """(m,k) x (k)."""
    if low.node not in low.vector_products:
        raise Refused("a matrix times a vector takes the library's kernel")
    return reshape(low, vector_product(low, a, reshape(low, x, (x.sizes[0], 1))), low.spec.sizes)


@lowers("scaled_mm")
def scaled_mm(low: Any, *operands: Any) -> Any:
    """A product of float8 matrices, each times its scales, plus a bias; the library demands eager's layouts."""
    return low.extern(SCALED, as_in_eager(low, operands, low.node.args), out_form=SCALED)


@lowers("int_mm")
def int_mm(low: Any, a: Any, b: Any) -> Any:
    """(m,k) x (k,n) of int8, added up in int32."""
    return low.extern(INTEGERS, as_in_eager(low, (a, b), low.node.args), out_form=INTEGERS)


@lowers("packed_linear")
def packed_linear(low: Any, x: Any, sources: Any, make: str, label: str) -> Any:
    """What passes/packed_linear.py found."""
    names = ", ".join(f"a{n}" for n in range(len(sources)))
    return low.extern(f"packed_linear({PACKED}, lambda {names}: {make}, {label!r})", (*_windows(low, (x,)), None, *sources))


def _with_tiles(low: Any, library: Callable[[], Any], *operands: Any) -> Any:
    return with_tiles(low, library, *operands) if low.node in low.tile_products else library()


def _product(low: Any, target: str, a: Any, b: Any) -> Any:
    if target == "torch.mm" and own_product(low.spec, a, b, low.symbols):
        return low.extern(GEMM, (*_windows(low, (a, b)), None), out_form=GEMM)
    strides = low.row_padding.results.get(low.node)
    return low.extern(target, _operands(low, a, b), out_form=target, strides=strides)


def _with_bias(low: Any, targets: tuple[str, str], bias: Any, matrices: tuple[Any, Any], beta: Any, alpha: Any) -> Any:
    strides = low.row_padding.results.get(low.node)
    if strides is not None and low.row_padding.splits(low.node):
        product = _with_tiles(low, lambda: _product(low, targets[0], *matrices), *matrices)
        return elementwise(low, (product, bias), product.dtype, lambda x, y: ops.add(x, y))

    def library() -> Any:
        scale = {k: v for k, v in (("beta", beta), ("alpha", alpha)) if v != 1}
        if (
            targets[1] == "torch.addmm"
            and not scale
            and own_product(low.spec, *matrices, low.symbols)
            and own_addend(bias, low.spec)
        ):
            addend = low.realize(settled(bias))
            if same(addend.strides[-1], 1):
                return low.extern(GEMM, (*_windows(low, matrices), addend), out_form=GEMM)
        operands = [*_windows(low, (bias,)), *_operands(low, *matrices)]
        return low.extern(targets[1], operands, scale, out_form=targets[1], strides=strides)

    return _with_tiles(low, library, *matrices, bias, beta, alpha)


def _operands(low: Any, *matrices: Any) -> list[Any]:
    if low.node not in low.row_padding.products:
        return _windows(low, matrices)
    return [_aligned(low, m) for m in matrices]


def _aligned(low: Any, value: Any) -> Strided:
    """An operand in memory whose rows, or columns, start at multiples of 16 bytes."""
    value = settled(value)
    unit = ROW_BYTES // value.dtype.itemsize
    if isinstance(value, Lazy):
        fast = fast_axis(value.sizes, value.strides) if value.strides is not None else None
        return low.realize_in(value, padded_rows(value.sizes, value.ndim - 1 if fast is None else fast, unit))
    fast = fast_axis(value.sizes, value.strides)
    if fast is None:
        return value
    offset = value.offset + low.buffers[value.buffer].offset
    if row_alignment(value.sizes, value.strides, offset, fast, value.dtype.itemsize) >= ROW_BYTES:
        return value
    return _copied(low, value, padded_rows(value.sizes, fast, unit))


def _copied(low: Any, at: Strided, strides: tuple[Any, ...]) -> Strided:
    """A copy with padded rows, made once for all products that read the matrix, the other way round too."""
    turn = strides[-1] != 1
    if turn:
        at, strides = _turned(at), (*strides[:-2], strides[-1], strides[-2])
    key = (at.buffer, at.offset, at.sizes, at.strides)
    known = low.padded.get(key)
    if known is None:
        buffer = low.new_buffer(BufferLayout(at.dtype, at.device, at.sizes, strides))
        low.pointwise_node(buffer, at.load)
        known = low.padded[key] = low.whole(buffer)
    return _turned(known) if turn else known


def _turned(at: Strided) -> Strided:
    sizes = (*at.sizes[:-2], at.sizes[-1], at.sizes[-2])
    return at.window(sizes, (*at.strides[:-2], at.strides[-1], at.strides[-2]), at.offset)


__all__ = ["addmm", "baddbmm", "bmm", "mm", "mv"]


@lowers("dot", "vdot")
def dot(low: Any, a: Any, b: Any) -> Any:
    """The sum of products of two vectors, with what computes them."""
    dtype = low.spec.dtype
    wide = accumulator(dtype)
    if dtype not in SUPPORTED_DTYPES or low.options.numerics != "default":
        raise Refused(f"the library's sum of products in {dtype}")
    if a.device.type == "cpu" and dtype in (
        torch.float32,
        torch.float64,
    ):  # of half types and integers ours is faster (26 times, measured)
        raise Refused("a CPU's library multiplies vectors of float32 and float64 as fast")
    products = elementwise(low, (a, b), wide, lambda x, y: ops.mul(ops.to_dtype(x, wide), ops.to_dtype(y, wide)))
    return reduce(low, products, [0], False, "sum", dtype, lambda value, _: value, wide)
