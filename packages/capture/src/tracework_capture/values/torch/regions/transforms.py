"""torch.func: a transformed function is traced once, on stand-ins for what the transform hands it, and becomes a graph of its own; a
node of the outer graph applies the transform to that graph.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import fx
from tracework_primops import FakeTensor

from ....graph.regions import TransformCall
from ....graph.undo import storages_of
from ....sources import CellContents, Const
from ...plain.iterators import PartialBuiltin
from ...plain.sequence import TupleValue
from ...protocol.calls import Handler, calls
from ...protocol.constant import force_plain
from ...protocol.kinds import AbstractTensor
from ...protocol.region import Region
from ...protocol.value import Emitter, Frame, SymbolicRaise, Value
from ..hooks import stand_in_like
from ..structure import leaves, rebuilt, same_structure, spread
from ..tensor import TensorValue


class Batch(NamedTuple):
    """What a vmap maps over: its size, as a Value and as fakes have it, and what it does with random numbers."""

    size: Value
    length: Any
    randomness: str


class Level(NamedTuple):
    """A transform that is being traced: its stand-ins, and of a vmap its batch, None where that comes in chunks."""

    kind: str
    stand_ins: frozenset[Any]
    batch: Batch | None = None


class Body:
    """A function traced on stand-ins for `tensors`: `result` is what it gave, `made` its graph, which reads tensors that are `free` in it."""

    def __init__(
        self,
        frame: Frame,
        kind: str,
        function: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        tensors: Sequence[AbstractTensor],
        stand_ins: Sequence[AbstractTensor],
        batch: Batch | None = None,
    ) -> None:
        self.frame, self.tensors = frame, tensors
        self.stand_ins = [s.node for s in stand_ins]
        modes, region = frame.modes, Region(frame)
        around = modes.transforms
        modes.transforms = (*around, Level(kind, frozenset(self.stand_ins), batch))
        try:
            self.result = function.call(frame, args, kwargs)
        except SymbolicRaise:
            self.take_back(region)
            raise
        finally:
            modes.transforms = around
        nodes = [r.node for r in leaves(frame, self.result) if isinstance(r, TensorValue)]
        self.is_random = any(node.meta.get("draws") for node in region.nodes())
        self.made = region.outline(nodes, "Transformed", self.stand_ins)
        name = getattr(function, "name", "")
        self.name = name if isinstance(name, str) else ""
        self.free = [n for n in self.made.inputs if n not in self.stand_ins]

    def take_back(self, region: Region) -> None:
        """The function raises, and so does the transform: the graph goes on without what was traced until then, which nobody gets. Writes to
        its own tensors may be refused under the transform, with another exception before this one."""
        nodes = region.nodes()
        inside = {*nodes, *self.stand_ins}
        memory = {storage for node in nodes for storage in storages_of(node)}
        written = region.written() or any(storage.version != region.versions.get(storage, 0) for storage in memory)
        seen = written or any(map(has_effect, nodes))
        if seen or any(user not in inside for node in inside for user in node.users):
            self.frame.break_graph("call_unknown", "a function under a transform of torch.func raises after what is seen outside")
        region.outline([], "Transformed", self.stand_ins)

    def node(self, kind: str, more: Sequence[AbstractTensor] = (), **options: Any) -> Iterator[Value]:
        """The tensors that the transform gives, which is given the tensors in place of the stand-ins, what is free, and `more`."""
        target = TransformCall(kind, self.name, self.made.among([*self.stand_ins, *self.free]), options)
        given = [*self.tensors, *self.free, *more]
        return iter(self.frame.graph.call(self.frame, target, given).unpack(self.frame))

    def all_tensors(self, result: Value) -> list[AbstractTensor]:
        """The leaves of a result when all are tensors."""
        found = leaves(self.frame, result)
        if not found or not all(isinstance(r, TensorValue) for r in found):
            self.frame.break_graph("call_unknown", "a function under a transform of torch.func gives something that is no tensor")
        return found


class OverArguments(Body):
    """A function whose arguments at the places `argnums`, or all, have stand-ins for their tensors; `value` is its result without the
    auxiliary one."""

    def __init__(
        self,
        frame: Frame,
        kind: str,
        function: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        argnums: Any = None,
        has_aux: bool = False,
    ) -> None:
        self.single = isinstance(argnums, int)
        places = range(len(args)) if argnums is None else [argnums] if self.single else list(argnums)
        if any(not -len(args) <= p < len(args) for p in places) or not places and argnums is not None:
            frame.break_graph("call_unknown", "argnums of a transform of torch.func")
        self.chosen = [args[p] for p in places]
        given, tensors, stand_ins = list(args), [], []
        for place, argument in zip(places, self.chosen):
            own = leaves(frame, argument)
            if not all(isinstance(t, TensorValue) for t in own):
                frame.break_graph("call_unknown", "a transform of torch.func over an argument that is no tensor")
            made = [stand_in(frame, t) for t in own]
            given[place] = rebuilt(frame, argument, iter(made))
            tensors += own
            stand_ins += made
        super().__init__(frame, kind, function, given, kwargs, tensors, stand_ins)
        self.value, self.aux = self.result, None
        if has_aux:
            if not isinstance(self.result, TupleValue) or len(self.result.items) != 2:
                frame.break_graph("call_unknown", "has_aux of a function that gives no pair")
            self.value, self.aux = self.result.items

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """How many distinct tensors the function is given, and how many it gives, which are none of those."""
        return {"primals": len(self.tensors), "results": len(self.all_tensors(self.value))}

    def like_arguments(self, made: Iterator[Value]) -> Value:
        """Values nested as the chosen arguments."""
        found = [rebuilt(self.frame, argument, made) for argument in self.chosen]
        return found[0] if self.single else TupleValue(found)

    def with_aux(self, *found: Value, made: Iterator[Value]) -> Value:
        """Results and, where there are some, the auxiliary ones."""
        if self.aux is None:
            return found[0] if len(found) == 1 else TupleValue(list(found))
        if not all(isinstance(a, TensorValue) for a in leaves(self.frame, self.aux)):
            self.frame.break_graph("call_unknown", "auxiliary results of torch.func that are no tensors")
        return TupleValue([*found, rebuilt(self.frame, self.aux, made)])


EFFECTS = ("may_raise", "may_write", "data_dependent", "of_history", "draws")
"""What a node is marked with that does, or may do, something beside computing tensors."""


def has_effect(node: fx.Node) -> bool:
    """Whether the program may see that the node was removed: by what it is marked with, or since it gives something else than tensors."""
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


# --- the transforms ------------------------------------------------------------------------------------------------------


def vmap(frame: Frame, function: Value, options: dict[str, Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.vmap(function)(*args)"""
    structure = TupleValue(list(args))
    given, tensors, dims, stand_ins = [], [], [], []
    for leaf, dim in zip(leaves(frame, structure), spread(frame, structure, options.get("in_dims", 0))):
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
    body = Body(frame, "vmap", function, given, kwargs, tensors, stand_ins, batch)
    body.all_tensors(body.result)
    out_dims = tuple(spread(frame, body.result, options.get("out_dims", 0)))
    more = {k: options[k] for k in ("randomness", "chunk_size") if k in options}
    made = body.node("vmap", in_dims=(*dims, *(None for _ in body.free)), out_dims=out_dims, **more)
    return rebuilt(frame, body.result, made)


