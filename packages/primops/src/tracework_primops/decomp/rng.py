"""Random ops: thin names for eager's kernels, so that values and the generator's state equal eager's."""

from __future__ import annotations

from ..op import prims
from .table import aten, decomposition


@decomposition(aten.bernoulli)
def bernoulli(p, *, generator=None):
    return prims.bernoulli(p) if generator is None else NotImplemented


@decomposition(aten.bernoulli.p)
def bernoulli_p(x, p, *, generator=None):
    return prims.bernoulli_p(x, p) if generator is None else NotImplemented


@decomposition(aten.native_dropout)
def native_dropout(x, p, train=True):
    if train is False:
        return NotImplemented
    return prims.native_dropout(x, p)
