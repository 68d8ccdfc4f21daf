"""Running reductions as sequential inner loops; the rest is the library's."""

import operator
from typing import Any

from ..ir.buffer import Buffer, BufferLayout
from .layout import dense_strides
from .registry import Refused, lowers
from .value import settled


def _refuse_unknown(x: Any) -> None:
    if x.ndim == 0 or any(isinstance(s, int) and s == 0 for s in x.sizes):
        raise Refused("a scan of a scalar or of nothing")


def _result(low: Any, x: Any, spec: Any) -> Buffer:
    buffer: Buffer = low.new_buffer(BufferLayout(spec.dtype, x.device, x.sizes, dense_strides(x.sizes, spec.strides)))
    return buffer


def _scan(name: str, kind: str, devices: tuple[str, ...] = ("cpu", "cuda")) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, dim: int) -> Any:
        x = settled(x)
        _refuse_unknown(x)
        if x.device.type not in devices:
            raise Refused(f"the kernels for {x.device.type} have no such scan")
        buffer = _result(low, x, low.spec)
        if isinstance(x.sizes[dim % x.ndim], int) and x.sizes[dim % x.ndim] == 1:
            low.pointwise_node(buffer, x.load)
        else:
            low.scan_node(buffer, kind, dim % x.ndim, x.load)
        return low.whole(buffer)


def _extreme(name: str, kind: str) -> None:
    @lowers(name)
    def rule(low: Any, x: Any, dim: int) -> Any:
        """What nobody reads is not stored."""
        x = settled(x)
        _refuse_unknown(x)
        if x.device.type == "cpu":
            raise Refused("the kernels for cpu have no such scan")
        read = {user.args[1] if user.target is operator.getitem else None for user in low.node.users} or {None}
        values, positions = (_result(low, x, spec) if read & {n, None} else None for n, spec in enumerate(low.spec))
        low.scan_node(values, kind, dim % x.ndim, x.load, positions)
        return tuple(None if made is None else low.whole(made) for made in (values, positions))


_scan("cumsum", "sum")
_scan("cumprod", "prod")
_scan("logcumsumexp", "logaddexp", ("cuda",))
_extreme("cummax", "last_argmax")
_extreme("cummin", "last_argmin")
