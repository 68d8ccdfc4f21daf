"""Rewrites of a PrimGraph that any backend profits from, in order, and the driver that runs them."""

from .common_subexpr import common_subexpr
from .constant_fold import constant_fold
from .dead_code import dead_code
from .pipeline import Pass, run_passes
from .remove_noop import remove_noop
from .simplify import SIMPLIFY, simplify

PRIM_PASSES: tuple[Pass, ...] = (
    Pass("remove_noop", remove_noop),
    Pass("simplify", simplify),  # after remove_noop, so that patterns meet the producers themselves
    Pass("constant_fold", constant_fold),
    Pass("common_subexpr", common_subexpr),
    Pass("dead_code", dead_code),  # last: the others leave unused nodes behind
)

__all__ = [
    "PRIM_PASSES",
    "SIMPLIFY",
    "Pass",
    "common_subexpr",
    "constant_fold",
    "dead_code",
    "remove_noop",
    "run_passes",
    "simplify",
]
