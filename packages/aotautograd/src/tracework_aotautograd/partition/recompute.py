"""RECOMPUTE: what kind of ATen op -> whether the backward may compute its result again instead of keeping it.

Decided from the op's own facts: torch's `pointwise` tag, its schema (views), and lists for what the tags do not say.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch import fx

from .. import _torch
from ..nodes import operand_of

aten = torch.ops.aten


class Recompute(Enum):
    """What the partitioner may do with a node."""

    FREE = "free"  # a view, a size, a constant: costs nothing
    CHEAP = "cheap"  # a few instructions an element
    COSTLY = "costly"  # exp, tanh, erf...: only where arithmetic is cheaper than memory, and log-probabilities, as large as what they are of
    NEVER = "never"  # matmuls, convolutions, reductions, random numbers, library calls


COSTLY_NAMES = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf erfc erfinv sigmoid gelu silu mish softplus elu "
    "pow lgamma digamma logit atan2 log_sigmoid_forward _log_softmax".split()
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
    if not isinstance(target, _torch.OpOverload):
        return Recompute.FREE  # arithmetic on sizes
    if _torch.draws(target):
        return Recompute.NEVER
    name = target._schema.name.split("::")[1]
    if name in RECOMPUTE:
        return RECOMPUTE[name]
    if _torch.aliased_argument(target._schema) is not None:
        return Recompute.FREE
    return Recompute.CHEAP if torch.Tag.pointwise in target.tags else Recompute.NEVER


MATMUL_NAMES = frozenset(
    "mm addmm bmm baddbmm convolution _scaled_mm _grouped_mm _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu attention".split()
)


def is_matmul(node: fx.Node) -> bool:
    """Matrix products, convolutions and attention, and the items of their results: what costs most to compute again."""
    if node.target is operator.getitem:
        return is_matmul(operand_of(node))
    return isinstance(node.target, _torch.OpOverload) and node.target._schema.name.split("::")[1] in MATMUL_NAMES


def is_random(node: fx.Node) -> bool:
    """Random numbers and the items of results that hold them: never computed twice."""
    if node.target is operator.getitem:
        return is_random(operand_of(node))
    return _torch.draws(node.target)


def is_formula(node: fx.Node) -> bool:
    """Whether eager computes the node in the backward: it is computed once wherever it is, be it early."""
    return node.op == "call_function" and node.meta.get("phase") == "backward"


def may_recompute(node: fx.Node, costly: bool) -> bool:
    """Whether the backward may run this node again; `costly` allows transcendental functions."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return may_recompute(operand_of(node), costly)
    kind = of_target(node.target)
    return kind in (Recompute.FREE, Recompute.CHEAP) or (costly and kind is Recompute.COSTLY)


@dataclass(frozen=True)
class Rules:
    """What may and must be computed again in one joint graph: by kind of op, by checkpoint marks, by what a memory budget allows."""

    costly: bool
    forced: frozenset[fx.Node] = frozenset()  # inside of checkpoints
    borders: frozenset[fx.Node] = frozenset()  # what checkpoints give to the rest
    allowed: frozenset[fx.Node] = frozenset()

    @classmethod
    def of(cls, nodes: Iterable[fx.Node], costly: bool, lent: Collection[fx.Node] = ()) -> Rules:
        """Read off the marks of the forward's nodes; what the gradients compute from values that are not kept is not kept either. lent:
        results that the caller may write to before the backward, which are kept for another checkpoint alone."""
        borders, inside, forced = set(), set(), set()
        for node in nodes:
            if node.op != "call_function":
                continue
            in_forward = node.meta["phase"] == "forward"
            marked = "recompute" in node.meta if in_forward else any(a in inside for a in node.all_input_nodes)
            if marked and in_forward and any(_is_outside(user, node, node in lent) for user in node.users):
                borders.add(node)
            elif marked:
                inside.add(node)
                if not is_random(node) and (node.meta.get("recompute") != "prefer" or not is_matmul(node)):
                    forced.add(node)
        return cls(costly, frozenset(forced), frozenset(borders))

    def may(self, node: fx.Node) -> bool:
        """Whether the backward may run this node."""
        if node in self.forced or node in self.allowed or (is_formula(node) and not is_random(node)):
            return True
        return node not in self.borders and may_recompute(node, self.costly)


def _is_outside(user: fx.Node, node: fx.Node, lent: bool) -> bool:
    """Whether a reader in the forward is not part of the node's checkpoint, and for what is lent part of another."""
    if user.op == "output":
        return not lent
    region = user.meta.get("recompute_region")
    return user.meta["phase"] == "forward" and region != node.meta.get("recompute_region") and not (lent and region is None)
