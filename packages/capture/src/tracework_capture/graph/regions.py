"""Graphs of their own: nodes that were recorded one after the other are moved into one (outlining), which one node of the outer graph calls.

Nodes that compute with sizes stay outside: other parts of the outer graph may read them. What the node calls depends on what was traced:
`SomeFunction.apply(...)` is an autograd.Function whose halves are captured graphs, a function under a transform of torch.func the transform of a
captured graph over flat tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.autograd.function import once_differentiable

from .._torch.tensors import make_subclass
from ..errors import BreakGraph
from .captured_call import CapturedCall

if TYPE_CHECKING:
    from .builder import GraphBuilder


@dataclass(frozen=True)
class Outlined:
    """A graph of its own, and the nodes of the outer graph that stand for its placeholders."""

    module: fx.GraphModule
    inputs: tuple[fx.Node, ...]

    def among(self, nodes: Sequence[fx.Node | None]) -> Placed:
        """The graph as a function of what all of these nodes give."""
        return Placed(self.module, tuple(map(list(nodes).index, self.inputs)))

    def giving(self, written: Sequence[fx.Node]) -> Outlined:
        """The same graph working on copies of these nodes of the outer graph, which it gives after its results, in the place of writing to
        them."""
        graph = self.module.graph
        places = dict(zip(self.inputs, (node for node in graph.nodes if node.op == "placeholder")))
        first = next(node for node in graph.nodes if node.op != "placeholder")
        output = next(iter(reversed(graph.nodes)))
        copies = []
        for node in written:
            with graph.inserting_before(first):
                if node not in places:  # the other arm writes to it
                    places[node] = graph.placeholder(node.name)
                    places[node].meta["example_value"] = places[node].meta["val"] = node.meta["example_value"]
        for place in map(places.__getitem__, written):
            with graph.inserting_before(first):
                copy = graph.call_method("clone", (place,))
            place.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
            copies.append(copy)
        output.args = ((*output.args[0], *copies),)
        self.module.recompile()
        return Outlined(self.module, tuple(places))


def outline(builder: GraphBuilder, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node | None], name: str) -> Outlined:
    """Moves `nodes` out of the outer graph into a module that gives `outputs`, which may also be nodes from outside, as a tuple.

    Raises BreakGraph where hooks that run at backward time are set up inside, since only the outer graph is cut there, and where sizes
    depend on data inside.
    """
    if any(n.meta.get("of_history") and n.meta.get("data_dependent") for n in nodes):
        raise BreakGraph("hook", f"a module with backward hooks in {name}, which is a graph of its own")
    inside = set(nodes)
    if any(user not in inside for node in nodes for user in node.users):  # arithmetic on sizes, which stays outside
        raise BreakGraph("dynamic_output_shape", f"a size of what {name}, which is a graph of its own, makes out of data")
    read = dict.fromkeys(a for n in nodes for a in n.all_input_nodes)
    read.update(dict.fromkeys(o for o in outputs if o is not None))
    inputs = tuple(n for n in read if n not in inside)
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta["example_value"] = made[node].meta["val"] = node.meta["example_value"]
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(None if o is None else made[o] for o in outputs))
    for node in reversed(nodes):
        builder.graph.erase_node(node)
    return Outlined(fx.GraphModule(torch.nn.Module(), graph, name), inputs)


@dataclass(frozen=True)
class Placed:
    """A captured graph as a function of more values than it reads: `places` has, for each of its placeholders, that of its value."""

    module: fx.GraphModule
    places: tuple[int, ...]

    def __call__(self, *values: Any) -> Any:
        return self.module.forward(*[values[place] for place in self.places])

    @property
    def text(self) -> tuple[str, tuple[int, ...]]:
        """What it computes."""
        return self.module.code, self.places


# --- what nodes call -------------------------------------------------------------------------------------------------------


class WithoutGradient(CapturedCall):
    """Calls a captured graph with grad mode off."""

    def __call__(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            found: tuple[torch.Tensor, ...] = self.runs.forward(*args)
        return found


# --- leaves that gradients accumulate into ---------------------------------------------------------------------------------


def leaf(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """The tensor that a parameter is: the parameter itself where the graph runs as it is, since history leads to it."""
    made = data.detach()
    if type(made) is torch.Tensor:
        return make_subclass(torch.nn.Parameter, made, requires_grad)
    return made.requires_grad_(requires_grad)


def copy_like(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """A copy of a gradient, laid out as its leaf."""
    return torch.empty_like(leaf, requires_grad=False).copy_(gradient)


def gradients_before_hooks(outputs: Any, inputs: Any, **options: Any) -> tuple[torch.Tensor | None, ...]:
    """torch.autograd.grad without the hooks of the leaves among the inputs, which the graph calls itself."""
    leaves = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    hooks = [(leaf, leaf._backward_hooks) for leaf in leaves if leaf.is_leaf and leaf._backward_hooks]
    try:
        for leaf, _ in hooks:
            leaf._backward_hooks = None
        return torch.autograd.grad(outputs, inputs, **options)
    finally:
        for leaf, held in hooks:
            leaf._backward_hooks = held


class _WithData(torch.autograd.Function):
    """The data, with the history of the tensor."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.data  # which is no view of it

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def with_data(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """What the tensor is once it was given other data of its kind, in whatever grad mode."""
    with torch.enable_grad():
        found: torch.Tensor = _WithData.apply(tensor, data)
        return found


# --- autograd.Function -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Halves:
    """The graphs and how values travel between them. Backwards and the jvp are functions of gradients, the arguments of the call, what is saved
    and what is kept."""

    forward: Placed  # of the call's arguments
    results: int  # leading outputs of forward that the call gives; then what is saved, then what is kept
    saved: int
    without_gradient: tuple[int, ...]  # results marked as not differentiable
    backwards: dict[int, Placed]  # by the results with a gradient, as the bits of a number
    materialize: bool  # whether results without one get zeros: then there is one backward for all
    arguments: int  # leading arguments of the call that take part in autograd; the others are only read
    read: tuple[int, ...]  # arguments of the call that a backward or the jvp reads
    once: bool  # whether the backward was marked once_differentiable
    dirty: tuple[int, ...]  # arguments that the forward writes to, and which are results
    forward_mode: Placed | None = None  # the Function's jvp, where a transform calls it: gradients are those of the arguments
    batched: BatchedHalf | None = None  # the Function's own rule for the innermost vmap around

    def gradients(self, ctx: Any, *given: Any) -> tuple[Any, ...]:
        """What the backward makes of gradients of the results, for each argument of the call; None where there is none."""
        mask = sum(1 << place for place, gradient in enumerate(given) if gradient is not None)
        tangents = [g if g is None else g.contiguous() for g in given]
        found = self.backwards[mask](*tangents, *self.kept(ctx)) if mask else ()
        return (*found, *(None for _ in range(len(ctx.needs_input_grad) - len(found))))

    def keep(self, ctx: Any, inputs: Sequence[Any], held: Sequence[torch.Tensor], kept: Sequence[Any] = ()) -> list[torch.Tensor]:
        """Keeps for the backward what is `held` as save_for_backward has it, what is `kept` otherwise, and the arguments that it reads; gives the
        tensors that autograd knows of."""
        ctx.tensors = [i for i in self.read if isinstance(inputs[i], torch.Tensor)]
        ctx.others = {i: inputs[i] if i in self.read and i not in ctx.tensors else None for i in range(len(inputs))}
        ctx.kept = kept
        saved = [*held, *[inputs[i] for i in ctx.tensors]]
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(self.materialize)
        return saved

    def kept(self, ctx: Any) -> list[Any]:
        """The arguments of the call that are read, None for others, and what was saved and kept."""
        held = ctx.saved_tensors
        count = len(held) - len(ctx.tensors)
        inputs = ctx.others | dict(zip(ctx.tensors, held[count:]))
        return [*inputs.values(), *held[:count], *ctx.kept]


@dataclass(frozen=True)
class BatchedHalf:
    """What a Function's vmap rule made of the call's arguments, with the batch in front where they have one: the graph, where they have one, and
    where its results have one (None for none)."""

    rule: Placed
    in_front: tuple[bool, ...]
    out_dims: tuple[int | None, ...]

    def results(self, in_dims: Sequence[int | None], args: Sequence[Any]) -> Any:
        """The results of a call whose arguments have their batch at `in_dims`."""
        if tuple(dim is not None for dim in in_dims) != self.in_front:
            raise NotImplementedError(
                "arguments of an autograd.Function under vmap that have no batch, or have one, unlike when it was traced"
            )
        return self.rule(*[arg if dim is None else arg.movedim(dim, 0) for dim, arg in zip(in_dims, args)])


class AutogradCall(CapturedCall):
    """Calls a captured autograd.Function. transformed: under a transform of torch.func."""

    def __init__(self, name: str, halves: Halves, transformed: bool) -> None:
        super().__init__(name, halves.forward.module)
        self.halves, self.transformed = halves, transformed
        self.function = (_transformed_function if transformed else _function)(name, halves)

    def __repr__(self) -> str:
        return f"{self.__name__}.apply"

    def graphs(self) -> list[fx.Graph]:
        halves = self.halves
        rule = None if halves.batched is None else halves.batched.rule
        placed = [halves.forward, *halves.backwards.values(), halves.forward_mode, rule]
        return [each.module.graph for each in placed if each is not None]

    def __call__(self, *args: Any) -> Any:
        count = self.halves.arguments
        read = [a.detach() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args[count:]]
        return self.function.apply(*args[:count], *read)[: self.halves.results]


def _function(name: str, halves: Halves) -> Any:
    """The class."""

    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        found = halves.forward(*args)
        results: tuple[Any, ...] = found[: halves.results]
        rest = found[halves.results :]
        halves.keep(ctx, args, rest[: halves.saved], rest[halves.saved :])
        ctx.mark_dirty(*[args[i] for i in halves.dirty])
        ctx.mark_non_differentiable(*[results[i] for i in halves.without_gradient])
        return results

    body = {
        "forward": staticmethod(forward),
        "backward": staticmethod(once_differentiable(halves.gradients) if halves.once else halves.gradients),
    }
    return type(name, (torch.autograd.Function,), body)


def _transformed_function(name: str, halves: Halves) -> Any:
    """The class as transforms of torch.func take it: what the backward reads of the forward is a result, too, each once."""
    made = next(iter(reversed(halves.forward.module.graph.nodes))).args[0]
    distinct = list(dict.fromkeys(made))
    places = [distinct.index(node) for node in made]

    def forward(*args: Any) -> tuple[Any, ...]:
        found = halves.forward(*args)
        return tuple([found[made.index(node)] for node in distinct])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.save_for_forward(*halves.keep(ctx, inputs, [output[place] for place in places[halves.results :]]))
        inner = [output[i] for i in range(len(distinct)) if i not in places[: halves.results]]
        ctx.mark_non_differentiable(*inner, *[output[places[i]] for i in halves.without_gradient])

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return halves.gradients(ctx, *[gradients[place] for place in places[: halves.results]])

    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        assert halves.forward_mode is not None
        found = halves.forward_mode(*tangents[: halves.arguments], *halves.kept(ctx))
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


# --- transforms of torch.func ----------------------------------------------------------------------------------------------


def _with_aux(function: Callable[..., Any]) -> Callable[..., Any]:
    """(first result, the others)"""

    def call(*args: Any) -> Any:
        first, *others = function(*args)
        return first, tuple(others)

    return call


def _grad(function: Any, args: Any, options: dict[str, Any]) -> Any:
    grads, (value, others) = torch.func.grad_and_value(_with_aux(function), has_aux=True, **options)(*args)
    return (*grads, value, *others)


def _vjp(function: Any, args: Any, options: dict[str, Any]) -> Any:
    count, results = options["primals"], options["results"]
    primals, read, cotangents = args[:count], args[count:-results], args[-results:]

    def call(*given: Any) -> Any:
        return function(*given, *read)[:results]

    return torch.func.vjp(call, *primals)[1](tuple(cotangents))


def _jvp(function: Any, args: Any, options: dict[str, Any]) -> Any:
    count, results = options["primals"], options["results"]
    primals, read, tangents = args[:count], args[count:-count], args[-count:]

    def call(*given: Any) -> Any:
        found = function(*given, *read)
        return found[:results], found[results:]

    made: Any = torch.func.jvp(call, primals, tangents, has_aux=True)
    values, derivatives, others = made
    return (*values, *derivatives, *others)


def _jacobian(transform: Any) -> Any:
    def call(function: Any, args: Any, options: dict[str, Any]) -> Any:
        options = dict(options)
        results = options.pop("results")

        def split(*given: Any) -> Any:
            found = function(*given)
            return found[:results], found[results:]

        rows, others = transform(split, has_aux=True, **options)(*args)
        return (*(column for row in rows for column in row), *others)

    return call


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "call": lambda function, args, options: function(*args),
    "vmap": lambda function, args, options: torch.vmap(function, **options)(*args),
    "grad": _grad,
    "vjp": _vjp,
    "jvp": _jvp,
    "jacrev": _jacobian(torch.func.jacrev),
    "jacfwd": _jacobian(torch.func.jacfwd),
}
"""Name -> fn(function of flat tensors that gives a tuple, tensors, options), which gives a tuple."""


class TransformCall(CapturedCall):
    """Applies a transform to a captured graph."""

    def __init__(self, kind: str, name: str, function: Placed, options: dict[str, Any]) -> None:
        super().__init__(f"{kind}_{name}" if name.isidentifier() else kind, function.module)
        self.kind, self.function, self.options = kind, function, options

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self, *args: Any) -> Any:
        return TRANSFORMS[self.kind](self.function, args, self.options)
