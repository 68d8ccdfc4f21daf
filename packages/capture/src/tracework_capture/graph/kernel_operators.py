"""An operator for each way in which a program launches a Triton kernel: its schema says which tensors the kernel writes to."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from typing import Any

import torch

from .kernel_writes import written_parameters

__all__ = ["Launch", "python_function", "operator_of"]

NAMESPACE = "tracework_kernels"
SCHEMA_TYPES = {"tensor": "Tensor", "int": "SymInt", "float": "float", "bool": "bool"}


@dataclass(frozen=True)
class Launch:
    """kernel[grid](...) without its numbers: `names` and `kinds` of the arguments of the node, and what is the same in all calls.

    `configs` has the settings for which the grid was worked out, one row of the operator's list of grids for each.
    """

    kernel: Any
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    configs: tuple[tuple[tuple[str, Any], ...], ...]
    grid_rank: int

    def run(self, *args: Any) -> None:
        """Launches the kernel; the last argument holds the grids."""
        *given, numbers = args
        rank = self.grid_rank
        rows = [tuple(numbers[i : i + rank]) for i in range(0, len(numbers), rank)]

        def grid(meta: dict[str, Any]) -> tuple[int, ...]:
            for config, row in zip(self.configs, rows, strict=True):
                if all(meta[name] == value for name, value in config):
                    return row
            raise RuntimeError(f"{self.kernel}: no grid was worked out for the configuration {meta}")

        self.kernel[grid if len(rows) > 1 else rows[0]](**dict(zip(self.names, given, strict=True)), **dict(self.constants))


def python_function(kernel: Any) -> Any:
    """The function under decorators of Triton."""
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    return kernel


@dataclass(frozen=True)
class Functional:
    """The same launch on copies of the tensors that the kernel writes to, which are its results."""

    launch: Launch
    places: tuple[int, ...]

    def run(self, *args: Any) -> Any:
        given = list(args)
        for place in self.places:
            given[place] = like(given[place]).copy_(given[place])
        self.launch.run(*given)
        return self.results(given)

    def on_meta(self, *args: Any) -> Any:
        return self.results([like(a) if i in self.places else a for i, a in enumerate(args)])

    def results(self, given: list[Any]) -> Any:
        found = [given[place] for place in self.places]
        return found[0] if len(found) == 1 else tuple(found)


def like(tensor: torch.Tensor) -> torch.Tensor:
    """A new tensor of exactly these strides, which the kernel may have got as numbers."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def schema_of(launch: Launch, written: Any) -> str:
    """The arguments of an operator that writes to the arguments at these places."""
    parts = [f"Tensor(a{i}!) x{i}" if i in written else f"{SCHEMA_TYPES[kind]} x{i}" for i, kind in enumerate(launch.kinds)]
    return ", ".join([*parts, "SymInt[] grids"])


class _Operators:
    """The operators of this process. Names do not depend on the process, since compiled graphs that are stored hold them."""

    def __init__(self) -> None:
        self.library = torch.library.Library(NAMESPACE, "FRAGMENT")
        self.found: dict[Any, Any] = {}
        self.names: set[str] = set()

    def of(self, launch: Launch) -> Any:
        """The operator of a launch, made when it is new; None when it is not known what the kernel writes to."""
        key = (id(launch.kernel), launch.names, launch.kinds, repr(launch.constants), repr(launch.configs), launch.grid_rank)
        if key not in self.found:
            self.found[key] = (launch, self.make(launch))  # with the kernel, which keeps its id taken
        return self.found[key][1]

    def make(self, launch: Launch) -> Any:
        function = python_function(launch.kernel)
        written = written_parameters(function)
        if written is None:
            return None
        places = [
            i for i, (n, kind) in enumerate(zip(launch.names, launch.kinds, strict=True)) if kind == "tensor" and n in written
        ]
        schemas = [schema_of(launch, places), schema_of(launch, ())]
        name = self.new_name(function, (*schemas, launch.names, launch.constants, launch.configs, launch.grid_rank))
        functional = Functional(launch, tuple(places))
        self.define(name, f"({schemas[0]}) -> ()", launch.run, lambda *args: None)
        returns = ", ".join(["Tensor"] * len(places))
        self.define(f"{name}_functional", f"({schemas[1]}) -> ({returns})", functional.run, functional.on_meta)
        return getattr(getattr(torch.ops, NAMESPACE), name).default

    def define(self, name: str, schema: str, run: Any, on_meta: Any) -> None:
        self.library.define(name + schema)
        self.library.impl(name, run, "CompositeExplicitAutograd")
        self.library.impl(name, on_meta, "Meta")

    def new_name(self, function: Any, facts: Any) -> str:
        text = repr((function.__module__, function.__qualname__, inspect.getsource(function), facts))
        stem = name = f"{function.__name__}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        while name in self.names:
            name = f"{stem}_{len(self.names)}"
        self.names.add(name)
        return name


_operators: list[_Operators] = []


def operator_of(launch: Launch) -> Any:
    """The operator of a launch; None when it is not known what the kernel writes to."""
    if not _operators:
        _operators.append(_Operators())
    return _operators[0].of(launch)
