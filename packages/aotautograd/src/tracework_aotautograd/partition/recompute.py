"""RECOMPUTE: what kind of ATen op -> whether the backward may compute its result again instead of keeping it.

Decided from the op's own facts: torch's `pointwise` tag, its schema (views), and lists for what the tags do not say.
"""

from __future__ import annotations

import operator
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch import fx

from .. import _torch

aten = torch.ops.aten


class Recompute(Enum):
    """What the partitioner may do with a node."""

    FREE = "free"  # a view, a size, a constant: costs nothing
    CHEAP = "cheap"  # a few instructions an element
    COSTLY = "costly"  # exp, tanh, erf...: only where arithmetic is cheaper than memory
    NEVER = "never"  # matmuls, convolutions, reductions, random numbers, library calls


COSTLY_NAMES = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf erfc erfinv sigmoid gelu silu mish softplus elu "
    "pow lgamma digamma logit atan2 log_sigmoid_forward".split()
)
FREE_NAMES = frozenset(
    "full zeros ones full_like zeros_like ones_like arange scalar_tensor empty empty_like new_zeros new_full".split()
)
CHEAP_NAMES = frozenset(
    "clone _to_copy expand constant_pad_nd cat slice_scatter select_scatter flip repeat tril triu stack".split()
)

RECOMPUTE: dict[str, Recompute] = {
    **dict.fromkeys(COSTLY_NAMES, Recompute.COSTLY),
    **dict.fromkeys(FREE_NAMES, Recompute.FREE),
    **dict.fromkeys(CHEAP_NAMES, Recompute.CHEAP),
}


@cache
def of_target(target: Any) -> Recompute:
    """The row of an op; ops without one go by their tags and schema."""
    if target is operator.getitem:
        return Recompute.FREE
    if not isinstance(target, torch._ops.OpOverload):
        return Recompute.FREE  # arithmetic on sizes
    if torch.Tag.nondeterministic_seeded in target.tags:
        return Recompute.NEVER
    name = target._schema.name.split("::")[1]
    if name in RECOMPUTE:
        return RECOMPUTE[name]
    if _torch.aliased_argument(target._schema) is not None:
        return Recompute.FREE
    return Recompute.CHEAP if torch.Tag.pointwise in target.tags else Recompute.NEVER


def may_recompute(node: fx.Node, costly: bool) -> bool:
    """Whether the backward may run this node again; `costly` allows transcendental functions."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return may_recompute(node.args[0], costly)
    kind = of_target(node.target)
    return kind in (Recompute.FREE, Recompute.CHEAP) or (costly and kind is Recompute.COSTLY)
