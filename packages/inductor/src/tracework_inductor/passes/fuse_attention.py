"""Attention of a few queries is a kernel of our own, which reads keys and values once, where they lie.

The library's kernels want as many key heads as query heads (a program with fewer copies its keys and values at each call), read keys that the
mask hides, or leave most of a GPU idle where one query walks over many keys. Attention that a program wrote out by products is the same kernel.
"""

import operator
from typing import Any

import torch
from tracework_primops import Kind, Op, PrimGraph, Tag, TensorSpec, prims
from tracework_primops.written_attention import FEW_QUERIES, mask_of, number_everywhere, operands_of, written_attention

from .. import _torch
from ..ir.cores import most_rows
from ..ir.index import constant_product, same
from ..lowering.attention import DEVICES
from .rewrites import built_before, in_four_axes, put_in_place, rewritten, value_of

ATTENTION_DECODE = Op(
    "attention_decode",
    "attention_decode(q, k, v, mask, highest, distance, causal, scale, written, zeroed, fill)",
    (),
    1,
    Kind.LIBRARY,
    frozenset({Tag.COMPUTE}),
    "softmax(q @ k.mT * scale + mask) @ v, where one head of k and v is for several of q; highest: the mask's along the keys, and keys whose "
    "mask is more than the distance below it are not read; written: a mask is infinite where it is, not where torch's kernels take it for "
    "infinite; zeroed: rows that see nothing are 0, not NaN; fill: where the mask is that, so is the score",
    "matmul",
)
"""Made by this pass alone, and lowered by lowering/attention.py; never called."""

KERNELS = frozenset(
    getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default
    for name in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
)
"""Overloads whose first result is attention of (batch, heads, length, width), without dropout."""
MOST_WIDTH = 256
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})
LEAST_ON_CPU = 1 << 13
"""Elements of the keys of all query heads. With fewer the library's call takes microseconds, and a kernel some tenths of a second to compile."""

FARTHEST = 2.0**100
"""A key has no weight whose mask is that far below the highest, as scores are not that far apart. It is not read: NaN that it holds does not
show, as in the library's kernels behind the diagonal of a causal mask."""
EXCLUDED = 65503.0
"""The same where the mask is a choice between 0 and a number: torch writes -65504 for a False where its kernels do not take -inf. What a False
excludes has no weight here, in its kernels only where scores are not as far apart."""


def fuse_attention(graph: PrimGraph) -> PrimGraph:
    """The graph with attention of few queries as a prim of its own; the same object where there is none."""
    return rewritten(graph, _pays, _rewrite)


def _pays(node: Any) -> bool:
    return _calls_library(node) or _is_written_out(node)


def _calls_library(node: Any) -> bool:
    if node.target not in KERNELS:
        return False
    given = _torch.arguments(node)
    q, k, v = (given[name].meta["spec"] for name in ("query", "key", "value"))
    if given["dropout_p"] or any(part.target is not operator.getitem for part in node.users):
        return False
    if {p.args[1] for p in node.users if p.users} != {0}:
        return False  # a backward reads how the rows were normalised
    mask = given.get("attn_mask")
    if mask is not None and mask.meta["spec"].dtype is torch.bool:
        return False
    return _fits(q, k.dtype, v.dtype, q.sizes[1], k.sizes[1], v.sizes[1], q.sizes[2], k.sizes[2], q.sizes[3], v.sizes[3])


def _is_written_out(node: Any) -> bool:
    if node.target is not prims.bmm or node.meta["spec"].device.type not in DEVICES or (found := written_attention(node)) is None:
        return False
    if not found.has_one_mask:
        return False
    q, k, v = (n.meta["spec"] for n in (found.query, found.key, found.value))
    _, heads, queries, keys = found.sizes
    return _fits(q, k.dtype, v.dtype, heads, heads, heads, queries, keys, q.sizes[2], v.sizes[2])


def _fits(
    q: TensorSpec,
    key_dtype: torch.dtype,
    value_dtype: torch.dtype,
    heads: Any,
    key_heads: Any,
    value_heads: Any,
    queries: Any,
    keys: Any,
    *widths: Any,
) -> bool:
    """Whether a program of the kernel can hold the rows of one key head."""
    if q.device.type not in DEVICES or not q.dtype == key_dtype == value_dtype or q.dtype not in DTYPES:
        return False
    if not all(isinstance(s, int) and s > 0 for s in (heads, key_heads, value_heads, queries, *widths)):
        return False
    if key_heads != value_heads or heads % key_heads or same(q.sizes[0], 0) or same(keys, 0):
        return False
    width = max(widths)
    if q.device.type == "cpu" and constant_product([q.sizes[0], heads, keys, width]) < LEAST_ON_CPU:
        return False
    return bool(
        queries <= FEW_QUERIES and width <= MOST_WIDTH and heads // key_heads * queries <= most_rows(width, q.device.type)
    )


def _rewrite(node: Any) -> None:
    if node.target is prims.bmm:
        _rewrite_written_out(node)
        return
    given = _torch.arguments(node)
    query, mask, scale = given["query"], given.get("attn_bias", given.get("attn_mask")), given["scale"]
    scale = query.meta["spec"].sizes[-1] ** -0.5 if scale is None else float(scale)
    facts = bool(given["is_causal"]), scale, False, True, None
    with built_before(node):
        new = _attention(node, query, given["key"], given["value"], mask, *facts)
    for part in list(node.users):
        if part.args[1] == 0:
            new.meta.update(part.meta)
            part.replace_all_uses_with(new)
        node.graph.erase_node(part)
    node.graph.erase_node(node)


def _rewrite_written_out(node: Any) -> None:
    found = written_attention(node)
    assert found is not None
    with built_before(node):
        q, k, v, scale = operands_of(found, node.meta["spec"].sizes[2])
        factor, mask = mask_of(found)
        facts = False, factor * scale, True, found.zeroed, found.fill
        new = _attention(node, q.node, k.node, v.node, None if mask is None else mask.node, *facts)
        spec, alike = in_four_axes(node, found)
        new.meta |= {"spec": spec, "origin": node.meta.get("origin")}
        put_in_place(node, new, alike, found)


def _attention(node: Any, query: Any, key: Any, value: Any, mask: Any, *facts: Any) -> Any:
    """A new call, before `node`; in a block of `built_before`."""
    while mask is not None and mask.target is prims.expand and mask.args[0].meta["spec"].ndim > 0:
        mask = mask.args[0]
    highest = _highest(mask, node) if mask is not None else None
    distance = EXCLUDED if mask is not None and _is_choice(mask) else FARTHEST
    return node.graph.call_function(ATTENTION_DECODE, (query, key, value, mask, highest, distance, *facts))


def _is_choice(mask: Any) -> bool:
    """Whether the elements of a mask are 0 or one number below."""
    while mask.target in (prims.expand, prims.reshape, prims.convert):
        mask = mask.args[0]
    if mask.target is not prims.where:
        return False
    numbers = [number_everywhere(arg) for arg in mask.args[1:]]
    return 0.0 in numbers and all(n is not None and n <= 0 for n in numbers)


def _highest(mask: Any, node: Any) -> Any:
    """Of a mask along the keys, computed once for all layers. Where it is -65536, say, as all of the mask, a row sees all keys alike."""
    args = mask, (mask.meta["spec"].ndim - 1,), True
    for user in mask.users:
        if user.target is prims.amax and user.args == args and user < node:
            return user
    return prims.amax(value_of(mask), *args[1:]).node


__all__ = ["ATTENTION_DECODE", "fuse_attention"]