def grad(
    frame: Frame,
    function: Value,
    options: dict[str, Any],
    args: list[Value],
    kwargs: dict[str, Value],
    with_value: bool = False,
) -> Value:
    """torch.func.grad(function)(*args), and grad_and_value"""
    body = OverArguments(frame, "grad", function, args, kwargs, options.get("argnums", 0), options.get("has_aux", False))
    if not isinstance(body.value, TensorValue):
        return frame.break_graph("call_unknown", "torch.func.grad of a function that gives no tensor")
    made = body.node("grad", argnums=tuple(range(len(body.tensors))))
    gradients, value = body.like_arguments(made), next(made)
    return TupleValue([gradients, body.with_aux(value, made=made)]) if with_value else body.with_aux(gradients, made=made)


def jacobian(
    kind: str, frame: Frame, function: Value, options: dict[str, Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """torch.func.jacrev, jacfwd"""
    body = OverArguments(frame, kind, function, args, kwargs, options.get("argnums", 0), options.get("has_aux", False))
    results, argnums = body.counts["results"], tuple(range(len(body.tensors)))
    more = {k: options[k] for k in ("chunk_size", "randomness") if options.get(k) is not None}
    made = body.node(kind, **more, argnums=argnums, results=results)
    rows = [body.like_arguments(made) for _ in range(results)]
    return body.with_aux(rebuilt(frame, body.value, iter(rows)), made=made)


def hessian(frame: Frame, function: Value, options: dict[str, Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.hessian: jacfwd of jacrev"""
    return jacobian("jacfwd", frame, TransformedValue("jacrev", function, options), options, args, kwargs)


def functionalize(frame: Frame, function: Value, options: dict[str, Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
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

    cls = types.FunctionType

    def __init__(self, kind: str, function: Value, options: dict[str, Any]) -> None:
        super().__init__(None)
        self.kind, self.function, self.options = kind, function, options

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
    "grad_and_value": functools.partial(grad, with_value=True),
    "jacrev": functools.partial(jacobian, "jacrev"),
    "jacfwd": functools.partial(jacobian, "jacfwd"),
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
    """A call of a transformed function that was made outside of the traced program. What it holds is guarded where it is, as another process
    finds nothing but its code the same."""

    def row(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        transformed = Const(function, function.__qualname__)
        names = inspect.signature(getattr(torch.func, kind)).parameters.keys() - {"_preallocate_and_copy"}
        held = {
            name: frame.wrap(cell.cell_contents, CellContents(transformed, place))
            for place, (name, cell) in enumerate(zip(function.__code__.co_freevars, function.__closure__))
            if name in names
        }
        inner = held.pop("func")
        return TRANSFORMS[kind](frame, inner, {k: force_plain(frame, v) for k, v in held.items()}, list(args), kwargs)

    return row


calls({getattr(torch.func, k)(abs).__code__: transformed_before(k) for k in TRANSFORMS if k != "hessian"})


# --- vjp, jvp and linearize ----------------------------------------------------------------------------------------------


def vjp_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.vjp(function, *primals, has_aux=False)"""
    has_aux = "has_aux" in kwargs and force_plain(frame, kwargs["has_aux"])
    body = OverArguments(frame, "vjp", args[0], args[1:], {}, has_aux=has_aux)
    if body.is_random:
        return frame.break_graph("random_state", "torch.func.vjp of a function with random numbers")
    counts, made = body.counts, body.node("call")
    found = rebuilt(frame, body.value, made)

    # the forward runs again in the node of the gradients: what is equal is computed once by the backend
    def pull_back(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cotangents = leaves(frame, args[0] if len(args) == 1 else TupleValue(list(args)))
        if len(cotangents) != counts["results"] or kwargs or not all(isinstance(c, TensorValue) for c in cotangents):
            return frame.break_graph("call_unknown", "arguments of the function that torch.func.vjp gave")
        return body.like_arguments(body.node("vjp", cotangents, **counts))

    return body.with_aux(found, PartialBuiltin(types.FunctionType, pull_back), made=made)


def jvp_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.jvp(function, primals, tangents, has_aux=False)"""
    given: dict[str, Any] = dict(zip(("func", "primals", "tangents"), args)) | kwargs
    has_aux = "has_aux" in given and force_plain(frame, given["has_aux"])
    tangents = leaves(frame, given["tangents"])
    body = OverArguments(frame, "jvp", given["func"], given["primals"].unpack(frame), {}, has_aux=has_aux)
    if len(tangents) != len(body.tensors) or not all(isinstance(t, TensorValue) for t in tangents):
        return frame.break_graph("call_unknown", "tangents of torch.func.jvp")
    made = body.node("jvp", tangents, **body.counts)
    return body.with_aux(rebuilt(frame, body.value, made), rebuilt(frame, body.value, made), made=made)


def linearize_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.linearize(function, *primals)"""
    body = OverArguments(frame, "jvp", args[0], args[1:], {})
    read = [*(t.example for t in body.tensors), *(n.meta["example_value"] for n in body.free)]
    if body.is_random or any(isinstance(x, torch.Tensor) and x.requires_grad for x in read):
        return frame.break_graph("call_unknown", "torch.func.linearize with random numbers, or at what is asked for a gradient")
    counts, made = body.counts, body.node("call")

    # torch runs the function again for this, too, though once
    def push_forward(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        tangents, like = TupleValue(list(args)), TupleValue(body.chosen)
        pairs = zip(leaves(frame, tangents), body.tensors) if same_structure(frame, tangents, like) else ()
        fits = [isinstance(a, TensorValue) and kind_of(a.example) == kind_of(b.example) for a, b in pairs]
        if kwargs or len(fits) != len(body.tensors) or not all(fits):
            return frame.break_graph("call_unknown", "arguments of the function that torch.func.linearize gave")
        found = body.node("jvp", leaves(frame, tangents), **counts)
        return rebuilt(frame, body.result, itertools.islice(found, counts["results"], None))

    return TupleValue([rebuilt(frame, body.result, made), PartialBuiltin(types.FunctionType, push_forward)])


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
