"""Composites of torch that would fix symbolic sizes, by the overload they replace on fakes."""

from . import fourier, indexing, linalg, resampling
from .registry import COMPOSITES

__all__ = ["COMPOSITES", "fourier", "indexing", "linalg", "resampling"]
