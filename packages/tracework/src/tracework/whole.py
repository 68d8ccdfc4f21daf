"""Functions compiled as a whole, for arguments like those given: what tracework.aot_compile does.

Capture gives one graph, its inputs and the result as data; aotautograd its functional form and calling convention; inductor an artifact; the
runtime what its kernels are built to. Here they become the contents of a tracework_runtime.Program. What a program outside of this process
cannot have is refused, with the line that needs it.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import tracework_aotautograd as aotautograd
import tracework_capture as capture
import tracework_runtime as runtime
from tracework_capture import sources
from tracework_runtime.device import cpu, cuda
from tracework_runtime.program import values
from tracework_runtime.program.checks import is_autocast_on, names_of, shown_path
from tracework_runtime.program.program import Contents
from tracework_runtime.program.target import facts_of_machine
from tracework_runtime.program.weights import described

from . import _torch, passes
from .assemble import GraphCompiler, Stage, aot_options
from .compiled_module import entry_function
from .entry_store import check_compiler, runtime_options
from .errors import CannotCarry, CompileError, InvalidArgument, UnknownName
from .observe import Observe
from .options import Options
from .torch_shapes import Shapes, given_shapes, ones

log = logging.getLogger("tracework.whole")
Where = tuple[Any, ...]
_NEUTRAL = {"inference_mode": False, "any_autocast": False, "function_modes": 0, "dispatch_modes": 0, "jit_trace": False}
"""States of torch that a program is compiled under."""
NATIVE = "native"
TARGETS: Mapping[str, cpu.Level | None] = {NATIVE: None, **cpu.LEVELS, **{f"sm_{n}": None for n in cuda.MOST_SHARED}}
"""What a program can be compiled for: this machine's CPU or a level of CPUs, GPUs of a compute capability."""


def compile_whole(
    function: Callable[..., Any],
    examples: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
    options: Options,
    observe: Observe,
    *,
    dynamic: bool | None = None,
    dynamic_shapes: Any = None,
    shapes_spec: Any = None,
    known: Sequence[Shapes] | None = None,
    targets: Sequence[str] = (NATIVE,),
) -> runtime.Program:
    """A program with an entry for each example, (args, kwargs), and for sizes of 1 that `dynamic_shapes` lets in. See aot_compile and compile
    for the others. known: instead of them, what is open of each example."""
    if isinstance(targets, str) or not targets:
        raise InvalidArgument(f"aot_compile(): targets= takes several names, as in targets=('avx2', 'avx512'), not {targets!r}.")
    targets = tuple(dict.fromkeys(targets))
    unknown = next((name for name in targets if name not in TARGETS), None)
    if unknown is not None:
        raise UnknownName("target", str(unknown), TARGETS)
    if options.fallback_by_default:
        raise InvalidArgument("aot_compile(): mode='lite' compiles no kernels. Leave it out.")
    if options.cxx or not torch.cuda.is_available():
        check_compiler(options)
    declared = None
    if shapes_spec is not None:
        target = function.forward if isinstance(function, torch.nn.Module) else function
        try:
            declared = capture.declared_shapes(shapes_spec, target, through=True)
        except capture.ControlMisuse as error:
            raise InvalidArgument(str(error)) from error

    capabilities: list[Any] = [int(name.removeprefix("sm_")) for name in targets if name.startswith("sm_")] or [None]
    levels = [TARGETS[name] for name in targets if not name.startswith("sm_")] or [None]
    made: list[tuple[dict[str, Any], dict[str, bytes]]] = []
    weights: dict[str, torch.Tensor] = {}
    for number, level in enumerate(levels):
        maker = _Maker(function, options, observe, number)
        with cpu.assumed(level):
            for place, (args, kwargs) in enumerate(examples):
                maker.check(args, kwargs)
                shapes = given_shapes(dynamic_shapes, maker.signature, args, kwargs) if known is None else known[place]
                if declared is not None:
                    shapes.declared = dict(declared)
                maker.add(args, kwargs, dynamic, shapes)
                for smaller in ones(shapes, args, kwargs):
                    maker.add_if_possible(*smaller, dynamic, shapes)
            made += [maker.build(capability) for capability in capabilities]
        weights.update(maker.weights)
    # of those that fit a machine, the one with the most instructions comes first
    made.sort(key=lambda target: -len(target[0]["machine"]["instructions"]))
    members = {name: data for _, some in made for name, data in some.items()}
    return maker.program([target for target, _ in made], members, weights)


