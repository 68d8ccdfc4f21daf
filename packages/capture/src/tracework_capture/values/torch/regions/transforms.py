"""torch.func: a transformed function is traced once, on stand-ins for what the transform hands it, and becomes a graph of its own; a
node of the outer graph applies the transform to that graph.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from ....graph.outline import outline, region
from ....graph.transform_call import TransformCall
from ....graph.undo import storages_of
from ....sources import Const
from ...plain.iterators import PartialBuiltin
from ...plain.sequence import TupleValue
from ...protocol.calls import calls
from ...protocol.constant import force_plain
from ...protocol.memory import forget_nodes
from ...protocol.unchanged import Unchanged
from ...protocol.value import SymbolicRaise, Value
from ..hooks import stand_in_like
from ..structure import leaves, rebuilt, same_structure, spread
from ..tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import fx
    from tracework_primops import FakeTensor

    from ...protocol.calls import Handler
    from ...protocol.kinds import AbstractFunction, AbstractTensor
    from ...protocol.value import Emitter, Frame

RANDOM = ("rand", "dropout", "bernoulli", "multinomial", "normal", "exponential", "poisson", "uniform", "rrelu", "gumbel")


class Batch(NamedTuple):
    """What a vmap takes apart: its size, as a Value and as fakes have it, and what it does with random numbers."""

    size: Value
    length: Any
    randomness: str


class Level(NamedTuple):
    """A transform that is being traced: its stand-ins, and of a vmap its batch, None where that comes in chunks."""

    kind: str
    stand_ins: frozenset[Any]
    batch: Batch | None = None


class Body:
    """A function traced on stand-ins: `results` are what it gave, `module` its graph."""

    def __init__(
        self,
        frame: Frame,
        kind: str,
        function: Value,
        call: Callable[..., Any],
        stand_ins: Sequence[Any],
        batch: Batch | None = None,
    ) -> None:
        self.frame, self.builder = frame, frame.graph
        start, before = region(self.builder), Unchanged(frame)
        around = frame.modes.transforms
        frame.modes.transforms = (*around, Level(kind, frozenset(s.node for s in stand_ins), batch))
        try:
            self.result = call(function)
        except SymbolicRaise:
            self.nodes, self.stand_ins = start.nodes(self.builder), [s.node for s in stand_ins]
            self.take_back(before)
            raise
        finally:
            frame.modes.transforms = around
        self.results = leaves(frame, self.result)
        self.tensors = [r for r in self.results if isinstance(r, TensorValue)]
        self.nodes = start.nodes(self.builder)
        self.stand_ins = [s.node for s in stand_ins]
        self.made = outline(self.builder, self.nodes, [t.node for t in self.tensors], "Transformed")
        self.name = getattr(function, "name", "") if isinstance(getattr(function, "name", ""), str) else ""
        self.free = [n for n in self.made.inputs if n not in self.stand_ins]
        for node in self.stand_ins:
            self.builder.graph.erase_node(node)

    def take_back(self, before: Any) -> None:
        """The function raises, and so does the transform: the graph goes on without what was traced until then, which nobody gets. Writes to
        its own tensors may be refused under the transform, with another exception before this one."""
        inside = {*self.nodes, *self.stand_ins}
        memory = {storage for node in self.nodes for storage in storages_of(node)}
        written = before.written() or any(storage.version != before.versions.get(storage, 0) for storage in memory)
        seen = written or self.is_random() or any(map(has_effect, self.nodes))
        if seen or any(user not in inside for node in inside for user in node.users):
            self.frame.break_graph("call_unknown", "a function under a transform of torch.func raises after what is seen outside")
        self.done()
        for node in [*reversed(self.nodes), *self.stand_ins]:
            self.builder.graph.erase_node(node)

    def node(
        self,
        kind: str,
        tensors: Sequence[Any],
        options: dict[str, Any],
        more: Sequence[Any] = (),
    ) -> list[Value]:
        """The tensors that the transform gives, `tensors` being what it is given in place of the stand-ins."""
        order = [*self.stand_ins, *self.free]
        places = tuple(order.index(n) for n in self.made.inputs)
        target = TransformCall(kind, self.name, self.made.module, places, options)
        return self.builder.call(self.frame, target, [*tensors, *self.free, *more]).unpack(self.frame)

    def done(self) -> None:
        """Nothing outside may use what was traced."""
        forget_nodes(self.frame, {*self.nodes, *self.stand_ins})

    def all_tensors(self, results: list[Any]) -> list[AbstractTensor]:
        """`results` when all are tensors."""
        if not results or not all(isinstance(r, TensorValue) for r in results):
            self.frame.break_graph("call_unknown", "a function under a transform of torch.func gives something that is no tensor")
        return results

    def is_random(self) -> bool:
        return any(word in str(getattr(n.target, "__name__", n.target)) for n in self.nodes for word in RANDOM)


EFFECTS = ("may_raise", "may_write", "data_dependent", "of_history")
"""What a node is marked with that does, or may do, something beside computing tensors."""


def has_effect(node: fx.Node) -> bool:
    """Whether somebody may see that the node is gone: by what it is marked with, or since it gives something else than tensors."""
    example = node.meta.get("example_value")
    parts = example if isinstance(example, (tuple, list)) else [example]
    return any(map(node.meta.get, EFFECTS)) or not all(isinstance(part, torch.Tensor) for part in parts)


def stand_in(frame: Frame, tensor: AbstractTensor, dim: int | None = None) -> AbstractTensor:
    """A tensor as the function under the transform sees it."""
    with torch.no_grad():
        example = frame.graph.run_on_fakes(frame, torch.Tensor.detach, (tensor.example,), {}, "call_function")
        if dim is not None and example.shape[dim] == 0:  # nothing to select
            sizes = [s for d, s in enumerate(example.shape) if d != dim % example.ndim]
            example = frame.graph.run_on_fakes(frame, torch.Tensor.new_empty, (example, sizes), {}, "call_function")
        elif dim is not None:
            example = frame.graph.run_on_fakes(frame, torch.select, (example, dim, 0), {}, "call_function")
    value = stand_in_like(frame, example)
    value.node.meta["stands_for"] = tensor.node
    return value


def on_stand_ins(
    frame: Frame, args: list[Value], chosen: list[int] | range, dims: Any = None
) -> tuple[list[Value], list[Any], list[AbstractTensor]]:
    """(arguments with stand-ins for the tensors of those at the places `chosen`, the tensors, the stand-ins)."""
    given, tensors, stand_ins = list(args), [], []
    for place in chosen:
        own = leaves(frame, args[place])
        if not all(isinstance(t, TensorValue) for t in own):
            frame.break_graph("call_unknown", "a transform of torch.func over an argument that is no tensor")
        made = [stand_in(frame, t) for t in own]
        given[place] = rebuilt(frame, args[place], iter(made))
        tensors += own
        stand_ins += made
    return given, tensors, stand_ins


# --- the transforms ------------------------------------------------------------------------------------------------------


def vmap(
    frame: Frame,
    function: Value,
    options: dict[str, Any],
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    """torch.vmap(function)(*args)"""
    in_dims = options.get("in_dims", 0)
    structure = TupleValue(list(args))
    given, tensors, dims, stand_ins = [], [], [], []
    for leaf, dim in zip(leaves(frame, structure), spread(frame, structure, in_dims)):
        if dim is not None:
            if not isinstance(leaf, TensorValue) or not -leaf.example.ndim <= dim < leaf.example.ndim:
                return frame.break_graph("call_unknown", "torch.vmap over an argument that is no tensor of that many dims")
            tensors.append(leaf)
            dims.append(dim)
            stand_ins.append(stand_in(frame, leaf, dim))
        given.append(leaf if dim is None else stand_ins[-1])
    given = cast(TupleValue, rebuilt(frame, structure, iter(given))).items
    batch = None
    if options.get("chunk_size") is None and tensors:
        size = tensors[0].getattr(frame, "shape").unpack(frame)[dims[0]]
        batch = Batch(size, tensors[0].example.shape[dims[0]], options.get("randomness", "error"))
    body = Body(frame, "vmap", function, lambda f: f.call(frame, given, kwargs), stand_ins, batch)
    body.all_tensors(body.results)
    out_dims = tuple(spread(frame, body.result, options.get("out_dims", 0)))
    node_options = {"in_dims": (*dims, *(None for _ in body.free)), "out_dims": out_dims}
    node_options |= {k: options[k] for k in ("randomness", "chunk_size") if k in options}
    made = body.node("vmap", tensors, node_options)
    body.done()
    return rebuilt(frame, body.result, iter(made))


def chosen_arguments(frame: Frame, args: list[Value], argnums: Any) -> tuple[list[int], bool]:
    """(places, whether there is only one)"""
    single = isinstance(argnums, int)
    places = [argnums] if single else list(argnums)
    if any(not -len(args) <= p < len(args) for p in places) or not places:
        frame.break_graph("call_unknown", "argnums of a transform of torch.func")
    return [p % len(args) for p in places], single


def like_arguments(frame: Frame, args: list[Value], places: list[int], single: bool, made: Iterator[Value]) -> Value:
    """Values nested as the chosen arguments."""
    found = [rebuilt(frame, args[p], made) for p in places]
    return found[0] if single else TupleValue(found)


def with_aux(frame: Frame, body: Body, has_aux: Any) -> Any:
    """(the results proper, the auxiliary ones): values"""
    if not has_aux:
        return body.result, None
    if not isinstance(body.result, TupleValue) or len(body.result.items) != 2:
        return frame.break_graph("call_unknown", "has_aux of a function that gives no pair")
    return body.result.items


def rebuilt_aux(frame: Frame, aux: Value, made: Iterator[Value]) -> Value:
    """Auxiliary results."""
    if not all(isinstance(a, TensorValue) for a in leaves(frame, aux)):
        return frame.break_graph("call_unknown", "auxiliary results of torch.func that are no tensors")
    return rebuilt(frame, aux, made)


def grad(
    frame: Frame,
    function: AbstractFunction,
    options: dict[str, Any],
    args: list[Value],
    kwargs: dict[str, Value],
    with_value: bool = False,
) -> Value:
    """torch.func.grad(function)(*args), and grad_and_value"""
    has_aux = options.get("has_aux", False)
    places, single = chosen_arguments(frame, args, options.get("argnums", 0))
    given, tensors, stand_ins = on_stand_ins(frame, args, places)
    body = Body(frame, "grad", function, lambda f: f.call(frame, given, kwargs), stand_ins)
    value, aux = with_aux(frame, body, has_aux)
    if not isinstance(value, TensorValue):
        return frame.break_graph("call_unknown", "torch.func.grad of a function that gives no tensor")
    made = iter(body.node("grad", tensors, {"argnums": tuple(range(len(tensors)))}))
    body.done()
    gradients = like_arguments(frame, args, places, single, made)
    value = next(made)
    others = rebuilt_aux(frame, aux, made) if has_aux else None
    if not with_value:
        return TupleValue([gradients, others]) if has_aux else gradients
    return TupleValue([gradients, TupleValue([value, others]) if has_aux else value])


def grad_and_value(
    frame: Frame,
    function: AbstractFunction,
    options: dict[str, Any],
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    """torch.func.grad_and_value(function)(*args)"""
    return grad(frame, function, options, args, kwargs, with_value=True)


def jacobian(kind: str) -> Callable[..., Any]:
    """torch.func.jacrev, jacfwd"""

    def handler(frame: Frame, function: Value, options: dict[str, Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
        has_aux = options.get("has_aux", False)
        places, single = chosen_arguments(frame, args, options.get("argnums", 0))
        given, tensors, stand_ins = on_stand_ins(frame, args, places)
        body = Body(frame, kind, function, lambda f: f.call(frame, given, kwargs), stand_ins)
        value, aux = with_aux(frame, body, has_aux)
        results = body.all_tensors(leaves(frame, value))
        node_options = {k: options[k] for k in ("chunk_size", "randomness") if options.get(k) is not None}
        node_options |= {"argnums": tuple(range(len(tensors))), "results": len(results)}
        made = iter(body.node(kind, tensors, node_options))
        body.done()
        rows = [like_arguments(frame, args, places, single, made) for _ in results]
        found = rebuilt(frame, value, iter(rows))
        return TupleValue([found, rebuilt_aux(frame, aux, made)]) if has_aux else found

    return handler


def hessian(
    frame: Frame, function: AbstractFunction, options: dict[str, Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """torch.func.hessian: jacfwd of jacrev"""
    found: Value = jacobian("jacfwd")(frame, TransformedValue("jacrev", function, options), options, args, kwargs)
    return found


def functionalize(
    frame: Frame, function: AbstractFunction, options: dict[str, Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """torch.func.functionalize(function)(*args): writes are removed from every graph later on"""
    if options.get("remove", "mutations") != "mutations":
        return frame.break_graph("call_unknown", f"torch.func.functionalize that removes {options['remove']}")
    given = {id(leaf) for leaf in leaves(frame, TupleValue([*args, *kwargs.values()]))}
    result = function.call(frame, args, kwargs)
    for leaf in leaves(frame, result):  # what it gives is no object that it was given, and how far a view is one is its own
        if isinstance(leaf, TensorValue) and (id(leaf) in given or leaf.node.op == "placeholder" or leaf.example._is_view()):
            return frame.break_graph("call_unknown", "torch.func.functionalize of a function that gives an argument, or a view")
    return result


class TransformedValue(Value):
    """What torch.vmap(function, ...) and its like give."""

    def __init__(self, kind: str, function: Value, options: dict[str, Any]) -> None:
        super().__init__(None)
        self.kind, self.function, self.options = kind, function, options

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return f"torch.func.{self.kind}({self.function.describe()})"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return TRANSFORMS[self.kind](frame, self.function, self.options, list(args), kwargs)

    def reload(self, emit: Emitter) -> str:
        given = [emit.load(self.function)] + [f"{k}={emit.literal(v)}" for k, v in self.options.items()]
        return f"{emit.const(getattr(torch.func, self.kind), self.kind)}({', '.join(given)})"


TRANSFORMS: dict[str, Callable[..., Value]] = {
    "vmap": vmap,
    "grad": grad,
    "grad_and_value": grad_and_value,
    "jacrev": jacobian("jacrev"),
    "jacfwd": jacobian("jacfwd"),
    "hessian": hessian,
    "functionalize": functionalize,
}
"""Name in torch.func -> fn(frame, function, options, args, kwargs) for a call of the transformed function."""


def transform_row(kind: str) -> Handler:
    """torch.func.<kind>(function, ...)"""
    signature = inspect.signature(getattr(torch.func, kind))

    def row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            return frame.raise_new(TypeError, *error.args)
        options = {k: force_plain(frame, v) for k, v in given.items() if k != "func"}
        if options.get("_preallocate_and_copy"):
            return frame.break_graph("call_unknown", "_preallocate_and_copy of torch.func.jacrev")
        return TransformedValue(kind, given["func"], options)

    return row


def transformed_before(kind: str) -> Callable[..., Any]:
    """A call of a transformed function that was made outside of the traced program."""

    def row(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        held = dict(zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__)))
        inner = held.pop("func")
        names = inspect.signature(getattr(torch.func, kind)).parameters
        options = {k: v for k, v in held.items() if k in names and k != "_preallocate_and_copy"}
        return TRANSFORMS[kind](frame, frame.wrap(inner, Const(inner)), options, list(args), kwargs)

    return row


calls({getattr(torch.func, k)(abs).__code__: transformed_before(k) for k in TRANSFORMS if k != "hessian"})


# --- vjp, jvp and linearize ----------------------------------------------------------------------------------------------


def vjp_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.vjp(function, *primals, has_aux=False)"""
    function, primals = args[0], list(args[1:])
    has_aux = "has_aux" in kwargs and force_plain(frame, kwargs["has_aux"])
    given, tensors, stand_ins = on_stand_ins(frame, primals, range(len(primals)))
    body = Body(frame, "vjp", function, lambda f: f.call(frame, given, {}), stand_ins)
    if body.is_random():
        return frame.break_graph("random_state", "torch.func.vjp of a function with random numbers")
    value, aux = with_aux(frame, body, has_aux)
    results = len(body.all_tensors(leaves(frame, value)))
    made = iter(body.node("call", tensors, {}))
    body.done()
    found = rebuilt(frame, value, made)

    # the forward runs again in the node of the gradients: what is equal is computed once by the backend
    def pull_back(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cotangents = leaves(frame, args[0] if len(args) == 1 else TupleValue(list(args)))
        if len(cotangents) != results or kwargs or not all(isinstance(c, TensorValue) for c in cotangents):
            return frame.break_graph("call_unknown", "arguments of the function that torch.func.vjp gave")
        gradients = iter(body.node("vjp", tensors, {"primals": len(tensors), "results": results}, cotangents))
        return TupleValue([rebuilt(frame, p, gradients) for p in primals])

    function = PartialBuiltin(types.FunctionType, pull_back)
    return TupleValue([found, function, rebuilt_aux(frame, aux, made)] if has_aux else [found, function])


def jvp_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.jvp(function, primals, tangents, has_aux=False)"""
    names = ("func", "primals", "tangents")
    given: dict[str, Any] = dict(zip(names, args)) | kwargs
    has_aux = "has_aux" in given and force_plain(frame, given["has_aux"])
    primals, tangents = given["primals"].unpack(frame), leaves(frame, given["tangents"])
    inside, tensors, stand_ins = on_stand_ins(frame, primals, range(len(primals)))
    if len(tangents) != len(tensors) or not all(isinstance(t, TensorValue) for t in tangents):
        return frame.break_graph("call_unknown", "tangents of torch.func.jvp")
    body = Body(frame, "jvp", given["func"], lambda f: f.call(frame, inside, {}), stand_ins)
    value, aux = with_aux(frame, body, has_aux)
    results = len(body.all_tensors(leaves(frame, value)))
    made = iter(body.node("jvp", tensors, {"primals": len(tensors), "results": results}, tangents))
    body.done()
    found = [rebuilt(frame, value, made), rebuilt(frame, value, made)]
    return TupleValue([*found, rebuilt_aux(frame, aux, made)] if has_aux else found)


def linearize_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.linearize(function, *primals)"""
    function, primals = args[0], list(args[1:])
    given, tensors, stand_ins = on_stand_ins(frame, primals, range(len(primals)))
    body = Body(frame, "jvp", function, lambda f: f.call(frame, given, {}), stand_ins)
    read = [*(t.example for t in tensors), *(n.meta["example_value"] for n in body.free)]
    if body.is_random() or any(isinstance(x, torch.Tensor) and x.requires_grad for x in read):
        return frame.break_graph("call_unknown", "torch.func.linearize with random numbers, or at what is asked for a gradient")
    results = len(body.all_tensors(leaves(frame, body.result)))
    made = body.node("call", tensors, {})
    body.done()

    # torch runs the function again for this, too, though once
    def push_forward(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        tangents, like = TupleValue(list(args)), TupleValue(primals)
        pairs = zip(leaves(frame, tangents), tensors) if same_structure(frame, tangents, like) else ()
        fits = [isinstance(a, TensorValue) and kind_of(a.example) == kind_of(b.example) for a, b in pairs]
        if kwargs or len(fits) != len(tensors) or not all(fits):
            return frame.break_graph("call_unknown", "arguments of the function that torch.func.linearize gave")
        options = {"primals": len(tensors), "results": results}
        found = body.node("jvp", tensors, options, leaves(frame, tangents))
        return rebuilt(frame, body.result, iter(found[results : 2 * results]))

    return TupleValue([rebuilt(frame, body.result, iter(made)), PartialBuiltin(types.FunctionType, push_forward)])


def kind_of(example: FakeTensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    """What of a tangent has to be as its primal's."""
    return example.shape, example.dtype, example.device


calls(
    {
        **{getattr(torch.func, kind): transform_row(kind) for kind in TRANSFORMS},
        torch.vmap: transform_row("vmap"),
        torch.func.vjp: vjp_row,
        torch.func.jvp: jvp_row,
        torch.func.linearize: linearize_row,
    }
)
