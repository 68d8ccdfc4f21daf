"""Attention of many queries that a program wrote out is a kernel that holds no scores, in inference on a GPU.

What a training step has of it is found before its backward is made, by aotautograd; what is found is the same (written_attention.py of primops).
"""

from typing import Any

from tracework_primops import PrimGraph, prims
from tracework_primops.written_attention import operands_of, pays, tensor_of, written_attention
from tracework_primops.written_bodies import StepBodies

from .rewrites import built_before, in_four_axes, put_in_place, rewritten


def long_attention(graph: PrimGraph) -> PrimGraph:
    """The graph with attention of many queries as a prim; the same object where there is none."""
    return rewritten(graph, _pays, _rewrite)


def _pays(node: Any) -> bool:
    if node.target is not prims.bmm or node.meta["spec"].device.type != "cuda":
        return False
    return (found := written_attention(node)) is not None and pays(found)


def _rewrite(node: Any) -> None:
    found = written_attention(node)
    assert found is not None
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
