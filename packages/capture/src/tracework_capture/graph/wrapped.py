"""Tensors of wrapper subclasses in a graph: its inputs and results are the plain tensors that they are made of.

A wrapper subclass has no memory: `__tensor_flatten__` names the attributes with its parts, `__tensor_unflatten__` makes a tensor of parts, and
`__torch_dispatch__` says what an operator does. In the graph a node of `Wrap` puts one together; the operators run on it then as they do in
eager, by the class's own code, whoever runs the graph on tensors or fakes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from .. import _torch
from .nested_attention import attend, is_attended_here
from .wrapper_context import Context, Incomparable

__all__ = [
    "Asked",
    "Construct",
    "Gradient",
    "Place",
    "Structure",
    "Unwrap",
    "View",
    "Wrap",
    "is_differentiable",
    "is_wrapper",
    "part_nodes",
    "plain_parts",
]


def is_wrapper(cls: type) -> bool:
    """Whether tensors of a class can be taken apart and put together, and gradients of theirs are made of the same parts.

    Of torch's distributed ones those are DTensors, and results of collectives that nobody has waited for yet.
    """
    has_parts = hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")
    own = cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]
    return (
        has_parts
        and own
        and (
            not cls.__module__.startswith("torch.distributed.")
            or _torch.distributed.is_distributed_tensor(cls)
            or _torch.distributed.is_awaited(cls)
        )
    )


@dataclass(frozen=True, eq=False)
class Held:
    """Of what a class names as its parts, one that is no tensor: the mesh of a distributed one, say. holds: whether another one is the same."""

    value: Any
    holds: Callable[[Any], bool]

    def is_like(self, other: Held) -> bool:
        """The same of another tensor's."""
        return self.holds(other.value)


