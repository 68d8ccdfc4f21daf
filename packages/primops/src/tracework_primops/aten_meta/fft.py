"""ATen rows: Fourier transforms on CPU, which lay results out by the strides of the input (GPUs: torch's meta kernels)."""

from __future__ import annotations

from typing import Any

import torch

from .. import broadcasting
from ..elementwise import contiguous
from ..promotion import complex_of, real_of
from ..spec import TensorSpec
from .rows import ATEN_META, overload


def _by_stride(x: TensorSpec, dims: Any) -> list[int]:
    return sorted(dims, key=lambda d: broadcasting.magnitude(x.strides[d]), reverse=True)


def _transformed(x: TensorSpec, dims: list[int], sizes: Any, dtype: torch.dtype) -> TensorSpec:
    """Batch dims outermost, by falling stride, then the transformed dims in this order.

    Where batch dims have one stride, those from the last on stand for transformed dims before them, as eager's partition leaves them.
    """
    sizes = tuple(sizes)
    if not torch.backends.mkl.is_available():
        return TensorSpec(dtype, x.device, sizes, contiguous(sizes), 0)
    from_last = (d for d in reversed(range(x.ndim)) if d not in dims)
    batch = [next(from_last) if d in dims else d for d in range(x.ndim - len(dims))]
    order = _by_stride(x, batch) + dims
    return TensorSpec(dtype, x.device, sizes, broadcasting.strides_in_order(sizes, order[::-1]), 0)


def c2c(x: TensorSpec, dim: Any, normalization: int, forward: bool) -> TensorSpec:
    """Complex to complex."""
    dims = [d % max(x.ndim, 1) for d in dim]
    return _transformed(x, _by_stride(x, dims), x.sizes, x.dtype)


def r2c(x: TensorSpec, dim: Any, normalization: int, onesided: bool) -> TensorSpec:
    """Real to complex: the last of the dims is halved when one side is enough."""
    *others, last = [d % x.ndim for d in dim]
    sizes = list(x.sizes)
    if onesided:
        sizes[last] = sizes[last] // 2 + 1
    return _transformed(x, [*_by_stride(x, others), last], sizes, complex_of(x.dtype))


def c2r(x: TensorSpec, dim: Any, normalization: int, last_dim_size: Any) -> TensorSpec:
    """Complex to real, after complex transforms of all dims but the last."""
    *others, last = [d % x.ndim for d in dim]
    middle = c2c(x, others, normalization, False) if others else x
    sizes = (*x.sizes[:last], last_dim_size, *x.sizes[last + 1 :])
    return _transformed(middle, [last], sizes, real_of(x.dtype))


CPU_ROWS = {"_fft_c2c.default": c2c, "_fft_r2c.default": r2c, "_fft_c2r.default": c2r}


def _on_cpu(rule: Any) -> Any:
    def row(x: TensorSpec, *args: Any, **kwargs: Any) -> Any:
        return rule(x, *args, **kwargs) if x.device.type == "cpu" else NotImplemented

    return row


for _name, _rule in CPU_ROWS.items():
    ATEN_META[overload(_name)] = _on_cpu(_rule)
