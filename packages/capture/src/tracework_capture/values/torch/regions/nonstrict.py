"""Calls of functions marked with nonstrict_trace, or with leaf_function: one node of the graph, whatever the structure of arguments and results.
A leaf function is an operator that runs the function itself; its fake says what it gives.

Arguments are flattened into tensors and sizes, which the node gets, and a template, which the node's target holds; the target puts
them together again and calls the function. Modules give their parameters and buffers, so that gradients reach them, and so do tensors
that the function reaches by itself: a call on fakes shows which these are, and the target puts the node's inputs in their places.
Results are flattened by torch.utils._pytree and unflattened as Values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from tracework_primops import FakeTensor

from .... import _torch
from ....errors import ControlMisuse, NotPlain
from ....graph.builder import examples, graph_argument
from ....graph.operators import ResultFacts, leaf_operator
from ....marks import Leaf
from ....sources import Const
from ...number.symint import SymNumber
from ...objects.controls import MARKED
from ...plain.mapping import DictValue, dict_of
from ...plain.sequence import ListValue, SequenceValue, TupleValue
from ...protocol.constant import ConstantValue, literal, plain
from ...protocol.value import Frame, Value
from ..module import ModuleValue
from ..tensor import TensorValue
from .control_flow import is_fixed

Build = Any  # Callable[[tuple[Any, ...]], Any]; what makes one argument from the node's inputs


def call_nonstrict(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """One node for function(*args, **kwargs)."""
    parts = Parts(frame, function, args, kwargs)
    target = Target(function, parts)
    for tensor in target.tensors_reached(frame, parts.leaves):
        target.reached[id(tensor)] = len(parts.leaves)
        parts.leaves.append(frame.wrap(tensor, _const(tensor, "reached")))
    flat = frame.graph.call(frame, target.as_function(), tuple(parts.leaves))
    return together(frame, target.result, iter(cast(SequenceValue, flat).all_items(frame)))


MARKED["nonstrict_trace"] = lambda obj, mark, frame, args, kwargs: call_nonstrict(frame, obj, args, kwargs)


class Parts:
    """Tensors and sizes of the arguments, in order, the modules among them, and what makes the arguments again."""

    def __init__(self, frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> None:
        self.frame, self.function = frame, function
        self.leaves: list[Value] = []
        self.modules: list[tuple[torch.nn.Module, dict[str, int]]] = []
        self.args = [self.take(a) for a in args]
        self.kwargs = {name: self.take(value) for name, value in kwargs.items()}

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
        row = _torch.functions.pytree_row(value.python_type())
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
        """An object of a class known to pytree: its own function flattens it, traced."""
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
        args, kwargs = _torch.functions.tree_map_only(torch.Tensor, self.other, (args, kwargs or {}))
        return func(*args, **kwargs)


class Target:
    """What the node calls. `result` is the structure of the last result."""

    def __init__(self, function: Any, parts: Parts) -> None:
        self.function, self.args, self.kwargs, self.modules = function, parts.args, parts.kwargs, parts.modules
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
        flat, self.result = _torch.functions.pytree_flatten(found)
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
    row = _torch.functions.pytree_row(spec.type)
    if row is None:
        frame.break_graph("call_unknown", f"a result of type {spec.type.__qualname__}")
    return frame.wrap(row[1], _const(row[1])).call(frame, [ListValue(children), frame.constant(spec.context)], {})


def call_leaf(frame: Frame, leaf: Leaf, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """One node for leaf.real(*args, **kwargs)."""
    name = getattr(leaf.real, "__qualname__", "leaf")
    if leaf.fake is None:
        raise ControlMisuse(
            f"{name} is a leaf function without a fake, which says what it gives. Write one with @{name}.register_fake."
        )
    if leaf.writes or frame.modes.transforms:
        frame.break_graph("call_disabled", f"leaf function {name}, which writes to its arguments or is under a transform")
    parts = Parts(frame, leaf.real, args, kwargs)
    fake, real = Target(leaf.fake, parts), Target(leaf.real, parts)
    given = tuple(graph_argument(frame, leaf) for leaf in parts.leaves)
    found = frame.graph.run_on_fakes(frame, fake.as_function(), given, {}, "call_function")
    tensors = [t for t in found if isinstance(t, torch.Tensor)]
    fakes = examples(given)
    if not tensors or not all(isinstance(t, torch.Tensor) and is_fixed(t) for t in (*tensors, *fakes)):
        frame.break_graph("call_disabled", f"leaf function {name}, which takes or gives sizes that are symbols, or no tensor")
    places = [i for i, t in enumerate(found) if isinstance(t, torch.Tensor)]

    def run(*leaves: torch.Tensor) -> list[Any]:
        flat = real.run(leaves)
        return [flat[i] for i in places]

    operator, is_recorded = leaf_operator(name, run, name, fakes, tuple(map(ResultFacts.of, tensors)))
    made = frame.graph.call(frame, operator, given)
    results = iter(made.unpack(frame) if len(tensors) + is_recorded > 1 else [made])
    return together(frame, fake.result, iter([next(results) if i in places else literal(frame, t) for i, t in enumerate(found)]))


MARKED["leaf_function"] = lambda obj, mark, frame, args, kwargs: call_leaf(frame, mark.traceable, args, kwargs)
