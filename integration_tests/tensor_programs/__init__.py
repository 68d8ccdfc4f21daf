"""Random programs on tensors, compiled by the whole stack and compared with eager in everything that can be seen of them."""

from .agreement import check
from .generate import generate

__all__ = ["check", "generate"]
