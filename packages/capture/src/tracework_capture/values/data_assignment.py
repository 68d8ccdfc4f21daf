"""tensor.data = other in the traced program: from there on the tensor is another node, over the memory of `other`, and the tensor of the
program is given it when the graph has run."""

from __future__ import annotations

import torch

from .tensor import TensorValue, known_values, remember


class _WithData(torch.autograd.Function):
    """The data, with the history of the tensor."""

    @staticmethod
    def forward(ctx, tensor, data):
        return data.data  # which is no view of it

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def with_data(tensor, data):
    """What the tensor is once it was given other data of its kind, in whatever grad mode; target of a node."""
    with torch.enable_grad():
        return _WithData.apply(tensor, data)


def assign_data(frame, tensor, value):
    """tensor.data = value"""
    if value is tensor:
        return None
    reason = why_not(frame, tensor, value)
    if reason is not None:
        return frame.break_graph("side_effect_unknown", f"assignment to data of {reason}")
    before, is_leaf = tensor.example, tensor.is_leaf()
    made = data = frame.graph.call(frame, getattr, (value, "data"))
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

    def write(emit):
        emit.line(f"{emit.load(tensor)}.data = {emit.load(data)}")
        writes = sum(given._version for given in tensor.versions)
        if writes:
            emit.line(f"{emit.const(count_writes, 'count_writes')}({emit.load(tensor)}, {writes})")

    frame.mutations.effect(("data", id(tensor)), write)
    return None


def kind_of(example):
    return tuple(example.shape), example.dtype, example.device


def count_writes(tensor, writes):
    """What the graph wrote to the new data counts as writes to the tensor."""
    for _ in range(writes):
        torch.autograd.graph.increment_version(tensor)


def why_not(frame, tensor, value):
    """What keeps the assignment out of the graph, or None. A backward that comes later reads the new data where autograd saved the tensor
    itself, which a graph, whose nodes keep what they were given, would not know."""
    plain = (torch.Tensor, torch.nn.Parameter)
    if not isinstance(value, TensorValue) or value.python_type() not in plain or tensor.python_type() not in plain:
        return "a tensor, or of a value, that is no plain tensor"
    if tensor.obj is None:
        return "a tensor that the graph makes"
    if frame.root.transforms or frame.root.uses_inference or tensor.obj.is_inference():
        return "a tensor under a transform or in inference mode"
    if tensor.is_another_kind or tensor.obj._is_view() or not tensor.obj.is_leaf or tensor.hooks:
        return "a view, a result of operations, a tensor with a hook, or one that has become another kind of tensor"
    example = value.example
    if example.device != tensor.example.device:
        return "a tensor on another device"
    if tensor.example.requires_grad and not (example.dtype.is_floating_point or example.dtype.is_complex):
        return "a tensor that requires a gradient, of a dtype that has none"
    if any(is_in_history(user.meta.get("example_value")) for user in tensor.node.users):
        return "a tensor that a later backward reads"
    return None


def is_in_history(example):
    """Whether a backward may still come to what gave this."""
    from .backward import is_freed

    if isinstance(example, (tuple, list)):
        return any(map(is_in_history, example))
    return isinstance(example, torch.Tensor) and example.grad_fn is not None and not is_freed(example)
