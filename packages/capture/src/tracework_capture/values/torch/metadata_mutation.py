"""What a tensor object goes on as another tensor by.

Of existing leaves, which the tensors of the program become when the graph has run: tensor.data = other, from where on the tensor is another
node, over the memory of `other`; requires_grad_(False), after which it is a node that is detached, until requires_grad_() follows.

Of tensors that the program makes: methods after which one is a view of itself, or one over the memory of another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor

from ... import _torch
from ...graph.regions import with_data
from ..protocol.calls import methods
from ..protocol.kinds import AbstractTensor
from ..protocol.memory import known_values, remember
from ..protocol.value import Emitter, Frame, Value
from .backward import is_freed
from .inference_tensors import is_inside
from .leaves import leaf_of

PLAIN = (torch.Tensor, torch.nn.Parameter)


def assign_data(frame: Frame, tensor: AbstractTensor, value: Any) -> None:
    """tensor.data = value"""
    if value is tensor:
        return None
    reason = why_not(frame, tensor, value)
    if reason is None and frame.options.fullgraph and tensor.example.requires_grad:
        reason = None if kind_of(value.example) == kind_of(tensor.example) else "a tensor that becomes another kind of tensor"
    if reason is not None:
        return assign_in_graph(frame, tensor, value, reason)
    before, is_leaf = tensor.example, leaf_of(frame, tensor)
    data: Any = frame.graph.call(frame, getattr, (value, "data"))
    made = data
    tensor.is_another_kind = before.requires_grad and kind_of(data.example) != kind_of(before)
    if before.requires_grad and not tensor.is_another_kind:
        made = frame.graph.call(frame, with_data, (tensor, data))
    known = known_values(frame)
    for example in (before, made.example):
        known.pop(id(example), None)
    example = made.example
    if tensor.is_another_kind:
        with frame.graph.fake_mode:
            example = made.example.detach().requires_grad_()
    tensor.node, tensor.example, tensor.keeps_leaf = made.node, example, is_leaf
    remember(frame, tensor)
    frame.mutations.keep.append(tensor)
    tensor.versions.append(example)

    def write(emit: Emitter) -> None:
        emit.line(f"{emit.load(tensor)}.data = {emit.load(data)}")
        writes = sum(given._version for given in tensor.versions)
        if writes:
            emit.line(f"{emit.const(count_writes, 'count_writes')}({emit.load(tensor)}, {writes})")

    frame.mutations.effect(("data", id(tensor)), write)
    return None


def change_requires_grad(frame: Frame, tensor: Any, wanted: bool) -> Any:
    """tensor.requires_grad_(wanted) of one that asks for a gradient before the graph runs; a gradient that is asked for in the graph alone
    would not come to the tensor of the program."""
    real, key = tensor.obj, ("requires_grad", id(tensor))
    plain = (
        type(real) in PLAIN and real.requires_grad and leaf_of(frame, tensor) and not real._is_view() and not real.is_inference()
    )
    if not plain or tensor.versions or tensor.hooks or frame.modes.transforms or frame.modes.uses_inference:
        return frame.break_graph("side_effect_unknown", "requires_grad_ of an existing tensor")
    if wanted:
        (tensor.node, tensor.example), tensor.requiring_grad = tensor.requiring_grad, None
        frame.mutations.drop(key)
        return tensor
    made: Any = frame.graph.call_method(frame, "detach", (tensor,))
    tensor.requiring_grad, tensor.node, tensor.example = (tensor.node, tensor.example), made.node, made.example
    remember(frame, tensor)
    frame.mutations.keep.append(tensor)
    frame.mutations.effect(key, lambda emit: emit.line(f"{emit.load(tensor)}.requires_grad_(False)"))
    return tensor


def assign_in_graph(frame: Frame, tensor: AbstractTensor, value: Value, reason: str) -> None:
    """A graph that assigns to data runs as it is, so where a break is no error it is left to plain Python."""
    if not frame.options.fullgraph or not isinstance(value, AbstractTensor) or frame.modes.transforms or tensor.requiring_grad:
        frame.break_graph("side_effect_unknown", f"assignment to data of {reason}")
    builder = frame.graph
    builder.run_on_fakes(frame, setattr, (tensor.as_graph_arg(frame), "data", value.as_graph_arg(frame)), {}, "call_function")
    builder.known_node(frame, set_data, (tensor.node, value.node), None)
    return None


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Target of a node. Raises RuntimeError while such a graph is compiled: its inputs would be other tensors afterwards."""
    if type(tensor) not in PLAIN:
        raise RuntimeError("assignment to data of a tensor")
    tensor.data = value


def kind_of(example: FakeTensor) -> tuple[tuple[int, ...], torch.dtype, torch.device]:
    return tuple(example.shape), example.dtype, example.device


