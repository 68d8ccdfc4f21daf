"""What aot_compile gave, as JSON data, and made again from it with what compiled the graphs loaded from elsewhere.

A recipe has the signature and what the wrappers were told. Where a wrapper may need the captured graph (one that runs it as it is where inputs
overlap, or has a backward, which may be differentiated) the recipe says what the graph's text does not, and `Rest` makes of both what
is asked for, when it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import fx

from . import _torch, signature
from .signature import BackwardFacts, InputInfo, InputKind, Mutation, Signature, TrainingFacts
from .wrappers.autograd import Gradients, wrap_autograd
from .wrappers.inference import wrap_inference
from .wrappers.keeping import keeping, keeps_for_backward
from .wrappers.overlap import Addresses, CompileAnew, guard_overlaps
from .wrappers.places import guard_places
from .wrappers.saved_hooks import guard_saved_hooks
from .wrappers.stages import in_turn

if TYPE_CHECKING:
    from .contracts import Compiled, FunctionalProgram, Report

RECIPE = "__tracework_recipe__"
"""The attribute of a callable that says what it is made of."""
REFUSED = "__tracework_no_recipe__"
"""The attribute of one that is not made of data: why not."""
Recipe = dict[str, Any]
Run = Callable[..., tuple[Any, ...]]


class Captured(NamedTuple):
    """A captured graph and its example inputs; how many conditions on sizes were known before it was traced."""

    graph: fx.GraphModule
    inputs: Sequence[Any]
    conditions: int = 0

    @classmethod
    def now(cls, graph: fx.GraphModule, inputs: Sequence[Any]) -> Captured:
        """Before it is traced."""
        table = graph.meta.get("symbols")
        return cls(graph, inputs, 0 if table is None else len(table.conditions))


_TYPES: dict[str, Any] = {
    name: kind for name, kind in vars(signature).items() if isinstance(kind, type) and kind.__module__ == signature.__name__
}
_NAMES = (torch.dtype, torch.layout, torch.memory_format)


SYMBOLS = "tracework_primops.symbols.expr"
"""Where sizes that are no numbers have their classes."""


MOST_NUMBERS = 1 << 16
"""Of a tensor that a graph has for a constant: those that the program writes out."""


class NotData(ValueError):
    """What JSON data cannot say."""


class Rest(Protocol):
    """What takes the captured graph, made when it is asked for."""

    @property
    def uncompiled(self) -> Run:
        """The captured graph as it is."""

    def anew(self, args: Sequence[Any]) -> Run:
        """The captured graph, which has no backward, compiled for inputs that overlap as these do."""

    @property
    def gradients(self) -> Sequence[Gradients]:
        """Of each component, compiled anew."""

    def in_pieces(self, calls: Mapping[str, Run]) -> Run | None:
        """The captured graph with what its pieces, by name, were compiled to; None where it is cut into others now."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a callable is made again of.

    graph: from the recipe of a compiled graph to what it was; None where that is gone. backward: from the key of a backward to what gives
    its callable, None where there is none for the present settings. rest: from the recipe to what it does not have.
    """

    graph: Callable[[Any], Compiled | None]
    backward: Callable[[str], Callable[[], Compiled | None]]
    rest: Callable[[Recipe], Rest]
    report: Report
    addresses: Addresses | None = None


# --- writing -----------------------------------------------------------------------------------------------------------------


def inference_recipe(made: Signature, graph: Any, records: bool, autocast: bool, captured: Captured) -> Recipe:
    """Of what wrap_inference gives. Raises NotData.

    graph: the recipe of the compiled graph. records: whether a history would be recorded. autocast: whether casts were on while tracing.
    """
    if graph is None:
        raise NotData("what a graph was compiled to is not kept")
    falls_back = bool(made.places or made.shared) or any(info.mutation is not Mutation.NONE for info in made.inputs)
    return {
        "role": "inference",
        "signature": to_data(made),
        "graph": graph,
        "records": records,
        "autocast": autocast,
        "captured": described(captured, made.inputs, is_differentiated=False) if falls_back else None,
    }


def training_recipe(
    facts: TrainingFacts, program: FunctionalProgram, graph: Any, captured: Captured, buckets: tuple[int, int] | None
) -> Recipe:
    """Of what wrap_autograd gives, with a key for each backward. Raises NotData.

    graph: the recipe of the compiled forward. buckets: as AotOptions has it.
    """
    if graph is None:
        raise NotData("what a graph was compiled to is not kept")
    if facts.signature.shared or facts.signature.repeated:
        raise NotData("inputs share memory" if facts.signature.shared else "a checkpoint writes to inputs")
    modes = _torch.Modes.now()
    number = uuid.uuid4().hex
    return {
        "role": "training",
        "facts": to_data(facts),
        "graph": graph,
        "autocast": _torch.autocast_is_on(),
        "keeps": keeps_for_backward(program.forward),
        "modes": to_data((modes.records, modes.autocast, modes.keeps_casts)),
        "backwards": [f"{number}-{place}" for place in range(len(program.backwards))],
        "backwards_keep": [keeps_for_backward(backward.graph) for backward in program.backwards],
        "buckets": to_data(buckets),
        "digest": digest_of(program),
        "captured": described(captured, facts.signature.inputs),
    }


def pieces_recipe(captured: Captured, pieces: Mapping[str, Any]) -> Recipe:
    """Of what in_pieces gives. Raises NotData.

    pieces: what each one that is compiled was compiled to, by name; None where that failed.
    """
    gm, examples, conditions = captured
    recipes: dict[str, Any] = {}
    for name, call in pieces.items():
        recipe = getattr(call, RECIPE, None)
        if recipe is None:
            raise NotData(getattr(call, REFUSED, "a piece of it runs uncompiled"))
        recipes[name] = recipe
    nodes = list(gm.graph.nodes)
    if any(node.meta.get("of_history") or "undo" in node.meta for node in nodes):
        raise NotData("hooks are set, or settings written, between its pieces")
    made = [n.meta.get("example_value") for n in nodes if n.op not in ("placeholder", "output")]
    if any(isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf for t in made):
        raise NotData("a leaf that asks for its gradient is made between its pieces")
    inputs: list[Any] = []
    for node, example in zip((n for n in nodes if n.op == "placeholder"), examples, strict=True):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            is_static = bool(getattr(node.meta.get("binding"), "is_static", False))
            inputs.append(["tensor", value.requires_grad, True, False, False, is_static, len(inputs)])
        else:
            inputs.append(None if isinstance(value, torch.SymInt) else ["constant", to_data(example)])
    table = gm.meta.get("symbols")
    from tracework_primops.literals import symbol_lines  # which no process needs that only loads

    return {
        "role": "pieces",
        "pieces": recipes,
        "captured": {
            "inputs": inputs,
            "checkpoints": _checkpoints(nodes),
            "symbols": [] if table is None else symbol_lines(table.symbols, table, conditions),
            "as_they_are": [node.name for node in nodes if node.meta.get("data_dependent")],
        },
    }


def of_stage(key: str, number: int) -> str:
    """The key of a stage of a backward."""
    return f"{key}-{number}"


def digest_of(program: FunctionalProgram) -> str:
    """Of what a forward and its backwards compute, in names that another trace of the same captured graph gives, too."""
    lines = []
    for gm in (program.forward, *(backward.graph for backward in program.backwards)):
        for node in gm.graph.nodes:
            target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
            lines.append(f"{node.name} {target} {node.args} {node.kwargs}")
            if node.op == "placeholder":
                lines.append(repr(getattr(node.meta["val"], "spec", None)))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def described(captured: Captured, infos: Sequence[InputInfo], is_differentiated: bool = True) -> dict[str, Any]:
    """What the text of a captured graph does not say of it. Raises NotData. is_differentiated: its gradients may be traced again."""
    gm, examples, conditions = captured
    nodes = list(gm.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    inputs: list[Any] = []
    storages: dict[int, int] = {}
    writes = any(
        info.mutation is not Mutation.NONE or info.newer for info in infos
    )  # tracing looks at the memory of examples then
    for node, example, info in zip(placeholders, examples, infos, strict=True):
        if info.kind is not InputKind.TENSOR:
            inputs.append(None if info.kind is InputKind.SIZE else ["constant", to_data(example)])
            continue
        storage = getattr(node.meta.get("example_value"), "storage", None)
        key = id(node if storage is None else storage)
        if is_differentiated and (storage is None or key in storages and writes):
            raise NotData(f"input {node.name} shares its memory with another one")
        number = storages.setdefault(key, len(storages))
        if _torch.has_hooks(example):
            raise NotData(f"input {node.name} has hooks")
        inputs.append(
            ["tensor", info.requires_grad, example.is_leaf, info.is_parameter, example._is_view(), info.is_static, number]
        )
    return {"inputs": inputs, "checkpoints": _checkpoints(nodes), "symbols": _symbols(gm.meta.get("symbols"), conditions)}


def _symbols(table: Any, conditions: int) -> list[str]:
    """The symbols of the sizes, and what was known of them before the graph was traced."""
    if table is None or not table.symbols:
        return []
    from tracework_primops.literals import symbol_lines  # which no process needs that only loads

    return symbol_lines(table.symbols, table, conditions)


def _checkpoints(nodes: Sequence[fx.Node]) -> list[Any]:
    """For each checkpoint of a captured graph what its nodes carry (contracts.JointProgram), its nodes, and those that it reads."""
    names = {id(node.meta["example_value"]): node.name for node in reversed(nodes) if "example_value" in node.meta}
    found: dict[Any, list[Any]] = {}
    for node in nodes:
        if "recompute_region" not in node.meta and "recompute_reads" not in node.meta:
            continue
        reads = node.meta.get("recompute_reads", ())
        key = node.meta.get("recompute"), node.meta.get("recompute_region"), id(reads)
        if key not in found:
            if not all(id(read) in names for read in reads):
                raise NotData("a checkpoint reads what is not made in the graph")
            found[key] = [node.meta.get("recompute"), [], [names[id(read)] for read in reads]]
        found[key][1].append(node.name)
    if len({region for _, region, _ in found}) != len(found):
        raise NotData("nodes of a checkpoint differ in what they carry")
    return list(found.values())


# --- reading -----------------------------------------------------------------------------------------------------------------


def from_recipe(recipe: Recipe, parts: Parts) -> Run | None:
    """What the recipe is of; None where a graph is gone."""
    if recipe["role"] == "pieces":
        pieces = {name: from_recipe(piece, parts) for name, piece in recipe["pieces"].items()}
        made = {name: call for name, call in pieces.items() if call is not None}
        return None if len(made) < len(pieces) else parts.rest(recipe).in_pieces(made)
    call = parts.graph(recipe["graph"])
    if call is None:
        return None
    rest = _Later(recipe, parts)
    if recipe["role"] == "inference":
        made = from_data(recipe["signature"])
        run = _torch.apart_from_autocast(call) if recipe["autocast"] else call
        captured = recipe["captured"]
        anew = None if captured is None or captured["symbols"] else rest.anew
        return guarded(wrap_inference(run, made, recipe["records"]), rest.uncompiled, made, parts.report, parts.addresses, anew)
    facts: TrainingFacts = from_data(recipe["facts"])
    if recipe["captured"]["symbols"]:  # what compiling a backward finds out about sizes nobody would check any more
        each = zip(recipe["backwards"], facts.backwards, strict=True)
        if any(made() is None for key, one in each for made in rest.backwards(key, one)):
            return None
    gradients = [
        rest.gradients_of(place, key, one, keeps)
        for place, (key, one, keeps) in enumerate(
            zip(recipe["backwards"], facts.backwards, recipe["backwards_keep"], strict=True)
        )
    ]
    with torch.set_grad_enabled(from_data(recipe["modes"])[0]):
        run = wrap_autograd(facts, wrapped_forward(call, recipe["autocast"], recipe["keeps"]), gradients)
    return guarded(run, rest.uncompiled, facts.signature, parts.report, parts.addresses)


class _Later:
    """What a recipe does not have, made when it is first asked for."""

    def __init__(self, recipe: Recipe, parts: Parts) -> None:
        self._recipe, self._parts = recipe, parts
        self._made: Rest | None = None
        self._backwards: dict[str, list[Callable[[], Compiled | None]]] = {}

    def backwards(self, key: str, facts: BackwardFacts) -> list[Callable[[], Compiled | None]]:
        """What gives the stages of a component's backward, or all of it, from the store."""
        if key not in self._backwards:
            keys = [of_stage(key, number) for number in range(len(facts.stages))] or [key]
            self._backwards[key] = [*map(self._parts.backward, keys)]
        return self._backwards[key]

    def _rest(self) -> Rest:
        if self._made is None:
            self._made = self._parts.rest(self._recipe)
        return self._made

    def uncompiled(self, *args: Any) -> tuple[Any, ...]:
        return self._rest().uncompiled(*args)

    def anew(self, args: Sequence[Any]) -> Run:
        return self._rest().anew(args)

    def gradients_of(self, place: int, key: str, facts: BackwardFacts, keeps: bool) -> Gradients:
        """Those of one component, its backward from the store where it is there."""
        tangents, stored = len(facts.component.tangents), self.backwards(key, facts)

        def run(inputs: list[Any]) -> Any:
            several = _torch.any_batched(inputs[-tangents:])
            calls = [] if several else [keeping(c) if keeps else c for made in stored if (c := made()) is not None]
            if len(calls) < len(stored):
                return self._rest().gradients[place].run(inputs)
            if facts.stages:
                return in_turn(facts.stages, [partial(_torch.call_apart_from_autocast, call) for call in calls], inputs)
            return _torch.call_apart_from_autocast(calls[0], inputs)

        return Gradients(
            run,
            lambda *given: self._rest().gradients[place].again(*given),
            lambda *given: self._rest().gradients[place].with_other_data(*given),
        )


