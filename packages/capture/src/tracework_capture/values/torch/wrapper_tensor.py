"""Tensors of wrapper subclasses (graph/wrapped.py): operations on one are nodes of the graph, computed by the class's own __torch_dispatch__.

Its example is a tensor of the class made of fakes. A __torch_function__ of the class is asked first, and traced, as for every subclass.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from tracework_primops import Condition
from tracework_primops.fake.convert import scaled_strides
from tracework_primops.fake.distributed import open_distributed_sizes

from ... import _C
from ..._torch.distributed import is_distributed_tensor
from ..._torch.modes import torch_functions_are_on, torch_functions_off
from ..._torch.tensors import NESTED, jagged_example
from ...dims import DimMarks, marks_of
from ...errors import BreakGraph
from ...graph.distributed import Masks, fix_sizes
from ...graph.inputs import LAYOUT, lift_tensor, open_layout, refuse_dim
from ...graph.settings import guard_state
from ...graph.wrapped import Construct, Gradient, Place, Structure, Unwrap, View, Wrap, is_wrapper, part_nodes
from ...graph.wrapper_context import Context, Incomparable
from ...guards.classes import NO_ATTRIBUTE, lookup_class, meet
from ...sources import Attr, Source, TensorSize, TensorStride
from ..number.symint import SymNumber
from ..objects.construction import MADE_IN_GRAPHS
from ..plain.sequence import SequenceValue
from ..protocol.binding import bind_static, is_data_descriptor
from ..protocol.kinds import AbstractTensor
from ..protocol.value import Emitter, Frame, Value
from .metadata_mutation import count_writes
from .opaque_tensor import overrides_torch_function, why_foreign
from .subclass import SubclassTensorValue

Tensor = torch.Tensor


def existing_wrapper_tensor(frame: Frame, obj: torch.Tensor, source: Source) -> AbstractTensor:
    """The value of a tensor of the user's program: its plain parts are inputs of the graph."""
    if frame.modes.modes_at_start:  # guards are checked where neither mode nor class is asked
        return frame.break_graph("tensor_subclass", f"{type(obj).__name__} under a mode that began outside")
    overrides = overrides_torch_function(type(obj))
    if overrides and not frame.services.torch_functions_on:
        return frame.break_graph(
            "tensor_subclass", f"{type(obj).__name__} while torch functions of subclasses are switched off outside"
        )
    with torch_functions_off():
        structure = known = structure_of(frame, obj)

        def holds(value: torch.Tensor) -> bool:
            """the tensor is of this class and structure"""
            if not is_asked:
                return structure.is_of(value)
            if overrides and not torch_functions_are_on():
                return False
            with torch_functions_off():
                return structure.is_of(value)

        is_asked = known.is_asked
        frame.guard("PREDICATE", source, holds)
        places = list(paths(known, obj, source))
        for part, at in places:
            if (why := why_foreign(part)) is not None:
                frame.break_graph(why[0], f"{at} is {why[1]}")
        (mark_rows if is_jagged(obj) else mark_parts)(frame, known, obj, source)
        role = "parameter" if isinstance(obj, torch.nn.Parameter) else "tensor"
        lifted = plain_nodes if not known.requires_grad else jagged_parts if is_jagged(obj) else leaf_parts
        structure, numbers, nodes, gradient = lifted(frame, known, obj, source, places, role)
        sizes = [frame.graph.size_node(number) for number in numbers]
        node = frame.graph.plain_node(frame, Wrap(structure, gradient), (*sizes, *nodes))
    return WrapperTensorValue.of(frame, node, node.meta["example_value"], source, obj)


def structure_of(frame: Frame, tensor: torch.Tensor) -> Structure:
    """Structure.of(tensor), where that can be compared with."""
    try:
        return Structure.of(tensor)
    except Incomparable as error:
        return frame.break_graph("tensor_subclass", f"a {type(tensor).__name__}, which keeps {error} beside its parts")


