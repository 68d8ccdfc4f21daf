"""Calls of functions marked with nonstrict_trace: one node of the graph, whatever the structure of arguments and results.

Arguments are taken apart into tensors and sizes, which the node gets, and a template, which the node's target holds; the target puts
them together again and calls the function. Modules give their parameters and buffers, so that gradients reach them, and so do tensors
that the function reaches by itself: a call on fakes shows which these are, and the target puts the node's inputs in their places.
Results are taken apart by torch.utils._pytree and put together as Values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from tracework_primops import FakeTensor

from .... import _torch
from ....errors import NotPlain
from ....graph.builder import graph_argument
from ....sources import Const
from ...number.symint import SymNumber
from ...objects.controls import MARKED
from ...plain.mapping import DictValue, dict_of
from ...plain.sequence import ListValue, SequenceValue, TupleValue
from ...protocol.constant import ConstantValue, plain
from ..module import ModuleValue
from ..tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...protocol.value import Frame, Value

__all__ = ["Parts", "Target", "call_nonstrict", "together"]

Build = Any  # Callable[[tuple[Any, ...]], Any]; what makes one argument from the node's inputs


def call_nonstrict(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """One node for function(*args, **kwargs)."""
    parts = Parts(frame, function)
    positional = [parts.take(a) for a in args]
    keywords = {k: parts.take(v) for k, v in kwargs.items()}
    target = Target(function, positional, keywords, parts.modules)
    for tensor in target.tensors_reached(frame, parts.leaves):
        target.reached[id(tensor)] = len(parts.leaves)
        parts.leaves.append(frame.wrap(tensor, _const(tensor, "reached")))
    flat = frame.graph.call(frame, target.as_function(), tuple(parts.leaves))
    return together(frame, target.result, iter(cast(SequenceValue, flat).all_items(frame)))


MARKED["nonstrict_trace"] = lambda obj, mark, frame, args, kwargs: call_nonstrict(frame, obj, args, kwargs)


class Parts:
    """Tensors and sizes of the arguments, in order, and the modules among them."""

    def __init__(self, frame: Frame, function: Any) -> None:
        self.frame, self.function = frame, function
        self.leaves: list[Value] = []
        self.modules: list[tuple[torch.nn.Module, dict[str, int]]] = []

    def take(self, value: Value) -> Build:
        """Adds what is in `value`; gives the function that makes the argument again."""
        if isinstance(value, (TensorValue, SymNumber)):
            return self.leaf(value)
        if isinstance(value, ModuleValue):
            return self.module(value)
        if isinstance(value, SequenceValue):
            return self.sequence(value)
        if isinstance(value, DictValue):
            items = {plain(key): self.take(item) for key, item in value.all_items(self.frame)}
            kind = value.python_type()
            return lambda leaves: kind((key, build(leaves)) for key, build in items.items())
        row = _torch.pytree_row(value.python_type())
        if row is not None:
            return self.registered(value, *row)
        try:
            known = plain(value)
        except NotPlain:
            name = getattr(self.function, "__qualname__", self.function)
            self.frame.break_graph("value_not_known", f"{name} of {value.describe()}")
        return lambda leaves: known

    def leaf(self, value: Value) -> Build:
        number = len(self.leaves)
        self.leaves.append(value)
        return lambda leaves: leaves[number]

    def sequence(self, value: SequenceValue) -> Build:
        builds = [self.take(item) for item in value.all_items(self.frame)]
        kind = value.python_type()
        if hasattr(kind, "_make"):
            return lambda leaves: kind._make(build(leaves) for build in builds)
        return lambda leaves: kind(build(leaves) for build in builds)

    def registered(self, value: Value, flatten: Callable[..., Any], unflatten: Callable[..., Any]) -> Build:
        """An object of a class known to pytree: its own function takes it apart, traced."""
        taken: Any = self.frame.wrap(flatten, _const(flatten)).call(self.frame, [value], {})
        children, context = taken.all_items(self.frame)
        builds, known = [self.take(child) for child in children.all_items(self.frame)], plain(context)
        return lambda leaves: unflatten([build(leaves) for build in builds], known)

    def module(self, value: ModuleValue) -> Build:
        """Parameters and buffers become inputs; the module itself is held."""
        frame, module = self.frame, value.obj
        numbers: dict[str, int] = {}
        for name, _ in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]:
            held: Any = value
            for part in name.split("."):
                held = held.entry(frame, part)
            numbers[name] = len(self.leaves)
            self.leaves.append(held)
        for name, _ in module.named_modules():
            held = value
            for part in filter(None, name.split(".")):
                held = held.entry(frame, part)
            held.getattr(frame, "training")  # guarded: the function may depend on it
        position = len(self.modules)
        self.modules.append((module, numbers))
        return lambda leaves: self.modules[position][0]


def _const(obj: Any, name: str = "pytree") -> Any:
    return Const(obj, getattr(obj, "__qualname__", name))


class _Holder(torch.nn.Module):
    """Lets functional_call put the tensors of several modules in place around one function."""

    def forward(self, function: Callable[[], Any]) -> Any:
        return function()


class _Replacing(torch.overrides.TorchFunctionMode):
    """Functions of torch get other tensors than they are called with."""

    def __init__(self, other: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.other = other

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _torch.tree_map_only(torch.Tensor, self.other, (args, kwargs or {}))
        return func(*args, **kwargs)


class Target:
    """What the node calls. `result` is the structure of the last result."""

    def __init__(self, function: Any, args: list[Build], kwargs: dict[str, Build], modules: Any) -> None:
        self.function, self.args, self.kwargs, self.modules = function, args, kwargs, modules
        self.result: Any = None
        self.reached: dict[int, int] = {}  # ids of tensors that the function reaches by itself -> places of the node's inputs

    def tensors_reached(self, frame: Frame, leaves: list[Value]) -> list[torch.Tensor]:
        """Existing tensors among the arguments of what the function calls on fakes."""
        found: dict[int, torch.Tensor] = {}

        def run(*given: Any) -> None:
            def see(tensor: torch.Tensor) -> torch.Tensor:
                if isinstance(tensor, FakeTensor):
                    return tensor
                found[id(tensor)] = tensor
                fake: torch.Tensor = frame.fake_mode.from_real(tensor)
                return fake

            with _Replacing(see):
                self.run(given)

        args = tuple(graph_argument(frame, leaf) for leaf in leaves)
        frame.graph.run_on_fakes(frame, run, args, {}, "call_function")
        return list(found.values())

    def as_function(self) -> Callable[..., Any]:
        """A function of its own, named for the graph's text."""

        def nonstrict(*leaves: Any) -> Any:
            return self.run(leaves)

        nonstrict.__name__ = nonstrict.__qualname__ = getattr(self.function, "__name__", "nonstrict")
        return nonstrict

    def run(self, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self.reached:
            return self.run_with_modules(leaves)
        with _Replacing(lambda tensor: leaves[self.reached[id(tensor)]] if id(tensor) in self.reached else tensor):
            return self.run_with_modules(leaves)

    def run_with_modules(self, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
        holder, tensors = _Holder(), {}
        for i, (module, numbers) in enumerate(self.modules):
            setattr(holder, f"m{i}", module)
            tensors.update({f"m{i}.{name}": leaves[number] for name, number in numbers.items()})
        found = torch.func.functional_call(holder, tensors, (lambda: self.call(leaves),)) if tensors else self.call(leaves)
        flat, self.result = _torch.pytree_flatten(found)
        return tuple(flat)

    def call(self, leaves: tuple[Any, ...]) -> Any:
        return self.function(*[build(leaves) for build in self.args], **{k: build(leaves) for k, build in self.kwargs.items()})


def together(frame: Frame, spec: Any, leaves: Iterator[Value]) -> Value:
    """A Value of the structure, with these leaves."""
    if spec.is_leaf():
        return next(leaves)
    children = [together(frame, child, leaves) for child in spec.children()]
    if spec.type is list:
        return ListValue(children)
    if spec.type is tuple:
        return TupleValue(children)
    if hasattr(spec.type, "_make"):
        return TupleValue(children, cls=spec.type)
    if spec.type is dict:
        return dict_of(frame, [(ConstantValue(key), child) for key, child in zip(spec.context, children)])
    row = _torch.pytree_row(spec.type)
    if row is None:
        frame.break_graph("call_unknown", f"a result of type {spec.type.__qualname__}")
    return frame.wrap(row[1], _const(row[1])).call(frame, [ListValue(children), frame.constant(spec.context)], {})