@dataclass(frozen=True, eq=False)
class Structure:
    """What a tensor of a wrapper subclass is beside the data of its parts.

    names: of the attributes with its parts. inner: their structures, None for a plain tensor, what is no tensor
    as it is. context: what the class keeps beside them. A size or stride that is None is open: `filled` says
    what it is. Making one raises Incomparable where a context cannot be compared.
    """

    cls: type
    names: tuple[str, ...]
    context: Context
    inner: tuple[Structure | Held | None, ...]
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Structure:
        kind = structure_kind(type(tensor))
        names, context = kind.apart(tensor)
        parts = [getattr(tensor, name) for name in names]
        inner = tuple(cls.of_part(part) for part in parts)
        facts = *kind.layout_of(tensor), tensor.dtype, tensor.requires_grad
        return kind(type(tensor), tuple(names), kind.context_of(context), inner, *facts)

    @staticmethod
    def layout_of(tensor: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Its sizes and strides."""
        return tuple(tensor.shape), tuple(tensor.stride())

    @staticmethod
    def apart(tensor: Any) -> _torch.distributed.Apart:
        """The names of its parts, and what its class keeps beside them."""
        return tensor.__tensor_flatten__()  # type: ignore[no-any-return]

    @staticmethod
    def context_of(context: Any) -> Context:
        return Context(context)

    @classmethod
    def of_part(cls, part: Any) -> Structure | Held | None:
        if not isinstance(part, torch.Tensor):
            return Held(part, Context(part).is_of)
        return cls.of(part) if is_wrapper(type(part)) else None

    @property
    def count(self) -> int:
        """Of its plain parts."""
        return sum(1 if inner is None else inner.count for inner in self.inner if not isinstance(inner, Held))

    def is_of(self, tensor: Any) -> bool:
        """Whether a tensor is such a one, apart from what its plain parts are."""
        return self.holds(tensor)

    @functools.cached_property
    def holds(self) -> Callable[[Any], bool]:
        """`is_of` with all that it needs at hand: a guard of each call."""
        cls, names, dtype, requires_grad, apart = self.cls, self.names, self.dtype, self.requires_grad, self.apart
        sizes, strides, keeps = self.sizes, self.strides, self.keeps
        is_open = None in (*sizes, *strides)
        inner = [(name, row.holds) for name, row in zip(names, self.inner) if row is not None]

        def holds(tensor: Any) -> bool:
            kind: type = type(tensor)
            if kind is not cls or tensor.requires_grad is not requires_grad or tensor.dtype is not dtype:
                return False
            if is_open:
                if not agree(tensor.shape, sizes) or not agree(tensor.stride(), strides):
                    return False
            elif tensor.shape != sizes or tensor.stride() != strides:
                return False
            found, kept = apart(tensor)
            if tuple(found) != names or not keeps(kept):
                return False
            return not inner or all(check(getattr(tensor, name)) for name, check in inner)

        return holds

    def is_like(self, other: Structure) -> bool:
        """Whether tensors of both differ in nothing but sizes, strides, dtypes, and what their plain parts are."""
        if other.cls is not self.cls or other.names != self.names or not self.keeps_like(other):
            return False
        for mine, its in zip(self.inner, other.inner):
            if mine is not its and (type(mine) is not type(its) or mine is None or not mine.is_like(its)):  # type: ignore[arg-type]
                return False
        return True

    @property
    def keeps(self) -> Callable[[Any], bool]:
        """Whether a context is the same."""
        return self.context.is_of

    def keeps_like(self, other: Structure) -> bool:
        """Whether what the class keeps differs in nothing but sizes and strides."""
        return self.context.is_of(other.context.fresh())

    @functools.cached_property
    def of_gradient(self) -> Structure:
        """That which gradients of a result of the graph are brought to."""
        return self

    def brought_here(self, gradient: Any) -> Any:
        """A gradient of this structure, which may be that of another tensor that is distributed otherwise."""
        return gradient

    @functools.cached_property
    def is_asked(self) -> bool:
        """Whether functions of torch ask its class, or those of its parts, what they do."""
        own = self.cls.__torch_function__ is not _torch.modes.disabled_torch_function  # type: ignore[attr-defined]
        return own or any(isinstance(row, Structure) and row.is_asked for row in self.inner)

    @functools.cached_property
    def is_open(self) -> bool:
        """Whether any size or stride is, of its inner ones, too."""
        return None in self.sizes or None in self.strides or any(isinstance(row, Structure) and row.is_open for row in self.inner)

    def opened(self, is_open: Callable[[Any], bool], numbers: list[Any]) -> Structure:
        """The same with these sizes and strides open, and what they are in `numbers`."""

        def each(given: Any) -> Any:
            if not is_open(given):
                return given
            numbers.append(given)
            return None

        sizes, strides = (tuple(map(each, row)) for row in (self.sizes, self.strides))
        inner = tuple(row.opened(is_open, numbers) if isinstance(row, Structure) else row for row in self.inner)
        return replace(self, sizes=sizes, strides=strides, inner=inner)

    def filled(self, numbers: Iterator[Any]) -> Structure:
        """The same with these for what is open, in the order of `opened`."""
        sizes, strides = (tuple(next(numbers) if n is None else n for n in row) for row in (self.sizes, self.strides))
        inner = tuple(row.filled(numbers) if isinstance(row, Structure) else row for row in self.inner)
        return replace(self, sizes=sizes, strides=strides, inner=inner)

    def outside(self, gradient: torch.Tensor) -> Structure:
        """Of a gradient that is traced: the same with symbols open, for other sizes of the tensor whose gradient it is."""
        if all(type(n) is int for n in (*self.sizes, *self.strides)):
            return self
        if not gradient.is_contiguous() or any(isinstance(row, Structure) for row in self.inner):
            raise RuntimeError(f"the gradient of symbolic sizes is a {self.cls.__name__} with gaps or of wrappers")
        return replace(self, sizes=(None,) * len(self.sizes), strides=(None,) * len(self.strides))

    def like(self, structure: Structure) -> Structure:
        """Of the gradient of a tensor of this structure."""
        if not self.is_open:
            return self
        strides = torch.empty(structure.sizes, device="meta").stride()
        return replace(self, sizes=structure.sizes, strides=strides)

    def shares(self, sizes: Sequence[int]) -> tuple[int | None, ...]:
        """How many times as large as a part of these sizes a tensor is, in each dim; None where that is otherwise for other sizes."""
        same = len(sizes) == len(self.sizes)
        return tuple(
            size // sizes[dim] if same and sizes[dim] and size % sizes[dim] == 0 else None for dim, size in enumerate(self.sizes)
        )

    def parts(self, tensor: Any) -> list[torch.Tensor]:
        """The plain tensors that it is made of."""
        found: list[torch.Tensor] = []
        for name, inner in zip(self.names, self.inner):
            if not isinstance(inner, Held):
                part = getattr(tensor, name)
                found += [_torch.distributed.waited_for(part)] if inner is None else inner.parts(part)
        return found

    def together(self, parts: Iterator[torch.Tensor]) -> torch.Tensor:
        """A tensor of these parts."""
        given: dict[str, Any] = {}
        for name, inner in zip(self.names, self.inner, strict=True):
            given[name] = next(parts) if inner is None else inner.value if isinstance(inner, Held) else inner.together(parts)
        return self.made_of(given)

    def passes_gradients(self, tensor: torch.Tensor) -> bool:
        """Whether gradients of a result of the graph can be taken apart."""
        return all(map(is_differentiable, self.parts(tensor)))

    def with_history(self, parts: Sequence[Any], gradient: Gradient | None) -> torch.Tensor:
        """A tensor of these parts whose gradient is taken apart. gradient: that of an input, whose parts come after a carrier."""
        made: torch.Tensor = _Together.apply(self, gradient, *(parts if gradient is not None else (None, *parts)))
        return made

    def parts_with_history(self, tensor: torch.Tensor, gradient: Gradient | None) -> tuple[torch.Tensor, ...]:
        """Its parts, whose gradients are put together; of an input, with a gradient, behind a carrier."""
        made: tuple[torch.Tensor, ...] = _Apart.apply(self, gradient, tensor)
        return made

    def made_of(self, parts: dict[str, Any]) -> torch.Tensor:
        """A tensor of these parts, by their names."""
        made: torch.Tensor = self.cls.__tensor_unflatten__(parts, self.context.fresh(), self.sizes, self.strides)  # type: ignore[attr-defined]
        return made


class DistributedStructure(Structure):
    """That of a DTensor, which keeps placements, an order and what the structure has: sizes, strides, a dtype. A gradient may be distributed
    otherwise than the tensor."""

    apart = staticmethod(_torch.distributed.distributed_tensor_apart)

    @staticmethod
    def context_of(context: Any) -> Context:
        placements, _, order, _ = context
        if any(hasattr(placement, "mask_buffer") for placement in placements):
            raise Incomparable("a mask")
        return Context((placements, order))

    @property
    def placements(self) -> Any:
        return self.context.fresh()[0]

    @property
    def keeps(self) -> Callable[[Any], bool]:
        placements, order = self.context.fresh()
        return lambda kept: kept[0] == placements and kept[2] == order

    def keeps_like(self, other: Structure) -> bool:
        return bool(self.placements == other.context.fresh()[0])

    def made_of(self, parts: dict[str, Any]) -> torch.Tensor:
        (local, mesh), (placements, order) = parts.values(), self.context.fresh()
        facts = self.sizes, self.strides, self.dtype
        return _torch.distributed.distributed_tensor_together(self.cls, local, mesh, placements, order, facts, self.requires_grad)

    @functools.cached_property
    def of_gradient(self) -> Structure:
        placements, order = self.context.fresh()
        return replace(self, context=Context((_torch.distributed.placements_of_gradient(placements), order)), requires_grad=False)

    def shares(self, sizes: Sequence[int]) -> tuple[int | None, ...]:
        counts = [1] * len(self.sizes)
        mesh = next(part.value for part in self.inner if isinstance(part, Held))
        for number, placement in enumerate(self.placements):
            if hasattr(placement, "dim"):
                counts[placement.dim] *= mesh.size(number)
        return tuple(count if size == count * now else None for count, size, now in zip(counts, self.sizes, sizes))

    def brought_here(self, gradient: Any) -> Any:
        if not _torch.distributed.is_distributed_tensor(type(gradient)) or gradient.placements == self.placements:
            return gradient
        return gradient.redistribute(placements=self.placements)


class JaggedStructure(Structure):
    """That of a nested tensor. Its sizes are what its class makes of the parts, one of them a number that is equal to none but itself; autograd
    knows it as a view of its values, so no function of ours passes gradients on."""

    @staticmethod
    def layout_of(tensor: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (), ()

    @functools.cached_property
    def holds(self) -> Callable[[Any], bool]:
        cls, names, keeps = self.cls, self.names, self.keeps
        dtype, requires_grad = self.dtype, self.requires_grad

        def holds(tensor: Any) -> bool:
            kind: type = type(tensor)
            if kind is not cls or tensor.requires_grad is not requires_grad or tensor.dtype is not dtype:
                return False
            found, kept = tensor.__tensor_flatten__()
            return tuple(found) == names and keeps(kept)

        return holds

    def passes_gradients(self, tensor: torch.Tensor) -> bool:
        return True

    def with_history(self, parts: Sequence[Any], gradient: Gradient | None) -> torch.Tensor:
        return _torch.tensors.jagged_of(dict(zip(self.names, parts, strict=True)), self.context.fresh()["ragged_idx"])

    def parts_with_history(self, tensor: Any, gradient: Gradient | None) -> tuple[torch.Tensor, ...]:
        return _torch.tensors.jagged_values(tensor), *self.parts(tensor)[1:]


def structure_kind(cls: type) -> type[Structure]:
    """What knows the structure of tensors of a class."""
    if issubclass(cls, _torch.tensors.NESTED):
        return JaggedStructure
    return DistributedStructure if _torch.distributed.is_distributed_tensor(cls) else Structure


def agree(given: Sequence[int], known: tuple[Any, ...]) -> bool:
    """Whether numbers are these, where those are known."""
    return len(given) == len(known) and all(n is None or n == now for n, now in zip(known, given))


def plain_parts(tensor: Any) -> list[Any]:
    """The plain tensors that a tensor is made of: itself, where its class is none that can be taken apart."""
    if not is_wrapper(type(tensor)):
        return [tensor]
    parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    return [plain for part in parts if isinstance(part, torch.Tensor) for plain in plain_parts(part)]


def is_differentiable(tensor: torch.Tensor) -> bool:
    """Whether it may have a gradient."""
    return tensor.is_floating_point() or tensor.is_complex()


class Gradient:
    """What the gradient of an input that was taken apart is: of this structure, its parts those of the input's parts, or another tensor where
    that is None.

    Its backward inside of the graph says so, while that is traced or runs; outside it is put together accordingly.
    is_whole: its one part is the carrier's gradient, as large as the tensor, of which the input has but a share.
    """

    structure: Structure | None = None
    is_whole = False


class _Together(torch.autograd.Function):
    """Parts become a tensor whose gradient is taken apart. carrier: where a gradient goes whose parts are none of its parts, a plain tensor
    or one that is sharded otherwise; None for what is a result of the graph, whose gradient has to be like it."""

    @staticmethod
    def forward(ctx: Any, structure: Structure, found: Gradient | None, carrier: Any, *parts: torch.Tensor) -> torch.Tensor:
        ctx.structure, ctx.found = structure, found
        ctx.facts = [(part.shape, part.dtype) if is_differentiable(part) else None for part in parts]
        return structure.together(part.detach() for part in parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if ctx.found is None:
            gradient = ctx.structure.of_gradient.brought_here(gradient)
        structure = Structure.of(gradient) if is_wrapper(type(gradient)) else None
        parts = [] if structure is None else structure.parts(gradient)
        fits = structure is not None and [(part.shape, part.dtype) for part in parts] == ctx.facts
        if ctx.found is None and structure is not None:  # inside of the graph it was taken for one like the result
            fits = fits and ctx.structure.of_gradient.is_like(structure)
        if ctx.found is not None:
            is_whole = not fits and len(parts) == 1 and parts[0].shape == gradient.shape
            ctx.found.structure = structure.outside(gradient) if structure is not None and (fits or is_whole) else None
            ctx.found.is_whole = is_whole
            if not fits:
                if is_whole and structure is not None:
                    (gradient,) = parts_of_gradient(structure, gradient)
                return None, None, gradient, *[None] * len(ctx.facts)
        if structure is None or not fits:
            whose, kind = ctx.structure.cls.__name__, type(gradient).__name__
            raise RuntimeError(f"the gradient of a {whose} is a {kind}, whose parts are no gradients of its parts")
        return None, None, None, *parts_of_gradient(structure, gradient)


class _Apart(torch.autograd.Function):
    """A tensor becomes its parts, whose gradients are put together, after a carrier where it is an input of the graph: nothing but the sizes
    and the dtype that a plain gradient of it has."""

    @staticmethod
    def forward(ctx: Any, structure: Structure, found: Gradient | None, tensor: torch.Tensor) -> Any:
        parts = [part.detach() for part in structure.parts(tensor)]
        ctx.structure, ctx.found = Structure.of(tensor) if structure.is_open else structure, found
        if found is None:
            ctx.structure = ctx.structure.of_gradient
        # not the parts themselves: the history that they have would be in itself, which no collector of garbage sees
        ctx.facts = [(tuple(part.shape), part.stride(), {"dtype": part.dtype, "device": part.device}) for part in parts]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[part for part in parts if not is_differentiable(part)])
        carrier = [] if found is None else [torch.zeros((), dtype=structure.dtype, device=tensor.device).expand(tensor.shape)]
        return *carrier, *parts

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> Any:
        if all(each is None for each in given):
            return None, None, None
        structure, parts = ctx.structure, given
        if ctx.found is not None:
            if ctx.found.structure is None:
                return None, None, given[0]
            structure, parts = ctx.found.structure.like(ctx.structure), given[:1] if ctx.found.is_whole else given[1:]
        whole = [zeros(*facts) if part is None else part for part, facts in zip(parts, ctx.facts)]
        return None, None, together_of_gradients(structure, whole)


def zeros(sizes: Sequence[Any], strides: Sequence[Any], facts: dict[str, Any]) -> torch.Tensor:
    """The gradient of a part that has none."""
    return torch.empty_strided(sizes, strides, **facts).zero_()


def parts_of_gradient(structure: Structure, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The parts of a gradient; with its history, where gradients of gradients are asked for."""
    if torch.is_grad_enabled() and gradient.requires_grad:
        found: tuple[torch.Tensor, ...] = _Apart.apply(structure, None, gradient)
        return found
    return tuple(structure.parts(gradient))


def together_of_gradients(structure: Structure, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """A gradient of these parts; with their histories, where gradients of gradients are asked for."""
    if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
        found: torch.Tensor = _Together.apply(structure, None, None, *parts)
        return found
    return structure.together(iter(parts))


class Wrap:
    """plain tensors -> the tensor of a wrapper subclass that is made of them: a function of the graph, and of what reads its results.
    Before them it takes the sizes and strides that are open.

    gradient: of an input that asks for one, whose parts come after a carrier.
    """

    def __init__(self, structure: Structure, gradient: Gradient | None = None) -> None:
        self.structure, self.gradient = structure, gradient
        self.__name__ = f"wrap_{structure.cls.__name__}"

    def __call__(self, *given: Any) -> torch.Tensor:
        structure, parts = self.structure, given
        if structure.is_open:
            count = structure.count + (self.gradient is not None)
            structure, parts = structure.filled(iter(given[:-count])), given[-count:]
        with _torch.modes.torch_functions_off():
            if not structure.requires_grad:
                return structure.together(iter(parts))
            with torch.enable_grad():
                return structure.with_history(parts, self.gradient)


class Unwrap:
    """The tensor of a wrapper subclass -> the plain tensors that it is made of: the inverse."""

    def __init__(self, structure: Structure, gradient: Gradient | None = None) -> None:
        self.structure, self.gradient = structure, gradient
        self.__name__ = f"unwrap_{structure.cls.__name__}"

    def __call__(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with _torch.modes.torch_functions_off():
            if not self.structure.requires_grad:
                return tuple(self.structure.parts(tensor))
            with torch.enable_grad():
                return self.structure.parts_with_history(tensor, self.gradient)


class Asked:
    """tensors -> what the __torch_function__ of a class makes of a function of torch with them, as its own code, which is not traced, has it."""

    def __init__(self, cls: Any, function: Any) -> None:
        self.cls, self.function = cls, function
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is torch.nn.functional.scaled_dot_product_attention and is_attended_here(args, kwargs):
            return attend(*args, **kwargs)
        return self.cls.__torch_function__(self.function, (self.cls,), args, kwargs)


def part_nodes(node: fx.Node, structure: Structure) -> list[fx.Node]:
    """Nodes of the plain parts of a node's tensor, in order."""
    unwrap = Unwrap(structure)
    made = node.graph.call_function(unwrap, (node,))
    parts = [node.graph.call_function(operator.getitem, (made, place)) for place in range(structure.count)]
    found = unwrap(node.meta["example_value"])
    for each, example in zip((made, *parts), (found, *found), strict=True):
        each.meta.update(example_value=example, val=example, stack=node.meta.get("stack"), stack_trace=node.meta.get("stack"))
    return parts


class View:
    """A tensor -> a view of it, by calls that a graph recorded: what leaves as a view of an existing tensor is one to autograd, too.

    calls: functions or names of methods, from the first on, with what they take beside the result before them.
    """

    def __init__(self, calls: Sequence[tuple[Any, tuple[Any, ...], dict[str, Any]]]) -> None:
        self.calls = tuple(calls)
        self.__name__ = "view"

    @classmethod
    def between(cls, base: fx.Node, node: fx.Node) -> View | None:
        """What makes the second node's tensor of the first's; None where it takes more than that."""
        calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        while node is not base:
            first = node.args[0] if node.args else None
            if not isinstance(first, fx.Node) or node.all_input_nodes != [first]:
                return None
            calls.append((node.target, tuple(node.args[1:]), dict(node.kwargs)))
            node = first
        return cls(calls[::-1])

    def __call__(self, tensor: torch.Tensor) -> Any:
        made: Any = tensor
        with _torch.modes.torch_functions_off():
            for target, args, kwargs in self.calls:
                function = getattr(made, target) if isinstance(target, str) else functools.partial(target, made)
                made = function(*args, **kwargs)
        return made


@dataclass(frozen=True)
class Place:
    """Stands for one of the tensors that a constructor is called with."""

    number: int


class Construct:
    """tensors -> an instance of a wrapper subclass that the program's own constructor makes: a function of the graph.

    args, kwargs: of the constructor, with a Place for each tensor.
    """

    def __init__(self, cls: type, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.cls, self.args, self.kwargs = cls, args, kwargs
        self.__name__ = cls.__name__

    def __call__(self, *tensors: Any) -> torch.Tensor:
        def fill(given: Any) -> Any:
            if isinstance(given, Place):
                return tensors[given.number]
            return type(given)(map(fill, given)) if type(given) in (tuple, list) else given

        with _torch.modes.torch_functions_off():
            made: torch.Tensor = self.cls(*map(fill, self.args), **{name: fill(each) for name, each in self.kwargs.items()})
            return made
