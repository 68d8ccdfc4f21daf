"""torch.compile called inside of a captured function: what it gives is called as the function that it compiles, which is part of the graph."""

from __future__ import annotations

import types
from typing import Any

import torch

from ..._torch.modules import any_hook_of_all_modules
from ...errors import BreakGraph
from ..protocol.calls import call
from ..protocol.constant import ConstantValue
from ..protocol.kinds import AbstractModule
from ..protocol.known_function import KnownFunction
from ..protocol.value import Emitter, Frame, Value
from .function import BoundMethodValue, FunctionValue, NewFunctionValue

OPTIONS = ("backend", "fullgraph", "dynamic", "mode")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
BACKENDS = ("eager", "aot_eager", "inductor", "tracework")


class CompiledHere(Value):
    """torch.compile(function, **options)"""

    cls = types.FunctionType
    is_unique = True

    def __init__(self, function: Value, options: dict[str, Value]) -> None:
        super().__init__(None)
        self.function, self.options = function, options

    def held(self) -> Any:
        return self.function, *self.options.values()

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(frame, args, kwargs)

    def reload(self, emit: Emitter) -> str:
        given = "".join(f", {name}={emit.load(value)}" for name, value in self.options.items())
        return f"{emit.const(torch.compile, 'compile')}({emit.load(self.function)}{given})"


class CompiledModuleHere(CompiledHere):
    """torch.compile(module, **options): an OptimizedModule, which calls the module; what else it does is left to Python."""

    def python_type(self) -> type:
        raise BreakGraph("call_unknown", "something else than a call of what torch.compile makes of a module")

    def describe(self) -> str:
        return f"torch.compile({self.function.describe()})"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if any_hook_of_all_modules():  # they are called for the wrapper, too
            frame.break_graph("call_unknown", f"{self.describe()} under hooks of all modules")
        return super().call(frame, args, kwargs)

    def getattr(self, frame: Frame, name: str) -> Value:
        return self.function if name == "_orig_mod" else super().getattr(frame, name)


class CompilesNext(Value):
    """torch.compile(**options), which decorates."""

    cls = types.FunctionType

    def __init__(self, options: dict[str, Value]) -> None:
        super().__init__(None)
        self.options = options

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return compile_(frame, args, {**self.options, **kwargs})


@call("torch.compile")
def compile_(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.compile(function, **options); breaks for options that may be refused or turn it off. Others say nothing here, as in torch: what
    is compiled is part of the graph around it, and is compiled with these where that breaks."""
    function, *others = args or [ConstantValue(None)]
    options = {name: value for name, value in kwargs.items() if not _is_none(value)}
    mode = options.get("mode", ConstantValue("default"))
    if others or not options.keys() <= set(OPTIONS) or not mode.is_constant() or mode.constant() not in MODES:
        frame.break_graph("call_unknown", "torch.compile with these arguments")
    backend = options.get("backend", ConstantValue("inductor"))
    if not (isinstance(backend, FunctionValue) or backend.is_constant() and backend.constant() in BACKENDS):
        frame.break_graph("call_unknown", f"torch.compile for the backend {backend.describe()}")
    if _is_none(function):
        return CompilesNext(options)
    if isinstance(function, AbstractModule):
        return CompiledModuleHere(function, options)
    if not isinstance(function, (FunctionValue, NewFunctionValue, BoundMethodValue, KnownFunction)):
        frame.break_graph("call_unknown", f"torch.compile of {function.describe()}")
    return CompiledHere(function, options)


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.constant() is None
