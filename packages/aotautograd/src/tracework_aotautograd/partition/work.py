"""What computing a node takes, in bytes of memory traffic: of products what the time of their arithmetic would move."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .. import _torch
from .cost import hint, kept_bytes
from .recompute import Recompute, of_target

__all__ = ["FLOPS_PER_BYTE", "work_of"]

FLOPS_PER_BYTE = {"cpu": 8, "cuda": 160}
"""How much arithmetic of products takes as long as moving a byte of memory does: of a few cores, and of a recent data-centre GPU."""
ARITHMETIC = 0.5
"""Of exp, tanh, erf and their like, which run while memory is read and written, beside what they move."""


def work_of(node: fx.Node, alone: bool = False) -> float:
    """What the node takes where it is computed beside others that read its operands anyway; alone: where it is not."""
    if node.op != "call_function" or node.target is operator.getitem or not isinstance(node.target, _torch.OpOverload):
        return 0
    from torch.utils.flop_counter import flop_registry  # which loads triton in torch 2.11

    results = _bytes(node)
    flops = flop_registry.get(node.target.overloadpacket)
    if flops is not None:
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda given: _numbers(given.meta["val"]))
        moved = results + sum(kept_bytes(given) for given in node.all_input_nodes)
        return float(flops(*args, **kwargs, out_val=_numbers(node.meta["val"])) / FLOPS_PER_BYTE.get(_device(node), 8) + moved)
    kind = of_target(node.target)
    if kind is Recompute.FREE:
        return 0
    if kind is Recompute.NEVER:
        return results + sum(kept_bytes(given) for given in node.all_input_nodes)
    return results if alone else results * ARITHMETIC if kind is Recompute.COSTLY else 0


def _bytes(node: fx.Node) -> int:
    val = node.meta.get("val")
    if not isinstance(val, (tuple, list)):
        return kept_bytes(node)
    return sum(x.numel() * x.element_size() for x in map(_numbers, val) if isinstance(x, torch.Tensor))


def _device(node: fx.Node) -> str:
    found = (x for x in (node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)) if isinstance(x, torch.Tensor))
    return next((x.device.type for x in found), "cpu")


def _numbers(value: Any) -> Any:
    """A tensor without memory whose sizes are numbers, for formulas that look at sizes alone."""
    if isinstance(value, torch.Tensor):
        return torch.empty([hint(n) for n in value.shape], dtype=value.dtype, device="meta")
    if isinstance(value, (tuple, list)):
        return type(value)([_numbers(x) for x in value])
    return hint(value) if isinstance(value, torch.SymInt) else value
