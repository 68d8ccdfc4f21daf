"""Triton kernels that the user wrote: kernel[grid](*args) becomes a node of the graph, the call of an operator made for it."""

from __future__ import annotations

import itertools
import types
from typing import Any

from ...._torch.operators import wrap_triton
from ....errors import NotPlain
from ....graph.kernels import Launch, operator_of, python_function
from ....sources import Source
from ...number.floats import FloatValue
from ...number.symint import SymNumber
from ...plain.mapping import dict_of
from ...plain.sequence import NONE
from ...protocol.calls import call
from ...protocol.constant import force_plain, plain
from ...protocol.value import Frame, HeldValue, Value
from ...protocol.wraps import wraps_named
from ..tensor import TensorValue

MOST_CONFIGS = 64


@wraps_named(
    "triton.runtime.jit.JITFunction",
    "triton.runtime.interpreter.InterpretedFunction",
    "triton.runtime.autotuner.Autotuner",
    "triton.runtime.autotuner.Heuristics",
)
def wrap_kernel(frame: Frame, obj: Any, source: Source | None) -> Any:
    frame.guard("IDENTITY", source, obj)
    return KernelValue(obj, source)


class KernelValue(HeldValue):
    """A kernel."""

    def real(self) -> Any:
        return self.obj

    def describe(self) -> str:
        return f"Triton kernel {python_function(self.obj).__qualname__}"

    def getitem(self, frame: Frame, key: Value) -> Value:
        return LaunchValue(self, key)


class LaunchValue(Value):
    """kernel[grid]"""

    def __init__(self, kernel: Any, grid: Any) -> None:
        super().__init__(None)
        self.kernel = kernel
        self.grid = grid

    def python_type(self) -> type:
        return type(lambda: None)

    def describe(self) -> str:
        return f"a launch of {self.kernel.describe()}"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        names = list(self.kernel.obj.arg_names)
        if len(args) > len(names) or set(names[: len(args)]) & set(kwargs) or "warmup" in kwargs or "grid" in kwargs:
            return frame.break_graph("call_unknown", f"{self.describe()} with these arguments")
        given = dict(zip(names, args)) | kwargs
        passed, constants = sorted_arguments(frame, given, constexpr_names(self.kernel.obj))
        configs, grids = self.grids(frame, given, names)
        kinds = tuple(kind for _, kind, _ in passed)
        launch = Launch(self.kernel.obj, tuple(n for n, _, _ in passed), kinds, tuple(constants), configs, len(grids[0]))
        operator = operator_of(launch)
        if operator is None:
            return frame.break_graph("call_unknown", f"{self.describe()}, which may write to memory that is no argument of it")
        nodes = [without_history(frame, value) for _, _, value in passed]
        frame.graph.call(frame, operator, (*nodes, list(itertools.chain(*grids))))
        return NONE

    def grids(self, frame: Frame, given: Any, names: Any) -> Any:
        """(settings, grid for each): one grid, or one for each configuration of an autotuner whose grid is a function."""
        if self.grid.python_type() is tuple:
            return ((),), [whole(frame, self.grid)]
        tried = [config.kwargs for config in configs_of(self.kernel.obj)]
        if len(tried) > MOST_CONFIGS:
            return frame.break_graph("call_unknown", f"{self.describe()} with {len(tried)} configurations")
        found = []
        for settings in tried:
            known = {n: v for n, v in given.items() if n in names} | {n: frame.constant(v) for n, v in settings.items()}
            meta = dict_of(frame, [(frame.constant(n), v) for n, v in known.items()])
            found.append(whole(frame, self.grid.call(frame, [meta], {})))
        if len({len(grid) for grid in found}) > 1:
            return frame.break_graph("call_unknown", f"{self.describe()} with grids of several ranks")
        return tuple(tuple(settings.items()) for settings in tried), found


def whole(frame: Frame, grid: Any) -> Any:
    """The sizes of a grid."""
    sizes = grid.unpack(frame)
    if not all(isinstance(s, SymNumber) or (s.is_constant() and isinstance(s.constant(), int)) for s in sizes) or not sizes:
        return frame.break_graph("call_unknown", "a Triton grid of something else than ints")
    return sizes


def configs_of(kernel: Any) -> Any:
    """The configurations that an autotuner may choose from; one without settings where there is none."""
    while not hasattr(kernel, "configs"):
        kernel = getattr(kernel, "fn", None)
        if kernel is None:
            return [types.SimpleNamespace(kwargs={})]
    return kernel.configs


def constexpr_names(kernel: Any) -> Any:
    """Parameters that are part of the compiled kernel."""
    annotations = python_function(kernel).__annotations__
    return {name for name, kind in annotations.items() if "constexpr" in str(getattr(kind, "__name__", kind))}


def sorted_arguments(frame: Frame, given: Any, fixed: Any) -> Any:
    """([(name, kind, value) of what the node passes], [(name, object) of what is the same in every call])."""
    passed, constants = [], []
    for name, value in given.items():
        kind = kind_of(value)
        if kind is None or (name in fixed and kind != "tensor"):
            constants.append((name, fixed_object(frame, value)))
        else:
            passed.append((name, kind, value))
    return passed, constants


def kind_of(value: Value) -> Any:
    """What the operator's schema calls it; None for what has no place there."""
    if isinstance(value, TensorValue):
        return "tensor"
    if isinstance(value, SymNumber):
        return "int"
    if value.is_constant() and type(value.constant()) in (int, float, bool):
        return type(value.constant()).__name__
    return None


def fixed_object(frame: Frame, value: Value) -> Any:
    """The object of an argument that is part of the operator."""
    if isinstance(value, (SymNumber, FloatValue)):
        return force_plain(frame, value)
    try:
        return plain(value)
    except NotPlain:
        pass
    try:
        found = value.real()
    except LookupError:
        return frame.break_graph("not_a_graph_argument", f"{value.describe()} as an argument of a Triton kernel")
    frame.guard("IDENTITY", value.source, found)
    return found


def without_history(frame: Frame, value: Value) -> Any:
    """A tensor as the kernel sees it: autograd does not know of the launch."""
    if isinstance(value, TensorValue) and value.example.requires_grad:
        return frame.graph.call_method(frame, "detach", (value,))
    return value


@call(wrap_triton)
def wrap_triton_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.library.wrap_triton(kernel)"""
    return args[0] if args else kwargs["triton_kernel"]
