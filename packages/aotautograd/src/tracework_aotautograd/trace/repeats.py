"""What checkpoints write to inputs: the backward writes it again, as often as eager computes the checkpoint anew.

Batch norm in training updates its statistics by numbers that the forward keeps for this, two for a channel; counters are added to. What else
a checkpoint writes is left to eager.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import fx

from .. import _torch
from ..errors import Refusal
from .functional_forms import bind
from .memory import Memory

aten = torch.ops.aten

Levels = tuple[tuple[Any, bool], ...]
"""meta["recompute_levels"], as contracts.JointProgram has it."""
NORMS = frozenset((aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten.cudnn_batch_norm.default))
ADDITIONS = frozenset((aten.add_.Tensor, aten.add_.Scalar))


@dataclass(frozen=True)
class InCheckpoint:
    """A write in a checkpoint: to which input, at which captured node, in which checkpoints, the number and the node of the value that
    Repeated has."""

    slot: int
    place: int
    region: Any
    levels: Levels
    number: float
    value: fx.Node | None

    def times(self, last_kept: Mapping[Any, int]) -> int:
        """How many of the checkpoints write it again: those that come to it before they have all that eager keeps. last_kept: the captured
        nodes that make the last of that."""
        return sum(whole or self.place <= last_kept.get(level, -1) for level, whole in self.levels)


def writes_of(recorder: Any, func: Any, args: Any, kwargs: Any, out: Any, place: int) -> list[InCheckpoint]:
    """What an operator in a checkpoint has just written to inputs. Raises Refusal where nothing would write it again."""
    named = bind(func, args, kwargs)
    written: list[tuple[torch.Tensor, Any, Any]]
    if func in NORMS:
        mean, variance = named["running_mean"], named["running_var"]
        if not named["training"] or mean is None:
            return []
        written = [(mean, named["momentum"], _mean), (variance, named["momentum"], _variance)]
    else:
        names = _torch.written_arguments(func._schema)
        targets = [t for name in names for t in (named[name] if isinstance(named[name], (list, tuple)) else [named[name]])]
        written = [(t, _added(func, named), None) for t in targets if isinstance(t, torch.Tensor)]
    found = []
    for tensor, number, value in written:
        slot = input_of(recorder.memory, tensor)
        if slot is None:
            continue
        if number is None or tensor is not recorder.memory.find(tensor).root.fake:
            raise Refusal("what a checkpoint writes to an input is none that its backward repeats", recorder.origin)
        node = None if value is None else value(recorder, named, out)
        region, levels = recorder.marks.get("recompute_region"), recorder.marks.get("recompute_levels", ())
        found.append(InCheckpoint(slot, place, region, levels, number, node))
    return found


def in_order(writes: Sequence[InCheckpoint]) -> list[InCheckpoint]:
    """As a backward makes them: it comes to the last checkpoint first."""
    groups = [list(group) for _, group in groupby(writes, key=lambda write: write.levels[-1] if write.levels else None)]
    return [write for group in reversed(groups) for write in group]


def input_of(memory: Memory, tensor: torch.Tensor) -> int | None:
    """The slot of the input whose memory a tensor shows."""
    cell = memory.find(tensor)
    return None if cell is None or cell.root.slot is None else memory.input_of(cell)


def _added(func: Any, named: Mapping[str, Any]) -> float | None:
    """The number that an operator adds; None for others."""
    if func not in ADDITIONS or named.get("alpha", 1) != 1:
        return None
    other = named["other"]
    other = getattr(other, "constant", None) if isinstance(other, torch.Tensor) else other
    return other if isinstance(other, (int, float)) else None


def _mean(recorder: Any, named: Mapping[str, Any], out: Any) -> fx.Node:
    node: fx.Node = recorder.memory.read(recorder.cell(out[1]))
    return node


def _variance(recorder: Any, named: Mapping[str, Any], out: Any) -> fx.Node:
    """Of the sample, from the reciprocal deviation of the batch that the operator gives."""
    x = named["input"]
    count = x.numel() // x.shape[1]
    scale = recorder.memory.read(recorder.cell(out[2]))
    epsilon = named["eps"] if "eps" in named else named["epsilon"]
    variance = recorder.emit(aten.sub.Tensor, recorder.emit(aten.pow.Tensor_Scalar, scale, -2), epsilon)
    return recorder.emit(aten.mul.Tensor, variance, count / (count - 1))  # type: ignore[no-any-return]  # of a Recorder


def tangents_behind(region: Any, needed: Collection[fx.Node], sources: Mapping[fx.Node, int]) -> int:
    """The tangents whose gradients go through a checkpoint, as the bits of a number. needed: the nodes of a backward."""
    bits = 0
    for node in needed:
        if node.meta.get("phase") == "backward" and node.meta.get("differentiates") == region:
            bits |= sources.get(node, 0)
    return bits
