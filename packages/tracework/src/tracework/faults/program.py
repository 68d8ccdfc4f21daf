"""Program: a graph of any level with its inputs, which can be run, run in float64, and cut."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from tracework_capture.graph.text import print_captured
from tracework_capture.graph.wrapped import is_wrapper
from tracework_primops import InputSpec, PrimGraph, SizeSpec, SymbolTable, TensorSpec, copy_node
from tracework_primops.graph.prim_graph import bind_symbols, call, resolve
from tracework_runtime import StepTimes

from ..cases import Case, CaseError

WIDER: Mapping[torch.dtype, torch.dtype] = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
NARROWING = frozenset({"float", "half", "bfloat16"})
"""Methods of tensors that give another dtype by their name."""


@dataclasses.dataclass(frozen=True)
class Program:
    """level: as of a Case. graph: of torch's functions at level "captured", else as PrimGraph has it. flags: of its inputs, by name."""

    level: str
    graph: fx.Graph
    inputs: tuple[Any, ...]
    role: str = "inference"
    symbols: SymbolTable | None = None
    flags: Mapping[str, InputSpec] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, graph: fx.GraphModule | PrimGraph, level: str, inputs: Sequence[Any]) -> Program:
        """A graph, as Case.graph() gives it, with inputs."""
        if isinstance(graph, PrimGraph):
            return cls(
                level, graph.graph, tuple(inputs), graph.role, graph.symbols, {given.name: given for given in graph.inputs}
            )
        return cls(level, graph.graph, tuple(inputs))

    @property
    def placeholders(self) -> list[fx.Node]:
        """The input nodes in order."""
        return [n for n in self.graph.nodes if n.op == "placeholder"]

    @property
    def calls(self) -> list[fx.Node]:
        """What is called, in order."""
        return [n for n in self.graph.nodes if n.op in ("call_function", "call_method")]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What the graph returns."""
        value = self.graph.output_node().args[0]
        return tuple(value) if isinstance(value, (tuple, list)) else (value,)

    def prims(self) -> PrimGraph:
        """As a PrimGraph."""
        inputs = [self.flags.get(n.name, InputSpec(n.name, n.meta["spec"])) for n in self.placeholders]
        return PrimGraph(self.graph, tuple(inputs), self.role, self.symbols)

    def module(self) -> fx.GraphModule:
        """Of a captured graph, as capture gives it."""
        return fx.GraphModule({}, self.graph)

    def text(self) -> str:
        """Read back by Case.graph()."""
        return print_captured(self.graph) if self.level == "captured" else self.prims().text()

    def case(self, like: Case) -> Case:
        """As a case, with the facts of another."""
        return like.replace(level=self.level, program=self.text(), inputs=self.inputs, texts={})

    def values(
        self,
        inputs: Sequence[Any] | None = None,
        copies: bool = False,
        known: Mapping[str, Any] | None = None,
        drawn: dict[str, Any] | None = None,
        watch: StepTimes | None = None,
    ) -> dict[fx.Node, Any]:
        """What each node gives, run one after the other by eager kernels.

        Args:
            copies: as they are when they are made, whatever is written later.
            known: what nodes of these names give.
            drawn: receives what nodes give that draw random numbers.
            watch: sees each call begin and end, by its number.
        """
        given = copied(self.inputs) if inputs is None else list(inputs)
        placeholders = self.placeholders
        found: dict[fx.Node, Any] = dict(zip(placeholders, given, strict=True))
        kept = dict(found)
        specs = [n.meta.get("spec") for n in placeholders]
        symbols = bind_symbols(specs, given) if self.level != "captured" else {}
        for number, node in enumerate(self.calls):
            before = _generators() if drawn is not None else []
            if watch is not None:
                watch.line_begins(number)
            if known is not None and node.name in known:
                found[node] = known[node.name]
            elif node.op == "call_method":
                args, kwargs = resolve(node.args, found, symbols), resolve(node.kwargs, found, symbols)
                found[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            else:
                found[node] = call(node, found, symbols)
                if self.level == "prim":
                    found[node] = laid_out(found[node], node.meta.get("spec"), symbols)
            if watch is not None:
                watch.line_ends(number)
            kept[node] = as_leaf(found[node]) if copies else found[node]
            if drawn is not None and any(not torch.equal(a, b) for a, b in zip(before, _generators(), strict=True)):
                drawn[node.name] = _wider_value(found[node])
        if copies:
            kept.update(zip(placeholders, self.inputs, strict=True))
            return kept
        found[self.graph.output_node()] = resolve(self.outputs, found, symbols)
        return found

    def run(self, inputs: Sequence[Any] | None = None, known: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """The outputs, by eager kernels."""
        return tuple(self.values(inputs, known=known)[self.graph.output_node()])

    @property
    def coarsest(self) -> float:
        """The largest step, relative to 1, of the floating dtypes in the graph."""
        specs = [n.meta.get("spec") for n in self.graph.nodes]
        return max((torch.finfo(s.dtype).eps for s in specs if isinstance(s, TensorSpec) and _is_float(s.dtype)), default=0.0)

    def wider(self) -> Program:
        """The same in float64: inputs, and dtypes that calls name."""
        graph = fx.Graph()
        done: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            done[node] = made = copy_node(graph, node, done.__getitem__)
            made.args, made.kwargs = _wider(made.args), _wider(made.kwargs)
            if "spec" in made.meta:
                made.meta["spec"] = _wider(made.meta["spec"])
            if made.op == "call_method" and made.target in NARROWING:
                made.target = "double"
        inputs = [_wider_value(value) for value in copied(self.inputs)]
        flags = {name: dataclasses.replace(given, spec=_wider(given.spec)) for name, given in self.flags.items()}
        return dataclasses.replace(self, graph=graph, inputs=tuple(inputs), flags=flags)

    def cut(self, kept: Collection[fx.Node], outputs: Sequence[fx.Node], values: Mapping[fx.Node, Any]) -> Program | None:
        """A program of some of the calls that gives these nodes; what they read of others is an input with the value that it had. None where
        such a value cannot be an input, as a tuple cannot."""
        inside = _needed(set(kept), outputs)
        read = {n for node in inside for n in node.all_input_nodes} | set(outputs)
        given = [n for n in self.graph.nodes if n in read and n not in inside]
        sizes = [
            n for n in self.placeholders if n not in read and isinstance(n.meta.get("spec"), SizeSpec)
        ]  # symbols are read from them
        graph = fx.Graph()
        done: dict[fx.Node, fx.Node] = {}
        inputs: list[Any] = []
        for node in [n for n in self.graph.nodes if n in given or n in sizes]:
            if not isinstance(values[node], (torch.Tensor, int, float, bool, type(None))):
                return None
            done[node] = made = graph.placeholder(node.name)
            made.meta.update({k: v for k, v in node.meta.items() if k != "origin"})
            inputs.append(values[node])
        for node in self.graph.nodes:
            if node in inside:
                done[node] = copy_node(graph, node, done.__getitem__)
        graph.output(tuple(done[n] for n in outputs))
        return dataclasses.replace(self, graph=graph, inputs=tuple(copied(inputs)))

    def live(self, calls: Collection[fx.Node], values: Mapping[fx.Node, Any]) -> list[fx.Node]:
        """Those of these calls whose values are tensors that the rest of the graph, or its caller, reads; writes to inputs, which nobody reads.
        Memory without values is none of them: it differs from run to run."""
        outside = [n for n in self.graph.nodes if n not in calls]
        read = {n for node in outside for n in node.all_input_nodes}
        return [
            n
            for n in calls
            if isinstance(values[n], torch.Tensor) and (n in read or not n.users) and "empty" not in str(n.target)
        ]


def _needed(kept: set[fx.Node], outputs: Sequence[fx.Node]) -> set[fx.Node]:
    """Those of the kept calls that outputs are computed from, and those that nothing reads, which write to memory."""
    waiting = [n for n in kept if n in outputs or not n.users]
    found: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node in kept and node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def is_part(node: fx.Node) -> bool:
    """Whether a node takes one of several results of another: it stays with that one."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and isinstance(source.meta.get("spec"), tuple)


