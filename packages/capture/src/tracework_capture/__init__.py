"""Captures PyTorch graphs from running Python: frame evaluation, symbolic interpretation, native guards."""

from ._version import __version__

__all__ = ["__version__"]
