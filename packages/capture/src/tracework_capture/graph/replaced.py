"""Tensors in whose place a selection between two arms gave a copy, as data decides (interp/select.py).

Plain Python may have the tensor itself there. Nobody can tell as long as nothing is written to either, none of the two is changed as an
object or compared by identity, and only one of them leaves the graph; else the frame is captured again without the selection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from ..plan import Again, Learnt
from .operators import ResultFacts

if TYPE_CHECKING:
    from ..values.protocol.value import Frame


@dataclass(frozen=True)
class Replaced:
    """`new` is `old`, or another tensor, after the condition `key`; both were in this state then."""

    key: Any
    old: Any
    new: Any
    state: Any

    @property
    def memory(self) -> set[Any]:
        """That of both."""
        return {self.old.example.storage, self.new.example.storage}

    def is_changed(self) -> bool:
        """Whether the program changed one of them since."""
        return self.state != (_state(self.old), _state(self.new)) or _is_changed(self.old) or _is_changed(self.new)


def may_be_replaced(value: Any, with_history: bool = False) -> bool:
    """Whether a copy has all that can be asked of the tensor: it has no history, gradient or attributes of its own. Of a view of it the
    gradients are those of the copy."""
    example, obj = value.example, value.obj
    if example.requires_grad and not with_history or example.is_conj() or example.is_neg() or _is_changed(value):
        return False
    if torch.is_inference_mode_enabled():  # where all that the graph makes is an inference tensor
        return obj is None
    if with_history:
        return True
    return obj is None or type(obj) is torch.Tensor and not obj.__dict__ and obj.grad is None


def note_replaced(frame: Frame, key: Any, given: Any, old: Any, new: Any) -> None:
    """After the condition there is `new` where an arm left `given`, which is a copy of `old` unless that is None."""
    pairs = [(key, old)] if old is not None else []
    pairs += [(each.key, each.old) for each in frame.recording.replaced if each.new is given or each.new is old]
    for where, before in pairs:
        before.is_chosen = new.is_chosen = True
        frame.recording.replaced.append(Replaced(where, before, new, (_state(before), _state(new))))


def settle_replaced(frame: Frame, new: Any) -> None:
    """Nobody has `new` any longer, which was changed and is stored in the tensor that it is a view of in plain Python, and which nothing
    was written to meanwhile."""
    frame.recording.replaced = [
        each for each in frame.recording.replaced if each.new is not new or each.state[0] != _state(each.old)
    ]


def _state(value: Any) -> tuple[int, bool, ResultFacts]:
    example = value.example
    return example.storage.version, example.requires_grad, ResultFacts.of(example)


def _is_changed(value: Any) -> bool:
    """Whether the program changed the tensor as an object."""
    changes = (value.attributes, value.hooks, value.retains_grad, value.keeps_leaf, value.versions, value.requiring_grad)
    return value.is_another_kind or any(bool(change) for change in changes)


def check_replaced(frame: Frame, outputs: Iterable[fx.Node]) -> None:
    """Raises Again where the program, or who gets these outputs, may see which tensors were replaced."""
    if not frame.recording.replaced:
        return
    nodes = frame.graph.graph.nodes
    strided = (node.all_input_nodes for node in nodes if "as_strided" in getattr(node.target, "__name__", str(node.target)))
    _memory_observed(frame, _memory(read for reads in strided for read in reads))
    seen = _memory(outputs) | _memory(node for node in nodes if node.op == "placeholder")
    for group in _groups(frame.recording.replaced):
        memory = set().union(*(each.memory for each in group))
        if len(memory & seen) > 1 or memory & frame.recording.effects.statistics or any(each.is_changed() for each in group):
            _unselect(group)


def identity_observed(frame: Frame, *values: Any) -> None:
    """Raises Again where data decides which tensor one of the values is."""
    chosen = [value for value in values if getattr(value, "is_chosen", False)]
    for group in _groups(frame.recording.replaced) if chosen else ():
        if any(value is each.old or value is each.new for value in chosen for each in group):
            _unselect(group)


def memory_observed(frame: Frame, value: Any) -> None:
    """Raises Again where the tensor is a replaced one, or a view of one, that the program asks how it lies in its memory."""
    _memory_observed(frame, {value.example.storage})


def _memory_observed(frame: Frame, memory: set[Any]) -> None:
    for group in _groups(frame.recording.replaced) if memory else ():
        if any(memory & each.memory for each in group):
            _unselect(group)


def _unselect(group: list[Replaced]) -> NoReturn:
    raise Again("selection_seen", Learnt(not_selected=frozenset(each.key for each in group)))


def _groups(replaced: list[Replaced]) -> list[list[Replaced]]:
    """Those that may be the same tensor together."""
    groups: list[list[Replaced]] = []
    for each in replaced:
        touched = [group for group in groups if any(each.memory & other.memory for other in group)]
        groups = [group for group in groups if group not in touched]
        groups.append([each, *(other for group in touched for other in group)])
    return groups


def _memory(nodes: Iterable[fx.Node]) -> set[Any]:
    found = (node.meta.get("example_value") for node in nodes)
    return {example.storage for example in found if isinstance(example, torch.Tensor)}
