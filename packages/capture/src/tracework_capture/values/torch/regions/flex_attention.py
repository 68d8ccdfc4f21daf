"""The operator behind flex_attention: score_mod and mask_mod are called once with indices along dims of their own.

torch calls them under vmap, with single numbers. That is the same where they compute element by element; others break the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from tracework_primops import attended, with_laid_out_gradient

from ...._torch.operators import HigherOrderOperator
from ....polyfills.torch_functions import before_change, cast_first
from ....sources import Source
from ...objects.existing import wrap_object
from ...objects.row_value import RowValue
from ...plain.sequence import TupleValue
from ...protocol.calls import CALLS, call, traced
from ...protocol.constant import ConstantValue
from ...protocol.region import Region
from ...protocol.value import Frame, Value
from ...protocol.wraps import wraps_derived
from ..tensor import TensorValue

_ELEMENTWISE = frozenset(
    "add sub mul truediv true_divide div floordiv floor_divide mod remainder pow neg abs exp exp2 log sigmoid tanh sin cos sqrt rsqrt"
    " relu erf floor ceil round where maximum minimum clamp eq ne lt le gt ge and_ or_ xor invert logical_and logical_or logical_not"
    " logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor to float int long bool clone detach masked_fill isnan".split()
)
_FACTORIES = frozenset("full new_ones new_zeros new_full ones zeros tensor scalar_tensor".split())
BLOCKWISE = frozenset({"cpu", "cuda"})
"""Types of devices whose kernels read a BlockMask, elsewhere it would be so many more inputs."""
TRAINED = frozenset({"cuda"})
"""Those that eager has gradients for."""
PARAMETERS = ("query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_buffers", "mask_buffers")


@call(torch.ops.higher_order.flex_attention)
def attention_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """flex_attention(query, key, value, score_mod, block_mask, scale, kernel_options, buffers of score_mod, of mask_mod)"""
    given: dict[str, Any] = dict(zip(PARAMETERS, args))
    tensors: list[Any] = [given.get(name) for name in PARAMETERS[:3]]
    if kwargs or len(args) < 7 or not all(isinstance(t, TensorValue) for t in tensors) or frame.modes.transforms:
        return frame.break_graph("call_unknown", "flex_attention with these arguments, or under a transform")
    query, key, value = tensors
    if query.example.shape[0] != key.example.shape[0]:
        return frame.break_graph("call_unknown", "flex_attention with keys for several batches")
    if torch.is_autocast_enabled(query.example.device.type):
        return traced(cast_first)(frame, args, {})
    if query.example.device.type in TRAINED and torch.is_grad_enabled():
        query, key, value = (frame.graph.call(frame, with_laid_out_gradient, [x]) for x in (query, key, value))
    scores, places = traced(before_change)(frame, [query, key, given["scale"]], {}).unpack(frame)
    indices = places.unpack(frame)
    region = Region(frame)
    score_buffers, mask_buffers = (given[n].unpack(frame) if n in given else [] for n in PARAMETERS[7:])
    blocks = given["block_mask"].unpack(frame)
    mask = blocks[-1].call(frame, [*indices, *mask_buffers], {})
    changed = given["score_mod"].call(frame, [scores, *indices, *score_buffers], {})
    strange = next((n for n in region.nodes() if not is_elementwise(n)), None)
    if strange is not None or not isinstance(mask, TensorValue) or not isinstance(changed, TensorValue):
        return frame.break_graph(
            "call_unknown", f"flex_attention whose functions do more than compute with single numbers: {strange}"
        )
    counted = _counted(blocks) if query.example.device.type in BLOCKWISE else (TupleValue(()), TupleValue(()))
    found = [query, key, value, scores, TupleValue(tuple(indices)), changed, mask, given["scale"], *counted]
    return frame.graph.call(frame, attended, found)


def _counted(blocks: list[Value]) -> tuple[TupleValue, TupleValue]:
    """Counts and indices of the blocks of a BlockMask, and queries and keys of a block; nothing where it lacks some of them."""
    *tensors, rows, columns = [*blocks[2:10], *blocks[-3:-1]]
    known = all(isinstance(t, TensorValue) for t in tensors) and all(isinstance(n, ConstantValue) for n in (rows, columns))
    return (TupleValue(tuple(tensors)), TupleValue((rows, columns))) if known else (TupleValue(()), TupleValue(()))


def is_elementwise(node: fx.Node) -> bool:
    """Whether the call gives for whole dims of indices what it gives for single ones."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    examples = [n.meta["example_value"] for n in node.all_input_nodes]
    if not all(isinstance(e, torch.Tensor) for e in examples):
        return False
    if name == "getitem":
        held: Any
        held, key = node.args
        parts = key if isinstance(key, tuple) else (key,)
        return len(parts) == held.meta["example_value"].ndim and all(p in node.all_input_nodes for p in parts)
    if name in _FACTORIES:
        return bool(node.meta["example_value"].ndim == 0)
    return name in _ELEMENTWISE and promotes_as_numbers(examples)


def promotes_as_numbers(examples: Sequence[torch.Tensor]) -> bool:
    """Whether a call gives the dtype that it gives where all operands are single numbers, and not only some of them."""
    whole, shown = ([e.dtype for e in examples if e.ndim or not only] for only in (False, True))
    if not shown or len(shown) == len(whole):
        return True
    every, most = (functools.reduce(torch.promote_types, dtypes) for dtypes in (whole, shown))
    return every == most or most == torch.bool or (every.is_floating_point and not (most.is_floating_point or most.is_complex))


@wraps_derived(HigherOrderOperator)
def wrap_higher_order(frame: Frame, obj: Any, source: Source) -> Value:
    """An operator that takes functions: those with a row are known by identity."""

    row = CALLS.get(obj)
    if row is None:
        return wrap_object(frame, obj, source)
    frame.guard("IDENTITY", source, obj)
    return RowValue(obj, row.handler, source)
