"""What a node that stands for `SomeFunction.apply(...)` calls: an autograd.Function whose halves are captured graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import fx

__all__ = ["AutogradCall", "BackwardHalf", "Halves", "INPUT", "KEPT", "SAVED", "TANGENT"]

INPUT, SAVED, KEPT, TANGENT = "input", "saved", "kept", "tangent"
"""Where the backward graph finds a value: an argument of the call, what save_for_backward or an attribute of ctx held, a gradient."""


@dataclass(frozen=True)
class BackwardHalf:
    """The backward's graph, and for each of its placeholders where the value is."""

    module: fx.GraphModule
    inputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Halves:
    """The graphs and how values travel between them."""

    forward: fx.GraphModule
    forward_inputs: tuple[int, ...]  # places among the call's arguments, one for each placeholder
    results: int  # leading outputs of forward that the call gives; then what is saved, then what is kept
    saved: int
    without_gradient: tuple[int, ...]  # results marked as not differentiable
    backwards: dict[int, BackwardHalf]  # by the results with a gradient, as the bits of a number
    materialize: bool  # whether results without one get zeros: then there is one backward for all
    arguments: int  # leading arguments of the call that take part in autograd; the others are only read
    once: bool  # whether the backward was marked once_differentiable
    dirty: tuple[int, ...]  # arguments that the forward writes to, and which are results
    forward_mode: BackwardHalf | None = (
        None  # the Function's jvp, where a transform calls it: gradients are those of the arguments
    )
    batched: BatchedHalf | None = None  # the Function's own rule for the innermost vmap around

    def gradients(self, given: Sequence[Any], places: dict[str, Any]) -> tuple[Any, ...]:
        """What the backward makes of gradients of the results, None where there is none. `places`: the values by their kind."""
        mask = sum(1 << place for place, gradient in enumerate(given) if gradient is not None)
        if not mask:
            return (None,) * self.arguments
        backward = self.backwards[mask]
        values = {**places, TANGENT: [g if g is None else g.contiguous() for g in given]}
        return backward.module.forward(*[values[kind][i] for kind, i in backward.inputs])  # type: ignore[no-any-return]

    def arguments_read(self) -> list[int]:
        """Places of the call's arguments that a backward or the jvp reads."""
        halves = [*self.backwards.values(), *([] if self.forward_mode is None else [self.forward_mode])]
        inputs = (place for half in halves for place in half.inputs)
        return list(dict.fromkeys(i for kind, i in inputs if kind == INPUT))


@dataclass(frozen=True)
class BatchedHalf:
    """What a Function's vmap rule made of arguments that have the batch in front, where they have one: the graph, for each of its
    placeholders the place among the call's arguments, where they have one, and where its results have one (None for none)."""

    module: fx.GraphModule
    inputs: tuple[int, ...]
    in_front: tuple[bool, ...]
    out_dims: tuple[int | None, ...]

    def results(self, in_dims: Sequence[int | None], args: Sequence[Any]) -> Any:
        """The results of a call whose arguments have their batch at `in_dims`."""
        if tuple(dim is not None for dim in in_dims) != self.in_front:
            raise NotImplementedError(
                "arguments of an autograd.Function under vmap that have no batch, or have one, unlike when it was traced"
            )
        given = [arg if dim is None else arg.movedim(dim, 0) for dim, arg in zip(in_dims, args)]
        return self.module.forward(*[given[place] for place in self.inputs])


class AutogradCall:
    """Calls a captured autograd.Function; target of a call_function node. transformed: under a transform of torch.func."""

    def __init__(self, name: str, halves: Halves, transformed: bool) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self.halves = halves
        self.runs = halves.forward
        self.function = (_transformed_function if transformed else _function)(name, halves)

    def __repr__(self) -> str:
        return f"{self.__name__}.apply"

    def __call__(self, *args: Any) -> Any:
        count = self.halves.arguments
        read = [a.detach() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args[count:]]
        return self.function.apply(*args[:count], *read)[: self.halves.results]