class _Maker:
    """Makes one target of the program of a function."""

    def __init__(self, function: Callable[..., Any], options: Options, observe: Observe, number: int) -> None:
        self._function, self._number = function, number
        self._options, self._observe = options, observe
        self.signature = _signature(function)
        self._entry = entry_function(function)
        self._place = getattr(self._entry, "__tracework_place__", "") or getattr(function, "__qualname__", repr(function))
        self._stage = Stage(observe, options.progress)
        self._compiler = GraphCompiler(options, self._stage)
        self._entries: list[dict[str, Any]] = []
        self._artifacts: list[runtime.Artifact] = []
        self._weights: dict[str, torch.Tensor] = {}

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises InvalidArgument for arguments that do not fit. They stay as they are given: decorators may tell the difference."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(f"aot_compile(): the example arguments do not fit {self._place}: {error}.") from error

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: bool | None, shapes: Shapes) -> None:
        """An entry for such arguments."""
        self._demand_neutral_state()
        with torch.no_grad(), _marked(shapes):
            call, made = self._captured(args, kwargs, dynamic, shapes)
        described_call = _Call(call, self._function, args, kwargs, self._weights, self.signature)
        entry = described_call.entry(made, len(self._artifacts), f"constants.{self._number}.{len(self._artifacts)}")
        if described_call.refused:
            raise CannotCarry(self._place, described_call.refused)
        self._entries.append({**entry, "cudagraphs": self._options.cudagraphs})
        self._artifacts.append(made.artifact)

    def add_if_possible(self, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: bool | None, shapes: Shapes) -> None:
        """The same for sizes that nobody has asked for: without them where the function does not take them."""
        kept = dict(self._weights)
        try:
            self.add(args, kwargs, dynamic, shapes)
        except (capture.CaptureError, CannotCarry, CompileError) as error:
            self._weights = kept
            log.info("%s has no entry for a size of 1: %s", self._place, error)

    def _demand_neutral_state(self) -> None:
        if torch.is_inference_mode_enabled():
            raise CannotCarry(
                self._place, ["it is compiled under torch.inference_mode(); leave it out, gradients are off anyway"]
            )
        if is_autocast_on(("cpu", "cuda")):
            raise CannotCarry(self._place, ["torch.autocast is on around it; put it inside of the function"])

    def _captured(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: bool | None, shapes: Shapes
    ) -> tuple[capture.WholeCall, _Made]:
        options = capture.CaptureOptions(
            fullgraph=True,
            dynamic=dynamic,
            shapes=shapes.declared,
            places={self._entry.__code__.co_filename: self._place},  # type: ignore[attr-defined]  # a function
            observe=self._observe,
        )
        try:
            call = capture.capture_whole(self._entry, args, kwargs, self._compiled, options)
        except capture.DynamicDimError as error:
            raise InvalidArgument(self._in_names(str(error))) from error
        except capture.NotWhole as error:
            raise CannotCarry(self._place, [self._in_names(f"it {reason}") for reason in error.reasons]) from error
        except aotautograd.Refusal as error:
            raise CannotCarry(self._place, [f"it has {error.reason}{f' (at {error.origin})' if error.origin else ''}"]) from error
        return call, call.compiled

    def _in_names(self, text: str) -> str:
        """A message of capture, which knows arguments by their places."""
        names = names_of(self.signature)
        named = re.sub(r"\bargs\[(\d+)\]", lambda found: shown_path(("args", int(found[1])), names), text)
        return named.replace("declared in shapes_spec", "declared in dynamic_shapes")

    def _compiled(self, gm: torch.fx.GraphModule, examples: list[Any]) -> _Made:
        """The backend of the capture."""
        passes.on_captured(self._options, gm)
        with torch.no_grad():
            graph, spec, signature = aotautograd.inference_program(
                gm,
                examples,
                options=aot_options(self._options, **self._compiler.facts, channels_last=self._options.numerics == "default"),
                observe=lambda stage, product: self._observe("aotautograd", product),
            )
            if signature.write_backs or signature.views:
                raise aotautograd.Refusal("writes to inputs that need a history")
            passes.on_functional(self._options, graph, spec)
            return _Made(self._compiler.artifact(graph, spec), signature)

    def build(self, capability: int | None) -> tuple[dict[str, Any], dict[str, bytes]]:
        """A target, and its members: the kernels of what was added, built for the CPU that is assumed and for GPUs of a capability, or for this
        machine's."""
        options = runtime_options(self._options)
        devices = {"cpu", *(device for entry in self._entries for device in entry["devices"])}
        if capability is not None and devices == {"cpu"}:
            raise InvalidArgument(f"target 'sm_{capability}': {self._place} has no tensors on a GPU. Leave it out.")
        folder = f"targets/{self._number}{'' if capability is None else f'-sm_{capability}'}/"
        members = {f"{folder}artifacts/{n}.twa": artifact.to_bytes() for n, artifact in enumerate(self._artifacts)}
        binaries = self._stage("runtime", runtime.Binaries.of, self._artifacts, options, capability)
        members.update({f"{folder}binaries/{name}": data for name, data in binaries.members().items()})
        machine = facts_of_machine(devices, capability)
        return {"machine": machine, "folder": folder, "entries": self._entries}, members

    def program(
        self, targets: Sequence[Mapping[str, Any]], members: Mapping[str, bytes], weights: Mapping[str, torch.Tensor]
    ) -> runtime.Program:
        """The program with these targets, this one's and others'."""
        module = self._function if isinstance(self._function, torch.nn.Module) else None
        manifest = {
            "name": getattr(self._function, "__qualname__", type(self._function).__qualname__),
            "targets": targets,
            "parameters": [
                [p.name, p.kind.name, [] if p.default is p.empty else [_default(p.default)]]
                for p in self.signature.parameters.values()
            ],
            "weights": described(weights)[0],
            "names": sorted(module.state_dict()) if module is not None else [],
            "aliases": _aliases(module, weights),
        }
        held = {name: tensor.detach() for name, tensor in weights.items()}
        return runtime.Program.fitting(Contents(json.loads(json.dumps(manifest)), members, held), runtime_options(self._options))

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:
        """What the entries read beside arguments."""
        return self._weights


