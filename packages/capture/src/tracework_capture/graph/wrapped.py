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

__all__ = ["Construct", "Gradient", "Place", "Structure", "Unwrap", "Wrap", "is_wrapper"]


def is_wrapper(cls: type) -> bool:
    """Whether tensors of a class can be taken apart and put together."""
    has_parts = hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")
    return has_parts and cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class Structure:
    """What a tensor of a wrapper subclass is beside the data of its parts.

    names: of the attributes with its parts. inner: their structures, None for a plain tensor. context: what the class keeps beside them.
    """

    cls: type
    names: tuple[str, ...]
    context: Any
    inner: tuple[Structure | None, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Structure:
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = [getattr(tensor, name) for name in names]
        inner = tuple(cls.of(part) if is_wrapper(type(part)) else None for part in parts)
        facts = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.requires_grad
        return cls(type(tensor), tuple(names), context, inner, *facts)

    @property
    def count(self) -> int:
        """Of its plain parts."""
        return sum(1 if inner is None else inner.count for inner in self.inner)

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
        return all(inner is None or inner.is_of(getattr(tensor, name)) for name, inner in zip(names, self.inner))

    def parts(self, tensor: Any) -> list[torch.Tensor]:
        """The plain tensors that it is made of."""
        found: list[torch.Tensor] = []
        for name, inner in zip(self.names, self.inner):
            part = getattr(tensor, name)
            found += [part] if inner is None else inner.parts(part)
        return found

    def together(self, parts: Iterator[torch.Tensor]) -> torch.Tensor:
        """A tensor of these parts."""
        given = {
            name: next(parts) if inner is None else inner.together(parts)
            for name, inner in zip(self.names, self.inner, strict=True)
        }
        made: torch.Tensor = self.cls.__tensor_unflatten__(given, self.context, self.sizes, self.strides)  # type: ignore[attr-defined]
        return made


class Gradient:
    """What the gradient of a tensor that was taken apart is: of this structure, or a plain tensor where that is None.

    Its backward inside of the graph says so, while that is traced or runs; outside it is put together accordingly.
    """

    def __init__(self, structure: Structure | None) -> None:
        self.structure = structure

    def apart(self, gradient: torch.Tensor, count: int) -> list[torch.Tensor | None]:
        """Gradients of `count` parts, which hold what the gradient is made of, in order."""
        self.structure = Structure.of(gradient) if is_wrapper(type(gradient)) else None
        parts = [gradient] if self.structure is None else self.structure.parts(gradient)
        if len(parts) > count:
            raise RuntimeError(f"a gradient of {len(parts)} tensors, {self.structure}, of a tensor that is made of {count}")
        return [*parts, *[None] * (count - len(parts))]

    def together(self, parts: Sequence[torch.Tensor | None], like: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """The gradient of these parts. like: the parts of the tensor."""
        if all(part is None for part in parts):
            return None
        if self.structure is None:
            return parts[0]
        return self.structure.together(torch.zeros_like(p) if g is None else g for g, p in zip(parts, like))


class _Together(torch.autograd.Function):
    """Parts become a tensor whose gradient is taken apart."""

    @staticmethod
    def forward(ctx: Any, structure: Structure, gradient: Gradient, *parts: torch.Tensor) -> torch.Tensor:
        ctx.gradient, ctx.count = gradient, len(parts)
        return structure.together(part.detach() for part in parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, *ctx.gradient.apart(gradient, ctx.count)


class _Apart(torch.autograd.Function):
    """A tensor becomes its parts, whose gradients are put together."""

    @staticmethod
    def forward(ctx: Any, structure: Structure, gradient: Gradient, tensor: torch.Tensor) -> Any:
        parts = [part.detach() for part in structure.parts(tensor)]
        ctx.gradient, ctx.like = gradient, parts
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[p for p in parts if not (p.is_floating_point() or p.is_complex())])
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *parts: torch.Tensor | None) -> Any:
        return None, None, ctx.gradient.together(parts, ctx.like)


class Wrap:
    """plain tensors -> the tensor of a wrapper subclass that is made of them: a function of the graph, and of what reads its results."""

    def __init__(self, structure: Structure, gradient: Gradient | None = None) -> None:
        self.structure, self.gradient = structure, gradient or Gradient(structure)
        self.__name__ = f"wrap_{structure.cls.__name__}"

    def __call__(self, *parts: torch.Tensor) -> torch.Tensor:
        with _torch.torch_functions_off():
            if not self.structure.requires_grad:
                return self.structure.together(iter(parts))
            with torch.enable_grad():
                made: torch.Tensor = _Together.apply(self.structure, self.gradient, *parts)
                return made


class Unwrap:
    """The tensor of a wrapper subclass -> the plain tensors that it is made of: the inverse."""

    def __init__(self, structure: Structure, gradient: Gradient | None = None) -> None:
        self.structure, self.gradient = structure, gradient or Gradient(structure)
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
