"""PARTITIONERS: name -> function that says which values the forward keeps for the backward."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from ..contracts import JointProgram
from ..options import AotOptions
from .default import default
from .equal import add_before_products, merge_equal
from .indices import narrow_indices
from .min_cut import min_cut
from .split import JointParts, Split, has_effect, needed_for, shown_input, split, through_views, value_inputs
from .stages import in_stages
from .statistics import keep_statistics

Partitioner = Callable[[JointProgram, JointParts, AotOptions], list[fx.Node]]

PARTITIONERS: dict[str, Partitioner] = {"default": default, "min_cut": min_cut}

__all__ = [
    "PARTITIONERS",
    "JointParts",
    "Partitioner",
    "Split",
    "add_before_products",
    "has_effect",
    "in_stages",
    "keep_statistics",
    "merge_equal",
    "narrow_indices",
    "needed_for",
    "split",
    "shown_input",
    "through_views",
    "value_inputs",
]
