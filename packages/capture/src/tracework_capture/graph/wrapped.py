"""Tensors of wrapper subclasses in a graph: its inputs and results are the plain tensors that they are made of.

A wrapper subclass has no memory: `__tensor_flatten__` names the attributes with its parts, `__tensor_unflatten__` makes a tensor of parts, and
`__torch_dispatch__` says what an operator does. In the graph a node of `Wrap` puts one together; the operators run on it then as they do in
eager, by the class's own code, whoever runs the graph on tensors or fakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _torch

__all__ = ["Construct", "Gradient", "Place", "Structure", "Unwrap", "Wrap", "is_differentiable", "is_wrapper"]


def is_wrapper(cls: type) -> bool:
    """Whether tensors of a class can be taken apart and put together, and gradients of theirs are made of the same parts.

    Those of distributed tensors are otherwise, as that of a sum over processes is no sum: they break the graph.
    """
    has_parts = hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")
    own = cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]
    return has_parts and own and not cls.__module__.startswith("torch.distributed.")


@dataclass(frozen=True)
class Held:
    """Of what a class names as its parts, one that is no tensor: the mesh of a distributed one, say."""

    value: Any


@dataclass(frozen=True, eq=False)
class Structure:
    """What a tensor of a wrapper subclass is beside the data of its parts.

    names: of the attributes with its parts. inner: their structures, None for a plain tensor, what is no tensor
    as it is. context: what the class keeps beside them.
    """

    cls: type
    names: tuple[str, ...]
    context: Any
    inner: tuple[Structure | Held | None, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Structure:
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = [getattr(tensor, name) for name in names]
        inner = tuple(cls.of_part(part) for part in parts)
        facts = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.requires_grad
        return cls(type(tensor), tuple(names), context, inner, *facts)

    @classmethod
    def of_part(cls, part: Any) -> Structure | Held | None:
        if not isinstance(part, torch.Tensor):
            return Held(part)
        return cls.of(part) if is_wrapper(type(part)) else None

    @property
    def count(self) -> int:
        """Of its plain parts."""
        return sum(1 if inner is None else inner.count for inner in self.inner if not isinstance(inner, Held))

    def is_of(self, tensor: Any) -> bool:
        """Whether a tensor is such a one, apart from what its plain parts are."""
        kind: type = type(tensor)
        if kind is not self.cls or tensor.requires_grad is not self.requires_grad or tensor.dtype is not self.dtype:
            return False
        if tuple(tensor.shape) != self.sizes or tuple(tensor.stride()) != self.strides:
            return False
        names, context = tensor.__tensor_flatten__()
        if tuple(names) != self.names or context != self.context:
            return False
        for name, inner in zip(names, self.inner):
            if isinstance(inner, Structure) and not inner.is_of(getattr(tensor, name)):
                return False
            if isinstance(inner, Held) and getattr(tensor, name) != inner.value:
                return False
        return True

    def parts(self, tensor: Any) -> list[torch.Tensor]:
        """The plain tensors that it is made of."""
        found: list[torch.Tensor] = []
        for name, inner in zip(self.names, self.inner):
            if not isinstance(inner, Held):
                part = getattr(tensor, name)
                found += [part] if inner is None else inner.parts(part)
        return found

    def together(self, parts: Iterator[torch.Tensor]) -> torch.Tensor:
        """A tensor of these parts."""
        given: dict[str, Any] = {}
        for name, inner in zip(self.names, self.inner, strict=True):
            given[name] = next(parts) if inner is None else inner.value if isinstance(inner, Held) else inner.together(parts)
        made: torch.Tensor = self.cls.__tensor_unflatten__(given, self.context, self.sizes, self.strides)  # type: ignore[attr-defined]
        return made


def is_differentiable(tensor: torch.Tensor) -> bool:
    """Whether it may have a gradient."""
    return tensor.is_floating_point() or tensor.is_complex()


class Gradient:
    """What the gradient of an input that was taken apart is: of this structure, its parts those of the input's parts, or another tensor where
    that is None.

    Its backward inside of the graph says so, while that is traced or runs; outside it is put together accordingly.
    """

    structure: Structure | None = None


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
        structure = Structure.of(gradient) if is_wrapper(type(gradient)) else None
        parts = [] if structure is None else structure.parts(gradient)
        fits = structure is not None and [(part.shape, part.dtype) for part in parts] == ctx.facts
        if ctx.found is None and structure is not None:  # inside of the graph it was taken for one like the result
            fits = fits and (structure.cls, structure.context) == (ctx.structure.cls, ctx.structure.context)
        if ctx.found is not None:
            ctx.found.structure = structure if fits else None
            if not fits:
                return None, None, gradient, *[None] * len(ctx.facts)
        if not fits:
            whose, kind = ctx.structure.cls.__name__, type(gradient).__name__
            raise RuntimeError(f"the gradient of a {whose} is a {kind}, whose parts are no gradients of its parts")
        return None, None, None, *parts


class _Apart(torch.autograd.Function):
    """A tensor becomes its parts, whose gradients are put together, after a carrier where it is an input of the graph: nothing but the sizes
    and the dtype that a plain gradient of it has."""

    @staticmethod
    def forward(ctx: Any, structure: Structure, found: Gradient | None, tensor: torch.Tensor) -> Any:
        parts = [part.detach() for part in structure.parts(tensor)]
        ctx.structure, ctx.found, ctx.like = structure, found, parts
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[part for part in parts if not is_differentiable(part)])
        carrier = [] if found is None else [torch.zeros((), dtype=structure.dtype, device=tensor.device).expand(structure.sizes)]
        return *carrier, *parts

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> Any:
        if all(each is None for each in given):
            return None, None, None
        structure, parts = ctx.structure, given
        if ctx.found is not None:
            if ctx.found.structure is None:
                return None, None, given[0]
            structure, parts = ctx.found.structure, given[1:]
        return None, None, structure.together(torch.zeros_like(p) if g is None else g for g, p in zip(parts, ctx.like))


class Wrap:
    """plain tensors -> the tensor of a wrapper subclass that is made of them: a function of the graph, and of what reads its results.

    gradient: of an input that asks for one, whose parts come after a carrier.
    """

    def __init__(self, structure: Structure, gradient: Gradient | None = None) -> None:
        self.structure, self.gradient = structure, gradient
        self.__name__ = f"wrap_{structure.cls.__name__}"

    def __call__(self, *parts: torch.Tensor) -> torch.Tensor:
        with _torch.torch_functions_off():
            if not self.structure.requires_grad:
                return self.structure.together(iter(parts))
            given = parts if self.gradient is not None else (None, *parts)
            with torch.enable_grad():
                made: torch.Tensor = _Together.apply(self.structure, self.gradient, *given)
                return made


class Unwrap:
    """The tensor of a wrapper subclass -> the plain tensors that it is made of: the inverse."""

    def __init__(self, structure: Structure, gradient: Gradient | None = None) -> None:
        self.structure, self.gradient = structure, gradient
        self.__name__ = f"unwrap_{structure.cls.__name__}"

    def __call__(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with _torch.torch_functions_off():
            if not self.structure.requires_grad:
                return tuple(self.structure.parts(tensor))
            with torch.enable_grad():
                made: tuple[torch.Tensor, ...] = _Apart.apply(self.structure, self.gradient, tensor)
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

        with _torch.torch_functions_off():
            made: torch.Tensor = self.cls(*map(fill, self.args), **{name: fill(each) for name, each in self.kwargs.items()})
            return made
