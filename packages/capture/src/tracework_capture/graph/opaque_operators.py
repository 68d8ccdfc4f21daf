"""Operators for functions that nobody knows: called once with real tensors, to see what they give, then part of the graph as they are.

The operator is a barrier: it is neither merged, nor dropped, nor computed again. Each call is held to what the first one gave.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..errors import OpaqueCallError
from ..signals import let_through
from .generated_operators import GeneratedOperators

__all__ = ["NAMESPACE", "ArgumentSize", "Refusal", "ResultFacts", "is_foreign", "observe", "operator_of"]

NAMESPACE = "tracework_opaque"


class Refusal(Exception):
    """Why a function cannot be an operator."""


def is_foreign(function: Any) -> bool:
    """Whether an extension module that is not Python's, torch's or NumPy's made the function."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if module is None or not isinstance(loader, importlib.machinery.ExtensionFileLoader):
        return False
    return module.__name__.partition(".")[0] not in {*sys.stdlib_module_names, "torch", "numpy", "tracework_capture"}


@dataclass(frozen=True)
class ArgumentSize:
    """A size or stride that an operator is given as this one of its arguments."""

    place: int


@dataclass(frozen=True)
class ResultFacts:
    """One tensor that the function gives. Sizes and strides are numbers, expressions while the program is traced, or arguments."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> ResultFacts:
        from tracework_primops import FakeTensor  # primops is imported when the first graph is made

        if isinstance(tensor, FakeTensor):
            return cls(tensor.dtype, tensor.device, tensor.spec.sizes, tensor.spec.strides)
        return cls(tensor.dtype, tensor.device, tuple(tensor.shape), tuple(tensor.stride()))

    def over(self, number_of: Callable[[Any], Any]) -> ResultFacts:
        """The same facts with other sizes and strides."""
        return replace(self, sizes=tuple(map(number_of, self.sizes)), strides=tuple(map(number_of, self.strides)))

    def among(self, arguments: Sequence[Any]) -> ResultFacts:
        """The facts of a call with these arguments."""
        return self.over(lambda size: arguments[size.place] if isinstance(size, ArgumentSize) else size)

    def empty(self, device: torch.device | str) -> torch.Tensor:
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device=device)


def observe(call: Any, tensors: list[torch.Tensor]) -> tuple[type, tuple[ResultFacts, ...]]:
    """(class of the result, facts of its tensors) of one call with copies of these. Raises Refusal."""
    copies = [t.detach().clone() for t in tensors]
    try:
        found = call(*copies)
    except Exception as error:
        let_through(error)
        raise Refusal(f"it raises {type(error).__name__}") from error
    if not all(map(_unchanged, copies, tensors)):
        raise Refusal("it writes to an argument")
    results = _tensors_of(found)
    if results is None:
        raise Refusal(f"it gives a {type(found).__name__}, not new tensors only")
    if _shares_memory(copies, results):
        raise Refusal("what it gives shares memory with an argument")
    return type(found), tuple(map(ResultFacts.of, results))


def _unchanged(copy: torch.Tensor, tensor: torch.Tensor) -> bool:
    if copy.dtype != tensor.dtype or copy.shape != tensor.shape:
        return False
    same = (copy == tensor) | ((copy != copy) & (tensor != tensor))
    return bool(same.all())


def _tensors_of(found: Any) -> tuple[torch.Tensor, ...] | None:
    """The tensors of a result; None when it is anything else than a tensor, or a tuple or list of tensors."""
    parts = tuple(found) if type(found) in (tuple, list) else (found,)
    if not parts or not all(type(p) is torch.Tensor and p.layout is torch.strided and not p.requires_grad for p in parts):
        return None
    return parts


def _shares_memory(arguments: Any, results: Any) -> bool:
    """Whether a result lies in the memory of an argument or of another result."""
    taken = {t.untyped_storage().data_ptr() for t in arguments if t.numel()}
    for place in (t.untyped_storage().data_ptr() for t in results if t.numel()):
        if place in taken:
            return True
        taken.add(place)
    return False


class _Opaque:
    """Calls the function and holds it to what it gave at first."""

    def __init__(self, name: str, call: Any, facts: tuple[Any, ...]) -> None:
        self.name, self.call, self.facts = name, call, facts

    def run(self, *arguments: Any) -> Any:
        results = _tensors_of(self.call(*arguments))
        facts = [f.among(arguments) for f in self.facts]
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        if results is None or [*map(ResultFacts.of, results)] != facts or _shares_memory(tensors, results):
            raise OpaqueCallError(self.name, "it gave something else at its first call, or shares memory with an argument now")
        return results if len(results) > 1 else results[0]

    def on_meta(self, *arguments: Any) -> Any:
        from tracework_primops import FakeTensor  # as above

        on_fakes = any(isinstance(a, FakeTensor) for a in arguments)
        facts = [f.among(arguments) for f in self.facts]
        made = tuple(f.empty(f.device if on_fakes else "meta") for f in facts)
        return made if len(made) > 1 else made[0]


_operators = GeneratedOperators(NAMESPACE)


def operator_of(
    function: Any, call: Any, constants: Any, count: int, facts: tuple[Any, ...], numbers: frozenset[int] = frozenset()
) -> Any:
    """The operator of the function with these constants; `call` takes its `count` arguments only: tensors, ints at the places `numbers`."""
    key = (id(function), repr(constants), count, facts, numbers)
    found = _operators.known(key)
    if found is not None:
        return found
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", type(function).__qualname__)
    opaque = _Opaque(f"{module}.{name}", call, facts)
    taken = ", ".join(f"{'SymInt' if i in numbers else 'Tensor'} x{i}" for i in range(count))
    schema = f"({taken}) -> ({', '.join(['Tensor'] * len(facts))})"
    named = (module, name, constants, count, facts, sorted(numbers))
    tags = (torch.Tag.nondeterministic_seeded,)
    return _operators.make(key, function, f"{module}_{name}", named, schema, opaque.run, opaque.on_meta, tags)
