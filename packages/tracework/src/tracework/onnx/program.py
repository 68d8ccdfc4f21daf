"""Program: a graph whose parts are run by an engine, as the callable that aotautograd asks of a graph compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.fx
from tracework_primops import Expr, PrimGraph, SizeSpec, Symbol, TensorSpec, prims
from tracework_primops.graph.prim_graph import bind_symbols

from .. import _torch
from .model import EMPTY, Model, convert, is_dense, why_not
from .parts import Part, cut
from .writer import Traits, Writer

Tensors = list[torch.Tensor]


class Loaded(Protocol):
    """A model in an engine: takes the inputs that it reads, dense and in order, and gives its outputs.

    `empty` makes tensors for the outputs to be written to, on the inputs' device; what the engine has made itself is as good.
    """

    def __call__(self, inputs: Tensors, empty: Callable[[], Tensors]) -> Tensors: ...


class Engine(Protocol):
    """What loads models, and raises an error of its own for one that it cannot run."""

    name: str
    traits: Traits

    def load(self, model: Model) -> Loaded: ...


class PartOnEngine:
    """One part, called with its inputs. What the engine fails at at run time, and what has no elements, is run by eager's kernels."""

    def __init__(self, part: Part, engine: Engine, index_checks: bool, report: Callable[[str], None]) -> None:
        self.part, self._report = part, report
        self.model = convert(part.prims, engine.traits, index_checks)
        self._load = engine.load(self.model)
        self._name = engine.name
        self._integers_below = engine.traits.integers_below
        specs = [n.meta["spec"] for n in part.prims.placeholders]
        orders = self.model.orders
        self._reads = [
            (i, orders[i], orders[i] != tuple(sorted(orders[i])), isinstance(specs[i], SizeSpec))
            for i, name in enumerate(self.model.inputs)
            if name is not None
        ]
        self._outputs = self._described()
        self._sized = sized(specs) if any(out.is_symbolic for out, _ in self._outputs.values()) else []

    def _described(self) -> dict[int, tuple[TensorSpec, tuple[int, ...]]]:
        """Place of an output of the model -> the spec of the graph's result, and the order of its dims."""
        nodes = [n for n in self.part.prims.outputs if isinstance(n, torch.fx.Node)]
        return {
            place: (node.meta["spec"], self.model.output_orders[place])
            for node, place in zip(nodes, self.model.results)
            if place is not None and place >= 0
        }

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        symbols = symbols_of(self._sized, inputs)
        feeds: Tensors = []
        for i, order, moved, is_size in self._reads:
            x = inputs[i]
            if is_size:
                feeds.append(torch.tensor(int(x)))
                continue
            x = x.detach()
            if x.is_neg():
                x = x.resolve_neg()
            if moved:
                x = x.permute(order)
            x = x.contiguous()
            if not x.numel():  # engines differ in what they do with nothing
                return self.part.prims.run(*inputs)
            if self._integers_below is not None and _reach(x) >= self._integers_below:
                return self._by_eager(inputs)
            feeds.append(x)
        try:
            found = self._load(feeds, lambda: self._empty(symbols))
        except Exception as error:  # an index out of range, a size that its kernels do not take: eager's kernels tell
            result = self.part.prims.run(*inputs)
            self._report(f"{self._name} failed at run time: {type(error).__name__}: {str(error).splitlines()[0]}")
            return result
        if self.model.checked and int(found[-1]):
            return self._by_eager(inputs)
        return tuple(self._result(place, found, inputs, symbols) for place in self.model.results)

    def _by_eager(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """A call with values that the engine does not compute with. Raises eager's error for those that eager does not either."""
        result = self.part.prims.run(*inputs)
        self._report(
            f"{self._name} does not compute with some values of a call (NaN, large integers), which runs by eager's kernels"
        )
        return result

    def _empty(self, symbols: dict[Symbol, int]) -> Tensors:
        made: Tensors = []
        device = torch.device("cpu")
        for place in range(len(self._outputs)):
            spec, order = self._outputs[place]
            device = spec.device
            made.append(torch.empty([_number(spec.sizes[d], symbols) for d in order], dtype=spec.dtype, device=device))
        if self.model.checked:
            made.append(torch.empty((), dtype=torch.int64, device=device))
        return made

    def _result(self, place: int | None, found: Tensors, inputs: Sequence[Any], symbols: dict[Symbol, int]) -> Any:
        if place is None:
            return None
        if place < 0:
            return inputs[-1 - place]
        spec, order = self._outputs[place]
        result = found[place].permute([order.index(d) for d in range(len(order))])
        return result if is_dense(spec) else _laid_out(result, [_number(s, symbols) for s in spec.strides])


def _reach(x: torch.Tensor) -> int:
    """The largest size of an integer; 0 for what is no integer, or has few bits."""
    if x.dtype.is_floating_point or x.dtype.itemsize < 4:
        return 0
    least, largest = x.aminmax()
    return max(-int(least), int(largest))


def sized(specs: Sequence[Any]) -> list[tuple[int, Any]]:
    """Places of the inputs that tell what a symbol is, with their specs."""
    return [(i, s) for i, s in enumerate(specs) if isinstance(s, SizeSpec) or (isinstance(s, TensorSpec) and s.is_symbolic)]


def symbols_of(places: list[tuple[int, Any]], inputs: Sequence[Any]) -> dict[Symbol, int]:
    """The symbols of a call."""
    return bind_symbols([spec for _, spec in places], [inputs[i] for i, _ in places])


def _number(size: Any, symbols: dict[Symbol, int]) -> int:
    return size.evaluate(symbols) if isinstance(size, Expr) else int(size)


def _laid_out(x: torch.Tensor, strides: list[int]) -> torch.Tensor:
    """The same elements with these strides; where one is 0, the first of a dim stands for all."""
    made = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    target = made
    for d, stride in enumerate(strides):
        if stride == 0:
            target, x = target.narrow(d, 0, 1), x.narrow(d, 0, 1)
    target.copy_(x)
    return made


class Program:
    """A graph on an engine: its parts, and between them calls that the engine's models cannot hold.

    Args:
        report: told (reason, place) of what runs by eager's kernels.
    """

    def __init__(self, graph: PrimGraph, engine: Engine, report: Callable[[str, str], None], index_checks: bool = True) -> None:
        self._sized = sized([n.meta["spec"] for n in graph.placeholders])
        scratch = Writer(engine.traits, trial=True)
        self.graph = graph
        self._placeholders, self._results = graph.placeholders, graph.outputs
        found = cut(graph, lambda node: why_not(node, scratch))
        self.reasons = found.reasons
        self._steps: list[PartOnEngine | torch.fx.Node] = []
        for step in found.steps:
            if isinstance(step, Part):
                place = next((str(n.meta["origin"]) for n in step.prims.calls if n.meta.get("origin")), "")
                self._steps.append(PartOnEngine(step, engine, index_checks, lambda reason, place=place: report(reason, place)))  # type: ignore[misc]  # mypy infers no lambda with a default
            else:
                self._steps.append(step)
        told: dict[tuple[str, str], str] = {}
        for node, reason in found.reasons.items():
            told.setdefault((str(getattr(node.target, "name", node.target)), reason), str(node.meta.get("origin") or ""))
        for (name, reason), place in told.items():
            if reason != EMPTY:
                report(f"{engine.name}: {name} runs by eager's kernel: {reason}", place)

    @property
    def parts(self) -> list[PartOnEngine]:
        """What the engine runs."""
        return [s for s in self._steps if isinstance(s, PartOnEngine)]

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        values: dict[Any, Any] = dict(zip(self._placeholders, inputs))
        symbols = symbols_of(self._sized, inputs)
        inputs.clear()
        for step in self._steps:
            if isinstance(step, PartOnEngine):
                given = [symbols[s] if isinstance(s, Symbol) else values[s] for s in step.part.sources]
                values.update(zip(step.part.results, step(given)))
            elif step.target is prims.copy_into:
                values[step] = _torch.write(*_resolved(step.args, values, symbols))
            else:
                values[step] = step.target(*_resolved(step.args, values, symbols), **_resolved(step.kwargs, values, symbols))  # type: ignore[operator]  # a call of a function
        return tuple(_resolved(self._results, values, symbols))


def _resolved(value: Any, values: dict[Any, Any], symbols: dict[Symbol, int]) -> Any:
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, Expr):
        return value.evaluate(symbols)
    if isinstance(value, (tuple, list)):
        found = [_resolved(v, values, symbols) for v in value]
        return found if isinstance(value, list) else tuple(found)
    if isinstance(value, dict):
        return {k: _resolved(v, values, symbols) for k, v in value.items()}
    return value
