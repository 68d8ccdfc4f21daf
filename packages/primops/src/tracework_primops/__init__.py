"""About 250 primitive ops, decompositions from ATen, fake tensors and symbolic sizes."""

from ._version import __version__

__all__ = ["__version__"]
