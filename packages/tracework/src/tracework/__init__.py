"""A compiler for unmodified PyTorch programs, compatible with torch.compile at its entry point."""

from ._version import __version__

__all__ = ["__version__"]
