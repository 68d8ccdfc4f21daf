"""Kernels that give what their backward needs only where gradients are on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .. import _torch
from ..contracts import Compiled

KEEPS_FOR_BACKWARD = frozenset({torch.ops.aten.mkldnn_rnn_layer.default})


def keeps_for_backward(gm: fx.GraphModule) -> bool:
    """Whether a graph calls such a kernel."""
    return any(n.target in KEEPS_FOR_BACKWARD for n in gm.graph.nodes)


def keeping(call: Compiled) -> Compiled:
    """With gradients on where such a kernel is called, and autograd none the wiser."""

    def run(inputs: list[Any]) -> Sequence[Any]:
        with torch.enable_grad(), _torch.below_autograd():
            return call(inputs)

    return run
