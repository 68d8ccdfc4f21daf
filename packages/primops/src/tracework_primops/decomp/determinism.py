"""Ops whose eager kernels ask whether algorithms are to be deterministic (`torch.use_deterministic_algorithms`).

Under that switch they are left to the eager kernel: it takes another algorithm, or raises or warns as the switch says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._torch import OpOverload
from ..op import PrimValue
from .table import DECOMPS, Rule

ANYWHERE = frozenset(("cpu", "cuda"))
ON_GPU = frozenset(("cuda",))

SWITCHED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("put", "max_unpool2d"), ANYWHERE),
    **dict.fromkeys(
        "cumsum histc kthvalue median nanmedian nll_loss2d_forward nll_loss2d_backward embedding_dense_backward"
        " index_put _unsafe_index_put _unsafe_masked_index_put_accumulate index_add index_copy index_reduce"
        " scatter scatter_add scatter_reduce unfold_backward"
        " avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward"
        " adaptive_max_pool3d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward"
        " upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward upsample_trilinear3d_backward"
        " grid_sampler_2d_backward grid_sampler_3d_backward reflection_pad1d_backward reflection_pad2d_backward"
        " reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward".split(),
        ON_GPU,
    ),
}
"""ATen op -> types of device where its kernel asks, in any torch that is supported."""


def deterministic_changes() -> dict[OpOverload, Rule]:
    """What `decompose(changes=...)` takes while algorithms are to be deterministic."""
    named = ((op, op._schema.name.partition("::")[2], row) for op, row in DECOMPS.items())
    return {op: _elsewhere(SWITCHED[name], row) for op, name, row in named if name in SWITCHED}


def _elsewhere(devices: frozenset[str], row: Rule) -> Rule:
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        operand = next(x for x in args if x.__class__ is PrimValue)
        return NotImplemented if operand.device.type in devices else row(*args, **kwargs)

    return decomposed
