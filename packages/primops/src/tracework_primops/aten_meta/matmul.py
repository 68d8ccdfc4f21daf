"""ATen rows: matrix products and attention kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import broadcasting
from .._torch import ADDMV_CONVERTS
from ..elementwise import common_device, contiguous, elementwise
from ..errors import DataDependentError
from ..meta import matmul as products
from ..promotion import complex_of, promote, real_of
from ..spec import TensorSpec
from ..symbols import active, minimum
from ..symbols.expr import Size
from .rows import Given, Results, check, fresh, like_self, refuses, row, same_sizes, symbolic


def _added(bias: TensorSpec, out: TensorSpec) -> TensorSpec:
    """What is added to a product has its dtype, and is broadcast to its sizes."""
    check(bias.dtype is out.dtype)
    check(bias.sizes == out.sizes or same_sizes(elementwise(out.dtype, [out, bias]).sizes, out.sizes))
    return out


def _check_factors(a: TensorSpec, b: TensorSpec, *ndims: int) -> None:
    """Factors have so many dims, one dtype and one device, and the sizes that are summed over, or that both are a batch of, are equal."""
    check((a.ndim, b.ndim) == ndims and a.dtype is b.dtype)
    common_device((a, b))
    check(active.equal(a.sizes[-1], b.sizes[-2 if b.ndim > 1 else 0]) and same_sizes(a.sizes[:-2], b.sizes[:-2]))


@row("mm.default")
def mm(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    _check_factors(a, b, 2, 2)
    return products.mm(a, b)


@row("_weight_int4pack_mm.default")
def weight_int4pack_mm(x: TensorSpec, w: TensorSpec, group: int, scales_and_zeros: TensorSpec) -> TensorSpec:
    """As a GPU packs weights, eight of their rows together; torch's meta kernel asks for a class of its own."""
    check((x.ndim, w.ndim) == (2, 4) and w.dtype is torch.int32 and x.dtype in (torch.float32, torch.float16, torch.bfloat16))
    return fresh(x, (x.sizes[0], w.sizes[0] * 8), x.dtype)


@row("addmm.default")
def addmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *, beta: Any = 1, alpha: Any = 1) -> TensorSpec:
    return _added(bias, mm(a, b))


@row("addr.default")
def addr(x: TensorSpec, a: TensorSpec, b: TensorSpec, *, beta: Any = 1, alpha: Any = 1) -> TensorSpec:
    """What is added to is expanded first: of no dimensions, its dtype counts as much as the vectors'. Torch's meta kernel does the rest."""
    if x.ndim or a.ndim != 1 or b.ndim != 1:
        return NotImplemented
    return fresh(a, (a.sizes[0], b.sizes[0]), promote(promote(x.dtype, a.dtype), b.dtype))


@row("bmm.default")
def bmm(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    _check_factors(a, b, 3, 3)
    return products.bmm(a, b)


@row("baddbmm.default")
def baddbmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *, beta: Any = 1, alpha: Any = 1) -> TensorSpec:
    return _added(bias, bmm(a, b))


@refuses("dot.default", "vdot.default")
def dot(a: TensorSpec, b: TensorSpec) -> None:
    _check_factors(a, b, 1, 1)


