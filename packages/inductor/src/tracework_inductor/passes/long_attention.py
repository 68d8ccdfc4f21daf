"""Attention of many queries that a program wrote out is a kernel that holds no scores, in inference.

What a training step has of it is found before its backward is made, by aotautograd; what is found is the same (written_attention.py of primops).
"""

from dataclasses import replace
from typing import Any

import torch
from tracework_primops import PrimGraph, prims
from tracework_primops.written_attention import (
    FEW_QUERIES,
    WrittenAttention,
    operands_of,
    pays,
    smaller_parts_of,
    tensor_of,
    written_attention,
)
from tracework_primops.written_bodies import StepBodies
from tracework_runtime.device import cpu

from ..lowering.attention import DEVICES, MOST_WIDTH
from .rewrites import built_before, in_four_axes, put_in_place, rewritten

LEAST_SCORES = 64 * 64
"""Of a head on a CPU, from which on the kernel was measured to be the quicker one (EPYC 9004, one thread): 12 heads of 64 queries, 64 keys and 64
elements take 0.19 ms, by products 0.22; 96 heads of 128 by 128 6.0 and 7.9; 12 of 512 by 512 10.0 and 13.4, with a mask 11.2 and 13.6; 8 of 2048
by 2048 100 and 134. Of bfloat16, two threads with instructions for it: 12 of 512 by 512 5.1 and 7.8, of 1024 by 1024 22 and 74; without them, and
of float16, the library's products are the quicker ones."""


def long_attention(graph: PrimGraph) -> PrimGraph:
    """The graph with attention of many queries as a prim; the same object where there is none."""
    return rewritten(graph, _pays, _rewrite)


def _pays(node: Any) -> bool:
    if node.target is not prims.bmm or node.meta["spec"].device.type not in DEVICES or (found := written_attention(node)) is None:
        return False
    return (pays_on_cpu if node.meta["spec"].device.type == "cpu" else pays)(found)


def pays_on_cpu(found: WrittenAttention) -> bool:
    """The same for a CPU, whose kernel keeps all that it makes of a block in a cache: of floats with 32 bits, and of bfloat16 where the processor
    multiplies it."""
    q, k, v = (n.meta["spec"] for n in (found.query, found.key, found.value))
    numbers = [n for n in (*found.sizes, q.sizes[2], v.sizes[2]) if isinstance(n, int) and n > 0]
    known = (torch.float32, torch.bfloat16) if cpu.multiplies_bfloat16() else (torch.float32,)
    if not q.dtype == k.dtype == v.dtype or q.dtype not in known or len(numbers) != 6:
        return False
    _, _, queries, keys, *widths = numbers
    return queries > FEW_QUERIES and max(widths) <= MOST_WIDTH and queries * keys >= LEAST_SCORES


def _rewrite(node: Any) -> None:
    found = written_attention(node)
    assert found is not None
    found = replace(found, steps=tuple(part for step in found.steps for part in smaller_parts_of(step)))
    with built_before(node):
        bodies = StepBodies(found)
        captured = tuple(tensor_of(step, found) for step in bodies.read.values())
        score, keep, *_ = bodies.bodies([x.spec for x in captured])
        q, k, v, scale = operands_of(found, node.meta["spec"].sizes[2])
        new = prims.attention(q, k, v, captured, (), (), score, keep, scale, (), found.zeroed)[0].node
        whole = new.args[0]
        spec, alike = in_four_axes(node, found)
        new.meta["spec"], whole.meta["spec"] = spec, (spec, *whole.meta["spec"][1:])
        put_in_place(node, new, alike, found)


__all__ = ["long_attention"]
