"""LOWERINGS: op name -> rule. An op without a row calls its eager kernel, with the reason in the plan and the log."""

from . import attention, conv, creation, indexing, matmul, memory, pointwise, reduction, resample, rng, scan, sort, view, window
from .driver import Lowering, lower, places
from .registry import LOWERINGS, VIEWS

__all__ = [
    "LOWERINGS",
    "VIEWS",
    "Lowering",
    "attention",
    "conv",
    "creation",
    "indexing",
    "lower",
    "matmul",
    "memory",
    "places",
    "pointwise",
    "reduction",
    "resample",
    "rng",
    "scan",
    "sort",
    "view",
    "window",
]
