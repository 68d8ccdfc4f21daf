"""LOWERINGS: op name -> rule. An op without a row calls its eager kernel; why is in NOT_LOWERED, in the plan and the log."""

from . import attention, conv, creation, indexing, matmul, memory, pointwise, reduction, resample, rng, scan, sort, view, window
from .driver import Lowering, lower, places
from .not_lowered import NOT_LOWERED
from .registry import LOWERINGS, VIEWS

__all__ = [
    "LOWERINGS",
    "NOT_LOWERED",
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