Lifted = tuple[Structure, list[Any], tuple[fx.Node, ...], Gradient | None]
"""The structure of an input with what is open, what that is, the nodes of its parts, and its gradient where it asks for one."""


def plain_nodes(frame: Frame, known: Structure, obj: Any, source: Source, places: list[Any], role: str) -> Lifted:
    """Each part is an input by itself."""
    nodes = tuple(lift_tensor(frame, part, at, role) for part, at in places)
    shapes = [[frame.symbols.from_symint(n) for n in node.meta["example_value"].shape] for node in nodes]
    structure, numbers, _ = opened(frame, known, obj, source, iter(shapes))
    return structure, numbers, nodes, None


def leaf_parts(frame: Frame, known: Structure, obj: Any, source: Source, places: list[Any], role: str) -> Lifted:
    """The inputs are a carrier, and parts whose gradients are put together."""
    layouts = [open_layout(frame, part, at, role) for part, at in places]
    shapes = [tuple(part.shape) if sizes is None else sizes for (part, _), (sizes, _) in zip(places, layouts)]
    structure, numbers, outer = opened(frame, known, obj, source, iter(shapes))
    gradient = Gradient()
    unwrap = Unwrap(structure, gradient)
    carrier = (outer, (0,) * len(outer)) if structure.is_open else (None, None)
    nodes = tuple(
        frame.graph.tensor_input(part, source, role, sizes=sizes, strides=strides)
        for part, (sizes, strides) in zip(unwrap(obj), (carrier, *layouts), strict=True)
    )
    for node in nodes[1:]:
        node.meta["never_a_view"] = True  # to autograd: a function of its own gives it
    frame.graph.taken_apart.append((tuple(node.name for node in nodes), unwrap))
    return structure, numbers, nodes, gradient


def jagged_parts(frame: Frame, known: Structure, obj: Any, source: Source, places: list[Any], role: str) -> Lifted:
    """The inputs are the parts, the values with the history that they have as a view of the nested tensor."""
    layouts = [open_layout(frame, part, at, role) for part, at in places]
    unwrap = Unwrap(known)
    nodes = tuple(
        frame.graph.tensor_input(part, source, role, sizes=sizes, strides=strides)
        for part, (sizes, strides) in zip(unwrap(obj), layouts, strict=True)
    )
    frame.graph.taken_apart.append((tuple(node.name for node in nodes), unwrap))
    return known, [], nodes, None


def is_jagged(tensor: Any) -> bool:
    """Whether it is a nested tensor of torch.jagged layout."""
    return isinstance(tensor, NESTED)


def opened(frame: Frame, known: Structure, obj: Any, source: Source, shapes: Iterator[Any]) -> tuple[Structure, list[Any], Any]:
    """The structure of an input whose plain parts have these sizes, some of them symbols: sizes that are multiples of those are open. With what
    is open, and all sizes."""
    symbolic = with_symbols(frame, known, obj, source, shapes)
    numbers: list[Any] = []
    return symbolic.opened(lambda number: type(number) is not int, numbers), numbers, symbolic.sizes


