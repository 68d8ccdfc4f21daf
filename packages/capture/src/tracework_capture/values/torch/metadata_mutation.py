"""Methods after which a tensor object goes on as another tensor: a view of itself, or one over the memory of another."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ... import _torch
from ..protocol.calls import methods
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import remember
from ..protocol.value import Frame, Value


def view_in_place(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
    """t_, squeeze_, ...: the tensor object goes on as the view; not for tensors that others hold already.

    It counts as written to: a backward that needs what it was refuses.
    """
    refuse_metadata_mutation(frame, self, name)
    is_view = self.example._base is not None and not self.metadata_mutated
    made: Any = frame.graph.call_method(frame, name[:-1], (self, *args), kwargs)
    counted = not self.example.is_inference()
    if name != "detach_" and not is_view:
        # no view of anything, though its example is one: writes that are not recorded would give a view another history
        made.node.target, self.metadata_mutated = name, True
        if counted:
            torch.autograd.graph.increment_version(self.example)
    elif name != "detach_" and counted:
        first = first_mutation(made.node)
        first.prepend(frame.graph.plain_node(frame, torch.autograd.graph.increment_version, (first.args[0],)))
    self.node, self.example = made.node, made.example
    remember(frame, self)
    return self


def refuse_metadata_mutation(frame: Frame, self: AbstractTensor, name: str) -> None:
    """Breaks the graph for tensors that others hold, and where autograd refuses or does more than to make a view."""
    if self.source is not None:
        frame.break_graph("side_effect_unknown", f"Tensor.{name} of an existing tensor")
    viewed = self.example if self.example._base is None else self.example._base
    if viewed.is_leaf and viewed.requires_grad and torch.is_grad_enabled():
        frame.break_graph("fake_failed", f"{name}: eager refuses to change a leaf that requires grad, or a view of it")
    bases = [getattr(n.meta["example_value"], "_base", None) for n in frame.graph.graph.nodes if n.op == "placeholder"]
    if self.example.requires_grad and any(viewed is base for base in bases):
        frame.break_graph("side_effect_unknown", f"Tensor.{name} of a view of a view that exists: both get another history")
    if self.example.requires_grad and not torch.is_grad_enabled():
        frame.break_graph("side_effect_unknown", f"Tensor.{name} under no_grad of a tensor that keeps its history")


def first_mutation(node: fx.Node) -> fx.Node:
    """The first of the views in place that end with this one and have nothing between them. What is written to counts as written before
    it is viewed: autograd gives views whose base was written to since another history."""
    first = node
    while first.all_input_nodes == [first.prev]:
        first = first.prev
    return first if first.prev.target is torch.autograd.graph.increment_version else node


def detach_(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The tensor object goes on as the detached one; eager refuses it for views."""
    if self.source is not None:
        return frame.break_graph("side_effect_unknown", "Tensor.detach_ of an existing tensor, which may be a view")
    if self.example._base is not None:
        return frame.break_graph("fake_failed", "detach_: eager refuses to detach a view in place")
    if self.node.users:  # views of it, and histories that keep it, notice
        return frame.break_graph("side_effect_unknown", "Tensor.detach_ of a tensor that others are computed from")
    return view_in_place(frame, self, name, args, kwargs) if self.example.requires_grad else self


def set_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
    """Tensor.set_(source): a tensor that the program makes goes on as another one over the memory of the source."""
    source = args[0] if len(args) == 1 and not kwargs else None
    if self.source is not None or not isinstance(source, AbstractTensor) or self.example._is_view():
        return frame.break_graph("side_effect_unknown", f"Tensor.{name} of an existing tensor, a view, or with these arguments")
    old, new = self.example, source.example
    if (old.dtype, old.device) != (new.dtype, new.device) or old.requires_grad or new.requires_grad or self.of_inference:
        return frame.break_graph("side_effect_unknown", f"Tensor.{name} of tensors of another kind, or with history")
    made: Any = frame.graph.call(frame, getattr, (source, "data"))
    frame.graph.plain_node(frame, _torch.set_version, (made.node, old._version + 1))  # writes are counted on
    self.node, self.example = made.node, made.example
    remember(frame, self)
    return self


TURNING_METHODS = {
    "detach_": detach_,
    "set_": set_method,
    **{n: view_in_place for n in ("t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_")},
}
methods(torch.Tensor, TURNING_METHODS)