@row("mv.default")
def mv(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    _check_factors(a, b, 2, 1)
    return products.mv(a, b)


@row("addmv.default")
def addmv(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *, beta: Any = 1, alpha: Any = 1) -> TensorSpec:
    out = mv(a, b)
    if not ADDMV_CONVERTS or bias.dtype is out.dtype:
        return _added(bias, out)
    check(0 not in a.sizes or beta == 0 or torch.can_cast(bias.dtype, out.dtype))  # there it is a product with beta
    check(out.dtype is not torch.bool, NotImplementedError)
    return _added(bias.replace(dtype=out.dtype), out)


def _heads_inside(q: TensorSpec, sizes: Sequence[Size], dtype: torch.dtype | None = None) -> TensorSpec:
    """(batch, heads, length, dim) laid out as (batch, length, heads, dim)."""
    inner = contiguous((sizes[0], sizes[2], sizes[1], *sizes[3:]))
    return TensorSpec(dtype or q.dtype, q.device, tuple(sizes), (inner[0], inner[2], inner[1], *inner[3:]), 0)


def _accumulate(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


@row("_scaled_dot_product_flash_attention_for_cpu.default", reads="query")
def flash_cpu(q: TensorSpec) -> Results:
    return like_self(q), _heads_inside(q, q.sizes[:3], _accumulate(q.dtype))


@row("_scaled_dot_product_flash_attention_for_cpu_backward.default", reads="query key value")
def flash_cpu_backward(*operands: TensorSpec) -> Results:
    return tuple(_heads_inside(x, x.sizes) for x in operands)


@row("_native_multi_head_attention.default", reads="query key embed_dim num_head need_weights average_attn_weights")
def native_multi_head_attention(
    q: TensorSpec, k: TensorSpec, width: int, heads: int, need_weights: bool, averages: bool
) -> Results:
    """The second result is undefined unless weights are asked for, which torch's meta kernel does not say."""
    weights = q.sizes[0], *(() if averages else (heads,)), q.sizes[1], k.sizes[1]
    return fresh(q, (*q.sizes[:-1], width)), fresh(q, weights) if need_weights else None


def _by_columns(x: TensorSpec, sizes: Sequence[Size], dtype: torch.dtype | None = None) -> TensorSpec:
    """Matrices stored column by column, as LAPACK writes them."""
    sizes = tuple(sizes)
    inner = contiguous((*sizes[:-2], sizes[-1], sizes[-2]))
    return TensorSpec(dtype or x.dtype, x.device, sizes, (*inner[:-2], inner[-1], inner[-2]), 0)


def _check_matrices(x: TensorSpec, square: bool = False) -> None:
    check(x.ndim > 1 and (not square or active.equal(x.sizes[-1], x.sizes[-2])))


@row("geqrf.default")
def geqrf(x: TensorSpec) -> Results:
    _check_matrices(x)
    return _by_columns(x, x.sizes), fresh(x, (*x.sizes[:-2], minimum(x.sizes[-2], x.sizes[-1])))


@row("linalg_eig.default")
def linalg_eig(x: TensorSpec) -> Results:
    _check_matrices(x, square=True)
    dtype = complex_of(x.dtype)
    layout = fresh if x.device.type == "cuda" else _by_columns
    return fresh(x, x.sizes[:-1], dtype), layout(x, x.sizes, dtype)


@row("_linalg_svd.default")
def linalg_svd(x: TensorSpec, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Results:
    _check_matrices(x)
    m, n = x.sizes[-2:]
    least, batch = minimum(m, n), x.sizes[:-2]
    values = fresh(x, (*batch, least), real_of(x.dtype))
    if not compute_uv:
        return fresh(x, (0,)), values, fresh(x, (0,))
    right = (*batch, n if full_matrices else least, n)
    rows_first = x.device.type == "cuda"
    return _by_columns(x, (*batch, m, m if full_matrices else least)), values, (fresh if rows_first else _by_columns)(x, right)


@row("linalg_solve_triangular.default")
def linalg_solve_triangular(
    a: TensorSpec, b: TensorSpec, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> TensorSpec:
    _check_matrices(a, square=True)
    _check_matrices(b)
    common_device((a, b))
    check(a.dtype is b.dtype and active.equal(a.sizes[-1], b.sizes[-2 if left else -1]))
    return _by_columns(b, (*broadcasting.broadcast_sizes(a.sizes[:-2], b.sizes[:-2]), *b.sizes[-2:]))


@row("_linalg_check_errors.default")
def linalg_check_errors(info: TensorSpec, api_name: str, *, is_matrix: bool) -> None:
    """What went wrong is in the data."""
    return None


@symbolic("linalg_pinv.atol_rtol_tensor")
def linalg_pinv(x: TensorSpec, *, atol: Given = None, rtol: Given = None, hermitian: bool = False) -> TensorSpec:
    _check_matrices(x, square=hermitian)
    return fresh(x, (*x.sizes[:-2], x.sizes[-1], x.sizes[-2]))


@symbolic("_trilinear.default")
def trilinear(a: TensorSpec, b: TensorSpec, c: TensorSpec, *dims: Sequence[int]) -> TensorSpec:
    """Three factors with dims of size 1 put in, multiplied and summed over some dims."""
    *expanded, summed = dims[:4]
    sizes = broadcasting.broadcast_sizes(*[_with_ones(x.sizes, places) for x, places in zip((a, b, c), expanded)])
    return fresh(a, tuple([size for d, size in enumerate(sizes) if d not in summed]))


def _with_ones(sizes: Sequence[Size], dims: Sequence[int]) -> tuple[Size, ...]:
    out = list(sizes)
    for d in sorted(dims):
        out.insert(d, 1)
    return tuple(out)


@row("linalg_lstsq.default")
def linalg_lstsq(a: TensorSpec, b: TensorSpec, rcond: float | None = None, *, driver: str | None = None) -> Results:
    """Sums of squared residuals come out only of drivers that compute them, and of two of these only when all ranks are full."""
    vectors = b.ndim == a.ndim - 1 and b.sizes == a.sizes[:-1]
    right = (*b.sizes, 1) if vectors else b.sizes
    if a.ndim < 2 or len(right) < 2 or a.dtype is not b.dtype or not all(s.__class__ is int and s for s in (*a.sizes, *right)):
        raise DataDependentError("aten.linalg_lstsq.default of these sizes")  # torch has no rule either
    batch = broadcasting.broadcast_sizes(a.sizes[:-2], right[:-2])
    sides: Any = (*a.sizes[-2:], right[-1])
    rows, columns, count = sides
    driver = driver or ("gelsy" if a.device.type == "cpu" else "gels")
    decomposes = driver in ("gelsd", "gelss")
    if decomposes and rows > columns:
        raise DataDependentError("aten.linalg_lstsq.default with this driver and more equations than unknowns")
    longest = max(rows, columns)
    solution = fresh(a, (*batch, count, longest))  # column by column, over memory that held b
    strides = (*solution.strides[:-2], 1, longest)
    sizes = (*batch, columns, count)
    residuals = (*batch, count) if driver == "gels" and rows > columns else (0,)
    return (
        solution.replace(sizes=sizes[:-1], strides=strides[:-1]) if vectors else solution.replace(sizes=sizes, strides=strides),
        fresh(a, residuals, real_of(a.dtype)),
        fresh(a, (0,) if driver == "gels" else batch, torch.int64),
        fresh(a, (*batch, min(rows, columns)) if decomposes else (0,), real_of(a.dtype)),
    )


RNN = "input weight_buf hx cx hidden_size proj_size num_layers batch_first train bidirectional batch_sizes"


@row("_cudnn_rnn.default", reads=RNN)
def cudnn_rnn(x: TensorSpec, packed: Given, hx: TensorSpec, cx: Given, hidden: int, proj: int, layers: int, *how: Any) -> Results:
    """Of a layer that is not trained: what its backward needs is as large as the library says. The library works step by step: with the
    batch first, the result lies as if it were not, which torch's meta kernel does not say, nor the dtype of a cell."""
    batch_first, train, bidirectional, batch_sizes = how
    if train:
        raise DataDependentError("the workspace of a recurrent layer in training")
    directions = 2 if bidirectional else 1
    width, states = (proj or hidden) * directions, layers * directions
    if batch_sizes:
        out = fresh(x, (x.sizes[0], width))
        batch: Size = batch_sizes[0]
    else:
        batch, steps = x.sizes[:2] if batch_first else (x.sizes[1], x.sizes[0])
        out = fresh(x, (steps, batch, width))
        if batch_first:
            strides = (out.strides[1], out.strides[0], out.strides[2])
            out = out.replace(sizes=(batch, steps, width), strides=strides)
    cell = (0,) if cx is None else (states, batch, hidden)
    buffer = fresh(x, (0,)) if packed is None else packed  # nobody reads it
    return out, fresh(x, (states, batch, proj or hidden)), fresh(hx, cell), fresh(x, (0,), torch.uint8), buffer


GRU = 3
"""How oneDNN's layers name this kind."""


@row("mkldnn_rnn_layer_backward.default", reads="input weight1 weight2 weight3 hx_ cx_tmp mode hidden_size")
def onednn_layer_backward(x: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, b_ih: TensorSpec, *rest: Any) -> Results:
    """Gradients are float32 whatever the layer's dtype is (meta kernels of torch before 2.13 say otherwise); a GRU has one bias more.

    A layer without biases is handed zeros of its weights' sizes, whose gradients are those of biases all the same.
    """
    hx, cx, mode, hidden = rest
    bias = (4 * hidden if mode == GRU else b_ih.sizes[0],)
    sizes = (x.sizes, w_ih.sizes, w_hh.sizes, bias, bias, hx.sizes, cx.sizes)
    return tuple(fresh(x, each, torch.float32) for each in sizes)