def with_symbols(frame: Frame, known: Structure, obj: Any, source: Source, shapes: Iterator[Any]) -> Structure:
    """The structure of an input, its sizes and strides with symbols. What they are of the sizes of its parts is guarded."""
    inner: list[Any] = []
    rows: list[
        tuple[Any, tuple[int | None, ...]]
    ] = []  # sizes of each part with symbols, and how many times as large the tensor is
    for name, structure in zip(known.names, known.inner):
        part = getattr(obj, name)
        if not isinstance(part, Tensor):
            inner.append(structure)
            continue
        made = with_symbols(frame, structure, part, Attr(source, name), shapes) if isinstance(structure, Structure) else None
        inner.append(made)
        rows.append((next(shapes) if made is None else made.sizes, known.shares(tuple(part.shape))))
    sizes = [of_parts(dim, size, rows) for dim, size in enumerate(known.sizes)]
    if all(type(size) is int for size in sizes):
        return replace(known, inner=tuple(inner))
    strides = scaled_strides(known.sizes, known.strides, sizes, lambda dim: None)
    for kind, numbers, wanted in ((TensorSize, known.sizes, sizes), (TensorStride, known.strides, strides)):
        for dim, (number, expression) in enumerate(zip(numbers, wanted)):
            if type(expression) is not int:
                actual = frame.symbols.new(number, kind(source, dim), 0, None)
                frame.symbols.assume(Condition.compare("==", actual, expression), LAYOUT)
    return replace(known, sizes=tuple(sizes), strides=tuple(strides), inner=tuple(inner))


def of_parts(dim: int, size: int, rows: list[tuple[Any, tuple[int | None, ...]]]) -> Any:
    """A size of a tensor as a multiple of that of a part which is a symbol; the number itself, where there is none."""
    for symbolic, shares in rows:
        if (share := shares[dim]) is not None and type(symbolic[dim]) is not int:
            return symbolic[dim] * share
    return size


def mark_parts(frame: Frame, structure: Structure, obj: Any, source: Source) -> None:
    """Marks of a tensor's dims count for its parts. A dim of a part of which the tensor's size is no multiple is never open."""
    marks = marks_of(obj)
    for name, inner in zip(structure.names, structure.inner):
        if inner is not None:
            continue
        part, at = getattr(obj, name), Attr(source, name)
        shares = structure.shares(tuple(part.shape))
        if len(shares) != part.dim():
            continue
        odd = frozenset(dim for dim, share in enumerate(shares) if share is None)
        for dim in sorted(odd & marks.strict):
            refuse_dim(source, dim, marks.how(dim), "its parts are of several sizes", "make them equal, or maybe_mark_dynamic")
        ranges = {dim: limits for dim, limits in marks.ranges.items() if shares[dim] == 1}
        frame.inputs.marks[at] = replace(marks, static=marks.static | odd, ranges=ranges)


def mark_rows(frame: Frame, structure: Structure, obj: Any, source: Source) -> None:
    """Of the values of a nested tensor the sum of the rows' lengths is open from the start. Other sizes are numbers: their multiples of the odd
    size, which are the tensor's strides, take no symbols."""
    jagged_example()
    ragged = structure.context.fresh()["ragged_idx"] - 1
    dims = range(obj.dim() - 1)
    frame.inputs.marks[Attr(source, structure.names[0])] = DimMarks(maybe=frozenset({ragged}), static=frozenset(dims) - {ragged})


def paths(structure: Structure, obj: Any, source: Source) -> Any:
    """(plain part, where it is) of each."""
    for name, inner in zip(structure.names, structure.inner):
        part, at = getattr(obj, name), Attr(source, name)
        if inner is None:
            yield part, at
        elif isinstance(inner, Structure):
            yield from paths(inner, part, at)