def copied(values: Sequence[Any]) -> list[Any]:
    """Tensors in memory of their own, which those that shared some share; leaves that ask for gradients where they did. Raises CaseError for
    tensors of wrapper subclasses, which have no memory."""
    memory: dict[int, torch.UntypedStorage] = {}
    found: list[Any] = []
    for value in values:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            found.append(value)
            continue
        if is_wrapper(type(value)):
            raise CaseError(f"a {type(value).__name__} is a tensor of a wrapper subclass, whose code no case has")
        storage = value.untyped_storage()
        if storage.data_ptr() not in memory or not storage.nbytes():
            memory[storage.data_ptr()] = storage.clone()
        with torch.no_grad():
            plain = value.detach()
            made = torch.empty(0, dtype=plain.dtype, device=plain.device)
            made.set_(memory[storage.data_ptr()], plain.storage_offset(), plain.shape, plain.stride())
            made = made.conj() if plain.is_conj() else made
        found.append(made.requires_grad_(value.requires_grad))
    return found


def laid_out(value: Any, spec: Any, symbols: Mapping[Any, int]) -> Any:
    """With the strides of its spec, which prims leave to it and kernels of the library rely on."""
    if isinstance(value, tuple) and isinstance(spec, tuple):
        return tuple(laid_out(v, s, symbols) for v, s in zip(value, spec, strict=True))
    if not isinstance(value, torch.Tensor) or not isinstance(spec, TensorSpec) or not value.numel():
        return value
    strides = tuple(s if isinstance(s, int) else s.evaluate(symbols) for s in spec.strides)
    if value.stride() == strides:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def as_leaf(value: Any) -> Any:
    """A copy of a tensor, or of those in a tuple, that is nobody's result."""
    if isinstance(value, (tuple, list)):
        return tuple(map(as_leaf, value))
    if not isinstance(value, torch.Tensor):
        return value
    return copied([value])[0]


def _wider(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if isinstance(value, TensorSpec):
        return value.replace(dtype=_wider(value.dtype))
    if isinstance(value, dict):
        return {k: _wider(v) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(_wider, value))
    return value


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _generators() -> list[torch.Tensor]:
    """The states of those that a program draws from without naming one."""
    states = [torch.get_rng_state()]
    return states + torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else states


def _wider_value(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype not in WIDER:
        return value
    with torch.no_grad():
        memory = torch.empty(0, dtype=value.dtype, device=value.device).set_(value.untyped_storage())
        wide = memory.to(WIDER[value.dtype]).as_strided(value.shape, value.stride(), value.storage_offset())
    return wide.requires_grad_(value.requires_grad)


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Draws are the same in each such block, and the program's generators are afterwards where they were."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
        torch.manual_seed(0)
        yield
