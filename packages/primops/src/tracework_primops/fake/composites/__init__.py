"""Composites of torch that would fix symbolic sizes, by the overload they replace on fakes."""

from . import differences, fourier, indexing, linalg, loss, resampling, signal, window
from .registry import COMPOSITES

__all__ = ["COMPOSITES", "differences", "fourier", "indexing", "linalg", "loss", "resampling", "signal", "window"]