class WrapperTensorValue(SubclassTensorValue):
    """A tensor of a wrapper subclass. graph: the builder of the graph that it is in. grad_at_start: whether gradients are recorded around it."""

    graph: Any = None
    grad_at_start = True

    def __init__(
        self, node: fx.Node, example: Any, cls: type, source: Source | None = None, obj: torch.Tensor | None = None
    ) -> None:
        super().__init__(node, example, cls, source, obj)
        meet(cls)  # its special methods stay what they are
        self.version = self.version_seen = version_of(example)
        self.overrides_torch_function = overrides_torch_function(cls)

    @classmethod
    def of(
        cls, frame: Frame, node: fx.Node, example: Any, source: Source | None = None, obj: torch.Tensor | None = None
    ) -> WrapperTensorValue:
        """The value of a tensor; the one that is known where the operation gave an argument back."""
        known: WrapperTensorValue | None = frame.graph.wrapper_values.get(id(example))
        if known is None:
            if is_distributed_tensor(type(example)):
                meet_distributed(frame, example)
            known = frame.graph.wrapper_values[id(example)] = cls(node, example, type(example), source, obj)
            known.graph, known.grad_at_start = frame.graph, frame.modes.grad_at_start
            frame.memory.only_now = (
                f"operators on a {type(example).__name__} are what its class, which ran while tracing, makes of them"
            )
        return known

    def see_writes(self, frame: Frame) -> None:
        """An operation ran that may have written to it. Autograd's view of an existing tensor changes in plain Python only."""
        version = version_of(self.example)
        if self.obj is not None and version != self.version_seen and torch.is_grad_enabled() and self.example.requires_grad:
            frame.break_graph("side_effect_unknown", f"a write to {self.describe()}, which changes its history")
        self.version_seen = version

    def replay_writes(self, frame: Frame) -> None:
        """Writes to an existing tensor reach its parts; they count as writes to itself, too."""
        writes = self.version_seen - self.version
        if self.obj is not None and writes:
            frame.mutations.effect(("version", id(self)), lambda emit: emit.line(counting(emit, self, writes)))

    def is_on(self, frame: Frame) -> bool:
        if self.overrides_torch_function:
            return super().is_on(frame)
        return bool(frame.modes.function_modes)

    def describe(self) -> str:
        return f"a {self.cls.__name__}" + (f" from {self.source}" if self.source is not None else "")

    def reload(self, emit: Emitter) -> str:
        """Its plain parts leave the graph, and are put together; a view of an existing tensor with a history is made of that."""
        base = self.graph.wrapper_values.get(id(self.example._base)) if self.example.requires_grad else None
        if base is not None and base.obj is not None and base.grad_at_start and torch.is_grad_enabled():
            view = View.between(base.node, self.node)
            if view is not None:
                return f"{emit.const(_C.Scoped(view, None), 'view')}({emit.load(base)})"
        try:
            structure = Structure.of(self.example)
        except Incomparable as error:
            raise BreakGraph("cannot_rebuild", f"{self.describe()}, which keeps {error} beside its parts") from error
        numbers: list[Any] = []
        structure = structure.opened(lambda number: type(number) is not int, numbers)
        if structure.requires_grad and not structure.passes_gradients(self.example):
            raise BreakGraph("cannot_rebuild", f"{self.describe()} with a history, whose parts can have no gradients")
        nodes = [self.graph.size_node(self.graph.symbols.from_symint(number)) for number in numbers]
        parts = [emit.graph_output(node) for node in (*nodes, *part_nodes(self.node, structure))]
        return f"{emit.const(_C.Scoped(Wrap(structure), None), 'wrap')}({', '.join(parts)})"

    # --- operators of Python that the class may define itself --------------------------------------------------------
    def refuse_own_operators(self, frame: Frame) -> None:
        own = {name for base in self.cls.__mro__ if not issubclass(Tensor, base) for name in vars(base)}
        if not own.isdisjoint(OPERATORS):
            frame.break_graph("tensor_subclass", f"an operator of a {self.cls.__name__}, which has operators of its own")

    def binary(self, frame: Frame, op: str, other: Value, reverse: bool = False) -> Value | None:
        self.refuse_own_operators(frame)
        return super().binary(frame, op, other, reverse)

    def compare(self, frame: Frame, op: str, other: Value) -> Value | None:
        self.refuse_own_operators(frame)
        return super().compare(frame, op, other)

    def unary(self, frame: Frame, op: str) -> Value:
        self.refuse_own_operators(frame)
        return super().unary(frame, op)

    def getitem(self, frame: Frame, key: Value) -> Value:
        self.refuse_own_operators(frame)
        return super().getitem(frame, key)

    def setitem(self, frame: Frame, key: Value, value: Value) -> None:
        self.refuse_own_operators(frame)
        super().setitem(frame, key, value)

    def length(self, frame: Frame) -> Value:
        self.refuse_own_operators(frame)
        return super().length(frame)

    def unpack(self, frame: Frame) -> list[Value]:
        self.refuse_own_operators(frame)
        return super().unpack(frame)

    def iterate(self, frame: Frame) -> Value:
        self.refuse_own_operators(frame)
        return super().iterate(frame)

    def contains(self, frame: Frame, item: Value) -> Value:
        self.refuse_own_operators(frame)
        return super().contains(frame, item)

    def truth(self, frame: Frame) -> bool:
        return frame.break_graph("data_dependent_branch", f"truth of {self.describe()}")

    # --- attributes ---------------------------------------------------------------------------------------------
    def users_attribute(self, frame: Frame, name: str) -> Value | None:
        if name in self.attributes:
            return self.attributes[name]
        if name in self.example.__tensor_flatten__()[0]:
            return self.own_attribute(frame, name)
        owner: Any
        static, owner = lookup_class(self.cls, name)
        from_user = static is not NO_ATTRIBUTE and not issubclass(Tensor, owner)
        if from_user and isinstance(static, types.MemberDescriptorType) and hasattr(self.example, name):
            return self.own_attribute(frame, name)
        if from_user and is_data_descriptor(static):
            return bind_static(frame, self, self.cls, owner, static, name)
        if name in vars(self.example):
            return self.own_attribute(frame, name)
        return bind_static(frame, self, self.cls, owner, static, name) if from_user else None

    def own_attribute(self, frame: Frame, name: str) -> Value:
        if self.obj is not None and hasattr(self.obj, name):
            return frame.wrap(getattr(self.obj, name), Attr(self.source, name))
        held = getattr(self.example, name)
        if isinstance(held, Tensor):
            return frame.graph.record(frame, getattr, (self.node, name), {}, held)
        try:
            Context(held)
        except Incomparable as error:
            return frame.break_graph("attribute_unknown", f"{self.cls.__name__}.{name}, which holds {error}")
        return frame.constant(held)  # what the constructor was given, or made of that

    def setattr(self, frame: Frame, name: str, value: Value) -> None:
        frame.break_graph("side_effect_unknown", f"assignment to {self.cls.__name__}.{name}")


