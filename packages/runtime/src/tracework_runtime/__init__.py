"""Builds, loads, launches and caches compiled graphs."""

from ._version import __version__

__all__ = ["__version__"]
