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


def schema_of(launch: Launch, written: frozenset[str]) -> str:
    """The arguments of the operator."""
    rows = enumerate(zip(launch.names, launch.kinds, strict=True))
    types = {"tensor": "Tensor", "int": "SymInt", "float": "float", "bool": "bool"}
    parts = [f"Tensor(a{i}!) x{i}" if kind == "tensor" and n in written else f"{types[kind]} x{i}" for i, (n, kind) in rows]
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
        schema = schema_of(launch, written)
        name = self.new_name(function, (schema, launch.names, launch.constants, launch.configs, launch.grid_rank))
        self.library.define(f"{name}({schema}) -> ()")
        self.library.impl(name, launch.run, "CompositeExplicitAutograd")
        self.library.impl(name, lambda *args: None, "Meta")
        return getattr(getattr(torch.ops, NAMESPACE), name).default

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