def meet_distributed(frame: Frame, example: Any) -> None:
    """A distributed tensor is met. Captures the frame again with numbers for all sizes where its sizes cannot be symbols."""
    if not open_distributed_sizes():
        if frame.options.dynamic is not False and frame.options.allows_symbolic_sizes:
            fix_sizes(frame)
        if any(type(size) is not int for size in example.shape):
            frame.break_graph("tensor_subclass", "a DTensor with a size that changes")
    guard_handlers(frame)


def guard_handlers(frame: Frame) -> None:
    """What operators of distributed tensors are depends on what replaces them where the frame begins."""
    if frame.graph.masks is None:
        frame.graph.masks = Masks()
        guard_state(frame, "handlers_of_distributed")


OPERATORS = frozenset(
    {
        *(
            f"__{kind}{name}__"
            for name in "add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor".split()
            for kind in ("", "r", "i")
        ),
        *(f"__{name}__" for name in "eq ne lt le gt ge neg pos invert abs round getitem setitem delitem".split()),
        *(f"__{name}__" for name in "len iter contains bool int float complex index hash".split()),
    }
)
"""What a class has for operators of Python and its built-in functions."""


def version_of(example: torch.Tensor) -> int:
    """How often it was written to; tensors of inference do not count."""
    return 0 if example.is_inference() else example._version


def counting(emit: Emitter, value: Value, writes: int) -> str:
    """The statement that counts writes to a tensor."""
    return f"{emit.const(count_writes, 'count_writes')}({emit.load(value)}, {writes})"


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
