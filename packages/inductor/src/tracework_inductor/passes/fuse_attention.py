"""Attention of a few queries on a GPU is a kernel of our own, which reads keys and values once, where they lie.

The library's kernels want as many key heads as query heads (a program with fewer copies its keys and values at each call), read keys that the
mask hides, or leave most of a GPU idle where one query walks over many keys.
"""

import operator
from typing import Any

import torch
from tracework_primops import Kind, Op, PrimGraph, Tag, TensorSpec, prims
from tracework_primops.passes.edits import memory_of

from .. import _torch
from ..codegen.triton.cores.attention_decode import most_rows
from ..ir.index import same, same_all
from .rewrites import built_before, rewritten, value_of

ATTENTION_DECODE = Op(
    "attention_decode",
    "attention_decode(q, k, v, mask, highest, causal, scale)",
    (),
    1,
    Kind.LIBRARY,
    frozenset({Tag.COMPUTE}),
    "softmax(q @ k.mT * scale + mask) @ v, where one head of k and v is for several of q; highest: the mask's along the keys",
    "matmul",
)
"""Made by this pass alone, and lowered by lowering/attention.py; never called."""

KERNELS = frozenset(
    getattr(torch.ops.aten, f"_scaled_dot_product_{name}_attention").default for name in ("flash", "efficient", "cudnn")
)
"""Overloads whose first result is attention of (batch, heads, length, width), without dropout."""
MOST_QUERIES = 8
MOST_WIDTH = 256
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})


def fuse_attention(graph: PrimGraph) -> PrimGraph:
    """The graph with attention of few queries as a prim of its own; the same object where there is none."""
    return rewritten(graph, _pays, _rewrite)


def _pays(node: Any) -> bool:
    if node.target not in KERNELS:
        return False
    given = _torch.arguments(node)
    q, k, v = (given[name].meta["spec"] for name in ("query", "key", "value"))
    if q.device.type != "cuda" or not q.dtype == k.dtype == v.dtype or q.dtype not in DTYPES or given["dropout_p"]:
        return False
    if any(part.target is not operator.getitem for part in node.users) or {p.args[1] for p in node.users if p.users} != {0}:
        return False  # a backward reads how the rows were normalised
    return _fits(q, *(_one_of_equals(given[name], node).meta["spec"] for name in ("key", "value")))


def _fits(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> bool:
    """Whether a program of the kernel can hold the rows of one key head."""
    heads, lengths = (q.sizes[1], k.sizes[1], v.sizes[1]), (q.sizes[2], q.sizes[3], k.sizes[-1], v.sizes[-1])
    if not all(isinstance(s, int) and s > 0 for s in (*heads, *lengths)) or heads[1] != heads[2] or heads[0] % heads[1]:
        return False
    if same(q.sizes[0], 0) or same(k.sizes[-2], 0):
        return False
    queries, width = lengths[0], max(lengths[1:])
    return queries <= MOST_QUERIES and width <= MOST_WIDTH and heads[0] // heads[1] * queries <= most_rows(width)


def _rewrite(node: Any) -> None:
    given = _torch.arguments(node)
    query, mask, scale = given["query"], given.get("attn_bias"), given["scale"]
    while mask is not None and mask.target is prims.expand and mask.args[0].meta["spec"].ndim > 0:
        mask = mask.args[0]
    with built_before(node):
        highest = _highest(mask, node) if mask is not None else None
        key, value = (_heads(_one_of_equals(given[name], node)) for name in ("key", "value"))
    scale = query.meta["spec"].sizes[-1] ** -0.5 if scale is None else float(scale)
    with node.graph.inserting_before(node):
        new = node.graph.call_function(ATTENTION_DECODE, (query, key, value, mask, highest, bool(given["is_causal"]), scale))
    for part in list(node.users):
        if part.args[1] == 0:
            new.meta.update(part.meta)
            part.replace_all_uses_with(new)
        node.graph.erase_node(part)
    node.graph.erase_node(node)


def _highest(mask: Any, node: Any) -> Any:
    """Of a mask along the keys, computed once for all layers. Where it is -65536, say, as all of the mask, a row sees all keys alike."""
    args = mask, (mask.meta["spec"].ndim - 1,), True
    for user in mask.users:
        if user.target is prims.amax and user.args == args and user < node:
            return user
    return prims.amax(value_of(mask), *args[1:]).node


def _one_of_equals(node: Any, reader: Any) -> Any:
    """What a node of (batch, heads, length, width) repeats the heads of: (batch, heads, 1, length, width); itself if it repeats none, or
    if its memory is written before `reader` reads it."""
    at = _uncopied(node)
    if at.target is not prims.reshape:
        return node
    repeated = _uncopied(at.args[0])
    if repeated.target is not prims.expand:
        return node
    heads_node = repeated.args[0]
    heads, several = heads_node.meta["spec"], repeated.meta["spec"]
    if heads.ndim != 5 or several.ndim != 5 or not same(heads.sizes[2], 1):
        return node
    memory = memory_of(heads_node)
    if any(user.target is prims.copy_into and user < reader for user in memory.users):
        return node
    batch, groups, members, length, width = several.sizes
    alike = same_all((batch, groups, length, width), (*heads.sizes[:2], *heads.sizes[3:]))
    return heads_node if alike and same_all(node.meta["spec"].sizes, (batch, groups * members, length, width)) else node


def _uncopied(node: Any) -> Any:
    while node.target in (prims.clone, prims.contiguous):
        node = node.args[0]
    return node


def _heads(node: Any) -> Any:
    """Of (batch, heads, 1, length, width), without the third axis."""
    return prims.squeeze(value_of(node), (2,)).node if node.meta["spec"].ndim == 5 else node


__all__ = ["ATTENTION_DECODE", "fuse_attention"]
