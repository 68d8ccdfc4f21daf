"""Tensor.register_hook on a tensor made in the traced program: the hook is traced and becomes a graph that the node registers."""

from __future__ import annotations

import torch
from torch.utils.hooks import RemovableHandle

from ..graph.outline import outline, region
from ..graph.region_checks import Unchanged
from .sequence import NONE
from .tensor import TensorValue, forget_nodes, remember
from .value import Value


class HookCall:
    """Registers a captured hook; target of a call_function node."""

    def __init__(self, module, places):
        self.__name__ = self.__qualname__ = "register_hook"
        self.__module__ = __name__
        self.module, self.places = module, places

    def __call__(self, tensor, *read):
        def hook(gradient):
            given = (gradient.contiguous(), *read)
            return self.module(*[given[place] for place in self.places])[0]

        return tensor.register_hook(hook)


def remove_hook(handle):
    """handle.remove(), as the target of a node."""
    handle.remove()


class HandleValue(Value):
    """What register_hook gives."""

    def __init__(self, node):
        super().__init__(None)
        self.node = node

    def python_type(self):
        return RemovableHandle

    def truth(self, frame):
        return True

    def getattr(self, frame, name):
        from .user_object import BoundBuiltin

        return BoundBuiltin(self, name)

    def call_method(self, frame, name, args, kwargs):
        if name != "remove":
            return frame.break_graph("hook", f"{name} of the handle of a hook")
        frame.graph.call(frame, remove_hook, (self.node,))
        return NONE


def register_hook(frame, tensor, name, args, kwargs):
    """Tensor.register_hook(hook)"""
    hook = args[0] if args else kwargs["hook"]
    if tensor.source is not None or frame.root.transforms:
        return frame.break_graph("hook", "register_hook of a tensor that was there before")
    if not tensor.example.requires_grad or tensor.example.is_leaf:
        return frame.break_graph("hook", "register_hook of a tensor without history")
    builder = frame.graph
    gradient = gradient_of(frame, tensor)
    start, unchanged = region(builder), Unchanged(frame)
    with torch.no_grad():
        found = hook.call(frame, [gradient], {})
    changed = unchanged.what_changed()
    if changed:
        return frame.break_graph("hook", f"a hook of a tensor {changed}")
    if not isinstance(found, TensorValue) and not (found.is_constant() and found.constant() is None):
        return frame.break_graph("hook", f"a hook of a tensor gives a {found.describe()}")
    nodes = start.nodes(builder)
    made = outline(builder, nodes, [found.node if isinstance(found, TensorValue) else None], "Hook")
    read = [n for n in made.inputs if n is not gradient.node]
    order = [gradient.node, *read]
    target = HookCall(made.module, tuple(order.index(n) for n in made.inputs))
    forget_nodes(frame, {*nodes, gradient.node})
    builder.graph.erase_node(order[0])
    return HandleValue(builder.plain_node(frame, target, (tensor.node, *read)))


def gradient_of(frame, tensor):
    """A stand-in for the gradient."""
    options = {"memory_format": torch.contiguous_format}
    with torch.no_grad():
        example = frame.graph.run_on_fakes(frame, torch.empty_like, (tensor.example,), options, "call_function")
    node = frame.graph.graph.call_function(torch.empty_like, ())
    node.meta["example_value"] = node.meta["val"] = example
    value = TensorValue(node, example)
    remember(frame, value)
    return value
