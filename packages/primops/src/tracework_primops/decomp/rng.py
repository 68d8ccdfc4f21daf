"""Random ops: thin names for eager's kernels, so that values and the generator's state equal eager's."""

from __future__ import annotations

import torch

from ..op import prims
from .table import aten, decomposition, to, wide
from .view import expected


@decomposition(aten.bernoulli)
def bernoulli(p, *, generator=None):
    return prims.bernoulli(p) if generator is None else NotImplemented


@decomposition(aten.bernoulli.p)
def bernoulli_p(x, p, *, generator=None):
    return prims.bernoulli_p(x, p) if generator is None else NotImplemented


@decomposition(aten.poisson)
def poisson(x, generator=None):
    return prims.poisson(x) if generator is None else NotImplemented


@decomposition(aten.native_dropout)
def native_dropout(x, p, train=True):
    if train is False:
        return NotImplemented
    return prims.native_dropout(x, p)


@decomposition(aten.native_dropout_backward)
def native_dropout_backward(grad, mask, scale):
    if not grad.dtype.is_floating_point:
        return NotImplemented
    return to(prims.mul(prims.mul(wide(grad), to(mask, wide(grad).dtype)), scale), grad.dtype)


def _like(draw):
    """Draws into an empty tensor like x; another dtype or device needs the kernel."""

    def rule(x, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
        same = dtype in (None, x.dtype) and device in (None, x.device) and memory_format in (None, torch.preserve_format)
        return draw(x) if same and x.dtype.is_floating_point else NotImplemented

    return rule


decomposition(aten.rand_like)(_like(lambda x: prims.uniform(x, 0.0, 1.0)))
decomposition(aten.randn_like)(_like(lambda x: prims.normal(x, 0.0, 1.0)))


def _drawn(draw):
    def rule(sizes, *, dtype=None, layout=None, device=None, pin_memory=None):
        wanted = expected()
        if wanted is None:
            return draw(tuple(sizes), dtype or torch.get_default_dtype(), device or torch.device("cpu"))
        return draw(tuple(sizes), wanted.dtype, wanted.device)

    return rule


decomposition(aten.rand)(_drawn(prims.rand))
decomposition(aten.randn)(_drawn(prims.randn))


@decomposition(aten.randint.low)
def randint(low, high, sizes, *, dtype=torch.int64, layout=None, device=None, pin_memory=None):
    return _drawn(lambda n, dtype, device: prims.randint(low, high, n, dtype, device))(
        sizes, dtype=dtype or torch.int64, device=device
    )


@decomposition(aten.randint)
def randint_below(high, sizes, **options):
    return randint(0, high, sizes, **options)


@decomposition(aten.randperm)
def randperm(n, *, dtype=torch.int64, layout=None, device=None, pin_memory=None):
    return _drawn(lambda _, dtype, device: prims.randperm(n, dtype, device))((), dtype=dtype or torch.int64, device=device)
