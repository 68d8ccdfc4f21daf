"""Random programs whose results are differentiated in all ways that autograd has, compiled and compared with eager."""

from .agreement import Disagreement, check
from .generate import generate

__all__ = ["Disagreement", "check", "generate"]
