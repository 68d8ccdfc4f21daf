"""Attention masks that are the same for every call are proven away before the trace, so that attention takes its fast kernels.

Libraries build a mask from ranges and comparisons and drop it in eager mode when it masks nothing. While a graph is captured
they cannot look, and the mask stays. Here its nodes are looked at: when they depend on no input, neither data nor symbolic sizes,
they are run once, for real. A mask that lets everything through is left out; a lower triangle becomes `is_causal`.
"""

from __future__ import annotations

import logging
import operator
from typing import Any

import torch
from torch import fx
from tracework_primops import copy_node

from .. import _torch

__all__ = ["without_constant_masks"]

log = logging.getLogger("tracework.aotautograd.masks")
ATTENTION = torch.nn.functional.scaled_dot_product_attention
NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
LARGEST_MASK = 1 << 26  # elements that are worth looking at while compiling
RANDOM = ("rand", "dropout", "bernoulli", "normal", "multinomial", "poisson", "uniform", "exponential", "seed", "empty")


def without_constant_masks(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph with constant attention masks proven away; the same object when there are none."""
    known: dict[fx.Node, str | None] = {}  # layers share their mask
    calls = {n.name: verdict for n in gm.graph.nodes if _is_attention(n) and (verdict := _verdict(gm, n, known)) is not None}
    if not calls:
        return gm
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        made[node] = copy_node(graph, node, made.__getitem__)
        if node.name in calls:
            _rewrite(made[node], calls[node.name])
            log.debug("%s: the mask of attention is constant: %s", node.meta.get("stack"), calls[node.name])
    graph.eliminate_dead_code(is_impure_node=_is_impure)
    result = _torch.graph_module(graph, gm)
    result.meta.update(gm.meta)
    return result


def _is_impure(node: fx.Node) -> bool:
    """Everything but the pure nodes a mask is made of is left to the trace to judge."""
    return node.op in ("placeholder", "output") or not _is_pure(node)


def _is_attention(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is ATTENTION


def _argument(node: fx.Node, name: str, default: Any) -> Any:
    position = NAMES.index(name)
    return node.args[position] if position < len(node.args) else node.kwargs.get(name, default)


def _verdict(gm: fx.GraphModule, node: fx.Node, known: dict[fx.Node, str | None]) -> str | None:
    """ "open": nothing is masked; "causal": a lower triangle; None: not known, or something else."""
    mask = _argument(node, "attn_mask", None)
    if not isinstance(mask, fx.Node) or _argument(node, "is_causal", False) is not False:
        return None
    if mask not in known:
        known[mask] = _verdict_of_mask(gm, mask)
    return known[mask]


def _verdict_of_mask(gm: fx.GraphModule, mask: fx.Node) -> str | None:
    known = mask.meta.get("example_value")
    if not isinstance(known, torch.Tensor) or known.requires_grad or not all(isinstance(s, int) for s in known.shape):
        return None
    needed = _constant_ancestors(mask)
    if needed is None:
        return None
    return _shape_of(_evaluate(gm, mask, needed))


def _constant_ancestors(mask: fx.Node) -> set[fx.Node] | None:
    """What the mask is made from; None when that includes an input, a random number, or memory that is written to."""
    found: set[fx.Node] = set()
    waiting = [mask]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        if not _is_pure(node) or any(_writes(u) for u in node.users) or _is_large(node):
            return None
        found.add(node)
        waiting.extend(node.all_input_nodes)
    return found


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _is_pure(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method"):
        return False
    if not isinstance(node.meta.get("example_value"), (torch.Tensor, tuple, list)):
        return False
    return not _writes(node) and not any(word in _name(node) for word in RANDOM)


def _writes(node: fx.Node) -> bool:
    name = _name(node)
    in_place = name.endswith("_") and not name.endswith("__") and node.target not in (operator.and_, operator.or_, operator.not_)
    return in_place or name in ("setitem", "delitem") or node.target in _IN_PLACE or "out" in node.kwargs


_IN_PLACE = {getattr(operator, n) for n in "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor imatmul".split()}


def _is_large(node: fx.Node) -> bool:
    value = node.meta["example_value"]
    return isinstance(value, torch.Tensor) and 0 not in value.stride() and value.numel() > LARGEST_MASK


def _evaluate(gm: fx.GraphModule, mask: fx.Node, needed: set[fx.Node]) -> torch.Tensor:
    values: dict[fx.Node, Any] = {}
    with torch.no_grad():
        for node in gm.graph.nodes:
            if node not in needed:
                continue
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            call = getattr(args[0], node.target) if node.op == "call_method" else node.target
            values[node] = call(*args[1:], **kwargs) if node.op == "call_method" else call(*args, **kwargs)
    return values[mask]


def _shape_of(mask: torch.Tensor) -> str | None:
    for dim, stride in enumerate(mask.stride()):
        if stride == 0:
            mask = mask.narrow(dim, 0, 1)
    allowed = mask if mask.dtype is torch.bool else mask == 0
    if bool(allowed.all()):
        return "open"
    if mask.dtype is not torch.bool and not bool((allowed | (mask == -torch.inf)).all()):
        return None
    triangle = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
    return "causal" if mask.ndim >= 2 and bool((allowed == triangle).all()) else None


def _rewrite(node: fx.Node, verdict: str) -> None:
    values = {name: _argument(node, name, default) for name, default in zip(NAMES[3:], (None, 0.0, False), strict=True)}
    values["attn_mask"], values["is_causal"] = None, verdict == "causal"
    others = {k: v for k, v in node.kwargs.items() if k not in NAMES[3:]}
    query, key, value = (_argument(node, name, None) for name in NAMES[:3])
    others = {k: v for k, v in others.items() if k not in NAMES}
    node.args, node.kwargs = (query, key, value), {**values, **others}
