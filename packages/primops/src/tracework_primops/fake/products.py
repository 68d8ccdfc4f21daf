"""Matrix products with symbolic sizes on a torch whose `matmul` and `linear` ask for plain numbers (before 2.13).

There, a function mode that is active with the fakes writes them as `mm`, `addmm` and `bmm`, in the forms that torch's own
composites choose, and attention that is not left to a kernel as such products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

from .. import _torch
from .tensor import FakeTensor


def needed() -> bool:
    """Whether this torch's composites cannot carry symbols."""
    return not _torch.COMPOSITES_TAKE_SYMBOLS


def _symbolic(*values: Any) -> bool:
    return any(v.__class__ is FakeTensor and v.spec.is_symbolic for v in values)


def _folded(x: Any, product: Callable[[Any], Any]) -> Any:
    """product(x as a matrix), with x's leading dims."""
    out = product(x.reshape(math.prod(x.shape[:-1]), x.size(-1)))
    return out.view(*x.shape[:-1], out.size(-1))


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight.T + bias."""
    if not _symbolic(input, weight) or input.dim() < 3 or weight.dim() != 2:
        return NotImplemented
    if bias is None:
        return _folded(input, lambda x: torch.mm(x, weight.t()))
    return _folded(input, lambda x: torch.addmm(bias, x, weight.t()))


def matmul(input: Any, other: Any) -> Any:
    """a @ b of any numbers of dims."""
    if not _symbolic(input, other) or max(input.dim(), other.dim()) < 3:
        return NotImplemented
    if other.dim() == 1:
        return _product(input, other.unsqueeze(1)).squeeze(-1)
    if input.dim() == 1:
        return _product(input.unsqueeze(0), other).squeeze(-2)
    return _product(input, other)


def _product(a: Any, b: Any) -> Any:
    if b.dim() == 2:
        return _folded(a, lambda x: torch.mm(x, b))
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    left = a.expand(*batch, *a.shape[-2:]).reshape(math.prod(batch), *a.shape[-2:])
    right = b.expand(*batch, *b.shape[-2:]).reshape(math.prod(batch), *b.shape[-2:])
    return torch.bmm(left, right).view(*batch, a.size(-2), b.size(-1))


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **options: Any
) -> Any:
    """softmax(query @ key.mT * scale + mask) @ value, where torch takes no kernel: for a mask that requires a gradient, say."""
    scale = options.get("scale") or query.size(-1) ** -0.5
    given = query, key, value, attn_mask
    if not _symbolic(*given) or query.dtype not in EXACT or dropout_p or options.get("enable_gqa") or scale < 0:
        return NotImplemented
    if _torch.fused_sdp_choice(*given, dropout_p, is_causal, **options) != SDPBackend.MATH.value:
        return NotImplemented
    if is_causal:
        attn_mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
    weights = _product(query * math.sqrt(scale), key.transpose(-2, -1) * math.sqrt(scale))
    if attn_mask is not None:
        if attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -math.inf)
        weights = weights + attn_mask
    return _product(_torch.safe_softmax(weights, -1), value)


def _broadcast(a: Any, b: Any) -> list[Any]:
    longest = max(len(a), len(b))
    pairs = zip([1] * (longest - len(a)) + list(a), [1] * (longest - len(b)) + list(b), strict=True)
    return [y if x == 1 else x for x, y in pairs]


EXACT = (torch.float32, torch.float64)
"""Dtypes in which torch computes attention as they are."""

FORMS: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.scaled_dot_product_attention: attention,
    torch.nn.functional.linear: linear,
    torch.matmul: matmul,
    torch.Tensor.matmul: matmul,
    torch.Tensor.__matmul__: matmul,
    torch.Tensor.__rmatmul__: lambda a, b: matmul(b, a),
}


class Products(TorchFunctionMode):
    """Writes products of fakes with symbolic sizes in FORMS."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        form = FORMS.get(func)
        if form is not None:
            result = form(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return func(*args, **(kwargs or {}))