def _function(name: str, halves: Halves) -> Any:
    """The class."""
    read = halves.arguments_read()

    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        found = halves.forward.forward(*[args[i] for i in halves.forward_inputs])
        results: tuple[Any, ...] = found[: halves.results]
        rest = found[halves.results :]
        tensors = [i for i in read if isinstance(args[i], torch.Tensor)]
        ctx.tensors = tensors
        ctx.others = {i: args[i] for i in read if i not in tensors}
        ctx.kept = rest[halves.saved :]
        ctx.save_for_backward(*rest[: halves.saved], *[args[i] for i in tensors])
        ctx.set_materialize_grads(halves.materialize)
        ctx.mark_dirty(*[args[i] for i in halves.dirty])
        ctx.mark_non_differentiable(*[results[i] for i in halves.without_gradient])
        return results

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        held = ctx.saved_tensors
        inputs = {**ctx.others, **dict(zip(ctx.tensors, held[halves.saved :]))}
        found = halves.gradients(gradients, {SAVED: held[: halves.saved], KEPT: ctx.kept, INPUT: inputs})
        return (*found, *(None for _ in range(len(ctx.needs_input_grad) - len(found))))

    body = {
        "forward": staticmethod(forward),
        "backward": staticmethod(once_differentiable(backward) if halves.once else backward),
    }
    return type(name, (torch.autograd.Function,), body)


def _transformed_function(name: str, halves: Halves) -> Any:
    """The class as transforms of torch.func take it: what the backward reads of the forward is a result, too, each once."""
    made = next(iter(reversed(halves.forward.graph.nodes))).args[0]
    distinct = list(dict.fromkeys(made))
    places = [distinct.index(node) for node in made]
    read = halves.arguments_read()

    def forward(*args: Any) -> tuple[Any, ...]:
        found = halves.forward.forward(*[args[i] for i in halves.forward_inputs])
        return tuple([found[made.index(node)] for node in distinct])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        tensors = [i for i in read if isinstance(inputs[i], torch.Tensor)]
        ctx.tensors = tensors
        ctx.others = {i: inputs[i] for i in read if i not in tensors}
        held = [*[output[place] for place in places[halves.results :]], *[inputs[i] for i in tensors]]
        ctx.save_for_backward(*held)
        ctx.save_for_forward(*held)
        ctx.set_materialize_grads(halves.materialize)
        inner = [output[i] for i in range(len(distinct)) if i not in places[: halves.results]]
        ctx.mark_non_differentiable(*inner, *[output[places[i]] for i in halves.without_gradient])

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        held, count = ctx.saved_tensors, len(places) - halves.results
        inputs = {**ctx.others, **dict(zip(ctx.tensors, held[count:]))}
        given = [gradients[place] for place in places[: halves.results]]
        found = halves.gradients(given, {SAVED: held[: halves.saved], KEPT: held[halves.saved : count], INPUT: inputs})
        return (*found, *(None for _ in range(len(ctx.needs_input_grad) - len(found))))

    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        held, count = ctx.saved_tensors, len(places) - halves.results
        inputs = {**ctx.others, **dict(zip(ctx.tensors, held[count:]))}
        assert halves.forward_mode is not None
        values = {SAVED: held[: halves.saved], KEPT: held[halves.saved : count], INPUT: inputs, TANGENT: tangents}
        found = halves.forward_mode.module.forward(*[values[kind][i] for kind, i in halves.forward_mode.inputs])
        return tuple([found[places.index(i)] if i in places[: halves.results] else None for i in range(len(distinct))])

    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        assert halves.batched is not None
        found = halves.batched.results(in_dims, args)
        order = [places.index(i) for i in range(len(distinct))]
        return tuple([found[i] for i in order]), tuple([halves.batched.out_dims[i] for i in order])

    body: dict[str, Any] = {"forward": staticmethod(forward), "setup_context": staticmethod(setup_context)}
    if halves.backwards:
        body["backward"] = staticmethod(once_differentiable(backward) if halves.once else backward)
    if halves.forward_mode is not None:
        body["jvp"] = staticmethod(jvp)
    body |= {"generate_vmap_rule": True} if halves.batched is None else {"vmap": staticmethod(vmap)}
    return type(name, (torch.autograd.Function,), body)
