"""Rewrites of a PrimGraph that any backend profits from, in order, and the driver that runs them."""

from .collectives import collectives
from .common_subexpr import common_subexpr
from .constant_fold import constant_fold
from .dead_code import dead_code
from .pipeline import PRIM_PASSES, Pass, run_passes
from .remove_noop import remove_noop
from .simplify import SIMPLIFY, simplify

__all__ = [
    "PRIM_PASSES",
    "SIMPLIFY",
    "Pass",
    "collectives",
    "common_subexpr",
    "constant_fold",
    "dead_code",
    "remove_noop",
    "run_passes",
    "simplify",
]
