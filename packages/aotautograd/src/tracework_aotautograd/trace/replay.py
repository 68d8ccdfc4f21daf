"""A captured graph run once more under autograd, for gradients of gradients: what it detaches, computes under `no_grad` or gives a gradient
by an autograd.Function counts then as it does in eager, and so does what formulas of the backward read.

The joint graph cannot be differentiated instead: it holds values, and not which of them have a history.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from tracework_primops import FakeTensor

from .. import _torch
from .._torch import edge_of
from ..errors import UsageError
from ..signature import Component, Mutation, SharedMemory, Signature
from .cuts import Edge, gradients_at
from .memory import dense_order
from .shared import row_of

Run = Callable[[fx.GraphModule, Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Replay:
    """How to run a captured graph again, and to find the autograd nodes of its results among those that are made then.

    written: slots of inputs with new values that are results. untracked: places of outputs whose base has the history that they lack.
    edges: for each tangent of the trace, then each view that a component takes, where its result is in `_walk`, which meets nodes of
    these `names`. inside: slots of inputs that stand for something computed inside. rewritten: slots of graph outputs that have been
    written to, so that the value that others are computed from may be a former one. former_values: as for the trace.
    """

    graph: fx.GraphModule
    modes: _torch.Modes
    written: tuple[int, ...] = ()
    untracked: tuple[int, ...] = ()
    edges: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    inside: frozenset[int] = frozenset()
    rewritten: frozenset[int] = frozenset()
    former_values: bool = False

    def finding(self, values: Sequence[Any], outputs: Sequence[Any], results: Sequence[Any], ends: Collection[Any]) -> Replay:
        """With where the values with tangents, `results`, are after a run on `values` that gave `outputs`. ends: nodes where inputs
        begin."""
        wanted = [edge_of(value) for value in results]
        missing, order, names = set(wanted), {}, []
        for number, edge in enumerate(_walk(self._starts(values, outputs), ends)):
            missing.discard(edge)
            order[edge] = number
            names.append(_name(edge, ends))
            if not missing:
                break
        return replace(self, edges=tuple(order[edge] for edge in wanted), names=tuple(names))

    def results(self, values: Sequence[Any], outputs: Sequence[Any], ends: Collection[Any]) -> list[Edge]:
        """The edges of the results of a run on `values` that gave `outputs`. Raises UsageError where the history is another one."""
        met: list[Edge] = []
        for edge, name in zip(_walk(self._starts(values, outputs), ends), self.names, strict=False):
            if _name(edge, ends) != name:
                break
            met.append(edge)
        if len(met) < len(self.names):
            raise UsageError(
                "a gradient of a gradient of a compiled graph whose history is another one when it is run again: do its operators look at "
                "state that has changed since? Run this part uncompiled"
            )
        return [met[number] for number in self.edges]

    def _starts(self, values: Sequence[Any], outputs: Sequence[Any]) -> list[Edge]:
        inputs = {id(value) for value in values}
        shown = [o for o in outputs if isinstance(o, torch.Tensor) and id(o) not in inputs]
        shown += [outputs[place]._base for place in self.untracked]
        return [edge_of(t) for t in (*shown, *[values[i] for i in self.written]) if t.requires_grad and t.grad_fn is not None]


def _walk(starts: Sequence[Edge], ends: Collection[Any]) -> Iterator[Edge]:
    """The edges behind these, in an order that the history alone decides. It goes not behind `ends`."""
    seen: set[Any] = set()
    waiting = [*starts]
    while waiting:
        following = []
        for edge in waiting:
            if edge not in seen:
                seen.add(edge)
                yield edge
                following.append(edge[0])
        waiting = []
        for node in following:
            if node not in seen and node not in ends:
                seen.add(node)
                waiting += [edge for edge in node.next_functions if edge[0] is not None]


def _name(edge: Edge, ends: Collection[Any]) -> str:
    return "" if edge[0] in ends or hasattr(edge[0], "variable") else edge[0].name()


class GradientsOf:
    """The gradients of a component of a captured graph, as a function that autograd differentiates again.

    It takes the graph's inputs, one for each slot, None where the gradients do not depend on it; the results that the component takes,
    then its own, each of them or None; its tangents. It gives what the component's backward does, None for what nothing comes to.
    examples: fakes like the inputs.
    """

    def __init__(self, replay: Replay, signature: Signature, component: Component, examples: Sequence[Any]) -> None:
        self.__name__ = "gradients"
        self._replay = replay
        self._component = component
        self._count = len(signature.inputs)
        self._requires_grad = [info.requires_grad for info in signature.inputs]
        self._examples = examples
        self._written = {i for i, info in enumerate(signature.inputs) if info.mutation is not Mutation.NONE}
        slots = [*(info.slot for info in signature.tangents), *(info.slot for info in signature.views)]
        self._taken = [slots.index(slot) for slot in component.results]
        self._shared = signature.shared

    @property
    def reads_former_values(self) -> bool:
        """Whether checkpoints in the captured graph need what they computed, where it was written over since."""
        return self._replay.former_values

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """On real tensors. That they depend on results is not known then: gradients go on to what those are computed from."""
        inputs = [_alias(x) for x in args[: self._count]]
        return self.run([*inputs, *args[self._count :]], _run_as_it_is, {})

    def run(self, args: Sequence[Any], run: Run, inside: dict[Edge, Any]) -> tuple[Any, ...]:
        """`run(graph, values)` runs the captured graph. inside: edges where a gradient that arrives is one with respect to a tensor that
        is computed elsewhere, which takes up the results among `args`."""
        component, count = self._component, self._count
        values = [self._stand_in(slot) if x is None else x for slot, x in enumerate(args[:count])]
        values = [x.clone() if slot in self._written else x for slot, x in enumerate(values)]
        for memory in self._shared:
            if all(isinstance(args[slot], torch.Tensor) for slot, _ in memory.parts):
                self._copy_parts(memory, args, values)
        begins = {slot: values[slot] if values[slot].is_leaf else edge_of(values[slot]) for slot in component.inputs}
        ends = {x.grad_fn for x in values if isinstance(x, torch.Tensor)} - {None}
        with self._replay.modes.again():
            outputs = run(self._replay.graph, values)
        ends.update(node for node, _ in inside)
        edges = self._replay.results(values, outputs, ends)
        taken = [edges[place] for place in self._taken]
        own = [edges[place] for place in component.tangents]
        wanted = [[begin, *(e for e, x in inside.items() if x is values[slot])] for slot, begin in begins.items()]
        wanted += [[edge] for edge in taken]
        tangents = args[count + len(taken) + len(own) :]
        stops: dict[Edge, Any] = dict.fromkeys((*taken, *inside))
        if not wanted:  # history that leads to nowhere
            return ()
        with _torch.without_autocast():
            grad = functools.partial(torch.autograd.grad, allow_unused=True, create_graph=True)
            gradients = gradients_at(wanted, own, tangents, stops, grad)
        for edge, result in zip((*taken, *own), args[count:], strict=False):
            if result is not None:
                inside[edge] = result
        return tuple(gradients)

    @staticmethod
    def _copy_parts(memory: SharedMemory, args: Sequence[Any], values: list[Any]) -> None:
        """Gives inputs that overlap a memory of their own, in which they do as well."""
        row = row_of(memory, args).clone()
        for slot, begin in memory.parts:
            given = args[slot]
            part = row.as_strided(given.size(), given.stride(), begin).data  # they count versions apart
            values[slot] = FormerValue.apply(part, given) if given.requires_grad else part

    def _stand_in(self, slot: int) -> Any:
        """For an input that nothing depends on: it is not a number where it can be, so that nothing could unseen."""
        like = self._examples[slot]
        if not isinstance(like, FakeTensor):
            return None
        with torch.no_grad():
            made = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=like.device)
            made.fill_(float("nan") if like.is_floating_point() or like.is_complex() else 0)
        return made.requires_grad_(self._requires_grad[slot])


class FormerValue(torch.autograd.Function):
    """The value that a tensor had, with the tensor's history."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, gradient


def raises_if_differentiated(gradients: Sequence[Any]) -> bool:
    """Whether history of the gradients leads to a node that raises, as that of a backward which is marked as once differentiable."""
    starts = [edge_of(g) for g in gradients if isinstance(g, torch.Tensor) and g.grad_fn is not None]
    return any(node.name() == "torch::autograd::Error" for node, _ in _walk(starts, ()))


def can_be_stood_for(like: Any) -> bool:
    """Whether an input like this one need not be kept where no gradient depends on it."""
    if not isinstance(like, FakeTensor) or not all(isinstance(n, int) for n in like.spec.sizes):
        return False
    return dense_order(like) is not None


def _run_as_it_is(graph: fx.GraphModule, values: Sequence[Any]) -> Any:
    """On real tensors, as in the forward, also where several gradients at once are what it is run for."""
    if _torch.any_batched([x for x in values if isinstance(x, torch.Tensor)]):
        return graph.forward(*values)
    with _torch.outside_of_transforms():
        return graph.forward(*values)


def _alias(value: Any) -> Any:
    """An input without the history behind it: another input may be computed from this one."""
    return value.view_as(value) if isinstance(value, torch.Tensor) and value.requires_grad else value
