"""Tensors of wrapper subclasses (graph/wrapped.py): operations on one are nodes of the graph, computed by the class's own __torch_dispatch__.

Its example is a tensor of the class made of fakes. A __torch_function__ of the class is asked first, and traced, as for every subclass.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ... import _C
from ..._torch import torch_functions_off
from ...errors import BreakGraph
from ...graph.inputs import lift_tensor
from ...graph.wrapped import Construct, Gradient, Place, Structure, Unwrap, Wrap, is_differentiable, is_wrapper
from ...guards.classes import NO_ATTRIBUTE, lookup_class
from ...guards.guard import TensorFacts
from ...sources import Attr, Source
from ..number.symint import SymNumber
from ..objects.construction import MADE_IN_GRAPHS
from ..plain.sequence import SequenceValue
from ..protocol.binding import bind_static, is_data_descriptor
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Emitter, Frame, Value
from .opaque_tensor import overrides_torch_function, why_foreign
from .subclass import SubclassTensorValue

Tensor = torch.Tensor


def existing_wrapper_tensor(frame: Frame, obj: torch.Tensor, source: Source) -> AbstractTensor:
    """The value of a tensor of the user's program: its plain parts are inputs of the graph."""
    if frame.modes.modes_at_start:  # guards are checked where neither mode nor class is asked
        return frame.break_graph("tensor_subclass", f"{type(obj).__name__} under a mode that began outside")
    with torch_functions_off():
        structure = Structure.of(obj)

        def holds(value: torch.Tensor) -> bool:
            """the tensor is of this class and structure"""
            with torch_functions_off():
                return structure.is_of(value)

        frame.guard("PREDICATE", source, holds)
        node = together(frame, structure, obj, source, "parameter" if isinstance(obj, torch.nn.Parameter) else "tensor")
    return WrapperTensorValue.of(frame, node, node.meta["example_value"], source, obj)


def together(frame: Frame, structure: Structure, obj: Any, source: Source, role: str) -> fx.Node:
    """The node that makes one of the inputs that are its parts."""
    places = list(paths(structure, obj, source))
    for part, at in places:
        if (why := why_foreign(part)) is not None:
            frame.break_graph(why[0], f"{at} is {why[1]}")
    if not structure.requires_grad:
        nodes = tuple(lift_tensor(frame, part, at, role) for part, at in places)
        return frame.graph.plain_node(frame, Wrap(structure), nodes)
    for part, at in places:
        frame.guard("TENSOR", at, TensorFacts.of(part))
    gradient = Gradient()
    unwrap = Unwrap(structure, gradient)
    nodes = tuple(frame.graph.tensor_input(part, source, role) for part in unwrap(obj))
    frame.graph.taken_apart.append((tuple(node.name for node in nodes), unwrap))
    return frame.graph.plain_node(frame, Wrap(structure, gradient), nodes)


def paths(structure: Structure, obj: Any, source: Source) -> Any:
    """(plain part, where it is) of each."""
    for name, inner in zip(structure.names, structure.inner):
        part, at = getattr(obj, name), Attr(source, name)
        if inner is None:
            yield part, at
        elif isinstance(inner, Structure):
            yield from paths(inner, part, at)


