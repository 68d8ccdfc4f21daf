"""Composites: Fourier transforms to a given size.

Torch pads a shorter input and crops a longer one; a symbol that equals the size in the example would have to stay equal.
Here an input that is not shorter is cropped beforehand, which leaves longer ones possible.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..._torch import OpOverload
from .registry import Form, composite, torchs

HALVED = frozenset("fft_irfft fft_hfft fft_irfft2 fft_hfft2 fft_irfftn fft_hfftn".split())  # of the last dim, half is read
ONE_DIM = "fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft".split()
TWO_DIMS = "fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_hfft2 fft_ihfft2".split()
MANY_DIMS = "fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn".split()


def _cropped(x: torch.Tensor, dim: int, size: int | torch.SymInt) -> torch.Tensor:
    have = x.shape[dim]
    if isinstance(have, int) or have < size:
        return x
    return x.narrow(dim, 0, size)


def _along_one(func: OpOverload, halved: bool) -> Form:
    def form(x: torch.Tensor, n: int | torch.SymInt | None = None, dim: int = -1, norm: str | None = None) -> torch.Tensor:
        if n is None or not -x.dim() <= dim < x.dim():
            return NotImplemented
        return torchs(func, _cropped(x, dim, n // 2 + 1 if halved else n), n, dim, norm)

    return form


def _along_many(func: OpOverload, halved: bool, usual: Sequence[int] | None) -> Form:
    def form(
        x: torch.Tensor, s: Sequence[int | torch.SymInt] | None = None, dim: Sequence[int] | None = usual, norm: str | None = None
    ) -> torch.Tensor:
        if not s:
            return NotImplemented
        dims = list(range(-len(s), 0)) if dim is None else dim
        if len(s) != len(dims) or not all(-x.dim() <= d < x.dim() for d in dims):
            return NotImplemented
        read = [*s[:-1], s[-1] // 2 + 1] if halved else s
        for d, size, given in zip(dims, read, s):
            if given != -1:
                x = _cropped(x, d, size)
        return torchs(func, x, s, dim, norm)

    return form


for _name in ONE_DIM:
    composite(_name)(_along_one(getattr(torch.ops.aten, _name).default, _name in HALVED))
for _name, _dims in (*((n, (-2, -1)) for n in TWO_DIMS), *((n, None) for n in MANY_DIMS)):
    composite(_name)(_along_many(getattr(torch.ops.aten, _name).default, _name in HALVED, _dims))
