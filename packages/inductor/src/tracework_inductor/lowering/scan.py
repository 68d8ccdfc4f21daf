"""Running sums and products as sequential inner loops; the rest is the library's."""

from typing import Any

from ..ir.buffer import BufferLayout
from .fallback import Refused
from .layout import dense_strides
from .registry import lowers
from .value import settled


def _scan(name: str, kind: str) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, dim: int) -> Any:
        x = settled(x)
        if x.ndim == 0 or any(isinstance(s, int) and s == 0 for s in x.sizes):
            raise Refused("a scan of a scalar or of nothing")
        dtype = low.spec.dtype
        buffer = low.new_buffer(BufferLayout(dtype, x.device, x.sizes, dense_strides(x.sizes, low.spec.strides)))
        if isinstance(x.sizes[dim % x.ndim], int) and x.sizes[dim % x.ndim] == 1:
            low.pointwise_node(buffer, x.load)
        else:
            low.scan_node(buffer, kind, dim % x.ndim, x.load)
        return low.whole(buffer)


_scan("cumsum", "sum")
_scan("cumprod", "prod")
