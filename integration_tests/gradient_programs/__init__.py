"""Random programs whose results are differentiated in all ways that autograd has, compiled and compared with eager."""

from .agreement import check
from .generate import generate

__all__ = ["check", "generate"]