def wrapped_forward(call: Compiled, autocast: bool, keeps: bool) -> Compiled:
    """A compiled forward as wrap_autograd takes it. autocast: whether casts were on while tracing."""
    apart = _torch.apart_from_autocast(call) if autocast else call
    return keeping(apart) if keeps else apart


def guarded(
    call: Run,
    uncompiled: Run,
    made: Signature,
    report: Report,
    addresses: Addresses | None,
    compile_anew: CompileAnew | None = None,
) -> Run:
    """`call`, or `uncompiled` where that does not hold which the graph was compiled for. compile_anew: for inputs that overlap otherwise."""
    if made.tangents:
        call = guard_saved_hooks(call, uncompiled, report)
    call = guard_overlaps(call, uncompiled, made, report, addresses, compile_anew)
    call = guard_places(call, uncompiled, made, report)
    call.__tracework_writes_last__ = True  # type: ignore[attr-defined]  # a mark on a function
    return call


def to_data(value: Any) -> Any:
    """JSON data of a signature and what is in it. Raises NotData."""
    kind = type(value)
    if kind in (type(None), bool, int, str):
        return value
    if kind is float:
        return ["float", value.hex()]
    if kind.__module__ == SYMBOLS:
        return ["size", str(value)]
    if kind.__name__ in _TYPES and kind is _TYPES[kind.__name__]:
        if issubclass(kind, Enum):
            return ["enum", kind.__name__, value.name]
        fields = value if issubclass(kind, tuple) else [getattr(value, f.name) for f in dataclasses.fields(kind)]
        return ["made", kind.__name__, *map(to_data, fields)]
    if kind in (tuple, list, frozenset):
        return [kind.__name__, *map(to_data, sorted(value) if kind is frozenset else value)]
    if isinstance(value, _NAMES):
        return ["torch", str(value).removeprefix("torch.")]
    if kind is torch.device:
        return ["device", str(value)]
    if kind is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu" and value.numel() <= MOST_NUMBERS:
        if value.is_contiguous() and not (value.requires_grad or value.is_conj() or value.is_neg()):
            numbers = value.reshape(-1).view(torch.uint8)
            return ["tensor", to_data(value.dtype), to_data(tuple(value.shape)), bytes(numbers.tolist()).hex()]
    if kind is _torch.OpOverload and value.namespace == "aten":
        return ["operator", value.__name__]
    raise NotData(f"{kind.__name__} {value!r}")


_CONTAINERS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "list": list, "frozenset": frozenset}


def from_data(data: Any) -> Any:
    """The inverse of to_data."""
    if type(data) is not list:
        return data
    kind, *parts = data
    match kind:
        case "made":
            return _TYPES[parts[0]](*map(from_data, parts[1:]))
        case "enum":
            return _TYPES[parts[0]][parts[1]]
        case "tuple" | "list" | "frozenset":
            return _CONTAINERS[kind](map(from_data, parts))
        case "float":
            return float.fromhex(parts[0])
        case "size":
            return parts[0]  # wrappers ask whether it is a number
        case "torch":
            return getattr(torch, parts[0])
        case "tensor":
            dtype, shape, numbers = from_data(parts[0]), from_data(parts[1]), bytearray.fromhex(parts[2])
            return (torch.frombuffer(numbers, dtype=dtype) if numbers else torch.empty(0, dtype=dtype)).reshape(shape).clone()
        case "device":
            return torch.device(parts[0])
    packet, _, overload = parts[0].partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)
