"""An operator for each way in which a program launches a Triton kernel: its schema says which tensors the kernel writes to."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from .generated_operators import GeneratedOperators
from .kernel_writes import written_parameters

__all__ = ["Launch", "python_function", "operator_of"]


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
    """The arguments of the operator, which gives nothing."""
    rows = enumerate(zip(launch.names, launch.kinds, strict=True))
    types = {"tensor": "Tensor", "int": "SymInt", "float": "float", "bool": "bool"}
    parts = [f"Tensor(a{i}!) x{i}" if kind == "tensor" and n in written else f"{types[kind]} x{i}" for i, (n, kind) in rows]
    return f"({', '.join([*parts, 'SymInt[] grids'])}) -> ()"


_operators = GeneratedOperators("tracework_kernels")


def operator_of(launch: Launch) -> Any:
    """The operator of a launch; None when it is not known what the kernel writes to."""
    key = (id(launch.kernel), launch.names, launch.kinds, repr(launch.constants), repr(launch.configs), launch.grid_rank)
    found = _operators.known(key)
    if found is not None:
        return found
    function = python_function(launch.kernel)
    written = written_parameters(function)
    if written is None:
        return None
    schema = schema_of(launch, written)
    source = (function.__module__, function.__qualname__, inspect.getsource(function))
    facts = (*source, schema, launch.names, launch.constants, launch.configs, launch.grid_rank)
    return _operators.make(key, launch, function.__name__, facts, schema, launch.run, lambda *args: None)
