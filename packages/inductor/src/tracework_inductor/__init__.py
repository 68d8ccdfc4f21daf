"""Lowers prim graphs to loops, fuses them and writes C++ and Triton kernels."""

from ._version import __version__

__all__ = ["__version__"]
