"""LAYOUTS: what operators ask of the layout of images, and what they choose themselves."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from .. import _torch

__all__ = ["LAYOUTS", "Asks", "asks"]

aten = torch.ops.aten


class Asks(enum.Enum):
    """What an operator asks of the layout of its operands, and what layout its result has then."""

    CONVOLUTION = "images as its result, row-major or channels-last, at different costs"
    LOOP = "nothing: a loop of ours reads and writes any layout, at a price where the two differ"
    NOTHING = "nothing: its result is small, or has no channels"
    SAME = "operands as its result, row-major or channels-last; a kernel of the library"
    VIEW = "a result in the operand's memory"
    EAGER = "eager's layout, for operands and results"


def _rows(what: Asks, names: str) -> dict[str, Asks]:
    return dict.fromkeys(names.split(), what)


LAYOUTS: Mapping[str, Asks] = {
    **_rows(Asks.CONVOLUTION, "convolution convolution_backward"),
    **_rows(
        Asks.LOOP,
        """
        native_batch_norm native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_no_training
        _native_batch_norm_legit_functional native_group_norm native_group_norm_backward
        max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices avg_pool2d avg_pool2d_backward
        upsample_bilinear2d upsample_bilinear2d_backward upsample_nearest2d_backward
        cat constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d upsample_nearest2d upsample_nearest3d
        pixel_shuffle pixel_unshuffle channel_shuffle
        _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data
        slice_scatter select_scatter where masked_fill _to_copy hardswish _prelu_kernel glu
        hardtanh_backward hardswish_backward hardsigmoid_backward mish_backward leaky_relu_backward elu_backward softplus_backward
        """,
    ),
    **_rows(
        Asks.NOTHING,
        "sum mean amax amin var std var_mean std_mean logsumexp argmax argmin any all prod linalg_vector_norm max min norm",
    ),
    **_rows(
        Asks.SAME,
        """
        avg_pool3d avg_pool3d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_max_pool2d upsample_bicubic2d
        """,
    ),
}
"""Name of an operator -> what it asks; with all that torch tags as pointwise it is a loop's."""


def asks(node: fx.Node) -> Asks:
    """What the operator of a node asks."""
    return Asks.EAGER if node.meta.get("write_back") is not None else _of(node.target)


@functools.cache
def _of(target: Any) -> Asks:
    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable or _torch.draws(target):
        return Asks.EAGER
    if _torch.aliased_argument(schema) is not None:
        places = any(
            a.name in ("stride", "storage_offset") for a in schema.arguments
        )  # which count places of memory, not elements
        return Asks.EAGER if places else Asks.VIEW
    found = LAYOUTS.get(schema.name.removeprefix("aten::"))
    if found is not None:
        return found
    return Asks.LOOP if torch.Tag.pointwise in target.tags else Asks.EAGER
