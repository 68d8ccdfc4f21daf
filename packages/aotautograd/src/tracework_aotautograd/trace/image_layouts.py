"""Images lie channels-last inside a graph whose convolutions the GPU's library computes so.

Tensor cores read channels-last images of half types; for row-major ones the library converts every operand and result, which takes
a third of a small network's time. Here the graph's own convolutions are given channels-last images, and the layout spreads to what is
computed from them as it would in eager mode: only the layouts in meta["val"] change. What leaves the graph keeps eager's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

__all__ = ["spread_channels_last"]

aten = torch.ops.aten
IMAGES = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}
"""Convolution -> places of the images among its arguments."""
TRANSPOSED = {aten.convolution.default: 6, aten.convolution_backward.default: 7}
FASTER = {("cuda", torch.float16), ("cuda", torch.bfloat16)}
MIN_CONVOLUTIONS = 3
"""With fewer, the changes of layout at the ends of the graph cost more than the convolutions gain."""


def spread_channels_last(gm: fx.GraphModule) -> None:
    """Changes layouts in place where there are enough convolutions; does nothing elsewhere."""
    convolutions = {n for n in gm.graph.nodes if n.target in IMAGES and _gains(n)}
    if len([n for n in convolutions if n.target is aten.convolution.default]) < MIN_CONVOLUTIONS:
        return
    changed: dict[fx.Node, Any] = {}
    with torch.no_grad():
        for node in gm.graph.nodes:
            if node.op == "call_function" and (node in convolutions or any(a in changed for a in node.all_input_nodes)):
                value = _laid_out(node, changed, node in convolutions)
                if _layouts(value) != _layouts(node.meta["val"]):
                    changed[node] = value
    _restore_outputs(gm, changed)
    for node, value in changed.items():
        node.meta["val"] = value


def _gains(node: fx.Node) -> bool:
    images = [node.args[place].meta["val"] for place in IMAGES[node.target]]
    plain = all(x.ndim == 4 and all(isinstance(s, int) for s in x.shape) for x in images)
    return plain and (images[0].device.type, images[0].dtype) in FASTER and not node.args[TRANSPOSED[node.target]]


def _laid_out(node: fx.Node, changed: dict[fx.Node, Any], convolution: bool) -> Any:
    """The node's value with the new layouts; the known one where the op does not take them."""
    if node.meta.get("write_back") is not None:
        return node.meta["val"]
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: changed.get(n, n.meta["val"]))
    if convolution:
        args = list(args)
        for place in IMAGES[node.target]:
            args[place] = args[place].contiguous(memory_format=torch.channels_last)
    try:
        return _merged(node.meta["val"], node.target(*args, **kwargs))
    except RuntimeError:  # a view that this layout does not have: its value is a copy then, in eager's layout
        return node.meta["val"]


def _merged(old: Any, new: Any) -> Any:
    """What the trace made, but where only the layout is another."""
    if isinstance(old, (tuple, list)):
        return type(old)(map(_merged, old, new))
    if not isinstance(old, torch.Tensor) or new.dtype != old.dtype or new.shape != old.shape or new.stride() == old.stride():
        return old
    return new


def _layouts(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_layouts(v) for v in value]
    return value.stride() if isinstance(value, torch.Tensor) else None


def _restore_outputs(gm: fx.GraphModule, changed: dict[fx.Node, Any]) -> None:
    """Copies in eager's layout for outputs of the graph."""
    (output,) = [n for n in gm.graph.nodes if n.op == "output"]
    copies: dict[fx.Node, fx.Node] = {}
    for node in [n for n in output.all_input_nodes if n in changed]:
        with gm.graph.inserting_before(output):
            copies[node] = gm.graph.call_function(aten.clone.default, (node,))
        copies[node].meta.update(node.meta)
    output.args = fx.map_arg(output.args, lambda n: copies.get(n, n))
