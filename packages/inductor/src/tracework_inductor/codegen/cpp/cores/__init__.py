"""CORES: computations that have a text of their own, which no loop nest is."""

from collections.abc import Callable, Mapping

from ....schedule.plan import CoreKernel
from ...renderer import RenderedKernel
from . import attention, attention_decode, rotate

CORES: Mapping[str, Callable[[CoreKernel, int], RenderedKernel]] = {
    "attention": attention.render,
    "attention_decode": attention_decode.render,
    "rotate": rotate.render,
}
"""CoreNode.core -> how the kernel becomes text, for a number of elements from which on threads share them."""

__all__ = ["CORES"]
