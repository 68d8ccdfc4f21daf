"""Which operators refuse an index, a class or a probability that is out of range: they matter also where nobody reads their results."""

from __future__ import annotations

import re

import torch.fx

from ._torch import OpOverload
from .op import Op, Tag

_CHECKING = frozenset(
    "gather index_select embedding embedding_bag _embedding_bag _embedding_bag_forward_only index take index_put _index_put_impl put "
    "scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce nll_loss_forward nll_loss2d_forward "
    "multi_margin_loss multilabel_margin_loss_forward max_unpool2d max_unpool3d bincount binary_cross_entropy".split()
)
"""Names of ATen operators, without the underscore of those that write in place."""


def checks_indices(call: torch.fx.Node | Op | OpOverload) -> bool:
    """Whether a prim or an ATen overload, or a call of one, refuses some values of an index or a probability."""
    target = call.target if isinstance(call, torch.fx.Node) else call
    if isinstance(target, Op):
        return Tag.CHECKS in target.tags
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return False
    return target._schema.name.partition("::")[2].rstrip("_") in _CHECKING


def place_of(origin: object) -> str:
    """A node's origin with the last folder of its path: "layers/mlp.py:12 in forward embedding", the same on all machines."""
    return re.sub(r"^.*/(?=[^/]+/[^/]+:\d)", "", str(origin or "").replace("\n", " "))
