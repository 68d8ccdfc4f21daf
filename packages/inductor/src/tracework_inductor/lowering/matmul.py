"""Matrix products are library calls, written into planned buffers."""

from collections.abc import Sequence
from typing import Any

from .registry import lowers
from .value import settled


def _windows(low: Any, values: Sequence[Any]) -> list[Any]:
    """Operands in memory; any strides will do, so views stay views."""
    return [low.realize(settled(v)) for v in values]


@lowers("mm")
def mm(low: Any, a: Any, b: Any) -> Any:
    """(m,k) x (k,n)."""
    return low.extern("torch.mm", _windows(low, (a, b)), out_form="torch.mm")


@lowers("bmm")
def bmm(low: Any, a: Any, b: Any) -> Any:
    """(n,m,k) x (n,k,p)."""
    return low.extern("torch.bmm", _windows(low, (a, b)), out_form="torch.bmm")


@lowers("addmm")
def addmm(low: Any, bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta*bias + alpha*(a@b)."""
    scale = {k: v for k, v in (("beta", beta), ("alpha", alpha)) if v != 1}
    return low.extern("torch.addmm", _windows(low, (bias, a, b)), scale, out_form="torch.addmm")


@lowers("baddbmm")
def baddbmm(low: Any, bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta*bias + alpha*bmm(a, b)."""
    scale = {k: v for k, v in (("beta", beta), ("alpha", alpha)) if v != 1}
    return low.extern("torch.baddbmm", _windows(low, (bias, a, b)), scale, out_form="torch.baddbmm")
