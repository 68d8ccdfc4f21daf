"""Composites of torch that would fix symbolic sizes or read data, by the overload they replace on fakes."""

from . import data, differences, fourier, indexing, linalg, loss, quantiles, recurrent, resampling, signal, window
from .registry import COMPOSITES

__all__ = [
    "COMPOSITES",
    "data",
    "differences",
    "fourier",
    "indexing",
    "linalg",
    "loss",
    "quantiles",
    "recurrent",
    "resampling",
    "signal",
    "window",
]