class WrapperTensorValue(SubclassTensorValue):
    """A tensor of a wrapper subclass."""

    def __init__(
        self, node: fx.Node, example: Any, cls: type, source: Source | None = None, obj: torch.Tensor | None = None
    ) -> None:
        super().__init__(node, example, cls, source, obj)
        self.overrides_torch_function = overrides_torch_function(cls)

    @classmethod
    def of(
        cls, frame: Frame, node: fx.Node, example: Any, source: Source | None = None, obj: torch.Tensor | None = None
    ) -> WrapperTensorValue:
        """The value of a tensor; the one that is known where the operation gave an argument back."""
        known: WrapperTensorValue | None = frame.graph.wrapper_values.get(id(example))
        if known is None:
            known = frame.graph.wrapper_values[id(example)] = cls(node, example, type(example), source, obj)
            frame.memory.only_now = (
                f"operators on a {type(example).__name__} are what its class, which ran while tracing, makes of them"
            )
        return known

    def is_on(self, frame: Frame) -> bool:
        if self.overrides_torch_function:
            return super().is_on(frame)
        return bool(frame.modes.function_modes)

    def describe(self) -> str:
        return f"a {self.cls.__name__}" + (f" from {self.source}" if self.source is not None else "")

    def reload(self, emit: Emitter) -> str:
        """Its plain parts leave the graph, and are put together."""
        structure = Structure.of(self.example)
        if not all(type(n) is int for n in (*structure.sizes, *structure.strides)):
            raise BreakGraph("cannot_rebuild", f"{self.describe()} of symbolic sizes")
        if structure.requires_grad and not all(map(is_differentiable, structure.parts(self.example))):
            raise BreakGraph("cannot_rebuild", f"{self.describe()} with a history, whose parts can have no gradients")
        parts = [emit.graph_output(node) for node in part_nodes(self.node, structure)]
        return f"{emit.const(_C.Scoped(Wrap(structure), None), 'wrap')}({', '.join(parts)})"

    # --- attributes ---------------------------------------------------------------------------------------------
    def users_attribute(self, frame: Frame, name: str) -> Value | None:
        if name in self.attributes:
            return self.attributes[name]
        owner: Any
        static, owner = lookup_class(self.cls, name)
        from_user = static is not NO_ATTRIBUTE and not issubclass(Tensor, owner)
        if from_user and is_data_descriptor(static):
            return bind_static(frame, self, self.cls, owner, static, name)
        if name in vars(self.example):
            return self.own_attribute(frame, name)
        return bind_static(frame, self, self.cls, owner, static, name) if from_user else None

    def own_attribute(self, frame: Frame, name: str) -> Value:
        if self.obj is not None and name in vars(self.obj):
            return frame.wrap(getattr(self.obj, name), Attr(self.source, name))
        held = getattr(self.example, name)
        if isinstance(held, Tensor):
            return frame.graph.record(frame, getattr, (self.node, name), {}, held)
        return frame.constant(held)  # what the constructor was given, or made of that

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")


def part_nodes(node: fx.Node, structure: Structure) -> list[fx.Node]:
    """Nodes of the plain parts of a node's tensor, in order."""
    unwrap = Unwrap(structure)
    made = node.graph.call_function(unwrap, (node,))
    parts = [node.graph.call_function(operator.getitem, (made, place)) for place in range(structure.count)]
    found = unwrap(node.meta["example_value"])
    for each, example in zip((made, *parts), (found, *found), strict=True):
        each.meta.update(example_value=example, val=example, stack=node.meta.get("stack"), stack_trace=node.meta.get("stack"))
    return parts


def wrapper_result(frame: Frame, node: fx.Node, example: Any) -> Value:
    """The value of a node's tensor; the argument itself when the operation gave it back."""
    if not is_wrapper(type(example)):
        return frame.break_graph(
            "tensor_subclass", f"{node.target} gives a {type(example).__name__}, which cannot be taken apart"
        )
    return WrapperTensorValue.of(frame, node, example)


# --- made by the traced program ---------------------------------------------------------------------------------------------


def new_wrapper_tensor(frame: Frame, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """cls(*args, **kwargs): a node that calls the constructor, on fakes while tracing."""
    nodes: list[fx.Node] = []
    given = (
        [argument(frame, value, nodes) for value in args],
        {name: argument(frame, value, nodes) for name, value in kwargs.items()},
    )
    return frame.graph.call(frame, Construct(cls, *given), tuple(nodes))


def argument(frame: Frame, value: Value, nodes: list[fx.Node]) -> Any:
    """An argument of a constructor as an object, tensors and sizes as their places among `nodes`."""
    if isinstance(value, (AbstractTensor, SymNumber)):
        nodes.append(value.node if isinstance(value, AbstractTensor) else value.as_graph_arg(frame))
        return Place(len(nodes) - 1)
    if value.is_constant():
        return value.constant()
    if isinstance(value, SequenceValue) and value.python_type() in (tuple, list, torch.Size):
        items = [argument(frame, item, nodes) for item in value.unpack(frame)]
        return items if value.python_type() is list else tuple(items)
    try:
        held = value.real()
    except LookupError:
        held = getattr(value, "obj", None)
    if held is None or any(kind == "attribute" and whose == id(value) for kind, whose, *_ in frame.mutations.written):
        return frame.break_graph(
            "call_unknown", f"construction of a tensor subclass with {value.describe()}, made or changed here"
        )
    if value.source is not None:
        frame.guard("IDENTITY", value.source, held)
    return held


MADE_IN_GRAPHS[Tensor] = is_wrapper, new_wrapper_tensor