class _Made:
    """What the backend makes of a graph."""

    def __init__(self, artifact: runtime.Artifact, signature: aotautograd.Signature) -> None:
        self.artifact, self.signature = artifact, signature


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        found = inspect.signature(target)
    except (TypeError, ValueError):
        kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        found = inspect.Signature([inspect.Parameter(name, kind) for name, kind in zip(("args", "kwargs"), kinds)])
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return inspect.Signature(bare)


def _default(value: Any) -> Any:
    try:
        return values.constant(value)
    except values.NotData:
        return None


def _aliases(module: torch.nn.Module | None, weights: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Further names of the weights in the module: name -> the one that it is kept under."""
    if module is None:
        return {}
    by_id = {id(tensor): name for name, tensor in weights.items()}
    return {name: by_id[id(t)] for name, t in _tensors_of(module) if id(t) in by_id and by_id[id(t)] != name}


def _tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


@contextmanager
def _marked(shapes: Shapes) -> Iterator[None]:
    """Dims that may change are marked so while the call is captured; marks that tensors had are there afterwards."""
    before = [(tensor, dict(tensor.__dict__)) for tensor, _ in shapes.maybe]
    try:
        for tensor, dims in shapes.maybe:
            capture.maybe_mark_dynamic(tensor, dims)
        yield
    finally:
        for tensor, attributes in before:
            tensor.__dict__.clear()
            tensor.__dict__.update(attributes)


class _Call:
    """What was captured, as data. refused: what cannot be carried, each with its line and what to do."""

    def __init__(
        self,
        call: capture.WholeCall,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        weights: dict[str, torch.Tensor],
        signature: inspect.Signature,
    ) -> None:
        self._call, self._function, self._weights = call, function, weights
        self._names = names_of(signature)
        self._with_defaults = [p.name for p in signature.parameters.values() if p.default is not p.empty]
        self._given = {"args": args, "kwargs": kwargs}
        self.refused: list[str] = []
        guards = list(call.graph.guards)
        self._modules = {g.source for g in guards if g.kind == "TYPE" and _is_module(g.payload)}
        self._facts = {path: g.payload for g in guards if g.kind == "TENSOR" and (path := self._path(g.source)) is not None}
        self._looked_at = {path for g in guards for path in self._paths_of(g)}
        self._symbols = _symbol_sources(call.graph.symbols)

    def entry(self, made: _Made, number: int, constants: str) -> dict[str, Any]:
        """The entry of the manifest, whose artifact has this number; its weights are put with the others, its constants under these names."""
        graph, signature, artifact = self._call.graph, made.signature, made.artifact
        inputs = [self._input(place, binding) for place, binding in enumerate(graph.inputs)]
        for place, tensor in enumerate(signature.constants):
            inputs.append(["weight", f"{constants}.{place}"])
            self._weights[f"{constants}.{place}"] = tensor
        for guard in graph.guards:
            self._consider(guard)
        symbols = {name: where for name, source in self._symbols.items() if (where := self._number(source)) is not None}
        conditions = {
            f"{r.condition}": r.origin
            for r in [*graph.symbols.range_conditions(), *graph.symbols.conditions]
            if {str(s) for s in r.condition.free_symbols} <= symbols.keys()
        }
        conditions.update({text: "" for text in artifact.conditions if set(compile(text, "", "eval").co_names) <= symbols.keys()})
        written = dict.fromkeys(sorted(signature.mutated_in_graph), 0) | dict(signature.newer_versions)
        return {
            "artifact": number,
            "inputs": inputs,
            "arguments": [self._pattern(self._given[root], (root,)) for root in ("args", "kwargs")],
            "symbols": symbols,
            "conditions": [[text, origin] for text, origin in conditions.items()],
            "same": self._same(),
            "places": [[inputs[s][1], o, p] for s, o, p in signature.places if inputs[s][0] == "argument"],
            "state": {
                "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
                "deterministic": torch.are_deterministic_algorithms_enabled(),
            },
            "devices": sorted(artifact.devices),
            "written": [[slot, count] for slot, count in written.items()],
            "versions": [list(pair) for pair in signature.output_versions],
            "outputs": [self._output(info) for info in signature.outputs],
            "result": self._result(),
        }

    # where things are read

    def _path(self, source: Any) -> Where | None:
        """The path of a part of the arguments; None for everything else."""
        chain = list(_chain(source))
        if not isinstance(chain[0], sources.Local) or chain[0].name not in self._given:
            return None
        path: list[Any] = [chain[0].name]
        value: Any = self._given[chain[0].name]
        for step in chain[1:]:
            key = next((getattr(step, name) for name in ("index", "key", "name") if hasattr(step, name)), None)
            if key is None:
                return None
            how = values.object_kind(value)
            parts = values.parts_of(value, how) if how is not None else None
            if parts is not None:
                key = list(parts)[key] if isinstance(key, int) and key not in parts else key
                if key not in parts:
                    return None
                value = parts[key]
            elif type(value) in (tuple, list, dict, torch.Size):
                try:
                    key = key % len(value) if isinstance(key, int) and type(value) is not dict else key
                    value = value[key]
                except (LookupError, TypeError):
                    return None
            elif isinstance(value, torch.nn.Module) and isinstance(key, str) and hasattr(value, key):
                value = getattr(value, key)
            else:
                return None
            path.append(key)
        return tuple(path)

    def _paths_of(self, guard: Any) -> Iterator[Where]:
        """Paths of the arguments that a guard looks at: of the nearest part that has one."""
        for source in (
            guard.payload if guard.kind in ("SAME", "DISTINCT") and isinstance(guard.payload, tuple) else (guard.source,)
        ):
            for step in reversed(list(_chain(source))):
                if (path := self._path(step)) is not None:
                    yield path
                    break

    def _input(self, place: int, binding: Any) -> list[Any]:
        source = binding.source
        if binding.role in ("size", "stride", "offset"):
            where = self._number(source)
            if where is None:
                self._refuse(f"it takes {self._said(source)} for a number that changes", "pass it as an argument")
                return ["symbol", ""]
            name = next((name for name, known in self._symbols.items() if known == source), None) or f"input {place}"
            self._symbols.setdefault(name, source)
            return ["symbol", name]
        path = self._path(source)
        example = self._call.graph.example_inputs[place]
        if path is not None:
            return ["argument", list(path)]
        if not isinstance(example, torch.Tensor):
            self._refuse(f"it takes {self._said(source)} for a number that changes", "pass it as an argument")
        elif type(example) not in (torch.Tensor, torch.nn.Parameter) or example.layout is not torch.strided:
            self._refuse(
                f"{self._said(source)} is a {type(example).__name__} of layout {example.layout}", "use plain tensors for weights"
            )
        elif not self._is_held(source):
            self._refuse(
                f"it takes the tensor {self._said(source)}, which a file cannot follow",
                "pass it as an argument, or make it a buffer of a module",
            )
        else:
            return ["weight", self._weight(source, example)]
        return ["weight", ""]

    def _weight(self, source: Any, tensor: torch.Tensor) -> str:
        if isinstance(self._function, torch.nn.Module):
            name = next((name for name, held in _tensors_of(self._function) if held is tensor), None)
        else:
            name = None
        name = name or re.sub(r"^self\.", "", self._said(source))
        self._weights[name] = tensor
        return name

    def _is_held(self, source: Any) -> bool:
        """Whether it lies in the module that is compiled, or in one that the function holds."""
        chain = list(_chain(source))
        return any(isinstance(step, sources.ModuleEntry) or step in self._modules for step in chain) or (
            isinstance(self._function, torch.nn.Module) and isinstance(chain[0], sources.Closure)
        )

    def _number(self, source: Any) -> list[Any] | None:
        """["size", path, dim] and the like; None for what is read elsewhere."""
        if isinstance(source, sources.TensorSize | sources.TensorStride):
            path, how = self._path(source.base), "size" if isinstance(source, sources.TensorSize) else "stride"
            return None if path is None else [how, list(path), source.dim]
        if isinstance(source, sources.TensorOffset):
            path = self._path(source.base)
            return None if path is None else ["offset", list(path)]
        path = self._path(source)
        return None if path is None else ["value", list(path)]

    def _said(self, source: Any) -> str:
        """A source as the program has it: by the name of a global, a closure's variable or an argument."""
        path = self._path(source)
        if path is not None:
            return self._shown_path(path)
        text = str(source)
        for step in _chain(source):
            if isinstance(step, sources.DictItem) and isinstance(step.base, sources.Const):
                text = text.replace(str(step), str(step.key), 1)
            elif isinstance(step, sources.DefaultArg) and str(step.base) == "self":
                text = text.replace(str(step), f"{self._with_defaults[step.index]}'s default", 1)
            elif isinstance(step, sources.CellContents) and str(step.base) == "self":
                free = getattr(getattr(self._function, "__code__", None), "co_freevars", ())
                text = text.replace(str(step), free[step.index], 1) if step.index < len(free) else text
        return text

    def _shown_path(self, path: Where) -> str:
        return shown_path(path, self._names)

    # what must hold

    def _refuse(self, what: str, cure: str, origin: str = "") -> None:
        self.refused.append(f"{what}{f' (at {origin})' if origin else ''}; {cure}")

    def _consider(self, guard: Any) -> None:
        """Refuses a guard on what a file cannot follow. What programs hold in code, modules and classes is part of what is compiled."""
        if guard.kind == "STATE":
            name = guard.source.name
            if name in _NEUTRAL and guard.payload != _NEUTRAL[name]:
                self._refuse(
                    f"it is compiled while torch's state {name} is {guard.payload}",
                    "call aot_compile() outside of it",
                    guard.origin,
                )
            return
        if guard.kind in ("DATA", "DATA_PTR"):
            self._refuse(
                f"it depends on what {self._said(guard.source)} holds", "make Python numbers of what it reads", guard.origin
            )
        if (
            guard.kind == "CONSTANT"
            and self._path(guard.source) is None
            and (what := self._variable(guard.source, guard.origin)) is not None
        ):
            self._refuse(
                f"it reads {what} {self._said(guard.source)}, which is {guard.payload!r} now and which a file cannot follow",
                "pass it as an argument, or keep it on the module",
                guard.origin,
            )

    def _variable(self, source: Any, origin: str) -> str | None:
        """ "the global" or "the closure's", for data of the program that is neither an argument nor held by a module; else None."""
        if self._is_held(source) or _is_installed(origin.partition(":")[0]):  # a closure's variable is read by its own function
            return None
        chain = _chain(source)
        if any(isinstance(step, sources.DefaultArg | sources.KwDefaultArg) for step in chain):
            return None
        for step in chain:
            if isinstance(step, sources.CellContents) or (isinstance(step, sources.Closure) and step.name != "self"):
                return "the closure's variable"
            if isinstance(step, sources.Global):
                return "the global"
            if isinstance(step, sources.DictItem) and isinstance(step.base, sources.Const) and _is_of_program(step.base.value):
                return "the global"
        return None

    def _same(self) -> list[list[list[Any]]]:
        found = []
        for guard in self._call.graph.guards:
            if guard.kind == "SAME":
                paths = [self._path(guard.source), self._path(guard.payload)] if not isinstance(guard.payload, tuple) else []
                if len(paths) == 2 and paths[0] is not None and paths[1] is not None:
                    found.append([list(paths[0]), list(paths[1])])
                elif any(path is not None for path in paths):
                    self._refuse(
                        f"{self._said(guard.source)} is {self._said(guard.payload)}, which the program holds",
                        "leave the argument out",
                        guard.origin,
                    )
        return found

    def _pattern(self, value: Any, path: Where) -> Any:
        """The tree of what arguments have to be."""

        def leaf(part: Any, at: Where) -> Any:
            if not self._is_looked_at(at):
                return ["any"]
            if isinstance(part, torch.Tensor):
                return ["tensor", self._tensor(part, at)]
            if at in self._numbers:
                return ["any"]
            if isinstance(part, torch.nn.Module):
                return ["module", *self._module(at)]
            if values.object_kind(part) is None and type(part) not in (tuple, list, dict, torch.Size):
                try:
                    values.constant(part)
                except values.NotData:
                    self._refuse(
                        f"it looks into {self._shown_path(at)}, a {type(part).__qualname__}",
                        "pass its tensors and numbers as arguments",
                    )
                    return ["any"]
            return None

        return values.tree(value, leaf, path)

    def _module(self, path: Where) -> tuple[list[Any], list[Any]]:
        """What a module that is an argument has to have: its tensors that are read, and its constants, by their paths in it."""
        below = [(guard, at) for guard in self._call.graph.guards if (at := self._path(guard.source)) and at[: len(path)] == path]
        tensors = {at: guard.payload for guard, at in below if guard.kind == "TENSOR"}
        constants = []
        for guard, at in below:
            if guard.kind == "CONSTANT":
                try:
                    constants.append([list(at[len(path) :]), values.constant(guard.payload)])
                except values.NotData as error:
                    self._refuse(f"it looks at {self._shown_path(at)}, {error}", "keep it out of the function", guard.origin)
        return [[list(at[len(path) :]), self._tensor(self._part(at), at)] for at in tensors], constants

    def _part(self, path: Where) -> Any:
        return values.getter(path)(self._given)

    @property
    def _numbers(self) -> set[Where]:
        """Arguments that are numbers which may change."""
        return {tuple(where[1]) for s in self._symbols.values() if (where := self._number(s)) is not None and where[0] == "value"}

    def _is_looked_at(self, path: Where) -> bool:
        read = {tuple(path_) for b in self._call.graph.inputs if (path_ := self._path(b.source)) is not None}
        return len(path) == 1 or any(known[: len(path)] == path for known in self._looked_at | read | self._numbers)

    def _tensor(self, tensor: torch.Tensor, path: Where) -> dict[str, Any]:
        facts = self._facts.get(path)
        dims = {
            w[2]: name
            for name, s in self._symbols.items()
            if (w := self._number(s)) is not None and w[:2] == ["size", list(path)]
        }
        sizes = [None if d in dims else int(n) for d, n in enumerate(tensor.shape)]
        if facts is not None:
            sizes = list(facts.sizes)
        shown = ", ".join(self._size_text(dims.get(d)) if n is None else str(n) for d, n in enumerate(sizes))
        dtype = str(tensor.dtype).removeprefix("torch.")
        strides = None if facts is None or facts.strides is None else list(facts.strides)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            self._refuse(
                f"{self._shown_path(path)} is a {type(tensor).__name__} of layout {tensor.layout}", "pass a plain tensor"
            )
        return {
            "dtype": dtype,
            "device": str(tensor.device),
            "sizes": sizes,
            "strides": strides,
            "requires_grad": tensor.requires_grad,
            "shown": f"{dtype}[{shown}] on {tensor.device}",
        }

    def _size_text(self, name: str | None) -> str:
        """The range of a size: `2 to 64`."""
        symbols = self._call.graph.symbols
        low, high = next((limits for s, limits in symbols.ranges.items() if str(s) == name), (None, None))
        return f"{2 if low is None else low} to {high}" if high is not None else f"{2 if low is None else low} or more"

    # results

    def _output(self, info: Any) -> dict[str, Any]:
        try:
            steps = [self._step(step) for step in info.steps]
            constant = values.constant(info.constant)
        except values.NotData as error:
            self._refuse(f"a result is {error}", "give tensors, numbers and containers of them")
            steps, constant = [], None
        return {"kind": info.kind.value, "slot": info.slot, "steps": steps, "constant": constant}

    def _step(self, step: Any) -> dict[str, Any]:
        if step.data is not None or not _torch.is_operator(step.target):
            raise values.NotData(f"a view that is made by {step.target}")

        def leaf(value: Any, path: Where) -> Any:
            slot = getattr(value, "slot", None)
            return None if slot is None else ["output", slot]

        return {
            "operator": str(step.target),
            "args": [values.tree(arg, leaf) for arg in step.args],
            "kwargs": {name: values.tree(arg, leaf) for name, arg in step.kwargs},
            "index": step.index,
        }

    def _result(self) -> Any:
        def leaf(value: Any, path: Where) -> Any:
            if isinstance(value, capture.Slot):
                return [value.kind, list(value.place) if value.kind == "argument" else value.place]
            if isinstance(value, int) and value >= capture.Slot("", 0).real:
                raise values.NotData("a number that is computed outside of the graph")
            return None

        try:
            return values.tree(self._call.result, leaf)
        except values.NotData as error:
            self._refuse(f"its result has {error}", "give tensors, numbers and containers of them")
            return ["constant", None]


def _chain(source: Any) -> list[Any]:
    return sources.ancestors(source)


def _is_module(payload: Any) -> bool:
    held = payload() if callable(payload) and not isinstance(payload, type) else payload
    return isinstance(held, type) and issubclass(held, torch.nn.Module)


def _symbol_sources(table: Any) -> dict[str, Any]:
    return {str(symbol): origin for symbol, origin in table.origins.items() if isinstance(origin, sources.Source)}


def _is_installed(file: str) -> bool:
    """Whether a file is of Python or of an installed package, whose variables count as code."""
    path = Path(file).absolute()
    return file.startswith("<frozen") or str(path).startswith(_OF_PYTHON) or not _INSTALLED.isdisjoint(path.parts)


_OF_PYTHON = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, in whatever environment they are."""


def _is_of_program(namespace: Any) -> bool:
    """Whether a dict is the namespace of a module of the program, and not of an installed package."""
    if not isinstance(namespace, dict) or not isinstance(namespace.get("__name__"), str):
        return False
    module = sys.modules.get(namespace["__name__"])
    file = getattr(module, "__file__", None) or namespace.get("__file__")
    return getattr(module, "__dict__", None) is namespace and (file is None or not _is_installed(file))