def count_writes(tensor: torch.Tensor, writes: int) -> None:
    """What the graph wrote to the new data counts as writes to the tensor."""
    for _ in range(writes):
        torch.autograd.graph.increment_version(tensor)


def why_not(frame: Frame, tensor: AbstractTensor, value: Value) -> str | None:
    """What keeps the assignment out of the graph, or None. A backward that comes later reads the new data where autograd saved the tensor
    itself, which a graph, whose nodes keep what they were given, would not know."""
    if not isinstance(value, AbstractTensor) or value.python_type() not in PLAIN or tensor.python_type() not in PLAIN:
        return "a tensor, or of a value, that is no plain tensor"
    if tensor.obj is None:
        return "a tensor that the graph makes"
    if frame.modes.transforms or frame.modes.uses_inference or is_inside(frame) or tensor.obj.is_inference():
        return "a tensor under a transform or in inference mode"
    if tensor.requiring_grad is not None:
        return "a tensor that has stopped to ask for a gradient"
    if tensor.is_another_kind or tensor.obj._is_view() or not leaf_of(frame, tensor) or tensor.hooks:
        return "a view, a result of operations, a tensor with a hook, or one that has become another kind of tensor"
    example = value.example
    if example.device != tensor.example.device:
        return "a tensor on another device"
    if tensor.example.requires_grad and not (example.dtype.is_floating_point or example.dtype.is_complex):
        return "a tensor that requires a gradient, of a dtype that has none"
    users = [user for user in tensor.node.users if user.target is not with_data and user.args[1:] != ("data",)]
    if any(is_read_behind(user.meta.get("example_value"), tensor.example) for user in users):
        return "a tensor that a later backward reads"
    return None


def is_read_behind(example: bool | tuple[FakeTensor, ...] | FakeTensor, leaf: FakeTensor) -> bool:
    """Whether a backward may still come to what gave this, and reads a leaf there: itself, and no view of it, which shows the old data."""
    if isinstance(example, (tuple, list)):
        return any(is_read_behind(item, leaf) for item in example)
    if not isinstance(example, torch.Tensor) or example.grad_fn is None or is_freed(example):
        return False
    try:
        return any(
            saved is leaf for node in _torch.autograd.nodes_behind(example.grad_fn) for saved in _torch.autograd.saved_by(node)
        )
    except RuntimeError:  # something that was saved has been written to
        return True


# --- methods -------------------------------------------------------------------------------------------------------------------


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
    if self.source is not None or not isinstance(self.example, FakeTensor):
        frame.break_graph("side_effect_unknown", f"Tensor.{name} of an existing tensor, or of one of a wrapper subclass")
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
        real: Any = self.obj
        if type(real) not in PLAIN or real._is_view() or self.example.requires_grad:
            return frame.break_graph("side_effect_unknown", "Tensor.detach_ of an existing tensor with a history, or of a view")
        frame.guard("PREDICATE", self.source, is_no_view)
        return self
    if self.example._base is not None:
        return frame.break_graph("fake_failed", "detach_: eager refuses to detach a view in place")
    if self.node.users:  # views of it, and histories that keep it, notice
        return frame.break_graph("side_effect_unknown", "Tensor.detach_ of a tensor that others are computed from")
    return view_in_place(frame, self, name, args, kwargs) if self.example.requires_grad else self


def is_no_view(tensor: torch.Tensor) -> bool:
    """The tensor is no view"""
    return not tensor._is_view()


def set_method(frame: Frame, self: AbstractTensor, name: str, args: list[Value], kwargs: dict[str, Value]) -> AbstractTensor:
    """Tensor.set_(source): a tensor that the program makes goes on as another one over the memory of the source."""
    source = args[0] if len(args) == 1 and not kwargs else None
    is_own = self.source is None and isinstance(self.example, FakeTensor) and not self.example._is_view()
    if not is_own or not isinstance(source, AbstractTensor):
        return frame.break_graph("side_effect_unknown", f"Tensor.{name} of an existing tensor, a view, or with these arguments")
    old, new = self.example, source.example
    if (old.dtype, old.device) != (new.dtype, new.device) or old.requires_grad or new.requires_grad or self.of_inference:
        return frame.break_graph("side_effect_unknown", f"Tensor.{name} of tensors of another kind, or with history")
    made: Any = frame.graph.call(frame, getattr, (source, "data"))
    frame.graph.plain_node(frame, _torch.tensors.set_version, (made.node, old._version + 1))  # writes are counted on
    self.node, self.example = made.node, made.example
    remember(frame, self)
    return self


TURNING_METHODS = {
    "detach_": detach_,
    "set_": set_method,
    **{n: view_in_place for n in ("t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_")},
}
methods(torch.Tensor, TURNING_METHODS)
