"""Triton kernels that a program launches: an operator for each way of launching one, whose schema says which tensors the kernel writes to.

That is read off the kernel's source. A parameter flows through assignments and calls, not through loads. It is written to when it reaches the
address of a store or an atomic operation, or a function that is not Triton's own. So the answer may name a parameter too many, never one too few.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from dataclasses import dataclass
from typing import Any

from .operators import GeneratedOperators


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


# --- what a kernel writes to -----------------------------------------------------------------------------------------------

_ADDRESSES = ("pointer", "base", "desc")  # keywords of the address of a store
_HIDDEN = frozenset(("pointer_type", "inline_asm_elementwise", "extern_elementwise", "dispatch"))
"""What may write to memory that no parameter points to as such."""


def written_parameters(function: Any) -> frozenset[str] | None:
    """Names of parameters; None when the kernel may write to anything."""
    names = frozenset(inspect.signature(function).parameters)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    used = {n.attr if isinstance(n, ast.Attribute) else n.id for n in ast.walk(tree) if isinstance(n, (ast.Attribute, ast.Name))}
    if used & _HIDDEN or any(isinstance(n, (ast.Global, ast.Nonlocal)) for n in ast.walk(tree)):
        return None
    reader = _Reader(names, function.__globals__)
    reader.follow(tree)
    return reader.written(tree)


class _Reader:
    """Names of the kernel -> parameters that they may be made of, whatever the order of the statements."""

    def __init__(self, parameters: frozenset[str], globals_: dict[str, Any]) -> None:
        self.globals = globals_
        self.origins: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in parameters}

    def follow(self, tree: ast.AST) -> None:
        """Carries origins over assignments until nothing is new."""
        changed = True
        while changed:
            changed = False
            for targets, value in _assignments(tree):
                found = self.of(value)
                for name in (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)):
                    before = self.origins.get(name, frozenset())
                    if not found <= before:
                        self.origins[name] = before | found
                        changed = True

    def of(self, node: ast.AST | None) -> frozenset[str]:
        """The parameters that an expression may point to."""
        if node is None or (isinstance(node, ast.Call) and _last_name(node.func) == "load"):
            return frozenset()
        if isinstance(node, ast.Name):
            return self.origins.get(node.id, frozenset())
        return frozenset().union(*map(self.of, ast.iter_child_nodes(node)))

    def written(self, tree: ast.AST) -> frozenset[str]:
        """The parameters that some call may write to."""
        found: frozenset[str] = frozenset()
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
            name = _last_name(call.func)
            if name == "store" or name.startswith("atomic_") or name == "scatter":
                keywords = [k.value for k in call.keywords if k.arg in _ADDRESSES]
                found |= self.of(call.func).union(*map(self.of, [*call.args[:1], *keywords]))
            elif not self.is_pure(call.func):
                found |= frozenset().union(*map(self.of, [*call.args, *(k.value for k in call.keywords)]))
        return found

    def is_pure(self, function: ast.AST) -> bool:
        """Whether it is a method of a value, a function of triton.language, or a builtin."""
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in self.origins:
            return isinstance(function, ast.Attribute)
        known = self.globals.get(root.id, getattr(builtins, root.id, None))
        module = known.__name__ if isinstance(known, types.ModuleType) else getattr(known, "__module__", None) or ""
        return module == "builtins" or module.split(".")[0] == "triton"


def _last_name(function: ast.AST) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _assignments(tree: ast.AST) -> list[tuple[list[ast.expr], ast.expr | None]]:
    """(targets, value) of everything that binds names."""
    found: list[tuple[list[ast.expr], ast.expr | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found.append((node.targets, node.value))
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            found.append(([node.target], node.value))
        elif isinstance(node, (ast.For, ast.comprehension)):
            found.append(([node.target], node.iter))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            found.append(([node.optional_vars], node.context_expr))
    return found
