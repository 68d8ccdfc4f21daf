"""Traces forward and backward ahead of time, removes mutation, partitions."""

from ._version import __version__

__all__ = ["__version__"]
